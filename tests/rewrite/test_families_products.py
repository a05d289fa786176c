"""Families of products and convolutions fire on models that exporters wrote, and outputs stay what they are."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from graphopt.ir import onnx_io
from graphopt.ir.evaluate import run
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.ir.types import TensorType
from graphopt.optimize import optimize_graph
from graphopt.run.report import Report
from graphopt.target import target

CORPUS = Path(__file__).parents[1] / "corpus"

FAMILIES = {
    "torch/adapters": "J4 J5 J7 M15 P1",
    "torch/served_adapter": "J8 J18 M15",
    "torch/bottleneck": "J7",
    "torchscript/tower": "J2 J5 J10",
    "torch/cell": "J2 J5 J18 P1",
    "torchscript/cell": "J2 J5 J18 P1",
    "torchscript/lstm_steps": "J2 J18",
    "torch/grouped_linear": "J6",
    "torch/times": "J11",
    "torchscript/repvgg": "K1 K6 P1",
    "torchscript/inception": "K1 K6 K11",
    "torchscript/focus": "F9 K10",
    "torch/picked": "K10",
    "torch/towers": "K7",
    "torchscript/towers": "K7",
    "torch/pixels": "J15",
    "torchscript/decoder": "K1 K2 K3 K5 K12",
    "torch/pyramid": "K3 K11 K13",
}
"""By model, families that must act on it for any target."""

FUSED = {"torch/tower": "J9", "tensorflow/unet": "K4", "torchscript/repvgg": "K4"}
"""By model, families that must act on it for ONNX Runtime."""

GPU = {"torchscript/siamese": "shared-weight", "torch/shuffle_unit": "conv-add-relu"}
"""By model, a rule that must act on it where a launch is what takes long."""

SMALLER = {"torch/adapters": 15, "torch/cell": 36, "torchscript/repvgg": 2, "torch/grouped_linear": 15}
"""By model, how many ops are left at most."""


def model(name: str) -> Graph:
    """A model of the corpus."""
    return onnx_io.load(CORPUS / f"{name}.onnx")


@cache
def optimized(name: str, place: str) -> tuple[Graph, Report]:
    return optimize_graph(model(name), target=target(place))


def assert_equal(before: Graph, after: Graph) -> None:
    """Both compute the same of random numbers."""
    random = np.random.default_rng(3)
    inputs = {}
    for value in before.inputs:
        kind = before.types[value]
        assert isinstance(kind, TensorType)
        assert isinstance(kind.shape, tuple)
        inputs[before.names[value]] = random.random([int(str(n)) for n in kind.shape]).astype(kind.dtype)
    want, got = run(before, inputs), run(after, inputs)
    for output in before.output_names:
        np.testing.assert_allclose(want[output], got[output], rtol=2e-4, atol=2e-5)
        assert want[output].dtype == got[output].dtype


def families(report: Report) -> set[str]:
    return {family for rewrite in report.rewrites for family in rewrite.family.split(",")}


@pytest.mark.parametrize("name", FAMILIES)
def test_families_act_and_outputs_stay(name: str) -> None:
    after, report = optimized(name, "portable")
    assert set(FAMILIES[name].split()) <= families(report)
    assert_equal(model(name), after)


@pytest.mark.parametrize("name", FUSED)
def test_epilogues_are_fused(name: str) -> None:
    after, report = optimized(name, "ort")
    assert set(FUSED[name].split()) <= families(report)
    assert_equal(model(name), after)


@pytest.mark.parametrize("name", GPU)
def test_launches_are_saved(name: str) -> None:
    after, report = optimized(name, "t4")
    assert GPU[name] in {rewrite.rule for rewrite in report.rewrites}
    assert_equal(model(name), after)


@pytest.mark.parametrize("name", SMALLER)
def test_ops_that_are_left(name: str) -> None:
    _, report = optimized(name, "portable")
    assert sum(report.ops_after.values()) <= SMALLER[name] < sum(report.ops_before.values())


@pytest.mark.parametrize("manner", ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("height", [1, 4, 11])
def test_a_cubic_resize_to_an_open_size_is_two_products_for_onnxruntime(manner: str, height: int) -> None:
    graph = parse(
        f"""
        to: int64[2]
        table = float32[1, 5, 4, 6]{{{", ".join(str(round(np.sin(k), 4)) for k in range(120))}}}
        whole = Concat([1, 5], to, axis=0)
        y = Resize(table, _, _, whole, mode="cubic", coordinate_transformation_mode="{manner}", exclude_outside=1)
        return y
        """
    )
    result, _ = optimize_graph(graph, target=target("ort"))
    assert [node.op for node in result.nodes()].count("MatMul") == 2
    feeds = {"to": np.array([height, 9])}
    (want,), (got,) = run(graph, feeds).values(), run(result, feeds).values()
    np.testing.assert_allclose(got, want, atol=1e-5)
