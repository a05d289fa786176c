"""Ops on int8 activations become ops on uint8 where all that they meet can, and compute the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.evaluate import run
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.ir.types import TensorType
from graphopt.rewrite.passes.simplify import simplify
from graphopt.rewrite.passes.unsigned import UNSIGNED
from graphopt.rewrite.ruleset import standard

SCALES = "s = 0.05 t = 0.1 r = 0.02 m = int8[]{-3} n = int8[]{7} i = int8[]{0} "
WEIGHTS = "w = int8[2, 3, 1, 1]{1, -2, 3, -128, 127, 0} b = int32[2]{5, -9} "
CONV = "x: float32[1, 3, 4, 4] " + SCALES + WEIGHTS + "q = QuantizeLinear(x, s, m) "
MS = "com.microsoft::"


def moved(text: str) -> Graph:
    """The graph after the pass, which computes the same bits."""
    graph = parse(text)
    made = simplify(graph, (), (UNSIGNED,))
    shapes = {graph.names[v]: graph.types[v] for v in graph.inputs}
    inputs = {}
    for name, kind in shapes.items():
        assert isinstance(kind, TensorType)
        inputs[name] = (3 * np.random.default_rng(1).standard_normal([int(str(n)) for n in kind.shape or ()])).astype(
            kind.dtype
        )
    for a, b in zip(run(graph, inputs).values(), run(made, inputs).values(), strict=True):
        np.testing.assert_array_equal(a, b)
    return made


def dtypes(graph: Graph) -> set[str]:
    """The dtypes of zero points."""
    zeros = {"QuantizeLinear": 2, "QLinearConv": 7, "QLinearMatMul": 7, f"{MS}QLinearAdd": 7, "DequantizeLinear": 2}
    found = set()
    for node in graph.nodes():
        if node.op in zeros:
            value = node.inputs[zeros[node.op]]
            assert value is not None
            constant = graph.constant_of(value)
            assert constant is not None
            found.add(constant.dtype)
    return found


def test_a_convolution_and_what_moves_its_result() -> None:
    text = (
        "c = QLinearConv(q, s, m, w, r, i, t, n, b) p = Transpose(c, perm=[0, 2, 3, 1]) y = DequantizeLinear(p, t, n) "
    )
    made = moved(CONV + text + "return y")
    assert dtypes(made) == {"uint8"}
    (conv,) = (node for node in made.nodes() if node.op == "QLinearConv")
    weights = conv.inputs[3]
    assert weights is not None
    held = made.constant_of(weights)
    assert held is not None
    assert held.dtype == "int8", "weights stay"


def test_a_constant_operand_moves_with_the_other() -> None:
    numbers = ", ".join(str(4 * e - 60) for e in range(32))
    text = (
        f"k = int8[1, 2, 4, 4]{{{numbers}}} c = QLinearConv(q, s, m, w, r, i, t, n, b) "
        f"a = {MS}QLinearAdd(c, t, n, k, r, i, t, m) y = DequantizeLinear(a, t, m) return y"
    )
    assert dtypes(moved(CONV + text)) == {"uint8"}


def test_products_of_activations() -> None:
    text = (
        "x: float32[3, 4] " + SCALES + "q = QuantizeLinear(x, s, m) k = Transpose(q, perm=[1, 0]) "
        "c = QLinearMatMul(q, s, m, k, s, m, t, n) y = DequantizeLinear(c, t, n) return y"
    )
    assert dtypes(moved(text)) == {"uint8"}


@pytest.mark.parametrize(
    "rest",
    [
        "c = QLinearConv(q, s, m, w, r, i, t, n, b) return c",  # the caller's dtypes stay
        "c = QLinearConv(q, s, m, w, r, i, t, n, b) y = Cast(c, to=1) return y",  # who knows what an op makes of it
        "y = DequantizeLinear(q, s, m) return y",  # pairs are another rule's
    ],
)
def test_others_stay(rest: str) -> None:
    text = CONV + rest
    graph = parse(text)
    assert simplify(graph, (), (UNSIGNED,)) is graph


def test_it_is_for_onnx_runtime_on_cpus() -> None:
    assert UNSIGNED in standard().select(target="ort").passes
    assert UNSIGNED not in standard().select(target="portable").passes
