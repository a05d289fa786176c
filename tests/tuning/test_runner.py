"""How series of runs are timed, on a clock that says what the test wants."""

from dataclasses import dataclass, field
from math import inf

import numpy as np
import pytest

from graphopt.runtime.arena import ALIGNMENT
from graphopt.tuning.building import Order, built
from graphopt.tuning.runner import SECONDS, SERIES, SURE, _aligned, _filled, _number, _times
from tests.tuning.products import product


@dataclass
class Steady:
    """What takes so long to call, and so long for each run."""

    each: float
    call: float = 0.0
    asked: list[int] = field(default_factory=list)

    def __call__(self, number: int) -> float:
        self.asked.append(number)
        return self.call + number * self.each


@pytest.mark.parametrize("each", [1e-9, 3e-6, 0.004, 0.7])
def test_a_series_is_long_enough_and_not_much_longer(each: float) -> None:
    number = _number(Steady(each, call=1e-5))
    assert SECONDS * 0.99 <= number * each + 1e-5 <= max(2 * SECONDS, each + 1e-5)


def test_both_are_timed_in_turn() -> None:
    own, other = Steady(0.001), Steady(0.0015)
    seconds, beside = _times(own, other, inf)
    assert len(seconds) == len(beside) == SERIES
    assert seconds == pytest.approx([0.001] * SERIES)
    assert beside == pytest.approx([0.0015] * SERIES)
    assert own.asked[-2:] == [1, 5]  # the caches are warm before it counts


def test_what_is_hopeless_or_late_is_not_measured_for_long() -> None:
    assert len(_times(Steady(0.01), Steady(0.001), inf)[0]) == SURE
    assert len(_times(Steady(0.001), Steady(0.01), inf)[0]) == SERIES
    assert len(_times(Steady(0.001), Steady(0.001), 0.0)[0]) == 1


def test_results_are_nothing_before_they_are_computed() -> None:
    code = built(Order(product()), 60)
    (first,), (again,) = (_filled(code).values() for _ in range(2))
    assert first.shape == (48, 64)
    assert first.min() > 1e9
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (128, 5)])
def test_operands_begin_where_those_of_programs_do(shape: tuple[int, ...]) -> None:
    made = _aligned(shape, np.dtype(np.float32))
    assert (made.shape, made.dtype.name) == (shape, "float32")
    assert made.size == 0 or made.ctypes.data % ALIGNMENT == 0
