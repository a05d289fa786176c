"""Reductions are started by blocks of their own, and done in parts."""

import pytest

from graphopt.lowering.schedule_reductions import decompose_reduction, rfactor
from tests.lowering.documented import check


@pytest.mark.parametrize("primitive", [decompose_reduction, rfactor])
def test_documented(primitive):
    check(primitive)
