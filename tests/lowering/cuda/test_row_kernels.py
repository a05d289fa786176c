"""Rows are one kernel, and right: interpreted for any card, and run in the simulator."""

from __future__ import annotations

import pytest

from graphopt.lowering.cuda.card import CARD, SIMULATED
from graphopt.lowering.cuda.emit import Launchable, emit
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.nest import Nest, Seq
from tests.lowering.cuda.row_nests import ANY_ROWS, LONG_ROWS, ROWS
from tests.lowering.cuda.simulated import check

ALL = ROWS | ANY_ROWS | LONG_ROWS


def check_both(nest: Nest, *sizes: int) -> None:
    """The nest is right as it is scheduled for any card, and for the simulator, which runs it."""
    check(nest, scheduled(nest, CARD), sizes, is_run=False)
    check(nest, scheduled(nest, SIMULATED), sizes)


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_right(name: str) -> None:
    check_both(ROWS[name]())


@pytest.mark.parametrize("name", ANY_ROWS)
@pytest.mark.parametrize("n", [0, 1, 5, 35])
def test_rows_of_any_length_are_right(name: str, n: int) -> None:
    if n or name != "whole":  # of nothing there is no largest
        check_both(ANY_ROWS[name](), n)


@pytest.mark.parametrize("name", sorted(set(ROWS) - {"down"} | {"any_softmax", "any_channels", *LONG_ROWS}))
def test_blocks_on_the_same_rows_are_one_kernel(name: str) -> None:
    assert not isinstance(scheduled(ALL[name](), CARD).body, Seq)


def test_what_lies_between_blocks_is_nowhere_in_memory() -> None:
    nest = scheduled(ROWS["several_warps"](), CARD)
    assert {b.scope for b in nest.allocs} == {"local", "shared"}
    assert {b.scope for b in scheduled(LONG_ROWS["too_long_to_hold"](), CARD).allocs} == {"local", "shared"}


def test_few_long_rows_are_shared_out_to_blocks_and_then_reduced() -> None:
    first, second = (part for _, part in emit(scheduled(ROWS["squares"](), SIMULATED)))
    assert isinstance(first, Launchable)
    assert first.grid[0] != Const(1)
    assert set(first.buffers) & set(second.buffers)


def test_a_warp_exchanges_what_it_has() -> None:
    source = _only("one_warp")
    assert "warp_max" in source
    assert "barrier" not in source
    assert "shared(" not in source


def test_neighbours_are_read_at_once_where_rows_are_aligned() -> None:
    for name, is_wide in (("several_warps", True), ("odd_rows", False)):
        source = _only(name)
        assert ("load4(x" in source, "store4(y" in source) == (is_wide, is_wide)


def _only(name: str) -> str:
    """The source of a nest's one kernel."""
    ((_, part),) = emit(scheduled(ALL[name](), CARD))
    assert isinstance(part, Launchable)
    return part.kernel.source
