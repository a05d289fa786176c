"""The exponential function and its relatives, as formulas over values of float32 or float64.

``exp(x)`` is ``2**n * exp(r)`` with ``n`` the integer nearest to ``x / log(2)``: a polynomial for ``exp(r)``, and the
power of two made of its bits. Polynomials here are near-minimax, fitted to the interval on which they are used.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.kernels.values import Value, cast, fma, from_bits, integer, intrinsic, select, width

LOG2_E = 1.4426950408889634
LN_2 = {32: (0.693359375, -0.00021219444170128554), 64: (0.6931471805598903, 5.497923018708371e-14)}
"""log(2) as a short number and the rest."""

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
# Beyond these exp is infinite and 0, and the power of two would have no bits.
EXP_RANGE = {32: (-104.0, 89.0), 64: (-746.0, 710.0)}
MANTISSA = {32: 23, 64: 52}
BIAS = {32: 127, 64: 1023}


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial by Horner's rule in fused steps; the constant term comes first."""
    result = x.number(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, x.number(coefficient))
    return result


def clamp(x: Value, low: float, high: float) -> Value:
    """``x`` held to a range; NaN stays NaN."""
    x = select(x > high, x.number(high), x)
    return select(x < low, x.number(low), x)


def power_of_two(n: Value) -> Value:
    """``2.0**n`` of integers within the exponents of normal floats of their width."""
    bits = width(n.dtype)
    return from_bits((n + BIAS[bits]) << MANTISSA[bits])


def reduce(x: Value) -> tuple[Value, Value]:
    """``n``, the integer nearest to ``x / log(2)``, as a float, and ``r``, what is left of ``x``."""
    high, low = LN_2[width(x.dtype)]
    n = intrinsic("rint", x * LOG2_E)
    r = fma(n, x.number(-low), fma(n, x.number(-high), x))
    return n, r


def exp(x: Value, shift: int = 0) -> Value:
    """``exp(x) * 2**shift``, within 1 ulp; overflow and gradual underflow as in the exact result."""
    bits = width(x.dtype)
    x = clamp(x, *EXP_RANGE[bits])
    n, r = reduce(x)
    near = fma(r * r, polynomial(r, EXP[bits]), r) + 1.0
    # In two steps, because 2**n itself may overflow or be subnormal where the result is not.
    whole = cast(n, integer(bits)) + shift if shift else cast(n, integer(bits))
    half = whole >> 1
    return near * power_of_two(half) * power_of_two(whole - half)
