"""cuDNN's frontend as far as convolutions go: a stand-in that computes by numpy what the graph it is handed says."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view

DTYPES = {"FLOAT": np.float32, "HALF": np.float16, "BFLOAT16": ml_dtypes.bfloat16}
NOTES = ("NONDETERMINISTIC", "REDUCED_PRECISION_REDUCTION", "TENSOR_CORE", "DOWN_CONVERT_INPUTS")


class NotSupportedError(RuntimeError):
    """What cuDNN raises of a graph of which it has no plan."""


class Tensor:
    """A tensor of a graph: one in memory, or the result of an operation."""

    def __init__(self, compute: Callable[[Any], Any] | None, shape: Sequence[int], strides: Sequence[int] = ()) -> None:
        self.compute, self.shape, self.strides = compute, list(shape), list(strides)
        self.dtype = "FLOAT"
        self.is_output = False

    def set_output(self, is_output: bool) -> Tensor:
        self.is_output = is_output
        return self

    def set_data_type(self, dtype: str) -> Tensor:
        self.dtype = dtype
        return self

    def set_dim(self, shape: Sequence[int]) -> Tensor:
        assert list(shape) == self.shape
        return self

    def set_stride(self, strides: Sequence[int]) -> Tensor:
        self.strides = list(strides)
        return self

    def at(self, address: int) -> Any:
        """The tensor in memory from an address on."""
        assert len(self.strides) == len(self.shape) >= 4
        dtype = np.dtype(DTYPES[self.dtype])
        size = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * (size * dtype.itemsize)).from_address(address))
        return as_strided(memory.view(dtype), self.shape, [s * dtype.itemsize for s in self.strides])


class Graph:
    """A graph of operations; what is called comes in the order in which cuDNN wants it."""

    STEPS = ("validate", "build_operation_graph", "create_execution_plans", "check_support", "build_plans")

    def __init__(self, cudnn: StandIn, **told: Any) -> None:
        assert told.keys() == {"handle", "io_data_type", "intermediate_data_type", "compute_data_type"}
        assert (told["handle"], told["intermediate_data_type"], told["compute_data_type"]) == (7, "FLOAT", "FLOAT")
        self.cudnn = cudnn
        self.ops: list[str] = []
        self.tensors: list[Tensor] = []
        self.done: list[str] = []
        self.without: list[str] = []

    def tensor(self, name: str, dim: list[int], stride: list[int], data_type: str) -> Tensor:
        self.tensors.append(Tensor(None, dim, stride).set_data_type(data_type))
        return self.tensors[-1]

    def _op(self, name: str, shape: Sequence[int], compute: Callable[[Any], Any]) -> Tensor:
        self.ops.append(name)
        self.tensors.append(Tensor(compute, shape))
        return self.tensors[-1]

    def conv_fprop(self, image: Tensor, weight: Tensor, **ways: list[int]) -> Tensor:
        before, after, stride, dilation = (ways[n] for n in ("pre_padding", "post_padding", "stride", "dilation"))
        groups, rest = divmod(image.shape[1], weight.shape[1])
        assert not rest
        assert not weight.shape[0] % groups
        assert min(*before, *after, *(n - 1 for n in (*stride, *dilation))) >= 0
        reach = [(n - 1) * d + 1 for n, d in zip(weight.shape[2:], dilation, strict=True)]
        sizes = zip(image.shape[2:], before, after, reach, stride, strict=True)
        made = [(n + b + a - r) // s + 1 for n, b, a, r, s in sizes]
        rank = len(made)

        def compute(value: Any) -> Any:
            x = np.pad(value(image), [(0, 0), (0, 0), *zip(before, after, strict=True)])
            w = value(weight)
            windows = sliding_window_view(x, reach, axis=tuple(range(2, 2 + rank)))  # type: ignore[call-overload]
            windows = windows[(..., *(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))]
            share, depth = w.shape[0] // groups, w.shape[1]
            axes = [1, *range(2 + rank, 2 + 2 * rank)], [1, *range(2, 2 + rank)]
            parts = [
                np.tensordot(windows[:, g * depth : (g + 1) * depth], w[g * share : (g + 1) * share], axes)
                for g in range(groups)
            ]
            return np.moveaxis(np.concatenate(parts, -1), -1, 1)

        return self._op("conv", [image.shape[0], weight.shape[0], *made], compute)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        assert a.shape == b.shape
        return self._op("add", a.shape, lambda value: value(a) + value(b))

    def bias(self, input: Tensor, bias: Tensor) -> Tensor:
        assert bias.shape == [1, input.shape[1], *[1] * (len(input.shape) - 2)]
        return self._op("bias", input.shape, lambda value: value(input) + value(bias))

    def relu(self, input: Tensor) -> Tensor:
        return self._op("relu", input.shape, lambda value: np.maximum(value(input), 0))

    def __getattr__(self, name: str) -> Any:
        if name not in self.STEPS:
            raise AttributeError(name)
        return lambda *args: self.step(name)

    def step(self, name: str) -> None:
        self.done.append(name)
        assert self.done == list(self.STEPS[: len(self.done)])
        if name == "check_support" and self.cudnn.refuses(self.ops):
            raise NotSupportedError(f"no engine does {' '.join(self.ops)}")

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        assert self.done[-1] == "create_execution_plans"
        self.without += notes

    def deselect_workspace_greater_than(self, size: int) -> None:
        assert size > self.cudnn.workspace

    def get_workspace_size(self) -> int:
        return self.cudnn.workspace

    def execute(self, pack: Mapping[Tensor, int], workspace: int, handle: int) -> None:
        assert self.done == list(self.STEPS)
        assert handle == 7
        if self.cudnn.workspace:
            ctypes.memset(workspace, 0xEE, self.cudnn.workspace)
        (output,) = (t for t in self.tensors if t.is_output)
        assert pack.keys() == {t for t in self.tensors if t.compute is None or t is output}

        def value(tensor: Tensor) -> Any:
            if tensor.compute is not None:
                return tensor.compute(value)
            return tensor.at(pack[tensor]).astype(np.float32)

        output.at(pack[output])[...] = value(output)
        self.cudnn.runs.append(list(self.ops))


class StandIn(ModuleType):
    """The module; ``refuses`` says of which operations there is no plan, ``workspace`` what plans need."""

    cudnnGraphNotSupportedError = NotSupportedError  # noqa: N815
    data_type = SimpleNamespace(**{name: name for name in DTYPES})
    numerical_note = SimpleNamespace(**{name: name for name in NOTES})
    heur_mode = SimpleNamespace(A="A", FALLBACK="FALLBACK")

    def __init__(self, refuses: Callable[[list[str]], bool] = lambda ops: False, workspace: int = 64) -> None:
        super().__init__("cudnn")
        self.refuses, self.workspace = refuses, workspace
        self.graphs: list[Graph] = []
        self.runs: list[list[str]] = []
        self.stream = 0

    def create_handle(self) -> int:
        return 7

    def set_stream(self, handle: int, stream: int) -> None:
        assert handle == 7
        self.stream = stream

    def pygraph(self, **told: Any) -> Graph:
        assert self.stream
        self.graphs.append(Graph(self, **told))
        return self.graphs[-1]


def held(shape: Sequence[int], dtype: Any) -> Any:
    """An array of random numbers."""
    return np.random.default_rng(prod(shape)).standard_normal(shape).astype(dtype)
