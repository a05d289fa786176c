"""Tiles have as many sums side by side as the processor has under way; what they compute is tested with products."""

import pytest

from graphopt.kernels.product_tiles import sides


@pytest.mark.parametrize(
    ("sums", "chains", "want"), [(1, 8, 4), (2, 8, 4), (3, 8, 2), (8, 8, 1), (24, 8, 1), (2, 10, 4)]
)
def test_small_tiles_sum_several_products_of_an_element_at_once(sums, chains, want):
    assert sides(sums, chains) == want
