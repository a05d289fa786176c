"""Reductions of rows that are drawn compute what the nest says."""

from __future__ import annotations

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.loops.nest import Nest
from graphopt.tuning.row_reductions import row_reductions
from tests.lowering.described import along, softmax
from tests.tuning.drawing import check_draw, drawn, kinds
from tests.tuning.nests import copy, dense, softmax_of


@pytest.mark.parametrize(("nest", "seed"), [(softmax(), 0), (softmax_of(12, 96), 1), (along(), 3)])
def test_draws_compute_the_same(nest: Nest, seed: int) -> None:
    check_draw(row_reductions, nest, seed, pieces=2)


def test_partial_results_are_vectors_and_rows_are_shared_out() -> None:
    made = drawn(row_reductions, softmax_of(12, 96), 1).nest
    assert kinds(made) >= {"parallel", "vectorized"}
    assert {b.scope for b in made.allocs} == {"local"}
    assert any(b.name.endswith("_rf") for b in made.allocs)


def test_rows_that_are_not_shared_say_so() -> None:
    with pytest.raises(ScheduleError, match="dense"):
        drawn(row_reductions, dense(), 0)
    with pytest.raises(ScheduleError, match="copy is no reduction of rows"):
        drawn(row_reductions, copy(), 0)
