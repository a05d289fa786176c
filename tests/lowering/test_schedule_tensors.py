"""Intrinsics take the place of tiles that do what their descriptions say, and of no others."""

from graphopt.lowering.schedule_tensors import tensorize
from tests.lowering.documented import check


def test_documented():
    check(tensorize)
