"""Elementary functions of kernels against numpy in wider floats: at all magnitudes, at limits, scalars and vectors."""

from __future__ import annotations

import math as libm
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from numba import njit

from graphopt.kernels import exponential, math, vectors

Array = np.ndarray[Any, Any]
WIDE = {"float32": np.float64, "float64": np.longdouble}
LANES = {"float32": 16, "float64": 8}
RNG = np.random.default_rng(0)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-abs(x)))


def erf(x: Array) -> Array:
    return np.vectorize(libm.erf, otypes=[float])(x)


# The function, and how far it may be off in float32 and float64, in units of the last place.
FUNCTIONS: dict[str, tuple[Callable[..., Any], float, float]] = {
    "exp": (np.exp, 1.01, 1.01),
    "expm1": (np.expm1, 1.6, 2),
    "log": (np.log, 1, 1),
    "log1p": (np.log1p, 1.5, 1.5),
    "tanh": (np.tanh, 2.6, 2.6),
    "sigmoid": (sigmoid, 2.5, 2.5),
    "softplus": (softplus, 2, 2),
    "sinh": (np.sinh, 2.5, 2.6),
    "cosh": (np.cosh, 1.6, 1.6),
    "asinh": (np.arcsinh, 2, 2),
    "acosh": (np.arccosh, 2.5, 2.5),
    "atanh": (np.arctanh, 2.2, 2.2),
    "erf": (erf, 1, 3.5),
    "sin": (np.sin, 1.7, 1),
    "cos": (np.cos, 1.7, 1),
    "tan": (np.tan, 3.5, 1.5),
    "asin": (np.arcsin, 2.5, 1.5),
    "acos": (np.arccos, 1.5, 1.5),
    "atan": (np.arctan, 2, 1.5),
}


def applied(expression: str, dtype: str, x: Array, y: Array | None = None) -> tuple[Array, Array]:
    """The expression over a and b, of vectors and of scalars."""
    y = x if y is None else y
    source = ["def kernel(at_x, at_y, at_many, at_one, n):"]
    source += [f"    {p} = pointer(at_{p}, {dtype})" for p in ("x", "y", "many", "one")]
    for p, lanes in (("many", LANES[dtype]), ("one", 1)):
        source.append(f"    for i in range(0, n, {lanes}):")
        source.append(f"        a, b = load(x, i, {lanes}), load(y, i, {lanes})")
        source.append(f"        store({p}, i, {expression})")
    names = {**vars(numba), **vars(vectors), **vars(math)}
    exec("\n".join(source), names)
    many, one = np.zeros_like(x), np.zeros_like(x)
    kernel = njit(error_model="numpy", fastmath={"contract"})(names["kernel"])
    kernel(*(v.ctypes.data for v in (x, y, many, one)), x.size)
    return many, one


def ulps(got: Array, want: Array) -> Array:
    """How far each is off in units of the last place; infinity where it is another kind of number."""
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        unit = np.spacing(abs(rounded)).astype(np.longdouble)
        finite = np.isfinite(rounded) & np.isfinite(got)
        off = abs(got.astype(np.longdouble) - want) / np.where(np.isfinite(unit), unit, 1)
        same = (rounded == got) | (np.isnan(rounded) & np.isnan(got))
        same &= (np.signbit(rounded) == np.signbit(got)) | (got != 0)
        return np.where(finite & (got != 0), off, np.where(same, 0, np.where(finite, off, np.inf)))


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
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_as_exact_as_they_say(name: str, dtype: str) -> None:
    oracle, *limits = FUNCTIONS[name]
    x = points(dtype)
    got, one = applied(f"{name}(a)", dtype, x)
    with np.errstate(all="ignore"):
        want = oracle(x.astype(WIDE[dtype]))
    off = ulps(got, want)
    worst = int(off.argmax())
    assert off[worst] <= limits[dtype == "float64"], (x[worst], got[worst], want[worst])
    np.testing.assert_array_equal(got, one)


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
def test_gelu(dtype: str) -> None:
    x = np.linspace(-20, 20, 8000).astype(dtype)
    wide = x.astype(float)
    unit = np.spacing(abs(x)).astype(float)
    got, _ = applied("gelu(a)", dtype, x)
    assert (abs(got - wide / 2 * (1 + erf(wide / np.sqrt(2)))) <= 3 * unit).all()
    got, _ = applied("gelu_tanh(a)", dtype, x)
    inner = np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)
    assert (abs(got - wide / 2 * (1 + np.tanh(inner))) <= 4 * unit).all()


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
