"""cuDNN convolutions through its frontend: an operation graph and a plan for each shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final

from graphopt.errors import ExecutionError, MissingDependencyError
from graphopt.frozen import dataclass
from graphopt.kernels.cuda.machine import CUDNN_EXTRA, has_cudnn
from graphopt.runtime.device import Allocation, Run
from graphopt.runtime.library_calls import Convolution
from graphopt.runtime.steps import Words

WORKSPACE: Final = 1 << 30
"""Bytes that a plan may use besides, at most."""
_TYPES: Final = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}
"""cuDNN's names for the types of elements."""
_OTHER_RESULTS: Final = ("NONDETERMINISTIC", "REDUCED_PRECISION_REDUCTION")
"""cuDNN's notes on plans that give other results from call to call, or add up in half floats."""
_ROUNDING: Final = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS")
"""Those on plans that round operands of float32."""
LEAST: Final = 2
"""Axes that images have for cuDNN, at least."""


class CUDNNError(Exception):
    """A plan of cuDNN's could not be run."""


@dataclass(frozen=True, slots=True)
class _CudnnPlan:
    """A graph with the plan that cuDNN made of it, its tensors with what they are, and memory for the plan."""

    graph: Any
    placed: Sequence[tuple[Any, str]]
    workspace: Allocation | None

    def run(self, handle: Any, addresses: Mapping[str, int]) -> None:
        """Run it on tensors at these addresses; raises ``CUDNNError``."""
        pack = {tensor: addresses[name] for tensor, name in self.placed}
        try:
            self.graph.execute(pack, 0 if self.workspace is None else self.workspace.address, handle=handle)
        except RuntimeError as error:
            raise CUDNNError(str(error)) from None


class Dnn:
    """cuDNN on a stream. Plans have their workspaces of ``allocate``, and share them: they run one after another."""

    def __init__(self, stream: int, allocate: Callable[[int], Allocation]) -> None:
        if not has_cudnn():
            raise MissingDependencyError(
                f"cuDNN or its frontend is not installed, and computes convolutions: {CUDNN_EXTRA}"
            )
        import cudnn

        self._cudnn, self._allocate = cudnn, allocate
        self._handle = cudnn.create_handle()
        cudnn.set_stream(handle=self._handle, stream=stream)
        self._workspace: tuple[int, Allocation | None] = 0, None

    def convolution(self, function: Convolution, args: Words) -> Run:
        """A run of a convolution with the words in ``args``. Plans are made once for each shape, and live as long as
        the run, not less: their code runs wherever they were captured."""
        plans: dict[tuple[int, ...], Sequence[_CudnnPlan]] = {}

        def run() -> None:
            words = args.tolist()
            given = dict(zip(function.params, words, strict=True))
            sizes = tuple(words[function.params.index("batch") :])
            if not given["batch"] * given["filters"] * prod(given[f"made_{a}"] for a in range(function.rank)):
                return
            if sizes not in plans:
                plans[sizes] = self._planned(function, given)
            for plan in plans[sizes]:
                plan.run(self._handle, given)

        return run

    def _planned(self, function: Convolution, given: Mapping[str, int]) -> Sequence[_CudnnPlan]:
        """One plan for all, or where cuDNN has none, one for the convolution, and one for what is done to it."""
        whole = Description(self._cudnn, self._handle, function, given)
        whole.finish(whole.convolve())
        try:
            return (self._plan(whole, function),)
        except self._cudnn.cudnnGraphNotSupportedError as error:
            refused = error
        try:
            if not (function.has_bias or function.has_residual or function.epilogue):
                raise refused
            first, then = (Description(self._cudnn, self._handle, function, given) for _ in range(2))
            first.output(first.convolve())
            then.finish(then.tensor("y"))
            return self._plan(first, function), self._plan(then, function)
        except self._cudnn.cudnnGraphNotSupportedError as error:
            what = " x ".join(str(given[f"size_{a}"]) for a in range(function.rank))
            message = " ".join(str(error).split())
            raise ExecutionError(f"cuDNN has no plan for a {function.dtype} convolution of {what}: {message}") from None

    def _plan(self, described: Description, function: Convolution) -> _CudnnPlan:
        graph, modes, notes = described.graph, self._cudnn.heur_mode, self._cudnn.numerical_note
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([modes.A, modes.FALLBACK])
        is_whole = function.dtype == "float32" and not function.tf32
        graph.deselect_numeric_notes([getattr(notes, n) for n in (*_OTHER_RESULTS, *(_ROUNDING if is_whole else ()))])
        graph.deselect_workspace_greater_than(WORKSPACE)
        graph.check_support()
        graph.build_plans()
        return _CudnnPlan(graph, described.placed, self._room(graph.get_workspace_size()))

    def _room(self, size: int) -> Allocation | None:
        """At least so many bytes; that which is there already, if it is enough."""
        if size > self._workspace[0]:
            self._workspace = size, self._allocate(size)
        return self._workspace[1] if size else None


class Description:
    """A graph of operations for cuDNN, and those of its tensors that lie in memory, each with its argument."""

    def __init__(self, cudnn: Any, handle: Any, function: Convolution, given: Mapping[str, int]) -> None:
        self.function, self.given = function, given
        self.placed: list[tuple[Any, str]] = []
        types = cudnn.data_type
        self.dtype = getattr(types, _TYPES[function.dtype])
        self.graph = cudnn.pygraph(
            handle=handle,
            io_data_type=self.dtype,
            intermediate_data_type=types.FLOAT,
            compute_data_type=types.FLOAT,
        )

    def convolve(self) -> Any:
        """The convolution by itself."""
        return self.graph.conv_fprop(
            image=self.tensor("x"),
            weight=self.tensor("w"),
            pre_padding=self._axes("before", 0),
            post_padding=self._after(),
            stride=self._axes("stride", 1),
            dilation=self._axes("dilation", 1),
        )

    def finish(self, value: Any) -> None:
        """Adds the epilogue, in the order for which cuDNN has fused kernels."""
        function, graph = self.function, self.graph
        if function.has_residual:
            value = graph.add(a=value, b=self.tensor("residual", "y"))
        if function.has_bias:
            value = graph.bias(input=value, bias=self.bias())
        if function.epilogue == "relu":
            value = graph.relu(input=value)
        self.output(value)

    def output(self, value: Any) -> None:
        """Let a value be the result."""
        shape, strides = self._lie("y")
        value.set_output(True).set_data_type(self.dtype).set_dim(shape).set_stride(strides)
        self.placed.append((value, "y"))

    def tensor(self, name: str, like: str = "") -> Any:
        """The tensor at the address of this name; ``like``: which lies as another one does."""
        return self._placed(name, *self._lie(like or name))

    def bias(self) -> Any:
        """An element for each channel."""
        ones, filters = [1] * self._rank, self.given["filters"]
        return self._placed("bias", [1, filters, *ones], [filters, 1, *ones])

    def _placed(self, name: str, shape: list[int], strides: list[int]) -> Any:
        tensor = self.graph.tensor(name=name, dim=shape, stride=strides, data_type=self.dtype)
        self.placed.append((tensor, name))
        return tensor

    @property
    def _rank(self) -> int:
        return max(self.function.rank, LEAST)

    def _axes(self, name: str, other: int) -> list[int]:
        """A number of each axis, and ``other`` of those of one element that images have for cuDNN alone."""
        sizes = [self.given[f"{name}_{a}"] for a in range(self.function.rank)]
        return [other] * (self._rank - len(sizes)) + sizes

    def _after(self) -> list[int]:
        """The zeros behind an image."""
        axes = (("made", 1), ("window", 1), ("size", 1), ("before", 0), ("stride", 1), ("dilation", 1))
        numbers = zip(*(self._axes(*axis) for axis in axes), strict=True)
        return [max((m - 1) * s + (w - 1) * d + 1 - n - b, 0) for m, w, n, b, s, d in numbers]

    def _lie(self, name: str) -> tuple[list[int], list[int]]:
        """The shape of a tensor, and the elements from one neighbour to the next."""
        given, outer = self.given, ("filter", "channel") if name == "w" else ("batch", "channel")
        channels = {"x": given["groups"] * given["channels"], "w": given["channels"], "y": given["filters"]}
        sizes = self._axes({"x": "size", "w": "window", "y": "made"}[name], 1)
        strides = [given[f"{name}_{a}"] for a in range(self.function.rank)]
        strides = [sizes[-len(strides)] * strides[0]] * (self._rank - len(strides)) + strides
        first = given["filters" if name == "w" else "batch"]
        return [first, channels[name], *sizes], [*(given[f"{name}_{way}"] for way in outer), *strides]
