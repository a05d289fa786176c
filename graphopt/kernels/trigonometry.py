"""Trigonometric functions and their inverses, over values: polynomials in float32, the C library in float64.

A family of ``math`` with a reduction of its own: an angle is reduced to within an eighth of a turn in float64,
where it loses nothing up to 2**30; of a larger one, which no model has, the C library is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi

from numba import types
from numba.core import cgutils

from graphopt.kernels import libm
from graphopt.kernels.exponential import polynomial
from graphopt.kernels.reductions import reduce_or
from graphopt.kernels.values import (
    VectorValue,
    absolute,
    bits,
    cast,
    copysign,
    equal,
    fma,
    from_bits,
    intrinsic,
    not_equal,
    select,
    sqrt,
    width,
)

LIMIT = 2.0**30
HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
"""Half of pi, and what that number leaves out."""

# Of (sin(x) / x - 1) / x**2 and (cos(x) - 1 + x**2 / 2) / x**4 over x**2, for |x| <= pi / 4.
SIN = (-0.166666538, 0.00833211467, -0.000195096247)
COS = (0.0416666456, -0.00138873048, 2.44314379e-05)
# Of (asin(x) / x - 1) / x**2 over x**2, for |x| <= 1/2.
ASIN = (0.166666597, 0.0750051737, 0.0445148535, 0.0318228118, 0.0143881617, 0.0375803448)
# Of (atan(x) / x - 1) / x**2 over x**2, for |x| <= 1.
ATAN = (
    -0.333332986,
    0.199985325,
    -0.142640784,
    0.109513476,
    -0.0840103179,
    0.0579165332,
    -0.0311371647,
    0.0108928485,
    -0.00178876985,
)


def _quarters(x: VectorValue) -> tuple[VectorValue, VectorValue, VectorValue]:
    """The nearest number of quarter turns, and sine and cosine of the rest."""
    wide = cast(x, types.float64)
    n = intrinsic("rint", wide * (2 / pi))
    rest = fma(n, wide.number(-HALF_PI[1]), fma(n, wide.number(-HALF_PI[0]), wide))
    r = cast(rest, types.float32)
    z = r * r
    sine = fma(z * r, polynomial(z, SIN), r)
    cosine = fma(z * z, polynomial(z, COS), fma(z, z.number(-0.5), z.number(1.0)))
    return cast(n, types.int32), sine, cosine


def _or_libm(x: VectorValue, name: str, formula: Callable[[VectorValue], VectorValue]) -> VectorValue:
    """The formula; in lanes for which it does not hold, what the C library says."""
    if width(x.dtype) == 64:
        return libm.each(name, x)
    near, beyond = formula(x), absolute(x) >= LIMIT
    slot = cgutils.alloca_once_value(x.builder, near.ir)  # type: ignore[no-untyped-call]
    with x.builder.if_then(reduce_or(beyond).ir, likely=False):
        x.builder.store(select(beyond, libm.each(name, x), near).ir, slot)
    return VectorValue(x.builder, x.builder.load(slot, typ=x.ir.type), x.dtype, x.lanes)


def _negated(x: VectorValue, where: VectorValue) -> VectorValue:
    """``x`` with the other sign where bit 1 of an integer is set."""
    return from_bits(bits(x) ^ ((where & 2) << 30))


def _signed_zero(x: VectorValue, result: VectorValue) -> VectorValue:
    """The result; of a zero, the zero itself, whose sign the reduction loses."""
    return select(equal(x, 0.0), x, result)


def sin(x: VectorValue) -> VectorValue:
    """``sin(x)``: float32 within 2 ulps, float64 by the C library."""

    def formula(x: VectorValue) -> VectorValue:
        n, sine, cosine = _quarters(x)
        return _signed_zero(x, _negated(select(not_equal(n & 1, 0), cosine, sine), n))

    return _or_libm(x, "sin", formula)


def cos(x: VectorValue) -> VectorValue:
    """``cos(x)``: float32 within 2 ulps, float64 by the C library."""

    def formula(x: VectorValue) -> VectorValue:
        n, sine, cosine = _quarters(x)
        return _negated(select(not_equal(n & 1, 0), sine, cosine), n + 1)

    return _or_libm(x, "cos", formula)


def tan(x: VectorValue) -> VectorValue:
    """``tan(x)``: float32 within 4 ulps, float64 by the C library."""

    def formula(x: VectorValue) -> VectorValue:
        n, sine, cosine = _quarters(x)
        odd = not_equal(n & 1, 0)
        return _signed_zero(x, select(odd, -cosine, sine) / select(odd, sine, cosine))

    return _or_libm(x, "tan", formula)


def _asin(size: VectorValue) -> tuple[VectorValue, VectorValue]:
    """Of a magnitude, whether it is above 1/2, and asin of it, or of ``sqrt((1 - size) / 2)`` where it is."""
    large = size > 0.5
    z = select(large, (1.0 - size) * 0.5, size * size)
    root = select(large, sqrt(z), size)
    return large, fma(root * z, polynomial(z, ASIN), root)


def asin(x: VectorValue) -> VectorValue:
    """``asin(x)``: float32 within 3 ulps, float64 by the C library; NaN beyond 1."""
    if width(x.dtype) == 64:
        return libm.each("asin", x)
    large, near = _asin(absolute(x))
    return copysign(select(large, fma(near, near.number(-2.0), near.number(pi / 2)), near), x)


def acos(x: VectorValue) -> VectorValue:
    """``acos(x)``: float32 within 2 ulps, float64 by the C library; NaN beyond 1."""
    if width(x.dtype) == 64:
        return libm.each("acos", x)
    large, near = _asin(absolute(x))
    outer = select(x < 0.0, fma(near, near.number(-2.0), near.number(pi)), near * 2.0)
    return select(large, outer, x.number(pi / 2) - copysign(near, x))


def atan(x: VectorValue) -> VectorValue:
    """``atan(x)``: float32 within 2 ulps, float64 by the C library."""
    if width(x.dtype) == 64:
        return libm.each("atan", x)
    size = absolute(x)
    large = size > 1.0
    near = _atan(select(large, x.number(1.0), size) / select(large, size, x.number(1.0)))
    return copysign(select(large, x.number(pi / 2) - near, near), x)


def atan2(y: VectorValue, x: VectorValue) -> VectorValue:
    """``atan2(y, x)``, with the limits of C's: float32 within 3 ulps, float64 by the C library."""
    if width(x.dtype) == 64:
        return libm.each("atan2", y, x)
    wide, high = absolute(x), absolute(y)
    steep = high > wide
    less, more = select(steep, wide, high), select(steep, high, wide)
    ratio = select(equal(less, more), x.number(1.0), less / more)  # of infinities, too
    near = _atan(select(equal(more, 0.0), less, ratio))
    angle = select(steep, x.number(pi / 2) - near, near)
    return copysign(select(bits(x) < 0, x.number(pi) - angle, angle), y)


def _atan(t: VectorValue) -> VectorValue:
    """``atan(t)`` for t from 0 up to 1."""
    z = t * t
    return fma(t * z, polynomial(z, ATAN), t)
