"""Scalar semantics: each function of expressions on numpy scalars, as the interpreter computes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np

from graphopt.ir.text.elements import numpy_dtype
from graphopt.lowering.loops.expressions import COMPARISONS, FLOATS

Scalar: TypeAlias = Any
"""A numpy scalar, or a Python int or bool that stands for an index or a truth value."""

OPERATORS: Final[Mapping[str, str]] = {
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "mod": "({0} % {1})",
    "floordiv": "({0} // {1})",
    "lt": "({0} < {1})",
    "le": "({0} <= {1})",
    "gt": "({0} > {1})",
    "ge": "({0} >= {1})",
    "eq": "({0} == {1})",
    "ne": "({0} != {1})",
    "and": "({0} & {1})",
    "or": "({0} | {1})",
    "not": "(not {0})",
    "bitand": "({0} & {1})",
    "bitor": "({0} | {1})",
    "bitxor": "({0} ^ {1})",
    "neg": "(-{0})",
    "abs": "abs({0})",
    "isnan": "({0} != {0})",
}
"""The functions that are Python's operators on numpy scalars and on Python's own integers."""


def is_defined(fn: str, dtype: str) -> bool:
    """Whether a function (other than ``select`` and conversions) is defined on values of the dtype."""
    if dtype == "bool":
        return fn in COMPARISONS or fn in ("and", "or", "not", "bitand", "bitor", "bitxor", "min", "max")
    if fn in ("and", "or", "not"):
        return False
    bitwise = fn in ("bitand", "bitor", "bitxor")
    if dtype in FLOATS:
        return (fn in OPERATORS and not bitwise) or fn in _PLAIN or fn in _FLOAT or fn in ("fma", "isinf")
    return fn in OPERATORS or fn in _PLAIN or fn in _INTEGER or fn == "isinf"


def function(fn: str, source: str, dtype: str) -> Callable[..., Scalar]:
    """The function from values of one dtype to values of another (``dtype``)."""
    if fn in ("cast", "saturate", "bits"):
        return {"cast": _cast, "saturate": _saturate, "bits": _bits}[fn](source, dtype)
    if fn in _PLAIN:
        return _PLAIN[fn]
    kind = numpy_dtype(dtype).type
    if dtype in FLOATS:
        if fn == "fma":
            return _float_fma(kind)
        return _through_double(_FLOAT[fn], kind)
    if fn == "isinf":
        return lambda a: source in FLOATS and abs(float(a)) == math.inf
    return _on_integers(fn, dtype, kind)


def _through_double(compute: Callable[..., Any], kind: Any) -> Callable[..., Scalar]:
    """A function of floats, computed in double precision and rounded once."""
    return lambda *args: kind(compute(*[np.float64(a) for a in args]))


def _sigmoid(x: np.float64) -> np.float64:
    return np.float64(1 / (1 + np.exp(-x)))


def _erf(x: np.float64) -> float:
    return math.erf(x)


_FLOAT: Final[Mapping[str, Callable[..., Any]]] = {
    "div": lambda a, b: a / b,
    "fmod": np.fmod,
    "pow": lambda a, b: a**b,  # np.power of 0.5 is sqrt, and so differs from C at -0.0 and minus infinity
    "atan2": np.arctan2,
    "copysign": np.copysign,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}


def _minimum(a: Scalar, b: Scalar) -> Scalar:
    return a if a < b or a != a else b


def _maximum(a: Scalar, b: Scalar) -> Scalar:
    return a if a > b or a != a else b


def _fmin(a: Scalar, b: Scalar) -> Scalar:
    return b if b < a or a != a else a


def _fmax(a: Scalar, b: Scalar) -> Scalar:
    return b if b > a or a != a else a


_PLAIN: Final[Mapping[str, Callable[..., Scalar]]] = {
    "min": _minimum,
    "max": _maximum,
    "fmin": _fmin,
    "fmax": _fmax,
}


def _float_fma(kind: Any) -> Callable[..., Scalar]:
    def fma(a: Scalar, b: Scalar, c: Scalar) -> Scalar:
        x, y, z = float(a), float(b), float(c)
        if not all(map(math.isfinite, (x, y, z))):
            return kind(np.float64(x) * y + z)
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact == 0:
            return kind(np.float64(x) * y + z)  # the sign of zero is the operands'
        if kind is not np.float64:
            return kind(_to_odd(exact))
        try:
            return kind(float(exact))
        except OverflowError:
            return kind(math.copysign(math.inf, exact))

    return fma


def _to_odd(exact: Fraction) -> np.float64:
    """The double beside the number whose last bit is odd, or the number itself: what rounds once more to fewer bits
    as the number would (Boldo and Melquiond, 2008)."""
    nearest = np.float64(float(exact))
    if Fraction(float(nearest)) == exact or int(nearest.view(np.int64)) & 1:
        return nearest
    return np.float64(np.nextafter(nearest, np.float64(math.inf if Fraction(float(nearest)) < exact else -math.inf)))


def _on_integers(fn: str, dtype: str, kind: Any) -> Callable[..., Scalar]:
    """A function of integers, in exact arithmetic and then wrapped around."""
    wrap = _wrapped(dtype, kind)
    compute = _INTEGER[fn]
    if fn in ("shl", "shr"):
        bits = 8 * np.dtype(kind).itemsize
        return lambda a, n: wrap(compute(int(a), int(n) if 0 <= n < bits else bits))  # as a shift by all bits
    return lambda *args: wrap(compute(*map(int, args)))


def _truncated(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _power(a: int, b: int) -> int:
    if b < 0:
        return 0 if abs(a) != 1 else a if b % 2 else 1
    return pow(a, b, 2**128) if a >= 0 else pow(-a, b, 2**128) * (-1 if b % 2 else 1)


def _itself(a: int) -> int:
    return a


_INTEGER: Final[Mapping[str, Callable[..., int]]] = {
    "div": _truncated,
    "fmod": lambda a, b: a - _truncated(a, b) * b if b else 0,
    "pow": _power,
    "shl": lambda a, n: a << n,
    "shr": lambda a, n: a >> n,
    "sign": lambda a: (a > 0) - (a < 0),
    "invert": lambda a: ~a,
    "copysign": lambda a, b: abs(a) if b >= 0 else -abs(a),
    "fma": lambda a, b, c: a * b + c,
    **dict.fromkeys(["floor", "ceil", "trunc", "round"], _itself),
}


def _wrapped(dtype: str, kind: Any) -> Callable[[int], Scalar]:
    """An integer as the dtype, wrapped around where it is out of range."""
    bits = 8 * np.dtype(kind).itemsize
    if dtype.startswith("uint"):
        return lambda value: kind(value % 2**bits)
    half = 2 ** (bits - 1)
    return lambda value: kind((value + half) % 2**bits - half)


def _cast(source: str, dtype: str) -> Callable[[Scalar], Scalar]:
    kind = numpy_dtype(dtype).type
    if dtype == "bool":
        return lambda a: bool(a != 0)
    if dtype not in FLOATS:
        wrap = _wrapped(dtype, kind)
        if source in FLOATS:
            return lambda a: wrap(int(a) if math.isfinite(a) else 0)
        return lambda a: wrap(int(a))
    if source in FLOATS or dtype != "float32":
        return lambda a: kind(float(a))
    return lambda a: kind(int(a))


def _saturate(source: str, dtype: str) -> Callable[[Scalar], Scalar]:
    if dtype in FLOATS or dtype == "bool":
        return _cast(source, dtype)
    kind = numpy_dtype(dtype).type
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)

    def saturate(a: Scalar) -> Scalar:
        if a != a:
            return kind(0)
        return kind(low if a <= low else high if a >= high else int(a))

    return saturate


def _bits(source: str, dtype: str) -> Callable[[Scalar], Scalar]:
    before, after = numpy_dtype(source), numpy_dtype(dtype)
    return lambda a: np.asarray(a, before).view(after)[()]
