"""Blocks move under the loops of those that read them or that they read, and only where that changes nothing."""

import pytest

from graphopt.lowering.schedule_stages import compute_at, reverse_compute_at
from tests.lowering.documented import check


@pytest.mark.parametrize("primitive", [compute_at, reverse_compute_at])
def test_documented(primitive):
    check(primitive)
