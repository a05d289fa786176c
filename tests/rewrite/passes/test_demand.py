"""Branches that no reader could take are never taken."""

from __future__ import annotations

import pytest

from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.rewrite.simplify import simplify

BRANCHES = "then_branch={ q: ? a = [0] r = Unsqueeze(q, a) return r }, else_branch={ q: ? return q }"
START = "x: float32[n, 4] c: bool[] w = float32[2, 4, 1]{1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0} a = [0]"


def ops(text: str) -> list[str]:
    made: Graph = simplify(parse(text))
    return sorted(n.op for n in made.nodes() if n.op not in ("Input", "Constant"))


@pytest.mark.parametrize(
    ("readers", "left"),
    [
        ("z = Conv(y, w)", ["Conv", "Unsqueeze"]),
        ("t = Relu(y) z = Conv(t, w)", ["Conv", "Relu", "Unsqueeze"]),
        ("t = Unsqueeze(y, a) z = Conv(t, w)", ["Conv", "Unsqueeze"]),
        ("z = Transpose(y, perm=[1, 0])", ["Transpose"]),
    ],
)
def test_the_rank_that_readers_take_decides(readers: str, left: list[str]) -> None:
    assert ops(f"{START} y = If(c | x, {BRANCHES}) {readers} return z") == left


def test_all_ifs_of_one_condition_are_decided() -> None:
    text = f"{START} y = If(c | x, {BRANCHES}) u = If(c | x, {BRANCHES}) z = Conv(y, w) return z, u"
    assert "If" not in ops(text)


@pytest.mark.parametrize("readers", ["z = Relu(y)", "z = Add(y, w)", "k = [2, 2] z = Reshape(y, k)"])
def test_readers_that_take_any_rank_decide_nothing(readers: str) -> None:
    assert "If" in ops(f"{START} y = If(c | x, {BRANCHES}) {readers} return z")


def test_a_model_that_fails_either_way_is_left_alone() -> None:
    text = f"{START} y = If(c | x, {BRANCHES}) z = Transpose(y, perm=[0, 1, 2, 3]) return z"
    assert "If" in ops(text)
