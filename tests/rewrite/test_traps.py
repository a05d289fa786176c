"""Graphs that look like the left side of a rule and are not: none of these may be rewritten."""

from __future__ import annotations

import pytest

from graphopt.ir.text import parse
from graphopt.optimize import optimize_graph

TRAPS = {
    "a batch normalization that trains does not use its statistics": """
        x: float32[2, 3, 4, 4]
        c = Conv(x, float32[3, 3, 1, 1]{2.0, ...})
        y = BatchNormalization(c, [1.0, 2.0, 3.0], [0.0, 0.0, 1.0], [0.5, 0.5, 0.5], [1.0, 2.0, 1.0], training_mode=1)
        return y
    """,
    "a resize by one may still shift by half a pixel": """
        x: float32[1, 1, 4, 4]
        y = Resize(x, _, [1.0, 1.0, 1.0, 1.0], mode="linear", coordinate_transformation_mode="tf_half_pixel_for_nn")
        return y
    """,
    "the reciprocal of a small half is infinite": """
        x: float16[4]
        y = Div(x, float16[]{0.000001})
        return y
    """,
    "two halves whose product is infinite": """
        x: float16[4]
        a = Mul(x, float16[]{1000.0})
        y = Mul(a, float16[]{1000.0})
        return y
    """,
    "a factor for each of two channels makes two channels of one": """
        x: float32[1, n, 4, 4]
        y = Conv(Mul(x, float32[2, 1, 1]{2.0, 3.0}), float32[2, 2, 1, 1]{1.0, 2.0, 3.0, 4.0})
        return y
    """,
    "a factor for each of two channels makes two groups of one": """
        x: float32[1, n, 4, 4]
        y = Conv(Mul(x, float32[2, 1, 1]{2.0, 3.0}), float32[2, 1, 1, 1]{1.0, 2.0}, group=2)
        return y
    """,
    "layer normalization of doubles is computed in single precision": """
        x: float64[2, 8]
        m = ReduceMean(x, [-1], keepdims=1)
        d = Sub(x, m)
        q = Mul(d, d)
        v = ReduceMean(q, [-1], keepdims=1)
        e = Add(v, float64[]{0.00001})
        r = Sqrt(e)
        y = Div(d, r)
        return y
    """,
}


@pytest.mark.parametrize("name", TRAPS)
def test_it_stays_as_it_is(name: str) -> None:
    graph = parse(TRAPS[name])
    before = sorted(n.op for n in graph.nodes() if n.inputs)
    result, _ = optimize_graph(graph)
    assert sorted(n.op for n in result.nodes() if n.inputs) == before
