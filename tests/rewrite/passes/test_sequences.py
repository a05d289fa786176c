"""Sequences and optional values that are known become tensors."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.evaluate import run
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.rewrite.passes.simplify import simplify

X = np.arange(12, dtype=np.float32).reshape(2, 6)


def ops(graph: Graph) -> list[str]:
    return sorted(n.op for n in graph.nodes() if n.op not in ("Input", "Constant"))


def same(text: str) -> list[str]:
    """The ops that are left, which compute what the original does."""
    graph = parse(f"x: float32[2, 6] y: float32[2, 6] zero = 0 one = 1 last = -1 two = 2 sizes = [1, 5] {text}")
    made = simplify(graph)
    inputs = {"x": X, "y": -X}
    for a, b in zip(run(graph, inputs).values(), run(made, inputs).values(), strict=True):
        np.testing.assert_array_equal(a, b)
    return ops(made)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("s = SequenceConstruct(x, y) r = SequenceAt(s, last) t = Neg(r) return t", ["Neg"]),
        ("s = SequenceConstruct(x, y) t = ConcatFromSequence(s, axis=1) return t", ["Concat"]),
        (
            "s = SequenceConstruct(x, y) t = ConcatFromSequence(s, axis=0, new_axis=1) return t",
            ["Concat", "Unsqueeze", "Unsqueeze"],
        ),
        ("s = SequenceConstruct(x, y) n = SequenceLength(s) t = Add(n, n) return t", []),
        (
            "e = SequenceEmpty() s = SequenceInsert(e, x) u = SequenceInsert(s, y, zero) r = SequenceAt(u, one) "
            "t = Neg(r) return t",
            ["Neg"],
        ),
        ("s = SplitToSequence(x, two, axis=1) t = SequenceAt(s, one) return t", ["Slice"]),
        ("s = SplitToSequence(x, sizes, axis=1) t = SequenceAt(s, one) return t", ["Slice"]),
        ("s = SplitToSequence(x, two, axis=1) t = SequenceLength(s) return t", []),
        ("s = SplitToSequence(x, axis=0, keepdims=0) t = SequenceAt(s, one) return t", ["Gather"]),
        (
            "s = SplitToSequence(x, two, axis=1) r = ConcatFromSequence(s, axis=1) t = Neg(r) return t",
            ["Neg"],
        ),
    ],
)
def test_what_is_known(text: str, left: list[str]) -> None:
    assert same(text) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("o = Optional(x) r = OptionalGetElement(o) t = Neg(r) return t", ["Neg"]),
        ("o = Optional(x) t = OptionalHasElement(o) return t", []),
        ("t = OptionalHasElement(x) return t", []),
        ("o: optional(float32[2]) t = OptionalHasElement(o) return t", ["OptionalHasElement"]),
    ],
)
def test_optional_values(text: str, left: list[str]) -> None:
    assert ops(simplify(parse(f"x: float32[2] {text}"))) == left


def test_an_element_out_of_range_is_left_to_fail() -> None:
    graph = parse("x: float32[2] n = 3 s = SequenceConstruct(x, x) t = SequenceAt(s, n) return t")
    assert "SequenceAt" in ops(simplify(graph))


LOOP = """x: float32[3, 2] n: int64[] c = true e = SequenceEmpty()
s = Loop(n, c, e | x, body={ i: int64[] go: bool[] s: sequence(float32[*]) x: ? r = Gather(x, i) t = Neg(r)
    u = SequenceInsert(s, t) return go, u }) """


def test_what_a_loop_appends_is_collected() -> None:
    graph = parse(LOOP + "t = ConcatFromSequence(s, axis=0, new_axis=1) return t")
    made = simplify(graph)
    assert ops(made) == ["Loop"]
    inputs = {"x": X.reshape(6, 2)[:3], "n": np.array(3)}
    (a,), (b,) = run(graph, inputs).values(), run(made, inputs).values()
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "end",
    [
        "t = ConcatFromSequence(s, axis=1, new_axis=1) return t",
        "t = ConcatFromSequence(s, axis=-1, new_axis=1) return t",
        "t = ConcatFromSequence(s, axis=0) return t",
        "t = ConcatFromSequence(s, axis=-1) return t",
        "t = SequenceLength(s) return t",
        "k = -1 t = SequenceAt(s, k) return t",
        "k = 1 a = SequenceAt(s, k) b = ConcatFromSequence(s, axis=0) t = Concat(a, b, axis=0) return t",
    ],
)
def test_what_is_read_of_what_a_loop_appends_is_read_off_the_stack(end: str) -> None:
    graph = parse(LOOP.replace("[3, 2]", "[3, 2, 4]") + end)
    made = simplify(graph)
    assert not {op for op in ops(made) if "Sequence" in op}
    inputs = {"x": np.arange(24, dtype=np.float32).reshape(3, 2, 4), "n": np.array(3)}
    (a,), (b,) = run(graph, inputs).values(), run(made, inputs).values()
    np.testing.assert_array_equal(a, b)


def test_elements_of_different_sizes_are_not_stacked() -> None:
    graph = parse(
        """x: float32[3, 2] n: int64[] c = true e = SequenceEmpty() v = int64[1]{0} w = int64[1]{1}
        s = Loop(n, c, e | x, v, w, body={ i: int64[] go: bool[] s: sequence(float32[*]) x: ? v: ? w: ? j = Add(i, w)
            r = Slice(x, v, j) u = SequenceInsert(s, r) return go, u }) t = ConcatFromSequence(s, axis=0) return t"""
    )
    assert "SequenceEmpty" in ops(simplify(graph))


@pytest.mark.parametrize("end", ["t = SequenceLength(s) return t, s", "k = 0 t = SequenceErase(s, k) return t"])
def test_a_sequence_that_is_read_otherwise_stays(end: str) -> None:
    assert "SequenceEmpty" in ops(simplify(parse(LOOP + end)))
