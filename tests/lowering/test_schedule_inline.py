"""Blocks are written into their consumers and producers, and only where that changes nothing."""

import pytest

from graphopt.lowering.schedule_inline import compute_inline, reverse_compute_inline
from tests.lowering.documented import check


@pytest.mark.parametrize("primitive", [compute_inline, reverse_compute_inline])
def test_documented(primitive):
    check(primitive)
