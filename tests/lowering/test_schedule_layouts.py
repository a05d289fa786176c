"""Buffers get other layouts where no two elements meet."""

from graphopt.lowering.schedule_layouts import transform_layout
from tests.lowering.documented import check


def test_documented():
    check(transform_layout)
