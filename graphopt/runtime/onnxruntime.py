"""ONNX Runtime regions: nodes of a program that ONNX Runtime computes, in one session, on the program's own arrays."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphopt.errors import ExecutionError, MissingDependencyError

if TYPE_CHECKING:
    from graphopt.runtime.steps import Array

Place: TypeAlias = tuple[int, tuple[int, ...]]
"""The address and the shape of an array."""


def onnxruntime() -> Any:
    """ONNX Runtime, which tells nobody that it runs. Raises ImportError where it is not installed."""
    import onnxruntime as ort

    ort.disable_telemetry_events()
    return ort


def session_options(threads: int) -> Any:
    """Options of a session on so many threads (0: as many as it likes), which says nothing."""
    options = onnxruntime().SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    return options


def open_session(model: str | bytes, options: Any) -> Any:
    """A session on the CPU of a model's file or bytes; all are opened here. Raises what ONNX Runtime raises where it
    refuses the model: many types, none of them public."""
    return onnxruntime().InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Region:
    """A model of some nodes as a function of arrays, in the order of its inputs. It gives a tuple of its outputs, or
    fills the arrays that are given behind the inputs.

    ONNX Runtime leaves the nodes as they are: what may be rewritten is a matter of the optimizer. Arrays that stay
    where they are from call to call are bound once. Raises ``MissingDependencyError`` where ONNX Runtime is not
    installed, and ``ExecutionError`` where it refuses the model, or what it is called with.
    """

    def __init__(self, model: bytes, threads: int = 1) -> None:
        self.model, self._threads = model, threads
        self._open()

    def _open(self) -> None:
        try:
            options = session_options(self._threads)
        except ImportError:
            raise MissingDependencyError(
                "some nodes of the program run in ONNX Runtime, which is not installed: pip install graphopt[ort]"
            ) from None
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.graph_optimization_level = onnxruntime().GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            self._session = open_session(self.model, options)
        except Exception as error:
            raise ExecutionError(_first_line(error)) from None
        self._inputs = [i.name for i in self._session.get_inputs()]
        self._outputs = [o.name for o in self._session.get_outputs()]
        self._bound: deque[tuple[tuple[Place, ...], Any]] = deque()
        self._process = os.getpid()

    def __call__(self, *arrays: Any) -> tuple[Any, ...] | None:
        """The results for the inputs; None where arrays to fill are given behind them."""
        if self._process != os.getpid():  # threads do not survive a fork
            self._open()
        given, to_fill = arrays[: len(self._inputs)], arrays[len(self._inputs) :]
        try:
            if to_fill and all(isinstance(a, np.ndarray) and a.size and a.dtype != object for a in arrays):
                self._fill(arrays)
                return None
            results = tuple(self._session.run(self._outputs, dict(zip(self._inputs, given, strict=True))))
        except Exception as error:
            raise ExecutionError(_first_line(error)) from None
        if not to_fill:
            return results
        for array, result in zip(to_fill, results, strict=True):
            if array.shape != result.shape:
                raise ExecutionError(f"a result has the shape {list(result.shape)}, not {list(array.shape)}")
            array[...] = result
        return None

    def _fill(self, arrays: Sequence[Array]) -> None:
        """A run whose results go straight to the arrays behind the inputs."""
        places = tuple((array.ctypes.data, array.shape) for array in arrays)
        try:  # calls at the same time have a binding each
            before, binding = self._bound.pop()
        except IndexError:
            before, binding = (), self._session.io_binding()
        if before != places:
            binds = [binding.bind_input] * len(self._inputs) + [binding.bind_output] * len(self._outputs)
            names = (*self._inputs, *self._outputs)
            for bind, name, array, (address, shape) in zip(binds, names, arrays, places, strict=True):
                bind(name, "cpu", 0, array.dtype, shape, address)
        self._session.run_with_iobinding(binding)
        self._bound.append((places, binding))


def _first_line(error: Exception) -> str:
    """What ONNX Runtime says, without where in its own source."""
    lines = str(error).strip().splitlines()
    return f"ONNX Runtime: {lines[0]}" if lines else f"ONNX Runtime: {type(error).__name__}"
