"""What both branches do stands outside of them."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.evaluate import run
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.rewrite.passes.simplify import simplify

X = np.array([[1.0, -2.0], [3.0, 0.5]], dtype=np.float32)


def same(text: str) -> Graph:
    """The simplified graph, which computes what the original does, whichever branch is taken."""
    graph = parse(f"x: float32[2, 2] c: bool[] {text}")
    made = simplify(graph)
    for flag in (True, False):
        inputs = {"x": X, "c": np.array(flag)}
        for a, b in zip(run(graph, inputs).values(), run(made, inputs).values(), strict=True):
            np.testing.assert_array_equal(a, b)
    return made


def ops(graph: Graph) -> list[str]:
    return sorted(n.op for n in graph.nodes() if n.op not in ("Input", "Constant"))


def bodies(graph: Graph) -> list[list[str]]:
    return [ops(b) for n in graph.nodes() for b in n.bodies.values()]


def test_a_common_head() -> None:
    yes = "q: ? t = Transpose(q, perm=[1, 0]) u = Exp(t) r = Neg(u) return r"
    no = "q: ? t = Transpose(q, perm=[1, 0]) r = Abs(t) return r"
    made = same(f"y = If(c | x, then_branch={{ {yes} }}, else_branch={{ {no} }}) return y")
    assert ops(made) == ["If", "Transpose"]
    assert bodies(made) == [["Abs"], ["Exp", "Neg"]]


def test_a_common_tail_meets_its_neighbours() -> None:
    yes = "q: ? u = Exp(q) r = Transpose(u, perm=[1, 0]) return r"
    no = "q: ? u = Abs(q) r = Transpose(u, perm=[1, 0]) return r"
    made = same(f"y = If(c | x, then_branch={{ {yes} }}, else_branch={{ {no} }}) return y")
    assert ops(made) == ["If", "Transpose"]
    assert bodies(made) == [["Abs"], ["Exp"]]


def test_a_common_tail_with_a_constant() -> None:
    yes = "q: ? k = 2.0 u = Exp(q) r = Mul(u, k) return r, u"
    no = "q: ? k = 2.0 u = Abs(q) r = Mul(u, k) return r, q"
    made = same(f"y, z = If(c | x, then_branch={{ {yes} }}, else_branch={{ {no} }}) return y, z")
    assert ops(made) == ["If", "Mul"]


@pytest.mark.parametrize("no", ["k = 3.0 u = Abs(q) r = Mul(u, k)", "k = 2.0 u = Abs(q) r = Div(u, k)"])
def test_different_tails_stay(no: str) -> None:
    yes = "q: ? k = 2.0 u = Exp(q) r = Mul(u, k) return r"
    made = same(f"y = If(c | x, then_branch={{ {yes} }}, else_branch={{ q: ? {no} return r }}) return y")
    assert ops(made) == ["If"]


def test_branches_that_differ_in_the_names_of_their_results_are_equal() -> None:
    yes, no = "q: ? a = Exp(q) return a", "q: ? b = Exp(q) return b"
    assert ops(same(f"y = If(c | x, then_branch={{ {yes} }}, else_branch={{ {no} }}) return y")) == ["Exp"]


def test_a_head_that_one_branch_computes_twice() -> None:
    yes = "q: ? t = Exp(q) u = Exp(q) r = Neg(u) s = Add(r, t) return s"
    no = "q: ? t = Exp(q) r = Neg(t) return r"
    made = same(f"y = If(c | x, then_branch={{ {yes} }}, else_branch={{ {no} }}) return y")
    assert "Exp" in ops(made)


BRANCHES = "then_branch={ q: ? a = [0] r = Unsqueeze(q, a) return r }, else_branch={ q: ? return q }"
START = "x: float32[n, 4] c: bool[] w = float32[2, 4, 1]{1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0} a = [0]"


def ops_left(text: str) -> list[str]:
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
    assert ops_left(f"{START} y = If(c | x, {BRANCHES}) {readers} return z") == left


def test_readers_further_down_decide() -> None:
    scattered = "s = [1] m = Mul(y, Abs(y)) r = ReduceSum(m, s, keepdims=0) z = ScatterND(d, i, r)"
    inputs = "x: float32[n, 4] c: bool[] d: float32[9] i: int64[n, 1]"
    assert "If" not in ops_left(f"{inputs} y = If(c | x, {BRANCHES}) {scattered} return z")
    both = scattered.replace("keepdims=0) z", "keepdims=0) v = [-1] u = Reshape(r, v) z").replace("i, r)", "i, u)")
    assert "If" in ops_left(f"{inputs} y = If(c | x, {BRANCHES}) {both} return z")


def test_all_ifs_of_one_condition_are_decided() -> None:
    text = f"{START} y = If(c | x, {BRANCHES}) u = If(c | x, {BRANCHES}) z = Conv(y, w) return z, u"
    assert "If" not in ops_left(text)


NEXT = "h = If({on} | y, then_branch={{ q: ? a = [1] r = Unsqueeze(q, a) return r }}, else_branch={{ q: ? return q }})"
"""Another axis for what the If gives."""


def test_a_branch_that_is_taken_for_that_rank_is_looked_into() -> None:
    inputs = "x: float32[n, m, 4] c: bool[]"
    by_rank = "l = Size(Shape(y)) three = 3 e = Equal(l, three) u = Not(e)"
    reader = f"{NEXT.format(on='u')} z = Transpose(h, perm=[1, 0, 2])"
    assert "If" not in ops_left(f"{inputs} y = If(c | x, {BRANCHES}) {by_rank} {reader} return z")
    choice = "then_branch={ p: ? t = Transpose(p, perm=[0, 1, 2]) return t }, else_branch={ p: ? return p }"
    within = f"then_branch={{ q: ? d: ? r = If(d | q, {choice}) return r }}, else_branch={{ q: ? d: ? return q }}"
    text = f"d: bool[] {inputs} y = If(c | x, {BRANCHES}) {by_rank} h = If(u | y, d, {within}) z = Relu(h) return z"
    assert ops_left(text).count("If") == 2
    unknown = f"{NEXT.format(on='d')} z = Transpose(h, perm=[1, 0, 2])"
    assert "If" in ops_left(f"d: bool[] {inputs} y = If(c | x, {BRANCHES}) {unknown} return z")


@pytest.mark.parametrize("readers", ["z = Relu(y)", "z = Add(y, w)", "k = [2, 2] z = Reshape(y, k)"])
def test_readers_that_take_any_rank_decide_nothing(readers: str) -> None:
    assert "If" in ops_left(f"{START} y = If(c | x, {BRANCHES}) {readers} return z")


def test_a_model_that_fails_either_way_is_left_alone() -> None:
    text = f"{START} y = If(c | x, {BRANCHES}) z = Transpose(y, perm=[0, 1, 2, 3]) return z"
    assert "If" in ops_left(text)


@pytest.mark.parametrize(
    ("x", "reader", "axes"),
    [
        ("float32[n, 2, 1]", "y = Concat(s, b, axis=1)", [2]),
        ("float32[n, 2, 1]", "t = Relu(s) y = Concat(t, b, axis=1)", [2]),
        ("float32[1, n, m]", "y = Concat(s, b, axis=1)", [0]),
        ("float32[n, 2, m]", "y = Concat(s, b, axis=0)", None),  # either of the two may be 1
        ("float32[n, 2, 1]", "y = Mul(s, b)", None),  # which takes all ranks
        ("float32[n, 2, 1]", "y = Relu(s)", None),
    ],
    ids=["reader", "further-down", "two", "either", "any-rank", "result"],
)
def test_what_a_squeeze_leaves_is_what_readers_take(x: str, reader: str, axes: list[int] | None) -> None:
    graph = parse(f"x: {x} b: float32[k, 2] s = Squeeze(x) {reader} return y")
    (squeeze,) = (n for n in simplify(graph).nodes() if n.op == "Squeeze")
    if axes is None:
        assert squeeze.inputs[1:] in ((), (None,))
    else:
        assert squeeze.inputs[1] is not None
        made = simplify(graph).constant_of(squeeze.inputs[1])
        assert made is not None
        assert made.array.tolist() == axes


def test_a_squeeze_of_nothing_is_what_it_reads() -> None:
    graph = parse("x: float32[n, 2] b: float32[n, 2] s = Squeeze(x) y = Concat(s, b, axis=1) return y")
    assert ops(simplify(graph)) == ["Concat"]
