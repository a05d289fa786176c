"""Sizes that are computed in several ways are computed once."""

from __future__ import annotations

import pytest

from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.rewrite.passes.simplify import simplify


def ops(text: str, opset: int = 17) -> list[str]:
    graph: Graph = parse(f"graph g (ir 8, opset {opset})\n{text}")
    return sorted(n.op for n in simplify(graph).nodes() if n.op not in ("Input", "Constant"))


SUM = """x: float32[a, 4] y: float32[b, 4] zero = 0
sx = Shape(x) m = Gather(sx, zero) sy = Shape(y) n = Gather(sy, zero) s = Add(m, n)
j = Concat(x, y, axis=0) sj = Shape(j) t = Gather(sj, zero) return s, t"""


def test_a_sum_of_sizes_is_the_size_of_what_is_joined() -> None:
    assert ops(SUM) == ["Add", "Gather", "Gather", "Shape", "Shape"]


PIECES = """x: float32[a, b, 4, 5] i = [0] j = [1] k = [4] s = Shape(x)
p = Gather(s, i) q = Gather(s, j) r = Concat(p, q, axis=0) u = Concat(q, k, axis=0) return r, u"""


@pytest.mark.parametrize(
    ("opset", "left"), [(17, ["Shape", "Shape"]), (13, ["Concat", "Concat", "Gather", "Gather", "Shape"])]
)
def test_neighbouring_sizes_are_taken_at_once(opset: int, left: list[str]) -> None:
    assert ops(PIECES, opset) == left


def test_sizes_in_another_order_stay() -> None:
    text = PIECES.replace("Concat(p, q", "Concat(q, p").replace("return r, u", "return r")
    assert "Concat" in ops(text)
