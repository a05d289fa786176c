"""Elementwise ops against ONNX's cases, and where values and shapes are unusual."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.ir import ops
from graphopt.ir.tolerance import error
from graphopt.lowering.operators import activations
from graphopt.lowering.operators.elementwise import TABLE
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import Shape, agree, cases_of, check, computed, not_lowered

RANDOM = {
    "test_training_dropout",
    "test_training_dropout_default",
    "test_training_dropout_default_mask",
    "test_training_dropout_mask",
}
"""What a training run drops is random."""

SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.5, 0.5, 2.5, 3.5, 88.0, -100.0, 1e30, -1e30, np.inf, -np.inf, np.nan], np.float32
)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")


def extremes(dtype: str) -> np.ndarray[Any, Any]:
    """Small numbers, and the limits of a dtype."""
    info = np.iinfo(dtype)
    return np.array([0, 1, 2, 3, 7, info.max, info.min, info.max - 1, info.min + 1], dtype)


def pairs(a: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Each with each, by broadcasting."""
    return a[:, None], a[None, :]


@pytest.mark.parametrize("case", cases_of(TABLE, RANDOM))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered_but_random_ones() -> None:
    assert not_lowered(TABLE) == RANDOM


def test_every_elementwise_op_is_described() -> None:
    assert ops.KINDS["elementwise"] <= TABLE.keys() | activations.TABLE.keys()


# -- values


@pytest.mark.parametrize(
    "op",
    ["Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Sqrt", "Exp", "Log", "Reciprocal", "Sin", "Cos", "Atan", "Erf"],
)
def test_special_values(op: str) -> None:
    agree(op, [SPECIAL[SPECIAL != -100] if op in ("Sin", "Cos") else SPECIAL])


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Less", "GreaterOrEqual", "Equal"])
def test_pairs_of_special_values(op: str) -> None:
    agree(op, pairs(SPECIAL))


@pytest.mark.parametrize("fmod", [0, 1])
def test_mod_of_special_values(fmod: int) -> None:
    a, b = pairs(SPECIAL[np.abs(np.nan_to_num(SPECIAL)) < 1e6])
    agree("Mod", (a, b), fmod=fmod)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max", "Min", "Less", "Equal"])
def test_integers_wrap_around(op: str, dtype: str) -> None:
    agree(op, pairs(extremes(dtype)))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_integers_are_divided(op: str, dtype: str) -> None:
    a = extremes(dtype)
    b = a[(a != 0) & (a != -1 if dtype.startswith("int") else True)]
    agree(op, (a[:, None], b[None, :]))
    if op == "Mod":
        agree(op, (a[:, None], b[None, :]), fmod=1)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int8", "int32", "int64"])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_by_any_number(dtype: str, direction: str) -> None:
    agree("BitShift", pairs(extremes(dtype)), direction=direction)


@pytest.mark.parametrize("detect", [(0, 1), (1, 0), (1, 1), (0, 0)])
def test_infinities_of_either_sign(detect: tuple[int, int]) -> None:
    got = computed("IsInf", [SPECIAL], detect_negative=detect[0], detect_positive=detect[1])
    want = (np.isneginf(SPECIAL) & bool(detect[0])) | (np.isposinf(SPECIAL) & bool(detect[1]))
    assert np.array_equal(got[0], want)


@pytest.mark.parametrize("exponent", [1, 2, 3, 4, 0.5, 0.75, -1, 2.5, 0, -2])
@pytest.mark.parametrize("known", [(), (1,)])
def test_powers(exponent: float, known: tuple[int, ...]) -> None:
    base = np.array([0.5, 1, 2, 7.25], np.float32)
    agree("Pow", [base, np.array(exponent, np.float32)], known=known)
    agree("Pow", [base, np.array(exponent, np.float64)], known=known)


@pytest.mark.parametrize("known", [(), (1,)])
def test_powers_of_mixed_dtypes(known: tuple[int, ...]) -> None:
    agree("Pow", [np.array([-3, 2, 5], np.float32), np.array(3, np.int64)], known=known)
    agree("Pow", [np.array([-3, 2, 5], np.int32), np.array([2, 3, 0], np.int64)], known=known)
    agree("Pow", [np.array([1, 2, 5], np.int64), np.array([2.0, 0.5, 1.5], np.float32)], known=known)


def test_clip_by_either_limit() -> None:
    low, high = np.float32(-1), np.float32(2)
    for limits in ([low, high], [low, None], [None, high], [high, low]):
        arrays = [SPECIAL, *(None if a is None else np.asarray(a) for a in limits)]
        want = SPECIAL
        want = want if limits[0] is None else np.maximum(want, limits[0])
        want = want if limits[1] is None else np.minimum(want, limits[1])
        for known in ((), (1, 2)):
            assert np.array_equal(computed("Clip", arrays, known=known)[0], want, equal_nan=True)


# -- dtypes


@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS, "bool"])
@pytest.mark.parametrize("target", [*FLOATS, *INTEGERS, "bool"])
def test_casts(source: str, target: str) -> None:
    numbers = [0, 1, 2, 3, 100] if source.startswith("u") or target.startswith("u") else [0, 1, -1, 2.75, -2.75, -100]
    kind = getattr(ml_dtypes, source) if source == "bfloat16" else np.dtype(source)
    x = np.array(numbers).astype(kind)
    like = np.zeros((2, 3), getattr(ml_dtypes, target) if target == "bfloat16" else target)
    want = x.astype(like.dtype)
    assert error(want, computed("CastLike", [x, like])[0]) <= 0.0


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["Add", "Mul", "Div", "Exp", "Tanh", "Max"])
def test_floats_of_every_width(op: str, dtype: str) -> None:
    kind = getattr(ml_dtypes, dtype) if dtype == "bfloat16" else np.dtype(dtype)
    a = np.linspace(-3, 3, 6).astype(kind)
    unary = op in ("Exp", "Tanh")
    got = computed(op, [a] if unary else [a, a[::-1].copy()])[0]
    function = {"Add": np.add, "Mul": np.multiply, "Div": np.divide, "Max": np.maximum}.get(op)
    wide = a.astype(np.float64)
    want = getattr(np, op.lower())(wide) if function is None else function(wide, wide[::-1])
    assert got.dtype == a.dtype
    assert error(want.astype(a.dtype), got) <= 1.0


def test_truth_is_cast_from_whatever_is_not_zero() -> None:
    assert np.array_equal(computed("CastLike", [SPECIAL, np.array(True)])[0], SPECIAL.astype(bool))


# -- shapes


@pytest.mark.parametrize(
    ("shapes", "sizes"),
    [
        ([("n", 3), (1, 3)], [(4, 3), (1, 3)]),
        ([("n", "m"), ("m",)], [(2, 3), (3,)]),
        ([("n", "m"), ("m",)], [(0, 3), (3,)]),
        ([("n",), ("m",)], [(1,), (4,)]),
        ([("n",), ("m",)], [(4,), (1,)]),
        ([("n",), ("m",)], [(4,), (4,)]),
        ([("n",), ("m",)], [(1,), (0,)]),
        ([("n", 1), (1, "m")], [(2, 1), (1, 3)]),
        ([(), ("n",)], [(), (3,)]),
        ([(), ()], [(), ()]),
        ([(2, 0), (1,)], [(2, 0), (1,)]),
        ([(5, "n"), ("m", 1, 1)], [(5, 1), (2, 1, 1)]),
    ],
)
def test_broadcasting(shapes: list[Shape], sizes: list[tuple[int, ...]]) -> None:
    a, b = (np.arange(np.prod(s), dtype=np.float32).reshape(s) + k for k, s in enumerate(sizes))
    agree("Add", [a, b], shapes)
    agree("Add", [a, b])
    agree("Where", [np.asarray(a > 1), a, b], [shapes[0], *shapes])
    agree("Max", [a, b, np.float32(1)[None]], [*shapes, (1,)])


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_broadcasting_of_random_shapes(data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, 3))
    whole = [data.draw(st.sampled_from([1, 2, 3])) for _ in range(rank)]
    arrays, shapes = [], []
    for k in range(3):
        own = data.draw(st.integers(0, rank))
        sizes = [data.draw(st.sampled_from([n, 1])) for n in whole[rank - own :]]
        named = [data.draw(st.sampled_from([n, f"n{k}_{axis}"])) for axis, n in enumerate(sizes)]
        arrays.append(np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes) - k)
        shapes.append(named)
    agree("Sum", arrays, shapes)


def test_one_number_may_have_more_axes_than_it_needs() -> None:
    limit = np.array([1.5], np.float32)
    assert computed("Clip", [np.array(3, np.float32), None, limit])[0] == np.float32(1.5)


def test_a_known_number_stands_in_the_formula() -> None:
    x = np.arange(4, dtype=np.float32)
    for other in (np.float32(2), np.full((1,), 2, np.float32), np.full((2, 4), 2, np.float32)):
        agree("Mul", [x, np.asarray(other)], known=(1,))
