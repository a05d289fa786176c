"""Copies near the blocks that use them, and where buffers live, change no result."""

import pytest

from graphopt.lowering.schedule_caches import cache_read, cache_write, double_buffer, set_scope, storage_align
from tests.lowering.documented import check


@pytest.mark.parametrize("primitive", [cache_read, cache_write, double_buffer, set_scope, storage_align])
def test_documented(primitive):
    check(primitive)
