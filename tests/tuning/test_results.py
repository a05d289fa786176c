"""Results say in a few lines what was found, and why others failed."""

from __future__ import annotations

from math import inf

import pytest

from graphopt.calibration.schedule_tables import setting_here
from graphopt.lowering.schedule.trace import Trace
from graphopt.tuning.record import Candidate, Outcome, Record
from graphopt.tuning.results import LENGTH, Trial, TunedNest, duration, failed, trial
from tests.tuning.made_up import naive
from tests.tuning.nests import product

NOTHING = Trace(())


def test_a_result_is_a_few_lines() -> None:
    trials = (
        Trial(NOTHING, 2e-5, 3e-5),
        Trial(NOTHING, inf, inf, "wrong: c differs"),
        Trial(NOTHING, inf, inf, "not built: " + "x" * 500),
        Trial(NOTHING, inf, inf, "not built: too long"),
    )
    found = TunedNest(product(), NOTHING, 2e-5, 3e-5, trials, "trials", 12.3)
    assert str(found) == "\n".join(
        (
            "product: 20.00 us, 1.50x as fast as by default (30.00 us)",
            "4 schedules measured in 12 s: all trials are done",
            "3 failed: 2 not built, 1 wrong",
            "  not built: " + "x" * (LENGTH - 14) + "...",
            "  wrong: c differs",
        )
    )
    assert len(repr(found)) < 200
    assert [t.gain for t in found.trials] == [1.5, 0, 0, 0]
    assert found.failures == trials[1:]
    assert found.nest == product()
    assert list(failed(())) == []


def test_a_record_as_a_trial() -> None:
    def told(outcome: Outcome) -> tuple[float, float, str]:
        made = trial(Record(Candidate(naive(), NOTHING.to_json()), setting_here(), outcome))
        return made.seconds, made.default_seconds, made.problem

    assert told(Outcome((3.0, 1.0, 2.0), (4.0, 4.0, 5.0))) == (1.0, 4.0, "")
    assert told(Outcome((3.0,), (4.0,), "wrong: it is")) == (inf, 4.0, "wrong: it is")
    assert told(Outcome(problem="slow: it is")) == (inf, inf, "slow: it is")


@pytest.mark.parametrize(("seconds", "text"), [(2.5, "2.50 s"), (0.0123, "12.30 ms"), (1.234e-6, "1.23 us")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
