"""Calls of primitives with arguments of other types say what was expected, in a line, and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphopt import te
from graphopt.errors import ScheduleError
from graphopt.lowering.schedule.schedule import Schedule


def schedule() -> Schedule:
    x = te.placeholder((4, 8), "float32", "x")
    return Schedule(te.nest("plus_one", [x, te.compute((4, 8), lambda i, j: x[i, j] + 1.0, name="y")]))


WRONG: dict[str, Callable[[Any], object]] = {
    "split: factors=4; expected Sequence[int | None]": lambda s: s.split("i", 4),
    "split: factors='ab'; expected Sequence[int | None]": lambda s: s.split("i", "ab"),
    "split: factors=[None, 'b']; expected Sequence[int | None]": lambda s: s.split("i", [None, "b"]),
    "split: factors=[None, True]; expected Sequence[int | None]": lambda s: s.split("i", [None, True]),
    "split: factors=[2.0, None]; expected Sequence[int | None]": lambda s: s.split("i", [2.0, None]),
    "split: factors=[None, '4']; expected Sequence[int | None]": lambda s: s.split("i", [None, "4"]),
    "split: missing a required argument: 'factors'": lambda s: s.split("i"),
    "split: got an unexpected keyword argument 'tial'": lambda s: s.split("i", [2, 2], tial="short"),
    "sample_perfect_tile: n='two'; expected int": lambda s: s.sample_perfect_tile("j", "two"),
    "annotate: key=3; expected str": lambda s: s.annotate("i", 3, 1),
    "get_loops: block=None; expected BlockRef | str": lambda s: s.get_loops(None),
    "get_loops: block=3; expected BlockRef | str": lambda s: s.get_loops(3),
}


@pytest.mark.parametrize("message", WRONG)
def test_arguments_of_other_types_are_named_with_what_was_expected(message: str) -> None:
    s = schedule()
    before = s.nest
    with pytest.raises(ScheduleError) as error:
        WRONG[message](s)
    assert str(error.value) == message
    assert s.nest == before
    assert not s.trace.steps


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_integers_of_numpy_are_integers(kind: Any) -> None:
    one, other = schedule(), schedule()
    one.split("j", [None, kind(4)])
    one.sample_perfect_tile("i", n=kind(2))
    other.split("j", [None, 4])
    other.sample_perfect_tile("i", n=2)
    assert one.nest == other.nest
    assert str(one.trace) == str(other.trace)
