"""Integer guards: functions of rules on bounds of integers, and triangular matrices of cumulative sums."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from graphopt.rewrite.guards.comparison import Unknown

LARGEST = 64
"""Rows of a matrix that is looked at."""


def holds_numbers(dtype: str, *numbers: float) -> bool:
    """Whether these numbers, bounds of integers say, are far from overflow in a dtype of integers."""
    info = np.iinfo(dtype)
    return all(info.min / 2 <= n <= info.max / 2 for n in numbers)


@lru_cache(64)
def triangle(n: int, exclusive: int, reverse: int) -> tuple[tuple[float, ...], ...]:
    """The matrix by which a product from the left sums up what comes before (after), the element itself included.

    ``reverse`` says after, ``exclusive`` without the element itself.
    """
    if not isinstance(n, int) or n > LARGEST:
        raise Unknown("the number of rows is not known, or large")
    ones = np.ones((n, n))
    matrix = np.triu(ones, exclusive) if reverse else np.tril(ones, -exclusive)
    return tuple(map(tuple, matrix.tolist()))


def running_sum(matrix: Sequence[Sequence[float]]) -> tuple[int, int]:
    """Whether a ``triangle`` leaves out the element itself, and whether it goes backwards."""
    for exclusive in (0, 1):
        for reverse in (0, 1):
            if tuple(map(tuple, matrix)) == triangle(len(matrix), exclusive, reverse):
                return exclusive, reverse
    raise Unknown("the matrix does not sum up")
