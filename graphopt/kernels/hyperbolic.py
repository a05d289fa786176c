"""Hyperbolic functions and their inverses, the error function, and activations built on these, over values."""

from __future__ import annotations

from math import nan, pi

from graphopt.kernels import libm
from graphopt.kernels.exponential import (
    LN_2,
    clamp,
    exp,
    exp2_of_moderate,
    log1p,
    log1p_of_moderate,
    nearest,
    polynomial,
    power_of_two,
    reduced,
    scaled,
)
from graphopt.kernels.values import VectorValue, absolute, cast, copysign, fma, integer, select, sqrt, width

# Beyond these tanh rounds to 1.
TANH_LIMIT = {32: 9.02, 64: 19.07}
# 2 / log(2) as a float32, and of (exp(2 * x) - 1) / r over r = TWICE * x, for |r| <= 1/2.
TWICE = 2.885390043258667
EXPM1_32 = (0.693147197, 0.240226504, 0.0555035723, 0.00961823889, 0.00133909656, 0.000154035091)
# Beyond these x + sqrt(x**2 + 1) rounds to 2 * x, and log1p(x) to log(x).
LARGE = {32: 2.0**28, 64: 2.0**56}


def log_2(x: VectorValue) -> VectorValue:
    """The constant log(2), as ``x`` is."""
    return x.number(sum(LN_2[width(x.dtype)]))


def tanh(x: VectorValue) -> VectorValue:
    """``tanh(x)``, float32 within 4 ulps and float64 within 3: ``t / (t + 2)`` with ``t = exp(2 * |x|) - 1``."""
    limit = TANH_LIMIT[width(x.dtype)]
    size = select(absolute(x) > limit, x.number(limit), absolute(x))
    if width(x.dtype) == 32:  # where the exponent is large, its error matters little: it takes no exact reduction
        n = nearest(size, TWICE)
        r = fma(size, x.number(TWICE), -n)
        near = r * polynomial(r, EXPM1_32)
    else:
        n, near = reduced(size * 2.0)
    power = scaled(x.number(1.0), n)
    t = fma(power, near, power - 1.0)
    return copysign(t / (t + 2.0), x)


def sigmoid(x: VectorValue) -> VectorValue:
    """``1 / (1 + exp(-x))``, within 3 ulps, small results too."""
    e = exp(-absolute(x))
    return select(x < 0.0, e, x.number(1.0)) / (e + 1.0)


def softplus(x: VectorValue) -> VectorValue:
    """``log(1 + exp(x))``, within 3 ulps, without overflow."""
    return select(x > 0.0, x, x.number(0.0)) + log1p_of_moderate(exp(-absolute(x)))


def sinh(x: VectorValue) -> VectorValue:
    """``sinh(x)``, within 3 ulps."""
    size = absolute(x)
    n, near = reduced(clamp(size, 0.0, 32.0))
    power = power_of_two(cast(n, integer(width(x.dtype))))
    t = fma(power, near, power - 1.0)
    return copysign(select(size > 31.0, exp(size, -1), (t + t / (t + 1.0)) * 0.5), x)


def cosh(x: VectorValue) -> VectorValue:
    """``cosh(x)``, within 3 ulps."""
    half = exp(absolute(x), -1)
    return half + 0.25 / half


def asinh(x: VectorValue) -> VectorValue:
    """``asinh(x)``, within 4 ulps."""
    size = absolute(x)
    large = size > LARGE[width(x.dtype)]
    square = size * size
    small = size + square / (sqrt(square + 1.0) + 1.0)
    result = log1p(select(large, size, small)) + select(large, log_2(x), x.number(0.0))
    return copysign(result, x)


def acosh(x: VectorValue) -> VectorValue:
    """``acosh(x)``, within 4 ulps; NaN below 1."""
    large = x > LARGE[width(x.dtype)]
    t = x - 1.0
    small = t + sqrt(t * (t + 2.0))
    result = log1p(select(large, x, small)) + select(large, log_2(x), x.number(0.0))
    return select(x < 1.0, x.number(nan), result)


def atanh(x: VectorValue) -> VectorValue:
    """``atanh(x)``, within 4 ulps; infinite at 1, NaN beyond."""
    size = absolute(x)
    return copysign(log1p(size * 2.0 / (1.0 - size)) * 0.5, x)


# Of erf(x) / x - 1 over x**2, for |x| <= 1.
ERF_SMALL = (0.128379166, -0.37612626, 0.112835824, -0.0268536434, 0.00518796267, -0.000800679438, 7.84229996e-05)
# Of log2(1 - erf(x)), for 1 <= x <= 4.
ERF_LARGE = (-0.000461146328, -1.62617061, -0.920447364, -0.148921046, 0.0315843101, -0.00427161305, 0.000270765858)


def erf(x: VectorValue) -> VectorValue:
    """``erf(x)``: float32 within 1.3 ulps, float64 by the C library."""
    if width(x.dtype) == 64:
        return libm.each("erf", x)
    size = absolute(x)
    square = x * x
    small = fma(x, polynomial(square, ERF_SMALL), x)
    large = 1.0 - exp2_of_moderate(polynomial(select(size > 4.0, x.number(4.0), size), ERF_LARGE))
    return select(size < 1.0, small, copysign(large, x))


def gelu(x: VectorValue) -> VectorValue:
    """``x / 2 * (1 + erf(x / sqrt(2)))``; within 3 ulps of ``x``."""
    return x * 0.5 * (erf(x * 0.5**0.5) + 1.0)


def gelu_tanh(x: VectorValue) -> VectorValue:
    """``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``, ONNX's Gelu with ``approximate="tanh"``."""
    inner = fma(x * x, x.number(0.044715), x.number(1.0)) * x
    return x * sigmoid(inner * (2 * (2 / pi) ** 0.5))
