"""Families of clean-up, shapes, no-ops, reshapes, slices and control flow fire on models that exporters wrote.

Outputs of original and result agree in ONNX Runtime with its own optimizations off.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphopt.ir import onnx_io
from graphopt.ir.evaluate import run
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.ir.tolerance import error
from graphopt.ir.types import TensorType
from graphopt.optimize import optimize_graph
from graphopt.run.report import Report
from graphopt.target import target
from graphopt.tools.catalogue import ids

CORPUS = Path(__file__).parents[1] / "corpus"

FAMILIES = {
    "torchscript/columns": "A1 B3 F5 F6 F7 F8",
    "torchscript/carried": "A2 F12 O1 O3 O4",
    "torchscript/training": "A3 A23",
    "torchscript/idle": "A4 A6 A8 A17 A18 A19 A21 B1 B2 B8 B12 C1 C2 C7 C8 C9 C10 C11 C12 C13 D9",
    "torchscript/pixels_open": "A5 D8",
    "onnxscript/functions": "A7 A15 O6",
    "torchscript/letterbox": "A22 B5",
    "torchscript/padded": "B4 B9 B11 B16 F1 F4",
    "torchscript/turned": "B6 F3",
    "torchscript/columns_open": "B10",
    "torchscript/resized": "B13",
    "torch/positions": "B14",
    "torch/flow": "B15 C5",
    "torch/casts": "C3",
    "torch/half": "C4",
    "torch/squeezes": "C6 D1 D2 D3 D5 D6 D10 D11",
    "torch/classes": "C14",
    "torch/whitened": "C15",
    "torchscript/tokens": "D4",
    "torch/open_heads": "D7 F2",
    "torch/yolo": "F9",
    "torchscript/yolo_open": "B7",
    "torch/guided": "F10",
    "torchscript/chunks": "F11",
    "torch/gated": "O2",
    "torchscript/windows": "O7",
}
"""By model, families that must act on it."""

SIZES = {"last": 1, "height": 12, "width": 8}
"""What open dimensions are; all others are 6."""

SHORTER = {
    "torchscript/ranked": 6,
    "torchscript/branches": 10,
    "torchscript/columns": 16,
    "torchscript/yolo_sizes": 100,
    "torchscript/positions": 18,
    "torchscript/pixels_open": 12,
    "torchscript/idle": 5,
    "torch/whitened": 1,
    "torchscript/resized": 2,
    "torchscript/stacked": 6,
}
"""By model, how many ops may be left."""


PLACES = {"torchscript/columns": "tensorrt"}
"""Targets of models of which ONNX Runtime runs some part faster as it was: elements one by one by GatherElements."""


@cache
def optimized(model: str, place: str = "portable") -> tuple[Graph, Graph, Report]:
    graph = onnx_io.load(CORPUS / f"{model}.onnx")
    return graph, *optimize_graph(graph, target=target(place))


@pytest.mark.parametrize(("model", "families"), FAMILIES.items())
def test_families_act(model: str, families: str) -> None:
    _, _, report = optimized(model, PLACES.get(model, "portable"))
    acted = {family for rewrite in report.rewrites for family in ids(rewrite.family)}
    assert set(families.split()) <= acted


@pytest.mark.parametrize("model", sorted({*FAMILIES, *SHORTER}))
def test_outputs_agree(model: str) -> None:
    pytest.importorskip("onnxruntime")
    graph, result, _ = optimized(model)
    feeds = inputs(graph)
    for before, after in zip(outputs(graph, feeds), outputs(result, feeds), strict=True):
        assert before.shape == after.shape
        assert error(before, after) <= 1


@pytest.mark.parametrize(("model", "most"), SHORTER.items())
def test_models_become_short(model: str, most: int) -> None:
    _, result, _ = optimized(model)
    assert sum(n.op not in ("Input", "Constant") for n in result.nodes()) <= most


def inputs(graph: Graph) -> dict[str, Any]:
    """Numbers for the inputs: floats at random, whole numbers from 1 on, truth values of both kinds."""
    draw = np.random.default_rng(7)
    feeds = {}
    for value in graph.inputs:
        type = graph.types[value]
        assert isinstance(type, TensorType)
        assert isinstance(type.shape, tuple)
        shape = tuple(s if isinstance(s, int) else SIZES.get(str(s), 6) for s in type.shape)
        count = int(np.prod(shape))
        if type.dtype.startswith("float"):
            array: Any = draw.random(shape)
        elif type.dtype == "bool":
            array = np.arange(count).reshape(shape) % 3 > 0
        else:
            array = 1 + np.arange(count).reshape(shape) % 3
        feeds[graph.names[value]] = np.asarray(array, dtype=type.dtype)
    return feeds


def outputs(graph: Graph, feeds: dict[str, Any]) -> list[Any]:
    """What ONNX Runtime computes, as the graph says it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    made = onnxruntime.InferenceSession(onnx_io.to_bytes(graph), options, providers=["CPUExecutionProvider"])
    return list(made.run(None, feeds))


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("y = Add(z, x)", []),
        ("y = Mul(x, z)", ["Mul"]),
        ("y = Less(z, x)", ["Less"]),
        ("y = Add(t, z)", ["Shape", "ConstantOfShape", "Add"]),
    ],
    ids=["nothing", "right", "left", "broadcast"],
)
def test_a_fill_of_open_size_is_a_scalar_in_arithmetic(line: str, kept: list[str]) -> None:
    """``t`` is broadcast by the fill, which stays."""
    value = "" if "Add" in line else ", value=float32[1]{3.0}"
    graph = parse(f"""x: float32[n, 4]
t: float32[1, 4]
s = Shape(x)
z = ConstantOfShape(s{value})
{line}
return y""")
    made, _ = optimize_graph(graph, target=target("ort"))
    assert [n.op for n in made.nodes() if n.op not in ("Input", "Constant")] == kept
    feeds = {"x": np.arange(12, dtype=np.float32).reshape(3, 4) - 3, "t": np.ones((1, 4), np.float32)}
    assert np.array_equal(run(made, feeds)["y"], run(graph, feeds)["y"])
