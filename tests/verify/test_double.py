"""A part in float64 is what it computes over the reals; what was rounded on the way is off by as much."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graphopt.ir.evaluate import EvaluationError
from graphopt.ir.graph import Graph, Value
from graphopt.ir.text import parse
from graphopt.verify.double import Ulps, evaluated, widened

X = np.linspace(-1, 1, 7).astype(np.float32)


def output(graph: Graph, *, moved: bool = False, rounded: tuple[Value, ...] = ()) -> np.ndarray:
    """The output for ``X``, as it is, or with everything moved that was rounded."""
    ulps = Ulps(np.random.default_rng(0)) if moved else None
    (y,) = graph.outputs
    assert y is not None
    found: np.ndarray = evaluated(graph, {graph.inputs[0]: X}, [y], ulps, rounded)[y]
    return found


def test_float32_is_widened_and_not_rounded_on_the_way() -> None:
    graph = parse("x: float32[7]\ny = Cast(Mul(x, 0.1), to=1)\nreturn y\n")
    y = output(graph)
    assert y.dtype == np.float64
    assert np.array_equal(y, X.astype(np.float64) * np.float64(np.float32(0.1)))


def test_sizes_are_those_of_the_model() -> None:
    graph = parse("""x: float32[7]
        n = Cast(Floor(Mul(Cast(Squeeze(Shape(Pad(x, [7, 6]))), to=1), 0.35)), to=7)
        y = Mul(x, Cast(n, to=1))
        return y""")
    assert np.float32(20) * np.float32(0.35) == 7  # 6.9999998 in float64
    assert np.array_equal(output(graph), 7 * X.astype(np.float64))


def test_lists_of_sizes_stay_lists() -> None:
    graph = parse("""x: float32[7]
        y = Mul(x, Cast(SequenceAt(SplitToSequence([4, 2, 3], [2, 1]), 1), to=1))
        return y""")
    assert np.array_equal(output(graph), 3 * X.astype(np.float64))


def test_a_value_without_axes_is_an_array() -> None:
    graph = parse("x: float32[]\ny = Mul(Mul(x, 0.1), x)\nreturn y\n")
    (y,) = graph.outputs
    assert y is not None
    found = evaluated(graph, {graph.inputs[0]: np.array(3, np.float32)}, [y], Ulps(np.random.default_rng(0)))[y]
    assert isinstance(found, np.ndarray)
    assert found.shape == ()


@pytest.mark.parametrize(("number", "dtype", "digits"), [(10, np.float16, 10), (16, ml_dtypes.bfloat16, 7)])
def test_narrower_floats_are_widened_too(number: int, dtype: type, digits: int) -> None:
    x = X.astype(dtype)
    wide = widened(x)
    assert wide.dtype == np.float64
    assert np.array_equal(wide, x.astype(np.float64), equal_nan=True)
    with np.errstate(all="ignore"):
        far = np.abs(widened(x, Ulps(np.random.default_rng(0))) - wide)
    ulp = 2.0 ** (np.floor(np.log2(np.abs(wide[far > 0]))) - digits)
    assert (far > 0).any()
    assert np.array_equal(far[far > 0], ulp)
    graph = parse(f"x: float32[7]\ny = Cast(Mul(x, 0.1), to={number})\nreturn y\n")
    assert np.array_equal(output(graph), X.astype(np.float64) * np.float64(np.float32(0.1)))


def test_constants_and_what_was_rounded_move_by_one_ulp() -> None:
    graph = parse("x: float32[7]\ny = Mul(x, 0.1)\nreturn y\n")
    y = output(graph)
    by_constant, by_both = output(graph, moved=True), output(graph, moved=True, rounded=(graph.inputs[0],))
    with np.errstate(all="ignore"):
        ulps = [np.abs(y - other) / np.spacing(np.abs(y).astype(np.float32)) for other in (by_constant, by_both)]
    assert 0 < ulps[0].max() <= 2
    assert ulps[0].max() < ulps[1].max() <= 4


@pytest.mark.parametrize("is_inside", [True, False])
def test_what_nodes_make_moves_too_where_digits_are_told(is_inside: bool) -> None:
    """What cancels is as large as the rounding of what it is made of."""
    cancelling = "m = Mul(q, 0.1) n = Add(m, 1.0) r = Sub(n, Add(m, 1.0))"
    plain = cancelling.replace("q", "x").replace("r =", "y =")
    body = f"y = If(c | x, then_branch={{ q: ? {cancelling} return r }}, else_branch={{ q: ? return q }})"
    graph = parse(f"c: bool[] x: float32[7] {body if is_inside else plain} return y")
    (y,) = graph.outputs
    assert y is not None
    given = dict(zip(graph.inputs, (np.array(True), X), strict=True))
    rng = np.random.default_rng(0)
    far = [np.abs(evaluated(graph, given, [y], Ulps(rng, digits))[y]).max() for digits in (None, 23)]
    assert far[0] == 0
    assert 2.0**-24 < far[1] < 2.0**-20


@pytest.mark.parametrize("taken", [True, False])
def test_the_branch_is_evaluated_that_a_condition_takes(taken: bool) -> None:
    branches = "then_branch={ q: ? r = Mul(q, 0.1) return r }, else_branch={ q: ? r = Neg(q) return r }"
    graph = parse(f"c: bool[] x: float32[7] y = If(c | x, {branches}) return y")
    (y,) = graph.outputs
    assert y is not None
    made = evaluated(graph, dict(zip(graph.inputs, (np.array(taken), X), strict=True)), [y])[y]
    wide = X.astype(np.float64)
    assert np.array_equal(made, wide * np.float64(np.float32(0.1)) if taken else -wide)


def test_attributes_are_rounded_as_constants_are() -> None:
    graph = parse("x: float32[1] y = HardSigmoid(x, alpha=0.16666667) return y")
    x, y = graph.inputs[0], graph.outputs[0]
    assert y is not None
    given = {x: np.array([-2.9], np.float32)}
    made = [evaluated(graph, given, [y], Ulps(np.random.default_rng(seed)))[y].item() for seed in range(20)]
    assert 1e-8 < max(made) - min(made) < 1e-7
    assert evaluated(graph, given, [y])[y].item() == evaluated(graph, given, [y])[y].item()


@pytest.mark.parametrize(("count", "goes_on", "rounds"), [("3", "true", 3), ("9", "true", 4), ("2", "_", 2)])
def test_the_rounds_of_a_loop_are_evaluated(count: str, goes_on: str, rounds: int) -> None:
    condition = "_" if goes_on == "_" else f"bool[]{{{goes_on}}}"
    graph = parse(f"""x: float32[7]
        y, z = Loop({count}, {condition}, x, body={{
            i: int64[] c: bool[] s: float32[7]
            t = Mul(s, 1.5)
            d = Less(i, 3)
            return d, t, s
        }})
        return y, z""")
    y, z = graph.outputs
    assert y is not None
    assert z is not None
    made = evaluated(graph, {graph.inputs[0]: X}, [y, z])
    np.testing.assert_array_equal(made[y], X.astype(np.float64) * 1.5**rounds)
    np.testing.assert_array_equal(made[z], [X.astype(np.float64) * 1.5**k for k in range(rounds)])


@pytest.mark.parametrize("count", [0, 1000])
def test_loops_of_no_rounds_or_many_are_not_evaluated(count: int) -> None:
    body = "{ i: int64[] c: bool[] s: float32[7] t = Mul(s, 1.5) return c, t }"
    graph = parse(f"x: float32[7] y = Loop({count}, bool[]{{true}}, x, body={body}) return y")
    (y,) = graph.outputs
    assert y is not None
    with pytest.raises(EvaluationError, match="a Loop of"):
        evaluated(graph, {graph.inputs[0]: X}, [y])


def test_a_list_that_a_loop_appends_to_is_a_list_of_float64() -> None:
    graph = parse("""x: float32[7] e = SequenceEmpty()
        y = Loop(3, bool[]{true}, e | x, body={
            i: int64[] c: bool[] s: sequence(float32[*]) x: float32[7]
            n = Add(Cast(i, to=7), 1)
            t = SequenceInsert(s, Slice(x, [0], Unsqueeze(n, [0]), [0]))
            return c, t
        })
        return y""")
    (y,) = graph.outputs
    assert y is not None
    made = evaluated(graph, {graph.inputs[0]: X}, [y])[y]
    assert [part.dtype for part in made] == [np.float64] * 3
    for k, part in enumerate(made):
        np.testing.assert_array_equal(part, X[: k + 1].astype(np.float64))
