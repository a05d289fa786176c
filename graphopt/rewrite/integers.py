"""Functions that rules call on bounds of integers, and on matrices that stand for running sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.rewrite.comparison import Unknown


def holds_numbers(dtype: str, *numbers: float) -> bool:
    """Whether these numbers, bounds of integers say, are far from overflow in a dtype of integers."""
    info = np.iinfo(dtype)
    return all(info.min / 2 <= n <= info.max / 2 for n in numbers)


def running_sum(matrix: Sequence[Sequence[float]]) -> tuple[int, int]:
    """Whether the running sum that a product with this matrix from the left is leaves out the element itself, and
    whether it goes backwards. Unknown where the product is none."""
    found = np.asarray(matrix)
    n = len(found)
    if found.shape != (n, n) or n < 2:
        raise Unknown("the matrix is not square")
    ones = np.ones((n, n))
    for exclusive in (0, 1):
        for reverse, made in ((0, np.tril(ones, -exclusive)), (1, np.triu(ones, exclusive))):
            if np.array_equal(found, made):
                return exclusive, reverse
    raise Unknown("the matrix does not sum up")


def running_sum_right(matrix: Sequence[Sequence[float]]) -> tuple[int, int]:
    """The same of a product with this matrix from the right."""
    return running_sum(np.asarray(matrix).T.tolist())
