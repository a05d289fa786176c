"""Families of layout, algebra and reductions fire on models that exporters wrote, and outputs stay what they are."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from graphopt.ir import onnx_io
from graphopt.ir.evaluate import run
from graphopt.ir.graph import Graph
from graphopt.ir.types import TensorType
from graphopt.optimize import optimize_graph
from graphopt.rewrite.ruleset import standard
from graphopt.run.report import Report
from graphopt.target import target

CORPUS = Path(__file__).parents[1] / "corpus"

FAMILIES = {
    "torch/mobilenet_last": "E2 E10 E12",
    "torch/unet_last": "E2 E8 E10",
    "torchscript/detector_heads": "E2 E5 E8",
    "torch/grams": "E3 E4",
    "torch/flow": "E1 E6",
    "torchscript/candidates": "E7",
    "torch/einsums": "E11 E1",
    "torchscript/preprocess": "H1 H2 H5 H7",
    "torchscript/gru_steps": "H4",
    "torchscript/gates": "H3 H5 H13 H15 I3",
    "torchscript/masks": "H6 H7 H11 H16",
    "torchscript/handmade_activations": "H8 H9",
    "torch/buckets": "A19 B12",
    "torch/complex_linear": "H14",
    "torch/reductions": "I1 I2 I4 I6",
    "torch/norms": "I3 I5",
    "torch/running_sums": "I7",
}
"""By model, families that must act on it."""

PLACES = {"torch/grams": "openvino"}
"""Targets of models in which other runtimes transpose what products read by themselves."""

TRANSPOSES = {
    "torch/mobilenet_last": (32, 1),  # the input comes with its channels last
    "torch/video_last": (4, 2),  # so do input and output
    "torchscript/quantized_last": (4, 2),
    "torchscript/shuffle_last": (5, 3),  # and the shuffle is one
    "torchscript/detector_heads": (6, 1),  # the boxes are asked for with their four numbers last
    "torch/detector_heads": (6, 1),
    "torch/mixer": (2, 2),  # tokens are mixed along the other axis
    "torch/convnext": (4, 4),  # norms along the last axis between convolutions: two for each block
    "torch/swin_windows": (6, 6),  # windows are cut, their tokens mixed, and put together; channels come and go first
    "tensorflow/unet": (4, 2),
    "tensorflow/gated": (3, 1),
    "paddle/crnn": (7, 1),
}
"""By model, how many transposes it has, and how many are left."""

BACK = ("K8",)
"""Families that trade transposes for something else."""


def model(name: str) -> Graph:
    """A model of the corpus."""
    return onnx_io.load(CORPUS / f"{name}.onnx")


@cache
def optimized(name: str, without: tuple[str, ...] = (), place: str = "portable") -> tuple[Graph, Report]:
    return optimize_graph(model(name), standard().select(without=without), target(place))


def drawn(graph: Graph) -> dict[str, np.ndarray]:
    """Arrays for the inputs of a graph: small numbers, or small indices."""
    random = np.random.default_rng(3)
    made = {}
    for value in graph.inputs:
        kind = graph.types[value]
        assert isinstance(kind, TensorType)
        assert isinstance(kind.shape, tuple)
        shape = [n if isinstance(n, int) else 2 for n in kind.shape]
        is_float = kind.dtype.startswith("float")
        made[graph.names[value]] = (random.random(shape) if is_float else random.integers(0, 6, shape)).astype(
            kind.dtype
        )
    return made


def transposes(graph: Graph) -> int:
    return sum(node.op == "Transpose" for node in graph.nodes())


@pytest.mark.parametrize("name", FAMILIES)
def test_families_act_and_outputs_stay(name: str) -> None:
    before = model(name)
    after, report = optimized(name, place=PLACES.get(name, "portable"))
    found = {f for rewrite in report.rewrites for f in rewrite.family.split(",")}
    assert set(FAMILIES[name].split()) <= found
    inputs = drawn(before)
    want, got = run(before, inputs), run(after, inputs)
    for output in before.output_names:
        np.testing.assert_allclose(want[output], got[output], rtol=2e-4, atol=2e-5)
        assert want[output].dtype == got[output].dtype


@pytest.mark.parametrize("place", ["portable", "ort"])
@pytest.mark.parametrize("name", TRANSPOSES)
def test_transposes_that_are_left(name: str, place: str) -> None:
    before, after = TRANSPOSES[name]
    assert transposes(model(name)) == before
    assert transposes(optimized(name, BACK, place)[0]) <= after


def test_rules_alone_sink_transposes_too() -> None:
    after, report = optimized("torch/mobilenet_last", ("axis-orders",))
    assert transposes(after) == 1
    assert {"sink-unary", "sink-binary-constant"} <= {rewrite.rule for rewrite in report.rewrites}


def test_one_choice_for_the_whole_graph_searches_less() -> None:
    _, local = optimized("torch/mobilenet_last", ("axis-orders",))
    _, whole = optimized("torch/mobilenet_last")
    assert local.exploration is not None
    assert whole.exploration is not None
    assert whole.exploration.nodes < local.exploration.nodes / 2


@pytest.mark.parametrize("name", ["torch/mobilenet_last", "torchscript/detector_heads"])
def test_the_choice_of_orders_is_replayed(name: str) -> None:
    after, report = optimized(name)
    assert report.derivation is not None
    assert "axis-orders" in {entry.rule for entry in report.derivation.rewrites}
    assert onnx_io.to_bytes(report.derivation.apply(model(name)).graph) == onnx_io.to_bytes(after)
