"""A nest that is scheduled by rule, some of it chosen otherwise, computes the same."""

from __future__ import annotations

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.cpu.default_schedules import chosen, scheduled
from graphopt.lowering.cuda.procedures import is_bound
from graphopt.lowering.schedule import by_rule as schedule_rules
from graphopt.lowering.schedule.by_rule import chosen_for
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.lowering.schedule.trace import Trace
from tests.lowering.described import FIXED
from tests.lowering.documented import check as check_documented
from tests.lowering.native import check


def test_documented() -> None:
    check_documented(schedule_rules.by_rule)


@pytest.mark.parametrize("name", FIXED)
def test_what_is_chosen_changes_loops_and_not_results(name: str) -> None:
    nest = FIXED[name]()
    made, offered = chosen(nest, {})
    assert made == scheduled(nest)
    for key, candidates in offered.items():
        others = [chosen(nest, {key: n})[0] for n in (candidates[0], candidates[-1])]
        assert len(candidates) == 1 or any(other != made for other in others), key
        for other in others:
            check(nest, other)


def test_a_trace_keeps_what_was_chosen() -> None:
    nest = FIXED["convolution"]()
    s = Schedule(nest)
    width = s.sample_categorical([2, 4])
    s.by_rule([["width 0", width]])
    assert Trace.from_json(s.trace.to_json()).replay(nest).nest == s.nest
    assert s.nest == chosen(nest, {"width 0": int(width)})[0]


def test_a_trace_keeps_the_target() -> None:
    nest = FIXED["convolution"]()
    s = Schedule(nest)
    s.by_rule([["down 0", 4]], target="simulated")
    assert "target='simulated'" in str(s.trace)
    assert Trace.from_json(s.trace.to_json()).replay(nest).nest == s.nest
    assert s.nest == chosen_for("simulated", nest, {"down 0": 4})[0]
    assert is_bound(s.nest.body)


def test_what_there_is_no_choice_of_is_an_error() -> None:
    s = Schedule(FIXED["convolution"]())
    with pytest.raises(ScheduleError, match=r"by_rule: there is no choice of speed: there is one of width 0"):
        s.by_rule([["speed", 1]])
    with pytest.raises(ScheduleError, match=r"by_rule: width 0 is one of .* and not 99"):
        s.by_rule([["width 0", 99]])
    with pytest.raises(ScheduleError, match=r"by_rule: there is no choice of width 0: there is one of down 0, "):
        s.by_rule([["width 0", 2]], target="cuda")
    with pytest.raises(ScheduleError, match="pairs of a name and a number"):
        s.by_rule(["width"])
