"""Power function over values: ``x**y = 2**(y * log2(x))``, of float32 by way of float64."""

from __future__ import annotations

from math import inf, nan

from numba import types

from graphopt.kernels import libm, values
from graphopt.kernels.exponential import clamp, log_parts, polynomial, scaled
from graphopt.kernels.values import VectorValue, absolute, cast, equal, intrinsic, not_equal, select, width

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
    """``x**y`` with the limits of C's pow: float32 within 1 ulp, float64 by the C library."""
    if width(x.dtype) == 64:
        return libm.each("pow", x, y)
    result = _magnitude(absolute(x), y)
    whole = equal(values.floor(y), y)
    half = y * 0.5
    odd = whole & not_equal(values.floor(half), half)
    result = select((values.bits(x) < 0) & odd, -result, result)
    result = select((x < 0.0) & (x > -inf) & ~whole, x.number(nan), result)
    one = equal(y, 0.0) | equal(x, 1.0) | (equal(x, -1.0) & equal(absolute(y), inf))
    return select(one, x.number(1.0), result)
