"""Minimal filtering against the filter itself, in exact arithmetic."""

from collections.abc import Sequence
from fractions import Fraction

import pytest

from graphopt.ir.minimal_filtering import POINTS, FractionMatrix, at_points, filtering


def product(matrix: FractionMatrix, x: Sequence[Fraction]) -> list[Fraction]:
    return [sum((a * b for a, b in zip(row, x, strict=True)), Fraction(0)) for row in matrix]


@pytest.mark.parametrize("points", [*POINTS.values(), (Fraction(0), Fraction(1), Fraction(-1), Fraction(2))])
def test_as_many_outputs_as_the_filter_has(points: Sequence[Fraction | float]) -> None:
    made, outputs = at_points(points), len(points) - 1
    taps = [Fraction(2), Fraction(-3, 7), Fraction(5)]
    x = [Fraction(k * k - 3, k + 1) for k in range(outputs + 2)]
    products = [a * b for a, b in zip(product(made.kernel, taps), product(made.input, x), strict=True)]
    assert len(products) == outputs + 2
    assert product(made.output, products) == [
        sum(a * b for a, b in zip(taps, x[i:], strict=False)) for i in range(outputs)
    ]


def test_tiles_of_other_sizes_are_refused() -> None:
    with pytest.raises(KeyError):
        filtering(3)


def test_what_multiplies_elements_is_exact_in_floats() -> None:
    for outputs in POINTS:
        for row in (*filtering(outputs).input, *filtering(outputs).output):
            assert all(Fraction(float(c)) == c and c.denominator <= 1 << 12 for c in row)
