"""Parts in which two graphs differ agree where what they begin with is rounded, and differ where they do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.optimize import optimize
from graphopt.verify.inputs import draw
from graphopt.verify.local import ROUNDS, LocalComparison
from graphopt.verify.rounding import is_equal_but_for
from graphopt.verify.runtimes import EngineError, EngineMemoryError, Runner, open_in_onnxruntime
from tests.verify.seeded_faults import WRITTEN, written

pytest.importorskip("onnxruntime")

NORMALIZED = """
x: float32[64, 3]
s = Sub(x, [0.1, 0.2, 0.3])
d = Sub(s, ReduceMean(s, [-1]))
v = Add(ReduceMean(Mul(d, d), [-1]), 0.001)
n = Div(d, Sqrt(v))
y = Erf(n)
return y, v
"""
FUSED = """
x: float32[64, 3]
s = Sub(x, [0.1, 0.2, 0.3])
d = Sub(s, ReduceMean(s, [-1]))
v = Add(ReduceMean(Mul(d, d), [-1]), 0.001)
n = LayerNormalization(s, [1.0, 1.0, SCALE], axis=-1, epsilon=0.001)
y = Erf(n)
return y, v
"""


def in_onnxruntime(graph: Graph, path: Path) -> Runner:
    from graphopt.ir import onnx_io

    onnx_io.save(graph, path)
    return open_in_onnxruntime(str(path))


@pytest.mark.parametrize(("scale", "is_right"), [(1.0, True), (1.001, False)])
def test_a_part_may_begin_with_a_value_and_with_what_was_made_of_it(scale: float, is_right: bool) -> None:
    """Rows of nearly equal elements: what their mean leaves of them is mostly rounding, which both parts share."""
    before, after = parse(NORMALIZED), parse(FUSED.replace("SCALE", str(scale)))
    rng = np.random.default_rng(3)
    x = (1 + 1e-2 * rng.normal(size=(64, 3))).astype(np.float32)
    faults = LocalComparison(before, after, in_onnxruntime).faults({"x": x})
    assert (not faults) == is_right, [fault.words for fault in faults]


@pytest.mark.parametrize("factor", [2.0, 2.01])
def test_where_memory_holds_few_values_at_once_they_are_compared_a_few_at_a_time(factor: float) -> None:
    lines = [f"h{n + 1} = Tanh(Mul({{}}h{n}, FACTOR{n}))" for n in range(12)]
    text = "x: float32[4]\nh0 = Neg(x)\n" + "\n".join(lines) + "\ng = Greater(h12, 0.1)\nreturn h12, g"
    before, after = text.replace("{}", ""), text.replace("{}", "").replace("Mul(h", "Mul(Mul(1.0, h")
    for n in range(12):
        before = before.replace(f"FACTOR{n})", "2.0)")
        after = after.replace(f", FACTOR{n})", f"), {factor if n == 7 else 2.0})")
    opened: list[int] = []

    def crowded(graph: Graph, path: Path) -> Runner:
        opened.append(len(graph.outputs))
        if len(graph.outputs) > 3:
            raise EngineMemoryError("there is room for three")
        return in_onnxruntime(graph, path)

    x = np.array([0.1, -0.2, 0.3, 1.0], np.float32)
    faults = LocalComparison(parse(before), parse(after), crowded).faults({"x": x})
    assert bool(faults) == (factor != 2.0), [fault.words for fault in faults]
    assert max(opened) > 3


@pytest.mark.parametrize(("times", "outcome"), [(1.00001, "agrees"), (1.002, "cannot be told"), (1.5, "differs")])
def test_where_float64_cannot_tell_only_what_is_gross_differs(times: float, outcome: str) -> None:
    """A long Loop is computed by the engine alone, where its body is not the same but for what is in it."""
    states = {"x": ("q: float32[3]", "r"), "x, x": ("q: float32[3] p: float32[3]", "r, p")}

    def model(factor: float, given: str) -> Graph:
        head, made = states[given]
        body = f"i: int64[] c: bool[] {head} k = Identity(c) r = Mul(q, {factor}) return k, {made}"
        return parse(f"x: float32[3] y{', z' * (given != 'x')} = Loop(100, _, {given}, body={{ {body} }}) return y")

    before, after = model(1.01, "x"), model(1.01 * times**0.01, "x, x")
    x = np.array([1, 2, 3], np.float32)
    comparison = LocalComparison(before, after, in_onnxruntime)
    if outcome == "cannot be told":
        with pytest.raises(EngineError):
            comparison.faults({"x": x})
    else:
        assert bool(comparison.faults({"x": x})) == (outcome == "differs")


def test_what_was_made_of_a_wrongly_guessed_pair_is_not_wrong() -> None:
    """The last product reads in either graph what has the same place and type, and is not the same."""
    before = parse("x: float32[4, 8] m: float32[1, 8] v = Neg(m) s = Mul(x, 0.125) y = Mul(s, v) return y")
    after = parse("x: float32[4, 8] m: float32[1, 8] v = Neg(m) s = Mul(v, 0.125) y = Mul(x, s) return y")
    wrong = parse("x: float32[4, 8] m: float32[1, 8] v = Neg(m) s = Mul(v, 0.25) y = Mul(x, s) return y")
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((4, 8), np.float32), "m": rng.standard_normal((1, 8), np.float32)}
    assert LocalComparison(before, after, in_onnxruntime).faults(feeds) == []
    (fault,) = LocalComparison(before, wrong, in_onnxruntime).faults(feeds)
    assert fault.value == before.outputs[0]


def test_what_the_same_op_makes_of_a_wrongly_guessed_pair_is_not_wrong() -> None:
    """A mean of two by a weight, and the same by their difference: both end in Add(Mul(w, ...), n)."""
    head = "w: float32[3] h: float32[3] k: float32[3] n = Tanh(k)"
    before = parse(f"{head} a = Mul(Sub(1.0, w), n) b = Mul(w, h) y = Add(a, b) return y")
    after = parse(f"{head} d = Sub(h, n) b = Mul(w, d) y = Add(b, n) return y")
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(3, np.float32) for name in "whk"}
    assert LocalComparison(before, after, in_onnxruntime).faults(feeds) == []


def test_what_reads_a_wrongly_guessed_pair_is_no_fault_where_nothing_pays() -> None:
    # both sums are near enough to be one but for rounding, which the products beside a large bias are not
    head = "x: float16[8, 3], w: float16[3, 1], b: float16[1]\n"
    before = parse(head + "s = Add(Mul(x, float16[]{1.021}), float16[]{1})\ny = Gemm(s, w, b)\nreturn y")
    after = parse(head + "s = Add(x, float16[]{0.979})\ny = Gemm(s, Mul(w, float16[]{1.021}), b)\nreturn y")
    feeds = {
        "x": np.random.default_rng(0).uniform(-350, 350, (8, 3)).astype(np.float16),
        "w": np.array([[0.7163], [3.373], [-2.088]], np.float16),
        "b": np.array([500], np.float16),
    }
    assert LocalComparison(before, after, in_onnxruntime, work=0).faults(feeds) == []


def test_a_body_that_captures_what_was_made_before_is_not_wrong() -> None:
    body = "body={{ i: int64[] g: bool[] q: float32[3] u: float32[3] k = Identity(g) {} return k, r }}"
    before = parse(
        f"x: float32[3] e = Exp(x) y = Loop(2, _, x | e, {body.format('t = Tanh(u) r = Add(q, t)')}) return y"
    )
    after, wrong = (
        parse(f"x: float32[3] e = Exp(x) t = {op}(e) y = Loop(2, _, x | t, {body.format('r = Add(q, u)')}) return y")
        for op in ("Tanh", "Sin")
    )
    x = np.array([0.5, -1, 2], np.float32)
    assert LocalComparison(before, after, in_onnxruntime).faults({"x": x}) == []
    assert LocalComparison(before, wrong, in_onnxruntime).faults({"x": x})


def test_rounding_of_half_precision_is_judged_in_float64() -> None:
    x = np.linspace(-2, 2, 64).astype(np.float16).reshape(4, 16)
    before = parse("x: float16[4, 16] y = Cast(Mul(Cast(x, to=1), 0.7), to=10) return y")
    after = parse("x: float16[4, 16] c = Cast(0.7, to=10) y = Mul(x, c) return y")
    wrong = parse("x: float16[4, 16] c = Cast(0.71, to=10) y = Mul(x, c) return y")
    assert LocalComparison(before, after, in_onnxruntime).faults({"x": x}) == []
    assert LocalComparison(before, wrong, in_onnxruntime).faults({"x": x})


BODIES = {
    "a branch not taken": """x: float32[3], c: bool[]
        h = Abs(x)
        y = If(c | h, then_branch={ u: float32[3] r = Exp(u) return r },
            else_branch={ u: float32[3] t = RELU(u) r = Mul(t, FACTOR) return r })
        return y""",
    "a branch in a branch": """x: float32[3], c: bool[]
        y = If(c | x, c, then_branch={ u: float32[3] d: bool[] r = Exp(u) return r },
            else_branch={ u: float32[3] d: bool[] e = Not(d)
                r = If(d | u, then_branch={ t: float32[3] s = Mul(t, FACTOR) return s },
                    else_branch={ t: float32[3] v = RELU(t) s = Abs(v) return s }) return r })
        return y""",
    "a round that hides it": """x: float32[3], c: bool[]
        y = Loop(2, _, x, body={ i: int64[] g: bool[] q: float32[3] k = Identity(g)
            t = RELU(q) n = Mul(t, FACTOR) z = Mul(n, 20.0) s = Tanh(z) r = Abs(s) return k, r })
        return y""",
    "no round": """x: float32[3], c: bool[]
        y = Loop(0, _, x, body={ i: int64[] g: bool[] q: float32[3] k = Identity(g)
            t = RELU(q) r = Mul(t, FACTOR) return k, r })
        return y""",
    "a scan": """x: float32[4, 3], c: bool[]
        h = Abs(x)
        s = ReduceSum(h, [0], keepdims=0)
        y, z = Scan(s, h, num_scan_inputs=1, scan_input_directions=[1], body={ q: float32[3] e: float32[3]
            t = RELU(e) v = Mul(t, FACTOR) w = Add(v, q) n = Mul(w, 0.5) r = Tanh(n) o = Identity(r) return r, o })
        return y, z""",
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(
    ("relu", "factor", "is_right"), [("Relu", "1.5", True), ("Abs", "1.5", False), ("Relu", "1.6", False)]
)
def test_bodies_are_compared_as_graphs_of_their_own(name: str, relu: str, factor: str, is_right: bool) -> None:
    """Whether a branch is taken, or a round is, and where a body's own values hide what is wrong inside."""
    text = BODIES[name]
    before = parse(text.replace("RELU", "Relu").replace("FACTOR", "1.5"))
    after = parse(text.replace("RELU", relu).replace("FACTOR", factor).replace("Identity(g)", "Not(Not(g))"))
    x = np.linspace(-1, 2, 12 if "4, 3" in text else 3).reshape(-1, 3).astype(np.float32)
    local = LocalComparison(before, after, in_onnxruntime)
    faults = local.faults({"x": x if "4, 3" in text else x[0], "c": np.array(name == "a branch not taken")})
    if relu == "Abs" and "h = Abs" in text:
        is_right = True  # of what is positive both make the same
    assert (not faults) == is_right, [fault.words for fault in faults]


@pytest.mark.parametrize(("factor", "is_found"), [(1.0, False), (1.01, True)])
def test_a_small_weight_beside_large_ones_counts(factor: float, is_found: bool) -> None:
    """What it adds to a sum is less than what rounding of the others does."""

    def model(weight: float) -> Graph:
        weights = ", ".join(map(str, [weight, *range(50, 305)]))
        return parse(f"x: float32[4, 64] y = MatMul(x, float32[64, 4]{{{weights}}}) z = Tanh(y) return z")

    x = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    before, after = model(0.0001), model(0.0001 * factor)
    assert bool(LocalComparison(before, after, in_onnxruntime).faults({"x": x})) == is_found


SATURATED = """x: float32[4, 16]
    h = Mul(x, 3.0)
    s = Sin(Mul(h, SCALE))
    t = Relu(s)
    y = Sigmoid(Add(t, 200.0))
    return y"""


@pytest.mark.parametrize(
    ("written", "agrees"),
    [
        ("t = Max(s, 0.0)", True),
        ("t = Max(s, 0.0) o = Identity(t)", True),
        ("t = Abs(s)", False),
        ("t = Max(s, 0.5)", False),
    ],
)
def test_parts_are_compared_on_drawn_values_too(written: str, agrees: bool) -> None:
    """What the original computes there is the same everywhere, and so is its output."""
    before = parse(SATURATED.replace("SCALE", "0.0"))
    after = parse(SATURATED.replace("SCALE", "0.0").replace("t = Relu(s)", written))
    local = LocalComparison(before, after, in_onnxruntime)
    x = np.random.default_rng(0).normal(size=(2, 4, 16)).astype(np.float32)
    local.faults({"x": x[0]})
    assert local.agrees_on_drawn({"x": x[0]}, {"x": x[1]}) == agrees


@pytest.mark.parametrize(("steps", "moved", "is_equal"), [(1, 0, True), (2, 0, False), (25, 0, False), (2, 2, True)])
def test_quantized_elements_are_off_by_one_step_at_most(steps: int, moved: int, is_equal: bool) -> None:
    """One element of a thousand may be rounded the other way; by more only where moving constants moves it as far."""
    plain = np.zeros(1000, np.uint8)
    other, noise = plain.copy(), plain.copy()
    other[3], noise[3] = steps, moved
    assert is_equal_but_for(plain, other, [(plain, noise)]) == is_equal


def test_a_body_that_captures_an_optional_value_is_left_to_the_whole() -> None:
    text = """x: float32[3], b: optional(float32[3])
        c = OptionalHasElement(b)
        y = If(COND | b, x, then_branch={ p: ? q: ? v = OptionalGetElement(p) r = Add(q, v) return r },
            else_branch={ p: ? q: ? r = REST(q) return r })
        return y"""
    before = parse(text.replace("COND", "Not(Not(c))").replace("REST", "Abs"))
    after = parse(text.replace("COND", "c").replace("REST", "Neg(Neg)").replace("Neg(Neg)(q)", "Abs(Abs(q))"))
    local = LocalComparison(before, after, in_onnxruntime)
    assert local.bodies
    assert local.faults({"x": np.array([1, -2, 3], np.float32), "b": None}) == []


@pytest.mark.parametrize("name", ["saturated", "choice"])
@pytest.mark.parametrize("at", [None, (7, 5), (30, 17), (48, 0)])
def test_one_weight_off_by_a_percent_shows_where_outputs_hide_it(name: str, at: tuple[int, int] | None) -> None:
    """Sums that are far from where a sigmoid or a comparison tells them apart; optimizing joins the products."""
    before = written(WRITTEN[name], 0)
    after = optimize(before, verify="off", signed=False)
    assert isinstance(after, Graph)
    if at is not None:
        product = next(node for node in after.nodes() if node.op == "MatMul")
        weight = after.constant_of(product.inputs[1])
        assert weight is not None
        array = weight.array.copy()
        array[at[0] % len(array), at[1] % array.shape[1]] *= np.float32(1.01)
        x, _ = product.inputs
        after.update(product.id, inputs=(x, after.add_constant(Constant.of(array))))
    feeds = draw(before, {}, {}, {}, 0, 0)
    local = LocalComparison(before, after, in_onnxruntime)
    assert bool(local.faults(feeds)) == (at is not None)


@pytest.mark.parametrize(("factor", "is_right"), [("1.5", True), ("1.6", False)])
def test_a_branch_may_make_more_of_one_output_if_it_makes_the_same_of_others(factor: str, is_right: bool) -> None:
    """What follows the first output moved into the branches; the second is handed on, and one of both is not taken."""
    then = "then_branch={ t: float32[2, 3] p = Exp(t) q = Neg(t) return SHAPED, q }"
    other = "else_branch={ t: float32[2, 3] p = Relu(t) q = Mul(p, FACTOR) return SHAPED, q }"
    text = f"x: float32[2, 3], c: bool[]\n a, b = If(c | x, {then}, {other})\n"
    apart = f"{text} y = ReduceSum(a, [0], keepdims=0)\n z = Identity(b)\n return y, z"
    before = parse(apart.replace("SHAPED", "p").replace("FACTOR", "1.5"))
    joined = "r, q".join(
        text.replace("return SHAPED, q", "r = ReduceSum(p, [0], keepdims=0) return SHAPED").split("SHAPED")
    )
    after = parse(f"{joined.replace('FACTOR', factor)} return a, b")
    feeds = {"x": np.linspace(-1, 2, 6, dtype=np.float32).reshape(2, 3), "c": np.array(True)}
    faults = LocalComparison(before, after, in_onnxruntime).faults(feeds)
    assert (not faults) == is_right, [fault.words for fault in faults]


CENTRED = """
x: float32[64, 3]
m = ReduceMean(x, [-1])
d = Sub(x, m)
v = ReduceMean(Mul(d, d), [-1])
y = Mul(Div(d, Sqrt(Add(v, 1e-05))), [2.0, -3.0, 1.0])
p = ReduceMean(v, [0])
return y, p
"""
AT_ONCE = """
x: float32[64, 3]
m = ReduceMean(x, [-1])
d = Sub(x, m)
v = ReduceMean(Mul(d, d), [-1])
y = LayerNormalization(x, [2.0, -3.0, SCALE], axis=-1, epsilon=1e-05)
p = ReduceMean(v, [0])
return y, p
"""


@pytest.mark.parametrize(("scale", "is_right"), [(1.0, True), (1.0001, False)])
def test_parts_that_begin_with_other_values_are_followed_back_to_the_same(scale: float, is_right: bool) -> None:
    """What one part begins with was rounded, as far as large terms go that cancel; the other has what they were."""
    before, after = parse(CENTRED), parse(AT_ONCE.replace("SCALE", str(scale)))
    x = (3 + 3e-3 * np.random.default_rng(3).normal(size=(64, 3))).astype(np.float32)
    faults = LocalComparison(before, after, in_onnxruntime).faults({"x": x})
    assert (not faults) == is_right, [fault.words for fault in faults]


@pytest.mark.parametrize(("factor", "is_right"), [("1.0", True), ("1.001", False)])
def test_what_cancels_may_be_as_large_as_rounding_on_the_way(factor: str, is_right: bool) -> None:
    """The mean of rows that were centred is 0, and what rounding leaves of it is no measure for another's."""
    before = parse("x: float32[4, 6] d = Sub(x, ReduceMean(x, [-1])) y = ReduceMean(d, [0, 1], keepdims=0) return y")
    after = parse(
        "x: float32[4, 6] m = MatMul(x, Expand(0.16666667, {[6, 1]})) d = Sub(Mul(x, FACTOR), m) "
        "y = ReduceSum(Mul(d, 0.041666668), [0, 1], keepdims=0) return y".replace("FACTOR", factor).replace(
            "{[6, 1]}", "[6, 1]"
        )
    )
    x = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    faults = LocalComparison(before, after, in_onnxruntime).faults({"x": x})
    assert (not faults) == is_right, [fault.words for fault in faults]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("factor", "is_right"), [(1.0, True), (1.001, False)])
def test_float64_rounds_too(dtype: str, factor: float, is_right: bool) -> None:
    """Rows of the smallest of what a softmax leaves: a sum of 20 without its largest term."""
    number = f"{dtype}[]{{{factor}}}"
    before = parse(f"x: {dtype}[2, 4, 3, 2] y = Sub(x, ReduceLogSumExp(x, [2])) return y")
    after = parse(f"x: {dtype}[2, 4, 3, 2] y = LogSoftmax(Mul(x, {number}), axis=2) return y")
    x = np.random.default_rng(0).uniform(20, 40, (2, 4, 3, 2)).astype(dtype)
    x[:, :, 1:] -= 22
    faults = LocalComparison(before, after, in_onnxruntime).faults({"x": x})
    assert (not faults) == is_right, [fault.words for fault in faults]


@pytest.mark.parametrize("made", ["c = GreaterOrEqual(x, 0.5)", "c = Not(Less(x, 0.5))"])
def test_a_number_at_a_threshold_is_on_one_side_of_it(made: str) -> None:
    """However little moves it to the other, both parts are told from each other by it."""
    text = "x: float32[4] MADE y = Where(c, Mul(x, 3.0), x) return y"
    before, after = parse(text.replace("MADE", "c = Greater(x, 0.5)")), parse(text.replace("MADE", made))
    x = np.array([0.1, 0.5, 0.7, 0.9], np.float32)
    assert LocalComparison(before, after, in_onnxruntime).faults({"x": x})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_is_that_of_the_dtype(dtype: str) -> None:
    """What is left where doubles cancel is none of single precision."""
    before = parse(f"x: {dtype}[4, 6] d = Sub(x, ReduceMean(x, [-1])) y = ReduceMean(d, [0, 1], keepdims=0) return y")
    after = parse(
        f"x: {dtype}[4, 6] e = Sub(x, Div(ReduceSum(x, [-1]), CastLike(6.0, x))) "
        f"y = ReduceMean(Add(e, CastLike({2.0**-30}, x)), [0, 1], keepdims=0) return y"
    )
    x = np.random.default_rng(1).normal(size=(4, 6)).astype(dtype)
    faults = LocalComparison(before, after, in_onnxruntime).faults({"x": x})
    assert (not faults) == (dtype == "float32"), [fault.words for fault in faults]


def test_a_whole_number_between_two_may_be_either() -> None:
    """0.5 in one order of products, and next to it in another."""
    kinds = "a: float32[4] y = Cast(Round(FORM), to=6) return y"
    before = parse(kinds.replace("FORM", "Mul(Mul(a, 0.1), 5.0)"))
    after = parse(kinds.replace("FORM", "Mul(a, 0.5)"))
    x = np.array([1, 3, 7, 9.2], np.float32)
    assert LocalComparison(before, after, in_onnxruntime).faults({"a": x}) == []
    wrong = parse(kinds.replace("FORM", "Mul(a, 0.52)"))
    assert LocalComparison(before, wrong, in_onnxruntime).faults({"a": np.array([1, 3, 70, 90.2], np.float32)})


def test_branches_of_another_condition_are_no_twins() -> None:
    """An If whose condition is known is left for the one whose value it hands on."""
    inner = "z = If(c | x, then_branch={ q: ? r = Neg(q) return r }, else_branch={ q: ? r = Exp(q) return r })"
    branches = "then_branch={ q: ? p: ? r = Abs(q) return r }, else_branch={ q: ? p: ? r = Add(p, 0.0) return r }"
    before = parse(f"c: bool[] x: float32[3] k = Cast(0, to=9) {inner} y = If(k | x, z, {branches}) return y")
    after = parse(f"c: bool[] x: float32[3] {inner.replace('z =', 'y =')} return y")
    feeds = {"c": np.array(True), "x": np.array([1, -2, 3], np.float32)}
    assert LocalComparison(before, after, in_onnxruntime).faults(feeds) == []


def test_an_if_out_of_the_branch_that_is_taken_is_no_twin_of_the_if_around_it() -> None:
    """Its branches are run on values for which its own condition holds, or does not, whatever the other's is."""
    inner = "If(Less(m, 0.5) | q, then_branch={ q: ? r = Neg(q) return r }, else_branch={ q: ? r = Exp(q) return r })"
    outer = f"q: ? m = ReduceMean(q, keepdims=0) r = {inner} return r"
    before = parse(
        f"x: float32[3] y = If(false | x, then_branch={{ q: ? r = Abs(q) return r }}, "
        f"else_branch={{ {outer} }}) return y"
    )
    after = parse(f"x: float32[3] m = ReduceMean(x, keepdims=0) y = {inner.replace('| q', '| x')} return y")
    for x in ([1.0, -2.0, 3.0], [-1.0, -2.0, -3.0]):
        assert LocalComparison(before, after, in_onnxruntime).faults({"x": np.array(x, np.float32)}) == []


def test_a_wrong_pair_behind_a_wrong_pair_is_looked_at_again() -> None:
    """What a body captures is another value of its part than the name of it says."""
    head = "x: float32[3, 4] s: float32[] t: float32[2, 2]"
    body = "k = ReduceMean(w, keepdims=0) r = Tanh(Add(q, k)) e = Tanh(Add(p, k)) return r, e"
    whole = f"u: ? w = Mul(u, 0.5) {body}"
    before = parse(
        f"{head} e = Exp(x) m = Mul(e, 2.0) n = Mul(Sub(m, 2.0), 3.0) "
        f"y, z = Scan(s, t | n, num_scan_inputs=1, body={{ q: float32[] p: float32[2] {whole} }}) return y, z, n"
    )
    after = parse(
        f"{head} e = Exp(x) m = Mul(e, 6.0) n = Add(m, -6.0) o = Mul(n, 0.5) "
        f"y, z = Scan(s, t | o, num_scan_inputs=1, body={{ q: float32[] p: float32[2] w: ? {body} }}) return y, z, n"
    )
    rng = np.random.default_rng(0)
    feeds = {
        name: rng.normal(size=shape).astype(np.float32) for name, shape in (("x", (3, 4)), ("s", ()), ("t", (2, 2)))
    }
    assert LocalComparison(before, after, in_onnxruntime).faults(feeds) == []


def test_pairs_behind_a_difference_are_looked_at_after_the_last_round_too() -> None:
    """A wrong pair shows a round after the one that it is made of; what none of the rounds came to is computed then."""

    def graph(first: float, last: float) -> Graph:
        chain = " ".join(f"m{i + 1} = {op}(m{i})" for i, op in enumerate(("Abs", "Relu", "Neg") * ROUNDS))
        return parse(f"x: float32[3] m0 = Mul(Exp(x), {first}) {chain} y = Mul(m{3 * ROUNDS}, {last}) return y")

    x = np.array([0.1, 0.2, 0.3], np.float32)
    assert LocalComparison(graph(2.0, 3.0), graph(6.0, 1.0), in_onnxruntime).faults({"x": x}) == []
