"""Elementary functions of kernels against numpy in wider floats: at all magnitudes, at limits, scalars and vectors."""

from __future__ import annotations

import math as python
from pathlib import Path

import numba
import numpy as np
import pytest
from numba import njit

from graphopt.kernels import exponential, math, vectors
from tests.kernels.exactness import (
    ORACLES,
    PAIRED,
    WIDE,
    Array,
    applied,
    exponents,
    expression,
    kernel,
    pairs,
    ulps,
    worst,
)

RNG = np.random.default_rng(0)
PAGE = Path(__file__).parents[2] / "docs" / "functions.md"


def stated() -> dict[str, tuple[float, float]]:
    """By function, how far the page says that it may be off in float32 and float64, in units of the last place."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return {name.strip("`"): (float(narrow), float(wide)) for name, narrow, _, wide in rows}


def test_the_page_states_the_error_of_each_function() -> None:
    functions = {name for name, value in vars(math).items() if isinstance(value, type(math.exp))}
    assert set(stated()) == set(ORACLES) == functions


def points(dtype: str, size: int = 8000) -> Array:
    """Numbers of all magnitudes, more where functions bend, and the special ones, limits of exp and tanh among them."""
    info = np.finfo(dtype)
    edges = [np.log(float(info.max)), np.log(float(info.smallest_subnormal)), np.log(float(info.tiny)), 9.01, 19.06]
    special = [0, np.inf, np.nan, 1, 0.5, 2, info.max, info.tiny, info.smallest_subnormal, 1e-40, 2.0**30, 2.0**31]
    near = [np.nextafter(np.dtype(dtype).type(e), np.dtype(dtype).type(w)) for e in edges for w in (-1e30, e, 1e30)]
    spread = np.exp(RNG.uniform(np.log(float(info.tiny)), np.log(float(info.max)), size))
    parts = [special, near, np.linspace(0, 1.01, size), np.linspace(0, 12, size), np.linspace(0, 800, size), spread]
    with np.errstate(all="ignore"):
        x = np.concatenate([np.asarray(p, dtype) for p in parts])
    x = np.concatenate([x, -x])
    return x[: x.size // 16 * 16].copy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ORACLES)
def test_functions_are_as_exact_as_the_page_says(name: str, dtype: str) -> None:
    x = points(dtype)
    arguments = pairs(dtype, 8000) if name in PAIRED else (np.concatenate([x, exponents(dtype, 8)[: x.size]]),)
    found = worst(name, kernel(expression(name), dtype), *arguments)
    assert found.ulps <= stated()[name][dtype == "float64"], found


SPECIAL = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (np.inf, np.inf), (-np.inf, 0.0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (np.inf, np.inf), (-np.inf, -1.0)],
    "log": [(1.0, 0.0), (0.0, -np.inf), (-0.0, -np.inf), (np.inf, np.inf), (-1.0, np.nan), (-np.inf, np.nan)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -np.inf), (np.inf, np.inf), (-2.0, np.nan), (-np.inf, np.nan)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (np.inf, 1.0), (-np.inf, -1.0), (20.0, 1.0), (-20.0, -1.0)],
    "sigmoid": [(0.0, 0.5), (-0.0, 0.5), (np.inf, 1.0), (-np.inf, 0.0)],
    "softplus": [(np.inf, np.inf), (-np.inf, 0.0), (1e4, 1e4)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (np.inf, 1.0), (-np.inf, -1.0), (7.0, 1.0), (-7.0, -1.0)],
    "gelu": [(0.0, 0.0), (-0.0, -0.0), (np.inf, np.inf), (40.0, 40.0)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (np.inf, np.nan), (-np.inf, np.nan)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (np.inf, np.nan), (-np.inf, np.nan)],
    "atanh": [(1.0, np.inf), (-1.0, -np.inf), (0.0, 0.0), (-0.0, -0.0), (2.0, np.nan)],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values_are_exact(name: str, dtype: str) -> None:
    x, want = (np.resize(np.array(part, dtype), 16) for part in zip(*SPECIAL[name], (np.nan, np.nan), strict=True))
    many, one = applied(f"{name}(a)", dtype, x)
    for got in (many, one):
        np.testing.assert_array_equal(got, want)
        numbers = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])


def test_the_limits_of_exp_are_exact() -> None:
    up, down = np.float32(200), np.float32(-200)
    largest = np.nextafter(np.float32(np.log(np.finfo("float32").max)), down)
    smallest = np.float32(np.log(2.0**-150))
    edges = [largest, np.nextafter(largest, up), np.nextafter(smallest, up), np.nextafter(smallest, down)]
    got = applied("exp(a)", "float32", np.repeat(np.array(edges, "float32"), 16))[0][::16]
    assert np.isfinite(got[0])
    assert got[1] == np.inf
    assert got[2] == np.float32(1e-45)
    assert got[3] == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers(dtype: str) -> None:
    special = [0.0, 1, 2, 0.5, 3, np.inf, np.nan, 1e-40, 3e38, 2.0**24, 2.0**24 + 2, 1e9, 0.9999999, 1.0000001]
    signed = np.array([*special, *(-v for v in special), 7.5, -7.5, 10, -10], dtype)
    x = np.concatenate([np.repeat(signed, signed.size), np.exp(RNG.normal(size=8000) * 3).astype(dtype)])
    y = np.concatenate([np.tile(signed, signed.size), (RNG.normal(size=8000) * 6).astype(dtype)])
    got, one = applied("pow(a, b)", dtype, x, y)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(WIDE[dtype]), y.astype(WIDE[dtype]))
    off = ulps(got, want)
    worst = int(off.argmax())
    assert off[worst] <= 1, (x[worst], y[worst], got[worst], want[worst])
    np.testing.assert_array_equal(got, one)


def test_powers_of_whole_numbers_are_those_of_the_c_library() -> None:
    """By products up to 2**53, and beyond; of vectors of which some lanes are whole, and of such of which all are."""
    limits = np.repeat([-0.0, np.inf, -np.inf, np.nan], 8), np.tile([0.0, 1, 2, 3, 4, 62, 63, 64], 4)
    grid = (v.ravel() for v in np.meshgrid(np.arange(-12.0, 12), np.arange(-3.0, 65)))
    x, y = (np.concatenate(pair) for pair in zip(grid, limits, strict=True))
    assert x.size % 16 == 0
    for base, exponent in ((x, y), (np.where(np.arange(x.size) % 5, x, x + 0.5), y), (x, y + (y == 7) / 4)):
        got, one = applied("pow(a, b)", "float64", base, exponent)
        with np.errstate(all="ignore"):
            want = np.array([_power(a, b) for a, b in zip(base, exponent, strict=True)])
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want) | (np.isnan(want) & np.signbit(got)))
        np.testing.assert_array_equal(got, one)


def _power(a: float, b: float) -> float:
    """C's pow, of which Python raises the limits as errors."""
    try:
        return python.pow(a, b)
    except OverflowError:
        return -np.inf if a < 0 and b % 2 == 1 else np.inf
    except ValueError:  # of zeros to negative powers, which are infinite, and of negative numbers to broken ones
        return np.nan if a else -np.inf if np.signbit(a) and b % 2 == 1 else np.inf


def test_integers_have_powers() -> None:
    names = {**vars(numba), **vars(vectors), **vars(math)}
    exec(
        """
def kernel(at_x, at_y, at_many, at_one):
    x, y, many, one = pointer(at_x, int32), pointer(at_y, int32), pointer(at_many, int32), pointer(at_one, int32)
    store(many, 0, pow(load(x, 0, 16), load(y, 0, 16)))
    for i in range(16):
        store(one, i, pow(load(x, i, 1), load(y, i, 1)))
""",
        names,
    )
    x = np.array([0, 0, 1, -1, -1, 2, 3, -3, 7, 10, 2, 2, 5, -2, 2, -1], "int32")
    y = np.array([0, 3, -5, -3, 2, 30, 5, 3, 2, 9, 40, -1, 0, 31, 31, 2**31 - 1], "int32")
    many, one = np.zeros_like(x), np.zeros_like(x)
    njit(names["kernel"])(*(v.ctypes.data for v in (x, y, many, one)))
    exact = [int(a) ** int(b) if b >= 0 else int(float(a) ** int(b)) for a, b in zip(x, y, strict=True)]
    want = [(v + 2**31) % 2**32 - 2**31 for v in exact]
    assert many.tolist() == one.tolist() == want


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", ["exp(a)", "cosh(a)", "pow(abs(a), b)"])
def test_results_do_not_depend_on_the_instruction_set(
    function: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = points(dtype)
    here, _ = applied(function, dtype, x, x[::-1].copy())
    monkeypatch.setattr(exponential, "vector_bytes", lambda: 32)
    there, _ = applied(function, dtype, x, x[::-1].copy())
    np.testing.assert_array_equal(here, there)
