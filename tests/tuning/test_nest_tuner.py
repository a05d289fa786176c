"""The best of a space is what tuning a nest gives, whatever the default schedule takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphopt.errors import ScheduleError, UsageError
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import BY_RULE, Nest
from graphopt.tuning.nest_tuner import tune_nest
from graphopt.tuning.record import Candidate, Outcome
from graphopt.tuning.results import TunedNest
from graphopt.tuning.session import FINALISTS, Budget
from tests.tuning.made_up import SIDES, MadeUp, by_luck, illegal, luck, nothing, numbers, pair, tiles, times_as_fast
from tests.tuning.nests import copy, dense, product


def tuned(executor: MadeUp, nest: Nest | None = None, trials: int | None = 12, **options: Any) -> TunedNest:
    options = {"spaces": (tiles,), "search": "random", **options}
    return tune_nest(nest or product(), Budget(trials, patience=None), executor=executor, **options)


def test_the_best_is_told_with_its_trace_and_time() -> None:
    executor = MadeUp()
    found = tuned(executor)
    best = max(executor.drawn, key=luck)
    assert found.trace.to_json() == best.trace
    assert found.gain == pytest.approx(luck(best))
    assert (found.default_seconds, found.seconds) == pytest.approx((1e-3, 1e-3 / luck(best)))
    assert {t.trace.to_json() for t in found.trials} == {c.trace for c in executor.drawn[:12]}
    assert found.nest == found.schedule.nest == found.trace.replay(product()).nest
    arrays = [np.random.default_rng(0).integers(-4, 4, s).astype(np.float32) for s in ((24, 20), (20, 48))]
    out = np.zeros((24, 48), np.float32)
    interpret(found.nest, [*arrays, out])
    np.testing.assert_array_equal(out, arrays[0] @ arrays[1])


def test_the_best_of_a_space_is_told_also_where_the_default_schedule_is_faster() -> None:
    def slower(candidate: Candidate) -> Outcome:
        return times_as_fast(luck(candidate) / 2)

    executor = MadeUp(slower)
    found = tuned(executor)
    assert found.gain == pytest.approx(max(map(luck, executor.drawn)) / 2)
    assert found.gain < 1
    assert "x as fast as by default (1.00 ms)" in str(found)
    assert len(executor.drawn) == 12 + FINALISTS


def test_luck_does_not_win() -> None:
    """What was fast once and is slow when it is measured again is not the best."""
    seen: set[str] = set()

    def lucky(candidate: Candidate) -> Outcome:
        once = candidate.trace not in seen
        seen.add(candidate.trace)
        return times_as_fast(0.9 if once and luck(candidate) > 0.7 else luck(candidate) / 2)

    executor = MadeUp(lucky)
    found = tuned(executor)
    assert found.gain == pytest.approx(max(map(luck, executor.drawn)) / 2)


def test_without_a_space_the_default_schedule_counts() -> None:
    found = tuned(MadeUp(lambda candidate: times_as_fast(0.9)), spaces=None)
    assert (found.gain, str(found.trace)) == (1.0, "s.by_rule()\n")
    assert found.nest == found.trace.replay(product()).nest
    found = tuned(MadeUp(), spaces=None)
    assert found.gain > 1
    alone = tuned(MadeUp(), copy(), spaces=None)
    assert alone.gain >= 1


def test_all_of_a_budget_is_spent_and_all_of_a_small_space() -> None:
    never = MadeUp(lambda candidate: times_as_fast(0.5))
    assert len(tuned(never, trials=60).trials) == 60
    assert len(tuned(MadeUp(), trials=None, spaces=(pair,), search="exhaustive").trials) == 2
    assert len(tuned(MadeUp(), trials=None, search="exhaustive").trials) == len(SIDES) ** 2


def test_a_nest_that_is_noted_to_be_scheduled_by_default_is_tuned_like_any() -> None:
    noted = replace(product(), notes=(*product().notes, BY_RULE))
    found = tuned(MadeUp(), noted)
    assert BY_RULE not in found.nest.notes
    assert found.nest == tuned(MadeUp()).nest


def test_open_sizes() -> None:
    executor = MadeUp()
    found = tuned(executor, dense("n"), spaces=None, sizes={"n": 32})
    assert {c.workload.sizes for c in executor.asked} == {(("n", 32),)}
    assert [var.name for var in found.nest.sizes] == ["n"]
    assert str(found).startswith("dense at n=32: ")
    for sizes, line in [
        ({}, r"dense has open sizes \(n\): .*sizes=\{'n': 64\}"),
        ({"n": 8, "m": 3}, "dense has no open size m: its open sizes are n"),
        ({"n": -1}, "n is a size of dense, a number from 0 on, and not -1"),
        ({"n": 2.5}, "and not 2.5"),
    ]:
        with pytest.raises(UsageError, match=line):
            tuned(executor, dense("n"), sizes=sizes)


def test_why_nothing_counts() -> None:
    default = tuned(MadeUp(), spaces=None, trials=0).trace.to_json()

    def failing(candidate: Candidate) -> Outcome:
        return by_luck(candidate) if candidate.trace == default else Outcome(problem="wrong: c differs by 3")

    with pytest.raises(ScheduleError, match="no schedule of product counts: 4 failed: 4 wrong; wrong: c differs by 3"):
        tuned(MadeUp(failing), trials=4)
    with pytest.raises(ScheduleError, match="counts: 1 failed: 1 unchecked; unchecked: nobody knows"):
        tuned(MadeUp(lambda candidate: Outcome(problem="unchecked: nobody knows")))
    with pytest.raises(ScheduleError, match="the budget allowed no trial"):
        tuned(MadeUp(), trials=0)
    with pytest.raises(ScheduleError, match="it calls no sample_ method"):
        tuned(MadeUp(), spaces=(nothing,))
    with pytest.raises(ScheduleError, match="16 draws in a row are illegal"):
        tuned(MadeUp(), spaces=(illegal,))


def test_a_database_is_gone_on_from(tmp_path: Path) -> None:
    database = tmp_path / "t.sqlite"
    first = tuned(MadeUp(), database=database, spaces=(pair,), search="exhaustive", trials=None)
    other = tuned(MadeUp(lambda candidate: times_as_fast(9.0)), database=database, trials=4)
    again = tuned(MadeUp(), database=database, spaces=(pair,), search="exhaustive", trials=None)
    assert other.gain == pytest.approx(9.0)
    assert (again.trace, len(again.trials)) == (first.trace, 0)  # that of the other space is no answer


def test_an_interruption_gives_the_best_so_far() -> None:
    executor = MadeUp()

    def interrupted(candidate: Candidate) -> Outcome:
        if len(executor.asked) == 7:
            raise KeyboardInterrupt
        return by_luck(candidate)

    executor.answer = interrupted
    found = tuned(executor)
    assert (found.ending, len(found.trials)) == ("interrupted", 6)
    assert found.gain == pytest.approx(max(map(luck, executor.drawn)))

    def at_once(candidate: Candidate) -> Outcome:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuned(MadeUp(at_once))


def test_a_cost_model_of_ones_own_guides_evolution() -> None:
    """The model knows which is fastest, and what is measured is near that."""
    told: list[tuple[int, ...]] = []

    class Knowing:
        def fit(self, rows: np.ndarray[Any, Any], goals: np.ndarray[Any, Any]) -> None:
            told.append((*rows.shape, *goals.shape))

        def predict(self, rows: np.ndarray[Any, Any]) -> Any:
            return rows.sum(1)

    found = tuned(MadeUp(), trials=24, search="evolution", cost_model=Knowing())
    assert len(found.trials) == 24
    assert told[0][0] == told[0][2] >= 8

    class Few(Knowing):
        def predict(self, rows: np.ndarray[Any, Any]) -> Any:
            return [1.0]

    with pytest.raises(UsageError, match=r"the cost model gave 1 scores for .*: predict gives one each"):
        tuned(MadeUp(), trials=24, search="evolution", cost_model=Few())
    for wrong in (Knowing, 3):
        with pytest.raises(UsageError, match="is no cost model"):
            tuned(MadeUp(), search="evolution", cost_model=wrong)
    with pytest.raises(UsageError, match=r"RandomSearch.* asks no cost model: leave cost_model out"):
        tuned(MadeUp(), cost_model=Knowing())


def test_a_small_space_is_measured_here() -> None:
    """In processes of this machine, each schedule compared with what the nest says."""
    found = tune_nest(product(), Budget(2, patience=None), spaces=(pair, numbers)[:1], search="exhaustive")
    assert len(found.trials) == 2
    assert not found.failures
    assert found.seconds > 0
