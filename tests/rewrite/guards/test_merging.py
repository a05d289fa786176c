"""Kernels grow by zeros around them, and pairs of groups are told apart."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.rewrite.guards.merging import in_group, kernel_growth


def test_a_small_kernel_inside_a_larger_one() -> None:
    assert kernel_growth((3, 3), (1, 1, 1, 1), (1, 1), None) == (0, 0, 1, 1, 0, 0, 1, 1)
    assert kernel_growth((5, 3), (2, 1, 2, 1), (3, 3), (1, 1, 1, 1)) == (0, 0, 1, 0, 0, 0, 1, 0)
    assert kernel_growth((3,), (2, 0), (1,), (0, 0)) == (0, 0, 2, 0, 0, 0)


@pytest.mark.parametrize(("small", "pads"), [((3, 3), (1, 1, 1, 1)), ((1, 1), (1, 1, 1, 1)), ((5, 5), (2, 2, 2, 2))])
def test_kernels_that_look_elsewhere(small: tuple[int, ...], pads: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="zeros around it"):
        kernel_growth((3, 3), (1, 1, 1, 1), small, pads)


def test_groups_in_pairs() -> None:
    first, second = (in_group(8, 4, half, 4) for half in (0, 1))
    assert first.shape == (8, 1, 1, 1)
    assert first.reshape(-1).tolist() == [1, 1, 0, 0, 1, 1, 0, 0]
    assert np.array_equal(first + second, np.ones((8, 1, 1, 1)))
