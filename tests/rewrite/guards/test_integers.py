"""Bounds of integers, and matrices that sum up."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.rewrite.guards.comparison import Unknown
from graphopt.rewrite.guards.integers import holds_numbers, running_sum, triangle


def test_numbers_far_from_overflow() -> None:
    assert holds_numbers("int64", -(2.0**61), 2.0**61)
    assert not holds_numbers("int32", 0, 2**31)
    assert not holds_numbers("int64", float("inf"))


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_triangles_sum_up(exclusive: int, reverse: int) -> None:
    x = np.arange(1.0, 5.0)
    whole = np.cumsum(x[::-1])[::-1] if reverse else np.cumsum(x)
    assert (np.array(triangle(4, exclusive, reverse)) @ x == whole - exclusive * x).all()
    assert running_sum(triangle(4, exclusive, reverse)) == (exclusive, reverse)


def test_other_matrices_do_not() -> None:
    for matrix in (((1.0, 0.0), (1.0, 2.0)), ((1.0, 1.0),), ((1.0, 1.0), (1.0, 1.0))):
        with pytest.raises(Unknown):
            running_sum(matrix)
    with pytest.raises(Unknown):
        triangle(65, 0, 0)
