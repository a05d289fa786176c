"""Loops do not compute again what stays the same."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.evaluate import run
from graphopt.ir.graph import Graph
from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.rewrite.passes import PASSES
from graphopt.rewrite.passes.simplify import simplify

X = np.array([1.0, -2.0], dtype=np.float32)


def loop_of(source: str, **inputs: object) -> tuple[list[str], list[str]]:
    """The ops outside and inside the loop after simplifying, which changes no result."""
    graph = parse(source)
    made = simplify(graph, passes=PASSES)
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    for name, value in run(graph, arrays).items():
        np.testing.assert_array_equal(value, run(made, arrays)[name])
    (loop,) = [n for n in made.nodes() if n.op == "Loop"]
    return ops(made), ops(loop.bodies["body"])


def ops(graph: Graph) -> list[str]:
    return sorted(n.op for n in graph.nodes() if n.op not in ("Input", "Constant"))


def test_invariants_are_hoisted() -> None:
    outside, inside = loop_of(
        """x: float32[2] n: int64[] c = true
        y = Loop(n, c, x | x, body={ i: ? go: ? s: float32[2] k: ?
            t = Exp(Mul(k, 2.0)) u = Add(s, t) return go, u }) return y""",
        x=X, n=3,
    )  # fmt: skip
    assert (outside, inside) == (["Exp", "Loop", "Mul"], ["Add"])


def test_what_depends_on_the_pass_stays() -> None:
    outside, inside = loop_of(
        """x: float32[2] n: int64[] c = true
        y = Loop(n, c, x | x, body={ i: ? go: ? s: float32[2] k: ?
            t = Mul(k, Cast(i, to=1)) u = Add(s, t) return go, u }) return y""",
        x=X, n=3,
    )  # fmt: skip
    assert (outside, inside) == (["Loop"], ["Add", "Cast", "Mul"])


def test_unchanged_states_are_captured() -> None:
    outside, inside = loop_of(
        """x: float32[2] n: int64[] c = true
        y, z = Loop(n, c, x, x, body={ i: ? go: ? s: float32[2] k: float32[2]
            u = Add(s, Exp(k)) return go, u, k }) w = Neg(z) return y, w""",
        x=X, n=3,
    )  # fmt: skip
    assert (outside, inside) == (["Exp", "Loop", "Neg"], ["Add"])


@pytest.mark.parametrize("opset", [11, 14, 17])
@pytest.mark.parametrize(("axis", "is_new"), [(0, 1), (1, 1), (-1, 1), (0, 0), (1, 0), (-1, 0)])
def test_what_a_loop_appends_to_a_list_is_stacked_in_every_opset(opset: int, axis: int, is_new: int) -> None:
    outside, inside = loop_of(
        f"""graph g (ir 8, opset {opset}) x: float32[2, 3] n: int64[] c = true e = SequenceEmpty()
        s, t = Loop(n, c, e, x, body={{ i: int64[] go: bool[] s: sequence(float32[2, 3]) x: float32[2, 3]
            y = Add(x, x) u = SequenceInsert(s, y) return go, u, y }})
        y = ConcatFromSequence(s, axis={axis}, new_axis={is_new}) k = SequenceLength(s) return y, k""",
        x=np.arange(6, dtype=np.float32).reshape(2, 3), n=3,
    )  # fmt: skip
    assert inside == ["Add"]
    assert not any("Sequence" in op for op in outside)


def test_a_state_that_grows_is_not_what_its_body_declares_of_the_first_round() -> None:
    _, inside = loop_of(
        """x: float32[1] n: int64[] c = true zero = [0]
        y, z = Loop(n, c, x | zero, body={ i: int64[] go: bool[] s: float32[1] zero: int64[1]
            t = Unsqueeze(ReduceSum(s, keepdims=0), zero) u = Concat(s, t, axis=0) k = Shape(s) return go, u, k })
        return y, z""",
        x=X[:1], n=4,
    )  # fmt: skip
    assert inside == ["Concat", "ReduceSum", "Shape", "Unsqueeze"]


def test_what_is_known_of_a_state_outside_is_known_within() -> None:
    _, inside = loop_of(
        """x: float32[2] n: int64[] c = true
        y = Loop(n, c, x, body={ i: int64[] go: bool[] s: ? t = Cast(Shape(s), to=1) u = Mul(s, t) return go, u })
        return y""",
        x=X, n=4,
    )  # fmt: skip
    assert inside == ["Mul"]


def repeated(axis: int, shape: str, opset: int, target: str) -> str:
    """A loop that repeats the parts of x as often as r says, as torch's older exporter writes it."""
    return f"""graph g (ir 8, opset {opset}) x: float32[{shape}] r: int64[k]
        ones = ConstantOfShape(Shape(r), value=int64[1]{{1}}) c = true e = SequenceEmpty()
        s = SplitToSequence(x, ones, axis={axis}) q = SplitToSequence(r, ones) n = Gather(Shape(x), {axis})
        l = Loop(n, c, e | s, q, body={{ i: int64[] go: bool[] l: sequence(float32[*]) s: sequence(float32[*])
            q: sequence(int64[*]) p = SequenceAt(s, i) t = SequenceAt(q, i) u = Unsqueeze(p, [{axis + 1}])
            {target} v = Expand(u, w) y = Reshape(v, z) m = SequenceInsert(l, y) g = Identity(go) return g, m }})
        y = ConcatFromSequence(l, axis={axis}) return y"""


ALONG = {
    0: ("k, 3", "one = [1] three = [3] w = Concat(one, t, three, axis=0) z = [-1, 3]"),
    1: (
        "2, k, 3",
        """two = [2] one = [1] three = [3] d = Concat(two, one, t, three, axis=0) minus = [-1, -1, -1, -1]
        units = [1, 1, 1, 1] w = Where(Equal(d, minus), units, d) z = [2, -1, 3]""",
    ),
}


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("counts", [[1, 0, 2, 0, 3], [0, 0, 2, 1, 0], [3]])
def test_parts_that_a_loop_repeats_are_gathered(opset: int, axis: int, counts: list[int]) -> None:
    shape, target = ALONG[axis]
    x = np.arange(6 * len(counts), dtype=np.float32).reshape((2,) * axis + (len(counts), -1))[..., :3]
    x = np.ascontiguousarray(x)
    graph, given = parse(repeated(axis, shape, opset, target)), {"x": x, "r": np.array(counts)}
    made = simplify(graph, passes=PASSES)
    assert {"Loop", "SplitToSequence", "ConcatFromSequence"}.isdisjoint(ops(made))
    np.testing.assert_array_equal(run(made, given)["y"], x.repeat(counts, axis))
    np.testing.assert_array_equal(run(graph, given)["y"], x.repeat(counts, axis))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[-1, 3]", "[3, -1]"),  # parts are not put one below the other
        ("Concat(one, t, three", "Concat(t, one, three"),
        ("e = SequenceEmpty()", "e = SequenceConstruct(x)"),
        ("SequenceAt(q, i)", "SequenceAt(q, Sub(i, i))"),
        ("int64[1]{1}", "int64[1]{2}"),
    ],
)
def test_other_loops_over_parts_stay(old: str, new: str) -> None:
    text = repeated(0, *((shape := ALONG[0])[0], 17, shape[1]))
    assert old in text
    graph = simplify(parse(text.replace(old, new)), passes=PASSES)
    assert "Loop" in [node.op for node in graph.nodes()]


UNREAD = """x: float32[2, 3] n: int64[] g: bool[] y, z = Loop({count}, {start}, x, {first},
    body={{ i: int64[] go: bool[] t: float32[2, 3] u: float32[*] v = Mul(t, 0.5) w = {made} h = Less(i, 2)
    return h, v, w }}) return y, z"""


@pytest.mark.parametrize(
    ("count", "start", "first", "made", "rank"),
    [
        ("100", "true", "0.0", "Neg(t)", 2),
        ("100", "true", "[1.0]", "Neg(t)", 2),
        ("0", "true", "0.0", "Neg(t)", None),  # what nobody reads is the result then
        ("n", "true", "0.0", "Neg(t)", None),
        ("100", "g", "0.0", "Neg(t)", None),
        ("100", "true", "0.0", "Add(t, u)", None),
    ],
)
def test_states_that_no_pass_reads_have_the_rank_that_they_get(
    count: str, start: str, first: str, made: str, rank: int | None
) -> None:
    graph = parse(UNREAD.format(count=count, start=start, first=first, made=made))
    done = simplify(graph, passes=[p for p in PASSES if p.name == "unread-start"])
    assert done.outputs[1] is not None
    assert infer(done)[done.outputs[1]].rank == rank
    for trips, goes in ((0, True), (4, False), (4, True)):
        given = {"x": np.float32([[1, 2, 3], [4, 5, 6]]), "n": np.int64(trips), "g": np.bool_(goes)}
        for name, value in run(graph, given).items():
            np.testing.assert_array_equal(value, run(done, given)[name])
            assert value.shape == run(done, given)[name].shape
