"""Blocks of tiles compute what their blocks did."""

from graphopt.lowering.schedule_blocks import blockize
from tests.lowering.documented import check


def test_documented():
    check(blockize)
