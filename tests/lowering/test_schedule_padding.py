"""Padded products compute what they did."""

from graphopt.lowering.schedule_padding import pad_einsum
from tests.lowering.documented import check


def test_documented():
    check(pad_einsum)
