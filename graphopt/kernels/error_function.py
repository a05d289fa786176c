"""The error function, and the activation that is made of it, over values."""

from __future__ import annotations

from math import pi, sqrt

from graphopt.kernels import libm
from graphopt.kernels.exponential import exp, polynomial
from graphopt.kernels.hyperbolic import sigmoid
from graphopt.kernels.values import Value, absolute, copysign, fma, select, width

# Of erf(x) / x - 1 over x**2, for |x| <= 1.
SMALL = (0.128379166, -0.37612626, 0.112835824, -0.0268536434, 0.00518796267, -0.000800679438, 7.84229996e-05)
# Of log(1 - erf(x)), for 1 <= x <= 4.
LARGE = (-0.000319642277, -1.12717557, -0.638005495, -0.103224203, 0.0218925755, -0.00296085654, 0.000187680591)


def erf(x: Value) -> Value:
    """``erf(x)``: float32 within 1 ulp, float64 by the C library."""
    if width(x.dtype) == 64:
        return libm.each("erf", x)
    size = absolute(x)
    square = x * x
    small = fma(x, polynomial(square, SMALL), x)
    large = 1.0 - exp(polynomial(select(size > 4.0, x.number(4.0), size), LARGE))
    return select(size < 1.0, small, copysign(large, x))


def gelu(x: Value) -> Value:
    """``x / 2 * (1 + erf(x / sqrt(2)))``; within 3 ulps of ``x``."""
    return x * 0.5 * (erf(x * sqrt(0.5)) + 1.0)


def gelu_tanh(x: Value) -> Value:
    """``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``, ONNX's Gelu with ``approximate="tanh"``."""
    inner = fma(x * x, x.number(0.044715), x.number(1.0)) * x
    return x * sigmoid(inner * (2 * sqrt(2 / pi)))
