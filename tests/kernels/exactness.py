"""How far elementary functions of kernels are from the numbers that they stand for, in units of the last place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba import njit
from scipy import special

from graphopt.kernels import math, vectors

Array = np.ndarray[Any, Any]
WIDE = {"float32": np.float64, "float64": np.longdouble}
LANES = {"float32": 16, "float64": 8}
PAIRED = frozenset({"atan2", "pow"})
"""Functions of two numbers."""
OF_ARGUMENT = frozenset({"gelu", "gelu_tanh"})
"""Functions whose errors are told in units of the last place of their argument: they take a small difference."""


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-abs(x)))


def erf(x: Array) -> Array:
    return np.asarray(special.erf(x.astype(float)))


def gelu(x: Array) -> Array:
    return x * special.ndtr(x.astype(float))


def gelu_tanh(x: Array) -> Array:
    return x * sigmoid(2 * np.sqrt(2 / np.asarray(np.pi, x.dtype)) * (x + 0.044715 * x**3))


ORACLES: dict[str, Callable[..., Array]] = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "pow": np.power,
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "softplus": softplus,
    "erf": erf,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
}
"""Of numbers in wider floats; ``erf`` and ``gelu`` go by float64, so that their figures for float64 have its error."""


def kernel(expression: str, dtype: str) -> Callable[..., Any]:
    """A function of addresses of ``a``, ``b``, and of where the expression over them goes: by vectors, and by scalars;
    and of how many there are."""
    source = ["def kernel(at_x, at_y, at_many, at_one, n):"]
    source += [f"    {p} = pointer(at_{p}, {dtype})" for p in ("x", "y", "many", "one")]
    for p, lanes in (("many", LANES[dtype]), ("one", 1)):
        source.append(f"    for i in range(0, n, {lanes}):")
        source.append(f"        a, b = load(x, i, {lanes}), load(y, i, {lanes})")
        source.append(f"        store({p}, i, {expression})")
    names = {**vars(numba), **vars(vectors), **vars(math)}
    exec("\n".join(source), names)
    return njit(error_model="numpy", fastmath={"contract"})(names["kernel"])  # type: ignore[no-any-return]


def applied(expression: str, dtype: str, x: Array, y: Array | None = None) -> tuple[Array, Array]:
    """The expression over a and b, of vectors and of scalars."""
    return called(kernel(expression, dtype), x, x if y is None else y)


def called(made: Callable[..., Any], x: Array, y: Array) -> tuple[Array, Array]:
    """What a kernel gives, of vectors and of scalars."""
    many, one = np.zeros_like(x), np.zeros_like(x)
    made(*(v.ctypes.data for v in (x, y, many, one)), x.size)
    return many, one


def ulps(got: Array, want: Array, like: Array | None = None) -> Array:
    """How far each is off in units of the last place (of ``like``, where that is given); infinity where it is another
    kind of number."""
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        unit = np.spacing(abs(rounded if like is None else like)).astype(want.dtype)
        finite = np.isfinite(rounded) & np.isfinite(got)
        off = abs(got.astype(want.dtype) - want) / np.where(np.isfinite(unit), unit, 1)
        same = (rounded == got) | (np.isnan(rounded) & np.isnan(got))
        same &= (np.signbit(rounded) == np.signbit(got)) | (got != 0) | (like is not None)
        return np.where(finite & (got != 0), off, np.where(same, 0, np.where(finite, off, np.inf)))


@dataclass(frozen=True)
class Worst:
    """The largest error of a function, and where it is."""

    ulps: float
    x: float
    got: float
    want: float


def worst(name: str, made: Callable[..., Any], x: Array, y: Array | None = None) -> Worst:
    """The largest error of a function at some numbers; NaN where vectors and scalars give other bits."""
    y = x if y is None else y
    got, one = called(made, x, y)
    wide = WIDE[x.dtype.name]
    with np.errstate(all="ignore"):
        arguments = (x.astype(wide), y.astype(wide)) if name in PAIRED else (x.astype(wide),)
        want = ORACLES[name](*arguments).astype(wide)
    off = ulps(got, want, x if name in OF_ARGUMENT else None)
    k = int(off.argmax())
    agree = np.array_equal(got, one, equal_nan=True)
    return Worst(float(off[k]) if agree else np.nan, float(x[k]), float(got[k]), float(want[k]))


def expression(name: str) -> str:
    """A call of the function."""
    return f"{name}(a, b)" if name in PAIRED else f"{name}(a)"


def all_floats(every: int, size: int = 1 << 20) -> Iterator[Array]:
    """Every so many float32 of all that there are, NaNs but one and infinities included, by parts of a size."""
    highest = np.uint32(0x7F800001)
    for start in range(0, int(highest), every * size):
        bits = np.arange(start, min(start + every * size, int(highest)), every, np.uint64).astype(np.uint32)
        bits = np.concatenate([bits, np.repeat(bits[-1:], -bits.size % 16)])
        yield bits.view(np.float32)
        yield (bits | np.uint32(1 << 31)).view(np.float32)


def exponents(dtype: str, each: int, seed: int = 0) -> Array:
    """So many random numbers of either sign for each exponent that the dtype has, subnormals included."""
    info, rng = np.finfo(dtype), np.random.default_rng(seed)
    powers = np.arange(info.minexp - info.nmant, info.maxexp)
    sizes = rng.uniform(1, 2, (powers.size, each)).astype(dtype)
    x = np.ldexp(sizes, powers[:, None]).astype(dtype).ravel()
    x = np.concatenate([x, -x])
    return x[: x.size // 16 * 16].copy()


def ordinary(dtype: str, size: int, seed: int = 0) -> Array:
    """So many random numbers each within 1, 20 and 800, where functions bend."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.uniform(-most, most, size // 16 * 16) for most in (1.1, 20, 800)]).astype(dtype)


def pairs(dtype: str, size: int, seed: int = 0) -> tuple[Array, Array]:
    """Bases of all exponents, and powers to which most of them are finite."""
    x = abs(exponents(dtype, -(-size // (2 * np.finfo(dtype).maxexp)), seed))
    rng, most = np.random.default_rng(seed), float(np.finfo(dtype).maxexp)
    with np.errstate(all="ignore"):
        reach = most / np.maximum(abs(np.log2(x.astype(np.float64))), 1e-3)
    y = (rng.uniform(-1.1, 1.1, x.size) * np.minimum(reach, 1e6)).astype(dtype)
    return x, y
