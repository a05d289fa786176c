"""Indices that are read from memory stay within their buffers, even where they are out of range."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.lowering.cuda.card import SIMULATED
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.nest import Nest
from tests.lowering.cuda.simulated import launch


def gathered() -> Nest:
    x, at = t.placeholder((10,)), t.placeholder((4,), "int64", "at")
    fits = t.require((4,), lambda i: (at[i] >= 0) & (at[i] < 10), "an index is out of range")
    y = t.compute((4,), lambda i: x[at[i]] * 2.0, name="y", requirements=[fits])
    return t.nest("gathered", [x, at], [y])


def test_what_is_in_range_is_looked_up() -> None:
    x, at, y = np.arange(10, dtype=np.float32), np.array([3, 0, 9, 3]), np.zeros(4, np.float32)
    launch(scheduled(gathered(), SIMULATED), [x, at, y])
    assert y.tolist() == [6.0, 0.0, 18.0, 6.0]


@pytest.mark.parametrize("index", [10, -1, 2**40])
def test_what_is_not_is_an_error_and_reaches_nothing_else(index: int) -> None:
    x, at, y = np.arange(10, dtype=np.float32), np.array([3, index, 9, 3]), np.zeros(4, np.float32)
    nest = scheduled(gathered(), SIMULATED)
    with pytest.raises(IndexError, match="an index is out of range"):
        launch(nest, [x, at, y])
    _, use = nest.body.stmts  # type: ignore[union-attr]
    launch(Nest(nest.name, nest.params, use, nest.allocs), [x, at, y])
    assert set(y.tolist()) <= set(2 * x)
