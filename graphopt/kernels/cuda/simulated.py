"""Simulated arithmetic: numpy scalars under the names of ``arithmetic`` and ``libdevice``.

Functions of float32 are computed in float64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

WORDS = (*("int8", "int16", "int32", "int64"), *("uint8", "uint16", "uint32", "uint64"))
"""The dtypes of integers."""


class _Integer:
    """A dtype of integers, called as numba calls it: floats are truncated, what does not fit wraps around."""

    def __init__(self, name: str) -> None:
        self.scalar: Any = getattr(np, name)
        info = np.iinfo(name)
        self.least, self.most, self.bits = int(info.min), int(info.max), info.bits

    def __call__(self, x: Any) -> Any:
        if isinstance(x, self.scalar):
            return x
        number = int(x) if not isinstance(x, np.floating) else _whole(x, self.bits if self.bits > 32 else 32)
        if not self.least <= number <= self.most:
            number = (number - self.least) % (1 << self.bits) + self.least
        return self.scalar(number)


def _whole(x: Any, bits: int) -> int:
    """The float truncated, as GPUs convert it: held to the range, 0 for NaN."""
    if x != x:
        return 0
    limit = float(1 << bits)  # that of unsigned integers
    return int(max(-limit / 2, min(float(x), limit)))


def _same(*args: Any) -> tuple[Any, ...]:
    """The arguments in the dtype in which they meet: that which numbers of the source do not have."""
    kinds = {type(x) for x in args}
    if len(kinds) == 1 and isinstance(args[0], np.generic):
        return args
    numpy_types = {k for k in kinds if issubclass(k, np.generic)} - {np.float64, np.int64, np.bool_}
    if len(numpy_types) > 1:
        raise TypeError(f"operands of different types: {', '.join(sorted(k.__name__ for k in kinds))}")
    if numpy_types:
        return tuple(map(DTYPES[numpy_types.pop().__name__], args))
    floats = any(issubclass(k, float) for k in kinds)
    return tuple((np.float64 if floats else DTYPES["int64"])(x) for x in args)


DTYPES: dict[str, Any] = {
    **{name: _Integer(name) for name in WORDS},
    "float32": np.float32,
    "float64": np.float64,
    "boolean": np.bool_,
}


def _by_wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of floats, computed in float64."""

    def of(*args: Any) -> Any:
        args = _same(*args)
        return type(args[0])(function(*map(np.float64, args)))

    return of


def _sigmoid(x: Any) -> Any:
    e = np.exp(-abs(x))
    return (e if x < 0 else 1.0) / (1.0 + e)


def minimum(a: Any, b: Any) -> Any:
    """The smaller; NaN where either is."""
    if type(a) is not type(b) or not isinstance(a, np.generic):
        a, b = _same(a, b)
    return b if b != b or b < a else a


def maximum(a: Any, b: Any) -> Any:
    """The larger; NaN where either is."""
    if type(a) is not type(b) or not isinstance(a, np.generic):
        a, b = _same(a, b)
    return b if b != b or b > a else a


def fma(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``; of floats rounded once, or as good as: a product of float32 is exact in float64."""
    if type(a) is type(b) is type(c) is np.float32:
        return np.float32(np.float64(a) * b + c)
    a, b, c = _same(a, b, c)
    if isinstance(a, np.float32):
        return fma(a, b, c)
    plain = a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c) if isinstance(a, np.float64) and np.isfinite(plain) else 0
    return np.float64(float(exact)) if exact else plain  # the sign of a zero is that of the plain one


def product(a: Any, b: Any) -> Any:
    """``a * b``, rounded by itself."""
    a, b = _same(a, b)
    return a * b


def quotient(a: Any, b: Any) -> Any:
    """``a / b``; of integers rounded towards zero, 0 where ``b`` is 0."""
    a, b = _same(a, b)
    if isinstance(a, np.floating):
        return a / b
    whole = abs(int(a)) // abs(int(b)) if b else 0
    return DTYPES[type(a).__name__](-whole if (a < 0) != (b < 0) else whole)


def remainder(a: Any, b: Any) -> Any:
    """The remainder of division towards zero, with the sign of ``a``; of integers 0 where ``b`` is 0."""
    a, b = _same(a, b)
    if isinstance(a, np.floating):
        return np.fmod(a, b)
    left = abs(int(a)) % abs(int(b)) if b else 0
    return type(a)(-left if a < 0 else left)


def shift_left(x: Any, count: Any) -> Any:
    """``x << count``; 0 for a count that is negative, or as large as the width."""
    x, count = _same(x, count)
    return np.left_shift(x, count)


def shift_right(x: Any, count: Any) -> Any:
    """``x >> count``; what all bits shifted out leave for a count that is negative, or as large as the width."""
    x, count = _same(x, count)
    return np.right_shift(x, count)


def pow(x: Any, y: Any) -> Any:
    """``x**y`` as C's pow; integers wrap around, and a negative ``y`` gives 0, but 1 or -1 where ``x`` is that."""
    x, y = _same(x, y)
    if isinstance(x, np.floating):
        return type(x)(np.power(np.float64(x), np.float64(y)))
    base, exponent = int(x), int(y)
    if exponent < 0 and abs(base) != 1:
        return type(x)(0)
    return DTYPES[type(x).__name__]((base if exponent % 2 else 1) if abs(base) == 1 else _power(base, exponent))


def _power(base: int, exponent: int) -> int:
    return int.__pow__(base, exponent, 1 << 64)


def cast(x: Any, dtype: Any) -> Any:
    """The scalar as another dtype, as C casts it."""
    return dtype(x)


def saturate(x: Any, dtype: Any) -> Any:
    """Held to the range of an integer dtype and cast; floats are truncated, NaN gives 0."""
    if isinstance(x, (float, np.floating)):
        if x != x:
            return dtype(0)
        x = dtype.least if x <= dtype.least else dtype.most if x >= dtype.most else int(x)
    return dtype(max(dtype.least, min(int(x), dtype.most)))


def select(mask: Any, a: Any, b: Any) -> Any:
    """``a`` where the mask holds, else ``b``."""
    a, b = _same(a, b)
    return a if mask else b


def sign(x: Any) -> Any:
    """-1, 0 or 1; zeros and NaN as they are."""
    return type(x)(1) if x > 0 else type(x)(-1) if x < 0 else x


def isnan(x: Any) -> Any:
    """Whether it is NaN."""
    return x != x


def isinf(x: Any) -> Any:
    """Whether it is infinite, of either sign."""
    return abs(x) == math.inf


def bits(x: Any) -> Any:
    """The bits of a float as a signed integer."""
    return x.view(f"int{x.itemsize * 8}")


def from_bits(x: Any) -> Any:
    """The float of which an integer is the bits."""
    return x.view(f"float{x.itemsize * 8}")


def from_half(x: Any) -> Any:
    """A float16, kept as uint16, as float32."""
    return np.float32(np.uint16(x).view(np.float16))


def to_half(x: Any) -> Any:
    """The float16 nearest to a float32, kept as uint16."""
    return np.float16(x).view(np.uint16)


def from_bfloat(x: Any) -> Any:
    """A bfloat16, kept as uint16, as float32."""
    return np.uint32(int(x) << 16).view(np.float32)


def to_bfloat(x: Any) -> Any:
    """The bfloat16 nearest to a float32, kept as uint16."""
    whole = int(np.float32(x).view(np.uint32))
    rounded = (whole >> 16) | 0x40 if x != x else (whole + 0x7FFF + (whole >> 16 & 1)) >> 16
    return np.uint16(rounded & 0xFFFF)


def to_tf32(x: Any) -> Any:
    """The nearest float32 of which tensor cores see all bits; of two, the one away from zero."""
    x = np.float32(x)
    return x if x != x else np.uint32((int(x.view(np.uint32)) + 0x1000) & 0xFFFFE000).view(np.float32)


def pair(low: Any, high: Any) -> Any:
    """Two uint16 as one uint32."""
    return np.uint32(int(DTYPES["uint16"](low)) | int(DTYPES["uint16"](high)) << 16)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        *(minimum, maximum, fma, product, quotient, remainder, pow, shift_left, shift_right),
        *(cast, saturate, select, sign, isnan, isinf, bits, from_bits),
        *(from_half, to_half, from_bfloat, to_bfloat, to_tf32, pair),
    )
}
"""The functions by the names that source calls them by."""
FUNCTIONS |= {"sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round_even": np.rint}
FUNCTIONS |= {name: _by_wide(getattr(np, name)) for name in ("exp", "expm1", "log", "log1p", "sin", "cos", "tan")}
FUNCTIONS |= {"a" + n: _by_wide(getattr(np, "arc" + n)) for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2")}
FUNCTIONS |= {name: _by_wide(getattr(np, name)) for name in ("sinh", "cosh", "tanh", "copysign")}
FUNCTIONS |= {"erf": _by_wide(math.erf), "sigmoid": _by_wide(_sigmoid)}
