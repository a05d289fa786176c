"""Minimal filtering (Winograd): a few neighbouring outputs of a filter from as many products as they have inputs.

Outputs and taps are the coefficients of polynomials whose product is evaluated at a few points and at infinity (Toom,
Cook): ``y = output @ ((kernel @ taps) * (input @ x))``. In two dimensions every matrix is applied along both axes
(Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016). Over the reals it is the same filter; in
floats, the error grows with the powers of the points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Final, TypeAlias

from graphopt.frozen import dataclass

if TYPE_CHECKING:
    from fractions import Fraction

FractionMatrix: TypeAlias = "tuple[tuple[Fraction, ...], ...]"

TAPS: Final = 3
"""Taps of the filters."""
POINTS: Final[Mapping[int, tuple[float, ...]]] = {2: (0, 1, -1), 4: (0, 5 / 8, -5 / 8, 3 / 2, -3 / 2)}
"""By the number of outputs, where polynomials are evaluated besides infinity.

Pairs of opposite points share most of their arithmetic; fractions of powers of two are exact. Of such points those of
four outputs have the smallest error: a quarter of that of 1, -1, 2 and -2 (``tests/bench/winograd.py`` measures it).
"""


@dataclass(frozen=True, slots=True)
class Filtering:
    """The three matrices; ``input`` has a row for each product, and so have ``kernel``, and ``output`` a column."""

    input: FractionMatrix
    kernel: FractionMatrix
    output: FractionMatrix


@cache
def filtering(outputs: int) -> Filtering:
    """The matrices for so many outputs of a filter of three taps. KeyError but for 2 and 4."""
    return at_points(POINTS[outputs])


def at_points(given: Sequence[Fraction | float]) -> Filtering:
    """The matrices for evaluation at these points and at infinity, for one output less than there are points."""
    from fractions import Fraction  # whose module imports that of decimals

    points = [Fraction(p) for p in given]
    outputs = len(points) + 2 - TAPS
    others = [[q for q in points if q != p] for p in points]
    scales = [prod((p - q for q in rest), start=Fraction(1)) for p, rest in zip(points, others, strict=True)]
    infinity = (*[Fraction(0)] * (TAPS - 1), Fraction(1))
    return Filtering(
        input=(*((*_with_roots(rest), Fraction(0)) for rest in others), _with_roots(points)),
        kernel=(*(tuple(p**k / s for k in range(TAPS)) for p, s in zip(points, scales, strict=True)), infinity),
        output=tuple((*(p**k for p in points), Fraction(int(k == outputs - 1))) for k in range(outputs)),
    )


def _with_roots(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """The coefficients, the lowest first, of the polynomial with these roots that starts with 1."""
    from fractions import Fraction

    coefficients = [Fraction(1)]
    for root in roots:
        coefficients = [
            a - root * b for a, b in zip([Fraction(0), *coefficients], [*coefficients, Fraction(0)], strict=True)
        ]
    return tuple(coefficients)
