"""How many threads rows have, and which way they lie."""

from __future__ import annotations

import pytest

from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.cuda.card import CARD
from graphopt.lowering.cuda.row_plans import RowPlan, at_least, planned
from graphopt.lowering.cuda.rows import rows_of
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.loops.expressions import Const, Expr, Var
from graphopt.lowering.loops.nest import Nest
from tests.lowering.cuda.row_nests import N, channel_softmax, halves, odd_rows, softmax, squares, vector
from tests.lowering.described import largest_of


def _plan(nest: Nest, count: int | None = None) -> RowPlan:
    found = chains(nest)
    assert found is not None
    rows = rows_of(found[:count])
    assert rows is not None
    return planned(DeviceScheduling(nest, CARD), rows)


@pytest.mark.parametrize(
    ("shape", "rows", "lanes", "access", "steps"),
    [
        ((1 << 20, 12), 256, 1, 4, 3),
        ((4096, 100), 4, 32, 4, 1),
        ((1 << 20, 1024), 4, 64, 4, 4),
        ((4096, 8192), 1, 256, 4, 8),
        ((4096, 8200), 1, 256, 4, None),
        ((4096, 1023), 1, 256, 1, 4),
        ((N, N), 2, 128, 1, None),
    ],
)
def test_long_rows_have_more_threads(
    shape: tuple[Expr | int, ...], rows: int, lanes: int, access: int, steps: int | None
) -> None:
    plan = _plan(softmax(*shape))
    assert (plan.teams.rows, plan.teams.lanes, plan.access, plan.steps, plan.blocks) == (rows, lanes, access, steps, 1)
    assert plan.teams.along == (lanes > 1)


def test_neighbouring_threads_have_neighbouring_rows_where_those_lie_side_by_side() -> None:
    plan = _plan(channel_softmax())
    assert (plan.teams.along, plan.teams.width, plan.teams.rows) == (False, 32, 32)
    assert not _plan(vector(), 1).teams.along
    assert _plan(vector(transposed=True), 1).teams.along


def test_an_access_is_as_wide_as_rows_are_aligned() -> None:
    assert (_plan(halves()).access, _plan(odd_rows()).access) == (8, 1)


def test_few_long_rows_are_several_blocks() -> None:
    assert _plan(squares(3, 1 << 20), 1).blocks == 256
    assert _plan(squares(3, 1 << 10), 1).blocks == 1


def test_what_may_not_be_shared_is_one_threads() -> None:
    assert _plan(largest_of()).teams.lanes == 1


def test_an_outermost_size_that_is_not_known_may_be_one() -> None:
    n = Var("n")
    assert at_least([n, Const(3)]) == 3
    assert at_least([Const(3), n]) > 100
