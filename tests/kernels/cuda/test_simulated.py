"""The twins of kernels' functions, against those of the CPU where meaning is ours to choose, and else against numpy."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numba
import numpy as np
import pytest
from numba import njit

from graphopt.kernels import masks, math, vectors
from graphopt.kernels.cuda.simulated import DTYPES, FUNCTIONS
from tests.kernels.exactness import ORACLES, Array, ulps

WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
BOTH = {
    **{f"{name}(x, y)": "" for name in ("minimum", "maximum", "quotient", "remainder")},
    "sign(x)": "",
    "select(x < y, x, y)": "",
    "maximum(x, 0)": "",
    "select(y < x, y, x)": "",
    **{f"saturate(x, {dtype})": dtype for dtype in WHOLE},
}
"""Expressions over two numbers, and the dtype of the result (the numbers' own where it is empty)."""
OF_INTEGERS = {
    **BOTH,
    "pow(x, y)": "",
    "shift_left(x, y)": "",
    "shift_right(x, y)": "",
    **{f"cast(x, {dtype})": dtype for dtype in (*WHOLE, "float32", "float64")},
    "cast(x > y, uint8)": "uint8",
}
OF_FLOATS = {
    **BOTH,
    **{f"{name}(x)": "" for name in ("sqrt", "floor", "ceil", "trunc", "round_even")},
    "copysign(x, y)": "",
    "cast(x, float64)": "float64",
    "cast(x, float32)": "float32",
    "isnan(x)": "bool",
    "isinf(x)": "bool",
    "from_bits(bits(x))": "",
    "cast(isnan(x), uint8)": "uint8",
    "select((x < y) | isnan(y), x, y)": "",
}
OF_SINGLE = {f"{a}_{b}": "uint16" if a == "to" else "" for a in ("to", "from") for b in ("half", "bfloat")}
CONVERTED = {f"cast(x, {dtype})": dtype for dtype in WHOLE}
"""What is not defined for numbers that the dtype cannot hold."""


def on_the_cpu(expressions: dict[str, str], x: Array, y: Array) -> list[Array]:
    """What the CPU's functions give, one number after another."""
    names = {**vars(numba), **vars(masks), **vars(math), **vars(vectors)}
    results = [np.zeros(x.size, dtype or x.dtype) for dtype in expressions.values()]
    source = ["def apply(X, Y, " + ", ".join(f"r{n}" for n in range(len(results))) + "):"]
    source += ["    for i in range(X.size):", "        x, y = X[i], Y[i]"]
    source += [f"        r{n}[i] = {expression}" for n, expression in enumerate(expressions)]
    exec("\n".join(source), names)
    njit(error_model="numpy")(names["apply"])(x, y, *results)
    return results


def by_twins(expression: str, x: Array, y: Array, dtype: str) -> Array:
    """What the twins give."""
    code = compile(expression, "<expression>", "eval")
    with np.errstate(all="ignore"):
        got = [eval(code, {**DTYPES, **FUNCTIONS, "x": a, "y": b}) for a, b in zip(x, y, strict=True)]
    assert {np.asarray(g).dtype for g in got} == {np.dtype(dtype)}, expression
    return np.array(got, dtype)


def check(expressions: dict[str, str], x: Array, y: Array) -> None:
    for (expression, dtype), want in zip(expressions.items(), on_the_cpu(expressions, x, y), strict=True):
        got = by_twins(expression, x, y, dtype or x.dtype.name)
        np.testing.assert_array_equal(got, want, expression)
        if want.dtype.kind == "f":
            numbers = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]), expression)


def every_pair(special: Array) -> tuple[Array, Array]:
    return np.repeat(special, special.size), np.tile(special, special.size)


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64"])
def test_integers_are_the_cpus(dtype: str) -> None:
    info = np.iinfo(dtype)
    numbers = [0, 1, 2, 3, 7, 100, info.max, info.max - 1, info.min, info.min + 1, info.max // 3, info.min // 2]
    signed = [-1, -2, -3, -7] if info.min else []
    check(OF_INTEGERS, *every_pair(np.array([*numbers, *signed], dtype)))


def floats(dtype: str) -> Array:
    info = np.finfo(dtype)
    special = [0.0, 1, 0.5, 1.5, 2.5, 3, 127.5, 255, 300, 40000.7, 2.0**31, 2.0**40, 1e10, 2.0**63, 2.0**64, 1e30]
    special += [np.inf, np.nan, info.max, info.tiny, info.smallest_subnormal]
    return np.array([*special, *(-v for v in special)], dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_are_the_cpus(dtype: str) -> None:
    check(OF_FLOATS, *every_pair(floats(dtype)))


def test_floats_become_integers_as_on_the_cpu() -> None:
    x = np.array([0, 0.9, 1.5, -1.5, 100, 127, 128, 255.9, 256, 300.4, 40000, 65536, 1e6, -0.5], "float32")
    check(CONVERTED, np.where(x < 0, np.float32(0.25), x), x)
    negative = {e: dtype for e, dtype in CONVERTED.items() if dtype != "uint64"}
    check(negative, -x, x)


def test_halves_are_the_cpus() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([floats("float32"), rng.normal(size=300).astype("float32") * np.float32(1e-3), [65520, 65519]])
    check({"to_half(x)": "uint16", "to_bfloat(x)": "uint16"}, *(x[~np.isnan(x)].astype("float32"),) * 2)
    bits = rng.integers(0, 1 << 16, 2000).astype("uint16")
    check({"from_half(x)": "float32", "from_bfloat(x)": "float32"}, bits, bits)
    for of, to in (("from_half", "to_half"), ("from_bfloat", "to_bfloat")):
        with np.errstate(all="ignore"):
            assert np.isnan(FUNCTIONS[of](FUNCTIONS[to](np.float32(np.nan))))


def test_products_and_sums_are_rounded_once() -> None:
    rng = np.random.default_rng(0)
    for dtype, wide in (("float32", np.float64), ("float64", np.longdouble)):
        a, b = rng.normal(size=(2, 300)).astype(dtype)
        c = (-a * b * (1 + np.arange(300) % 3 * 1e-3)).astype(dtype)
        got = np.array([FUNCTIONS["fma"](*numbers) for numbers in zip(a, b, c, strict=True)])
        exact = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c, strict=True)]
        assert got.dtype == dtype
        assert ulps(got, np.array([float(e) for e in exact]).astype(wide)).max() <= 0.501
    with np.errstate(over="ignore"):
        assert FUNCTIONS["fma"](np.int8(100), np.int8(2), np.int8(5)) == np.int8(-51)


TWO: dict[str, Callable[..., Any]] = {"atan2": np.arctan2, "pow": np.power}


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n in {**ORACLES, **TWO}])
def test_mathematical_functions_are_rounded_once(name: str) -> None:
    numbers = np.random.default_rng(0).normal(size=200) * np.tile([0.01, 1, 10, 100], 50)
    x = np.concatenate([floats("float32"), numbers.astype("float32")])
    y = np.roll(x, 7)
    got = by_twins(f"{name}(x, y)" if name in TWO else f"{name}(x)", x, y, "float32")
    with np.errstate(all="ignore"):
        wide = (x.astype(float), y.astype(float)) if name in TWO else (x.astype(float),)
        want = TWO[name](*wide) if name in TWO else ORACLES[name](*wide)
    assert ulps(got, want).max() <= (1 if name in ("sigmoid",) else 0.501)


def test_numbers_of_the_source_take_the_dtype_that_they_meet() -> None:
    assert FUNCTIONS["maximum"](np.float32(-1), 0.0).dtype == np.float32
    assert FUNCTIONS["minimum"](7, np.uint8(3)).dtype == np.uint8
    assert FUNCTIONS["minimum"](7, 3).dtype == np.int64
    assert FUNCTIONS["maximum"](7.0, 3).dtype == np.float64
    with pytest.raises(TypeError, match="float32, int32"):
        FUNCTIONS["maximum"](np.float32(1), np.int32(1))


def test_integers_wrap_around() -> None:
    assert DTYPES["int8"](200) == -56
    assert DTYPES["uint8"](-1) == 255
    assert DTYPES["int32"](np.int64(1 << 31)) == -(1 << 31)
    assert DTYPES["uint64"](-1) == (1 << 64) - 1
    assert DTYPES["int8"](np.float32(300.7)) == 44
