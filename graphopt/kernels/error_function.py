"""Error function and GELU, over values."""

from __future__ import annotations

from math import pi, sqrt

from graphopt.kernels import libm
from graphopt.kernels.exponential import exp2_of_moderate, polynomial
from graphopt.kernels.hyperbolic import sigmoid
from graphopt.kernels.values import VectorValue, absolute, copysign, fma, select, width

# Of erf(x) / x - 1 over x**2, for |x| <= 1.
SMALL = (0.128379166, -0.37612626, 0.112835824, -0.0268536434, 0.00518796267, -0.000800679438, 7.84229996e-05)
# Of log2(1 - erf(x)), for 1 <= x <= 4.
LARGE = (-0.000461146328, -1.62617061, -0.920447364, -0.148921046, 0.0315843101, -0.00427161305, 0.000270765858)


def erf(x: VectorValue) -> VectorValue:
    """``erf(x)``: float32 within 1.3 ulps, float64 by the C library."""
    if width(x.dtype) == 64:
        return libm.each("erf", x)
    size = absolute(x)
    square = x * x
    small = fma(x, polynomial(square, SMALL), x)
    large = 1.0 - exp2_of_moderate(polynomial(select(size > 4.0, x.number(4.0), size), LARGE))
    return select(size < 1.0, small, copysign(large, x))


def gelu(x: VectorValue) -> VectorValue:
    """``x / 2 * (1 + erf(x / sqrt(2)))``; within 3 ulps of ``x``."""
    return x * 0.5 * (erf(x * sqrt(0.5)) + 1.0)


def gelu_tanh(x: VectorValue) -> VectorValue:
    """``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``, ONNX's Gelu with ``approximate="tanh"``."""
    inner = fma(x * x, x.number(0.044715), x.number(1.0)) * x
    return x * sigmoid(inner * (2 * sqrt(2 / pi)))
