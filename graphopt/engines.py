"""What runs a model to see what it computes: ONNX Runtime where it is installed, else ONNX's reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

Feeds: TypeAlias = Mapping[str, Any]
"""Inputs by name: arrays, lists of arrays for sequences, None for what is absent."""

Runner: TypeAlias = Callable[[Feeds], list[Any]]
"""A loaded model: from inputs to the list of outputs. Raises EngineError where it refuses the inputs."""

ONNX_RUNTIME = "ONNX Runtime"
REFERENCE = "ONNX's reference evaluator"


class EngineError(Exception):
    """The engine does not run the model, or not on these inputs."""


def open_model(path: str | Path, engine: str | None = None) -> tuple[Runner, str]:
    """A runner for a model file and the name of its engine: the one that is asked for, else the first that takes it.

    Raises EngineError where none does, with what each said.
    """
    refusals = []
    for name, make in ((ONNX_RUNTIME, open_in_onnxruntime), (REFERENCE, _open_in_reference)):
        if engine in (None, name):
            try:
                return make(str(path)), name
            except EngineError as refusal:
                refusals.append(f"{name}: {refusal}")
            except ImportError:
                refusals.append(f"{name} is not installed")
    raise EngineError("; ".join(refusals))


def open_in_onnxruntime(path: str, optimized: bool = False) -> Runner:
    """A runner in ONNX Runtime on the CPU, with or without its own optimizations."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime raises many types, none of them public
        raise EngineError(_brief(error)) from None

    def run(feeds: Feeds) -> list[Any]:
        try:
            return list(session.run(None, {name: _ort_value(ort, value) for name, value in feeds.items()}))
        except Exception as error:
            raise EngineError(_brief(error)) from None

    return run


_ONNX_TYPES = {
    "bfloat16": 16, "float8_e4m3fn": 17, "float8_e4m3fnuz": 18, "float8_e5m2": 19, "float8_e5m2fnuz": 20,
    "uint4": 21, "int4": 22,
}  # fmt: skip
"""ONNX's numbers of the dtypes that numpy lacks."""


def _ort_value(ort: Any, value: Any) -> Any:
    """What ONNX Runtime takes for an input: dtypes that numpy lacks need a value of its own class."""
    number = _ONNX_TYPES.get(getattr(getattr(value, "dtype", None), "name", ""))
    return value if number is None else ort.OrtValue.ortvalue_from_numpy_with_onnx_type(value, number)


def _open_in_reference(path: str) -> Runner:
    from graphopt.errors import GraphoptError
    from graphopt.ir.evaluate import run as evaluate
    from graphopt.ir.onnx_io import load

    try:
        graph = load(path)
    except GraphoptError as error:
        raise EngineError(str(error)) from None

    def run(feeds: Feeds) -> list[Any]:
        try:
            found = evaluate(graph, dict(feeds))
        except Exception as error:  # whatever the Python of an op raises on these inputs
            raise EngineError(_brief(error)) from None
        return [found[name] for name in graph.output_names]

    return run


def _brief(error: Exception) -> str:
    """The error in one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) < 200 else text[:200] + " …"
