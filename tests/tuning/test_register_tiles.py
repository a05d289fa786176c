"""Tiles of contractions that are drawn stay in registers, and compute what the nest says."""

from __future__ import annotations

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.tuning.register_tiles import WRITTEN, register_tiles
from tests.lowering.native import check
from tests.tuning.drawing import check_draw, drawn, kinds, written_out
from tests.tuning.nests import convolution, copy, dense, largest, mean, product

NESTS = {"product": product(), "dense": dense(), "largest": largest(), "mean": mean()}


@pytest.mark.parametrize(
    ("name", "seed"), [("product", 0), ("product", 1), ("dense", 0), ("dense", 1), ("largest", 0), ("mean", 2)]
)
def test_draws_compute_the_same(name: str, seed: int) -> None:
    check_draw(register_tiles, NESTS[name], seed, pieces=2)


def test_tiles_are_in_registers_and_what_follows_is_done_there() -> None:
    made = drawn(register_tiles, dense(), 0).nest
    assert "local" in {b.scope for b in made.allocs}
    assert kinds(made) >= {"parallel", "serial", "unrolled", "vectorized"}


def test_what_is_written_out_is_bounded() -> None:
    counts = [written_out(drawn(register_tiles, product(256, 256, 256), seed).nest.body) for seed in range(6)]
    assert WRITTEN // 2 < max(counts) <= WRITTEN


@pytest.mark.parametrize("operand", [1, 2])
def test_operands_are_packed_beside_a_piece(operand: int) -> None:
    s = Schedule(product(), 0, (None, None, None, None, None, None, operand))
    register_tiles(s)
    assert f"{'ab'[operand - 1]}_local" in {b.name for b in s.nest.allocs}
    check(product(), s.nest, pieces=2)


@pytest.mark.parametrize("made", [0, 1])
def test_what_comes_before_is_written_out_or_made_for_each_piece(made: int) -> None:
    s = Schedule(convolution(), 3, (made,))
    register_tiles(s)
    assert ("padded" in {b.name for b in s.nest.allocs if b.scope == "local"}) is bool(made)
    check(convolution(), s.nest, pieces=2)


def test_what_is_no_reduction_says_so() -> None:
    with pytest.raises(ScheduleError, match="copy is not one reduction"):
        drawn(register_tiles, copy(), 0)
