"""Decided branches, short loops, and bodies without ballast."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.evaluate import run
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse, show
from graphopt.rewrite.passes import PASSES
from graphopt.rewrite.passes.simplify import simplify


def ops(graph: Graph) -> list[str]:
    return sorted(n.op for n in graph.nodes() if n.op not in ("Input", "Constant"))


def same(source: str, **inputs: object) -> Graph:
    """The simplified graph, which computes what the original does."""
    graph = parse(source)
    made = simplify(graph, passes=PASSES)
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    before, after = run(graph, arrays), run(made, arrays)
    assert list(before) == list(after)
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name])
        assert value.shape == after[name].shape
    return made


X = np.array([1.0, -2.0], dtype=np.float32)
BRANCHES = "then_branch={ q: ? r = Neg(q) return r }, else_branch={ q: ? r = Abs(q) return r }"


@pytest.mark.parametrize(("condition", "op"), [("true", "Neg"), ("false", "Abs")])
def test_a_constant_condition(condition: str, op: str) -> None:
    made = same(f"x: float32[2] c = {condition} y = If(c | x, {BRANCHES}) return y", x=X)
    assert ops(made) == [op]


def test_equal_branches() -> None:
    made = same(f"x: float32[2] c: bool[] y = If(c | x, {BRANCHES.replace('Abs', 'Neg')}) return y", x=X, c=True)
    assert ops(made) == ["Neg"]
    assert [made.names[v] for v in made.inputs] == ["x", "c"]


def test_outputs_of_an_if_that_nobody_reads() -> None:
    two = (
        "then_branch={ q: ? r = Neg(q) s = Exp(q) return r, s }, else_branch={ q: ? r = Abs(q) s = Sin(q) return r, s }"
    )
    made = same(f"x: float32[2] c: bool[] y, z = If(c | x, {two}) return z", x=X, c=False)
    (node,) = [n for n in made.nodes() if n.op == "If"]
    assert node.n_outputs == 1
    assert [ops(b) for b in node.bodies.values()] == [["Sin"], ["Exp"]]


LOOP = """x: float32[2] n: int64[] {m} c = true
    y, z = Loop({trips}, {condition}, x | {captured},
        body={{ i: ? go: ? s: float32[2] k: ? t = Add(s, k) u = Neg(t) return {again}, t, u }}) return {result}"""


def loop(trips: str = "n", condition: str = "c", again: str = "go", result: str = "y, z", captured: str = "x") -> str:
    return LOOP.format(m="", trips=trips, condition=condition, again=again, result=result, captured=captured)


@pytest.mark.parametrize("trips", [1, 3])
def test_a_loop_of_a_few_passes(trips: int) -> None:
    made = same(loop(str(trips)), x=X, n=7)
    assert "Loop" not in ops(made)
    assert ops(made).count("Add") == trips


def test_a_limit_on_the_nodes_that_loops_are_unrolled_to() -> None:
    graph = parse(loop("3"))
    assert "Loop" not in ops(simplify(graph, passes=PASSES, unroll=12))
    assert "Loop" in ops(simplify(graph, passes=PASSES, unroll=5))
    assert "Loop" not in ops(simplify(parse(loop("1")), passes=PASSES, unroll=0))
    within = "body={ i: ? go: ? s: float32[2] t = Neg(s) u = Abs(t) v = Neg(u) return go, v }"
    nested = f"""x: float32[2] c = true y = Loop(3, c, x, body={{ i: ? go: ? s: float32[2]
        n: int64[] = int64[]{{9}} a = Loop(n, go, s, {within}) return go, a }}) return y"""
    assert "Loop" in ops(simplify(parse(nested), passes=PASSES, unroll=30))
    assert "Loop" not in ops(simplify(parse(nested), passes=PASSES))


def test_a_loop_of_no_passes() -> None:
    assert ops(simplify(parse(loop("0", result="y")), passes=PASSES)) == []
    assert ops(simplify(parse(loop("0")), passes=PASSES)) == ["Loop"]


def test_a_loop_that_stops_itself() -> None:
    source = loop("10", again="stop").replace("t = Add(s, k)", "stop = false t = Add(s, k)")
    assert ops(same(source, x=X, n=1)) == ["Add", "Neg", "Unsqueeze"]


def test_loops_that_are_kept() -> None:
    assert "Loop" in ops(same(loop(), x=X, n=3))
    assert "Loop" in ops(same(loop("5000"), x=X, n=3))
    data = loop("3", again="more").replace("t = Add(s, k)", "more = Less(ReduceSum(s, keepdims=0), 5.0) t = Add(s, k)")
    assert "Loop" in ops(same(data, x=X, n=3))


def test_what_a_loop_collects_for_nobody() -> None:
    made = same(loop(result="y"), x=X, n=3)
    (node,) = [n for n in made.nodes() if n.op == "Loop"]
    assert node.n_outputs == 1
    assert ops(node.bodies["body"]) == ["Add"]


def test_states_that_nobody_needs() -> None:
    source = """x: float32[2] n: int64[] c = true
        a, b = Loop(n, c, x, x, body={ i: ? go: ? s: float32[2] t: float32[2]
            u = Neg(s) v = Exp(t) return go, u, v }) return a"""
    made = same(source, x=X, n=3)
    (node,) = [n for n in made.nodes() if n.op == "Loop"]
    assert len(node.bodies["body"].inputs) == 3
    linked = source.replace("u = Neg(s)", "u = Sub(s, t)")
    (node,) = [n for n in same(linked, x=X, n=3).nodes() if n.op == "Loop"]
    assert len(node.bodies["body"].inputs) == 4


def test_captures() -> None:
    source = """x: float32[2] n: int64[] c = true k = 2.0
        y = Loop(n, c, x | k, x, x, k, body={ i: ? go: ? s: float32[2] a: ? p: ? q: ? unused: ?
            t = Add(Mul(s, a), Add(p, q)) return go, t }) return y"""
    made = same(source, x=X, n=3)
    (node,) = [n for n in made.nodes() if n.op == "Loop"]
    assert node.captures == 1
    assert "2.0" in show(node.bodies["body"])


def test_nested_ifs() -> None:
    inner = "then_branch={ p: ? w = Neg(p) return w }, else_branch={ p: ? w = Abs(p) return w }"
    source = f"""x: float32[2] c: bool[]
        y = If(c | x, then_branch={{ q: ? t = true r = If(t | q, {inner}) return r }},
            else_branch={{ q: ? r = Exp(q) return r }}) return y"""
    made = same(source, x=X, c=True)
    (node,) = [n for n in made.nodes() if n.op == "If"]
    assert [ops(b) for b in node.bodies.values()] == [["Exp"], ["Neg"]]


def test_a_loop_whose_body_has_no_nodes_is_not_written_out_for_ever() -> None:
    text = "x: float32[8] y = Loop(4611686018427387904, _, x, body={ i: ? go: ? s: float32[8] return go, s }) return y"
    graph = parse(text)
    assert show(simplify(graph, passes=PASSES))
