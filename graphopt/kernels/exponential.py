"""Exponential function, logarithm, powers and relatives, over values of float32 or float64.

``exp(x)`` is ``2**n * exp(r)`` with ``n`` the integer nearest to ``x / log(2)``: a polynomial for ``exp(r)``, and the
power of two made of its bits; ``x**y`` is ``2**(y * log2(x))``, of float32 by way of float64. Polynomials here are
near-minimax, fitted to the interval on which they are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan

import llvmlite.ir as llvm
from numba import types
from numba.core import cgutils

from graphopt.kernels import libm, values
from graphopt.kernels.host import vector_bytes
from graphopt.kernels.reductions import reduce_and, reduce_or, shuffle
from graphopt.kernels.values import (
    VectorValue,
    absolute,
    cast,
    equal,
    fma,
    from_bits,
    integer,
    intrinsic,
    not_equal,
    select,
    width,
)

LOG2_E = 1.4426950408889634
LN_2 = {32: (0.693359375, -0.00021219444170128554), 64: (0.6931471805598903, 5.497923018708371e-14)}
"""log(2) as a short number and the rest."""

WHOLE = 2.0**53
"""Up to here float64 has all whole numbers, and so all products that lead to them,"""
EXPONENT_BITS = 6
"""and powers of 2 and more with exponents of more bits are larger."""

# Of exp(r) - 1 - r over r**2, for |r| <= log(2) / 2; the constant term first.
EXP = {
    32: (0.49999994, 0.166665152, 0.0416682363, 0.00836938806, 0.0013825373),
    64: (
        0.5000000000000011,
        0.1666666666666641,
        0.04166666666652896,
        0.008333333333495351,
        0.0013888888943976215,
        0.00019841269505512305,
        2.4801492711876428e-05,
        2.7557586581956626e-06,
        2.763039544051476e-07,
        2.500022668571917e-08,
    ),
}
# Of 2**r, for |r| <= 1/2, in float32.
EXP2_32 = (1.0, 0.693147203, 0.240226479, 0.0555033247, 0.00961843742, 0.00133988761, 0.000153533504)
# Added to a number of a magnitude below its third, these leave no bits for what is no integer.
NO_FRACTION = {32: 1.5 * 2.0**23, 64: 1.5 * 2.0**52}
# Beyond these exp is infinite and 0, and the power of two would have no bits.
EXP_RANGE = {32: (-104.0, 89.0), 64: (-746.0, 710.0)}
# Below these in magnitude, expm1(x) and log1p(x) are x.
EPSILON = {32: 2.0**-26, 64: 2.0**-55}
SMALLEST_NORMAL = {32: 2.0**-126, 64: 2.0**-1022}
SQRT_HALF_BITS = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}
# Of (log(1 + f) - f + f**2 / 2) / f**3, for sqrt(1/2) <= 1 + f < sqrt(2).
LOG_32 = (
    0.333333105,
    -0.25000003,
    0.200022355,
    -0.166683018,
    0.142176107,
    -0.124005765,
    0.11897663,
    -0.11703746,
    0.0675573349,
)
# Of (log((1 + s) / (1 - s)) - 2 * s) / s**3 over s**2, with s = f / (2 + f): the form is that of FreeBSD's e_log.c.
LOG_64 = (
    0.6666666666666737,
    0.39999999999394387,
    0.2857142874719051,
    0.2222219805008492,
    0.18183593058365313,
    0.15313276954284397,
    0.1480406343613271,
)
MANTISSA = {32: 23, 64: 52}
BIAS = {32: 127, 64: 1023}


def polynomial(x: VectorValue, coefficients: Sequence[float]) -> VectorValue:
    """The polynomial by Horner's rule in fused steps; the constant term comes first."""
    result = x.number(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, x.number(coefficient))
    return result


def in_pairs(x: VectorValue, square: VectorValue, coefficients: Sequence[float]) -> VectorValue:
    """The same with ``x**2`` given: two terms at a time, so that half as many steps wait for each other."""
    numbers = [x.number(c) for c in coefficients]
    terms = [fma(numbers[k + 1], x, numbers[k]) for k in range(0, len(numbers) - 1, 2)] + numbers[len(numbers) & ~1 :]
    result = terms[-1]
    for term in reversed(terms[:-1]):
        result = fma(result, square, term)
    return result


def clamp(x: VectorValue, low: float, high: float) -> VectorValue:
    """``x`` held to a range; NaN stays NaN."""
    x = select(x > high, x.number(high), x)
    return select(x < low, x.number(low), x)


def nearest(x: VectorValue, factor: float) -> VectorValue:
    """The integer nearest to ``x * factor``, as a float; its magnitude is below 2**22 or 2**51."""
    large = x.number(NO_FRACTION[width(x.dtype)])  # faster than to round it
    return fma(x, x.number(factor), large) - large


def power_of_two(n: VectorValue) -> VectorValue:
    """``2.0**n`` of integers within the exponents of normal floats of their width."""
    bits = width(n.dtype)
    return from_bits((n + BIAS[bits]) << MANTISSA[bits])


def reduced(x: VectorValue) -> tuple[VectorValue, VectorValue]:
    """``n``, the integer nearest to ``x / log(2)``, as a float, and ``exp(r) - 1`` of what is left of ``x``."""
    bits = width(x.dtype)
    high, low = LN_2[bits]
    n = nearest(x, LOG2_E)
    r = fma(n, x.number(-low), fma(n, x.number(-high), x))
    square = r * r
    return n, fma(square, in_pairs(r, square, EXP[bits]), r)


def scaled(x: VectorValue, n: VectorValue) -> VectorValue:
    """``x * 2**n`` for a float ``n`` within twice the range of exponents, rounded once; ``x`` is around 1."""
    bits = width(x.dtype)
    if bits * x.lanes >= 512 and vector_bytes() == 64:
        if bits * x.lanes > 512:
            pieces = (range(x.lanes // 2), range(x.lanes // 2, x.lanes))
            low, high = (scaled(shuffle(x, x, piece), shuffle(n, n, piece)) for piece in pieces)
            return shuffle(low, high, range(x.lanes))
        name = f"llvm.x86.avx512.mask.scalef.p{'s' if bits == 32 else 'd'}.512"
        every, as_is = llvm.Constant(llvm.IntType(x.lanes), -1), llvm.Constant(llvm.IntType(32), 4)
        ir = values.call(x.builder, name, x.ir.type, [x.ir, n.ir, x.number(0.0).ir, every, as_is])
        return VectorValue(x.builder, ir, x.dtype, x.lanes)
    # In two steps, because 2**n itself may overflow or be subnormal where the result is not.
    whole = cast(n, integer(bits))
    half = whole >> 1
    return x * power_of_two(half) * power_of_two(whole - half)


def exp(x: VectorValue, shift: int = 0) -> VectorValue:
    """``exp(x) * 2**shift`` for a shift of 0 or -1, within 1.2 ulps; it overflows and underflows as the exact one."""
    low, high = EXP_RANGE[width(x.dtype)]
    n, near = reduced(clamp(x, low, high - shift))
    return scaled(near + 1.0, n + shift if shift else n)


def exp2_of_moderate(x: VectorValue) -> VectorValue:
    """``2**x`` of a float32 for which that is a normal number, within 1.2 ulps."""
    n = nearest(x, 1.0)
    return scaled(polynomial(x - n, EXP2_32), n)


def expm1(x: VectorValue) -> VectorValue:
    """``exp(x) - 1``, within 2.3 ulps, for small ``x`` too."""
    bits = width(x.dtype)
    tiny = absolute(x) < EPSILON[bits]
    n, near = reduced(clamp(x, -40.0, EXP_RANGE[bits][1]))
    half = power_of_two(cast(n, integer(bits)) - 1)
    # Half of it does not overflow before the result does; of a tiny x it would lose bits.
    return select(tiny, x, fma(half, near, half - 0.5) * 2.0)


def log_parts(x: VectorValue) -> tuple[VectorValue, VectorValue]:
    """``e`` (an integer) and ``f`` with ``x = 2**e * (1 + f)`` and ``1 + f`` around 1, for positive normal ``x``."""
    bits = width(x.dtype)
    whole = values.bits(x)
    e = (whole - SQRT_HALF_BITS[bits]) >> MANTISSA[bits]
    return e, from_bits(whole - (e << MANTISSA[bits])) - 1.0


def log_of_parts(e: VectorValue, f: VectorValue) -> VectorValue:
    """``e * log(2) + log(1 + f)``."""
    bits = width(f.dtype)
    high, low = LN_2[bits]
    e = cast(e, f.dtype)
    square = f * f
    if bits == 32:
        tail = fma(e, f.number(low), square * f * polynomial(f, LOG_32))
        return fma(e, f.number(high), f + fma(square, f.number(-0.5), tail))
    s = f / (f + 2.0)
    z = s * s
    half = square * 0.5
    tail = fma(s, half + z * polynomial(z, LOG_64), e * low)
    return fma(e, f.number(high), f - (half - tail))


def log_limits(x: VectorValue, result: VectorValue) -> VectorValue:
    """The logarithm of zero, of less, of infinity and of NaN, where ``x`` is that."""
    result = select(x < inf, result, x)
    result = select(equal(x, 0.0), x.number(-inf), result)
    return select(x < 0.0, x.number(nan), result)


def log(x: VectorValue) -> VectorValue:
    """``log(x)``, within 1 ulp; of subnormal ``x`` too."""
    bits = width(x.dtype)
    subnormal = x < SMALLEST_NORMAL[bits]
    e, f = log_parts(select(subnormal, x * 2.0 ** MANTISSA[bits], x))
    e = select(subnormal, e - MANTISSA[bits], e)
    return log_limits(x, log_of_parts(e, f))


def log1p_of_moderate(x: VectorValue) -> VectorValue:
    """``log(1 + x)`` for ``x`` above -1 and far from overflow."""
    e, _ = log_parts(x + 1.0)
    scale = power_of_two(-e)
    # As exact as x is: the rounding of 1 + x only chooses e.
    return log_of_parts(e, fma(x, scale, scale - 1.0))


def log1p(x: VectorValue) -> VectorValue:
    """``log(1 + x)``, within 2 ulps, for small ``x`` too."""
    bits = width(x.dtype)
    large = x > 2.0**100
    e, f = log_parts(x)
    above = 1.0 + x
    scale = power_of_two(-select(large, e.number(0), log_parts(above)[0]))
    e = select(large, e, log_parts(above)[0])
    f = select(large, f, fma(x, scale, scale - 1.0))
    result = log_limits(above, log_of_parts(e, f))
    return select(absolute(x) < EPSILON[bits], x, result)


# Of log2((1 + s) / (1 - s)) / s over s**2, for |s| <= 0.172.
LOG2 = (2.885390081790708, 0.9617966725011284, 0.5770837554147276, 0.4116619663157874, 0.34093776694863903)
# Of 2**r, for |r| <= 1/2.
EXP2 = (
    1.0,
    0.6931471807060682,
    0.2402265106919019,
    0.055504103619176286,
    0.009618037721869185,
    0.0013333937345156902,
    0.0001546689510451241,
    1.5195876093899454e-05,
)


def _magnitude(x: VectorValue, y: VectorValue) -> VectorValue:
    """``x**y`` of float32 for ``x`` that is not negative."""
    e, f = log_parts(cast(x, types.float64))
    s = f / (f + 2.0)
    log2 = s * polynomial(s * s, LOG2) + cast(e, types.float64)
    log2 = select(x < inf, log2, cast(x, types.float64))
    log2 = select(equal(x, 0.0), log2.number(-inf), log2)
    exponent = clamp(cast(y, types.float64) * log2, -151.0, 129.0)
    n = intrinsic("rint", exponent)
    return scaled(cast(polynomial(exponent - n, EXP2), types.float32), cast(n, types.float32))


def power(x: VectorValue, y: VectorValue) -> VectorValue:
    """``x**y`` with the limits of C's pow: float32 within 1 ulp, float64 as the C library's."""
    if width(x.dtype) == 64:
        return _of_doubles(x, y)
    result = _magnitude(absolute(x), y)
    whole = equal(values.floor(y), y)
    half = y * 0.5
    odd = whole & not_equal(values.floor(half), half)
    result = select((values.bits(x) < 0) & odd, -result, result)
    result = select((x < 0.0) & (x > -inf) & ~whole, x.number(nan), result)
    one = equal(y, 0.0) | equal(x, 1.0) | (equal(x, -1.0) & equal(absolute(y), inf))
    return select(one, x.number(1.0), result)


def _of_doubles(x: VectorValue, y: VectorValue) -> VectorValue:
    """``x**y`` of float64: of whole numbers in all lanes, by products, where these are exact; else by the C library."""
    builder = x.builder
    result = cgutils.alloca_once_value(builder, x.ir)  # type: ignore[no-untyped-call]
    done = cgutils.alloca_once_value(builder, llvm.Constant(llvm.IntType(1), 0))  # type: ignore[no-untyped-call]
    whole = equal(values.floor(x), x) & equal(values.floor(y), y) & (y >= 0.0) & (y < float(1 << EXPONENT_BITS))
    with builder.if_then(reduce_and(whole).ir):
        product = _whole_power(x, cast(y, types.int32))
        builder.store(product.ir, result)
        builder.store(reduce_and(absolute(product) <= WHOLE).ir, done)
    with builder.if_then(builder.not_(builder.load(done))):
        builder.store(libm.each("pow", x, y).ir, result)
    return VectorValue(builder, builder.load(result, typ=x.ir.type), x.dtype, x.lanes)


def _whole_power(x: VectorValue, y: VectorValue) -> VectorValue:
    """``x**y`` for integers ``y``, which are not negative: one bit of them at a time."""
    builder = x.builder
    product, base, left = (cgutils.alloca_once_value(builder, v.ir) for v in (x.number(1.0), x, y))  # type: ignore[no-untyped-call]
    with cgutils.for_range(builder, cgutils.intp_t(EXPONENT_BITS)) as loop:
        so_far, square = (
            VectorValue(builder, builder.load(s, typ=x.ir.type), x.dtype, x.lanes) for s in (product, base)
        )
        bits = VectorValue(builder, builder.load(left, typ=y.ir.type), y.dtype, y.lanes)
        with builder.if_then((~reduce_or(not_equal(bits, 0))).ir, likely=False):
            loop.do_break()
        builder.store(select(not_equal(bits & 1, 0), so_far * square, so_far).ir, product)
        builder.store((square * square).ir, base)
        builder.store(builder.lshr(bits.ir, bits.number(1).ir), left)
    return VectorValue(builder, builder.load(product, typ=x.ir.type), x.dtype, x.lanes)
