"""Ops that ONNX Runtime computes slowly are written as others for it, and for it alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.ir.tolerance import error
from graphopt.optimize import optimize_graph
from graphopt.target import target

SHAPE = (2, 24, 20, 30)
SPECIAL = (0.0, -0.0, 1e-30, -1e-30, 88.0, -88.0, 1e4, -1e4)
SLOW = {
    "PRelu": "y = PRelu(x, w)",
    "Mish": "y = Mish(x)",
    "Elu": "y = Elu(x, alpha=0.7)",
    "Celu": "y = Celu(x)",
    "Softmax": "y = Softmax(x, axis=1)",
    "Einsum": 'y = Einsum(x, v, equation="bchw,c->bchw")',
}


@pytest.mark.parametrize("steepest", [0.9, 2.5])
@pytest.mark.parametrize("op", SLOW)
def test_for_onnxruntime_they_are_others(op: str, steepest: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    slopes = rng.uniform(-1, steepest, SHAPE[1]).astype(np.float32)
    listed = ", ".join(map(str, slopes))
    graph = parse(
        f"graph main (ir 10, opset 22)\nx: float32[{', '.join(map(str, SHAPE))}]\n"
        f"w = float32[{SHAPE[1]}, 1, 1]{{{listed}}}\nv = float32[{SHAPE[1]}]{{{listed}}}\n{SLOW[op]}\nreturn y"
    )
    for_others, _ = optimize_graph(graph, target=target("portable"))
    found, _ = optimize_graph(graph, target=target("ort"))
    assert op not in {node.op for node in found.nodes()}
    assert op in ("Einsum", "Celu") or op in {node.op for node in for_others.nodes()}
    x = (3 * rng.standard_normal(SHAPE)).astype(np.float32)
    x.reshape(-1)[: len(SPECIAL)] = SPECIAL
    results = []
    for made in (graph, found):
        onnx_io.save(made, tmp_path / "model.onnx")
        results.append(onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"x": x})[0])
    assert error(*results) <= 1


def test_few_elements_of_a_branch_are_as_few_as_outside() -> None:
    branches = "then_branch={ q: ? r = Relu(q) return r }, else_branch={ q: ? r = Elu(q) return r }"
    graph = parse(f"x: float32[n, 30] c: bool[] y = If(c | x, {branches}) return y")
    made, report = optimize_graph(graph, target=target("ort"))
    assert report.cost_before is not None
    assert report.cost_after <= report.cost_before
    inner = {node.op for if_ in made.nodes() for body in if_.bodies.values() for node in body.nodes()}
    assert {"Relu", "Elu"} <= inner
