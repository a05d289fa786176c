"""Sessions spend their budget where time is lost, and keep whatever was measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from graphopt.calibration.schedule_tables import setting_here
from graphopt.errors import MissingDependencyError, ScheduleError, UsageError
from graphopt.platforms import platform_of
from graphopt.target import SIMULATION
from graphopt.tuning.database import Records
from graphopt.tuning.draws import Draw, Draws
from graphopt.tuning.learned import LearnedCostModel
from graphopt.tuning.record import Candidate, Outcome
from graphopt.tuning.search import RandomSearch, Scores, Search, SearchName
from graphopt.tuning.session import (
    BATCH,
    FINALISTS,
    FIRST,
    PATIENCE,
    Budget,
    Task,
    TuningReport,
    default_trace,
    tune_tasks,
)
from graphopt.tuning.workload import Workload
from tests.tuning.made_up import MadeUp, by_luck, illegal, luck, naive, nothing, numbers, pair, times_as_fast
from tests.tuning.nests import product

SIMULATED = platform_of(SIMULATION).machine()
OTHER = Workload.of(product(8, 16, 8))


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    with Records(tmp_path / "t.sqlite", write=True) as opened:
        yield opened


def session(records: Records, executor: MadeUp, trials: int | None = 12, *tasks: Task, **options: Any) -> TuningReport:
    options = {"search": "random", "spaces": (numbers,), "budget": Budget(trials), **options}
    return tune_tasks(tasks or [Task(naive())], records, executor, options.pop("budget"), **options)


@pytest.mark.parametrize("way", ["random", "evolution"])
def test_the_same_seed_measures_the_same(way: SearchName, tmp_path: Path) -> None:
    if way == "evolution":
        pytest.importorskip("lightgbm")
    traces = []
    for number, seed in enumerate((5, 5, 6)):
        executor = MadeUp()
        with Records(tmp_path / f"{number}.sqlite", write=True) as records:
            session(records, executor, 24, search=way, seed=seed)
            assert (records.model(setting_here()) is not None) is (way == "evolution")
        traces.append(executor.drawn)
    assert traces[0] == traces[1] != traces[2]


def test_so_many_are_measured_and_the_best_again(records: Records) -> None:
    executor = MadeUp()
    told: list[int] = []
    report = session(records, executor, 12, told=lambda tasks, trials: told.append(trials))
    assert (report.trials, report.ending) == (12, "trials")
    assert told == list(range(1, 13))
    best = sorted(executor.drawn[:12], key=luck, reverse=True)
    assert executor.drawn[12:] == [c for c in best if luck(c) > 1][:FINALISTS]
    (progress,) = report.tasks
    assert progress.best is not None
    assert progress.best.candidate == best[0]
    assert progress.gain == pytest.approx(luck(best[0]))
    assert progress.default == pytest.approx(1e-3)
    assert progress.seconds == pytest.approx(1e-3 / luck(best[0]))
    gains = [gain for _, gain in progress.curve]
    assert [n for n, _ in progress.curve] == list(range(1, 13))
    assert gains == sorted(gains)


def test_luck_does_not_win(records: Records) -> None:
    """What was fast once and is no faster than the default schedule when it is measured again is not taken, nor is
    another that was fast once."""
    seen: set[str] = set()

    def lucky(candidate: Candidate) -> Outcome:
        once = candidate.trace not in seen
        seen.add(candidate.trace)
        return times_as_fast(2.0 if once else 0.9)

    (progress,) = session(records, MadeUp(lucky)).tasks
    assert (progress.best, progress.gain) == (None, 1.0)
    assert records.best(naive(), setting_here()) is None


def test_the_default_schedule_is_no_faster_than_itself(records: Records) -> None:
    session(records, MadeUp(lambda candidate: times_as_fast(1.5)), 4, spaces=(pair,))
    default = default_trace(naive()).to_json()
    assert [r.outcome.gain for r in records.history(naive(), setting_here()) if r.candidate.trace == default] == [1.0]


def test_an_interrupt_of_the_end_leaves_what_is_kept(records: Records) -> None:
    executor = MadeUp()

    def interrupted(candidate: Candidate) -> Outcome:
        if len(executor.drawn) == 13:
            raise KeyboardInterrupt
        return by_luck(candidate)

    executor.answer = interrupted
    report = session(records, executor)
    assert report.ending == "interrupted"
    assert report.tasks[0].best == records.best(naive(), setting_here()) is not None


def test_what_cannot_be_measured_beside_its_default_schedule_is_left(records: Records) -> None:
    executor = MadeUp(lambda candidate: Outcome(problem="unchecked: nobody knows"))
    report = session(records, executor)
    assert (report.ending, report.trials, len(executor.asked)) == ("done", 0, 1)


def test_the_time_ends_it(records: Records) -> None:
    report = session(records, MadeUp(), budget=Budget(seconds=0.0))
    assert (report.trials, report.ending) == (0, "seconds")
    assert len(records.history(naive(), setting_here())) == 1  # the default schedule's


def test_an_interrupt_loses_nothing(records: Records) -> None:
    executor = MadeUp()

    def interrupted(candidate: Candidate) -> Outcome:
        if len(executor.asked) == 7:
            raise KeyboardInterrupt
        return by_luck(candidate)

    executor.answer = interrupted
    report = session(records, executor, 100)
    assert (report.trials, report.ending) == (6, "interrupted")
    assert {r.candidate for r in records.history(naive(), setting_here())} == set(executor.asked)


def test_what_is_known_is_not_measured_again(records: Records) -> None:
    first, second = MadeUp(), MadeUp()
    before = session(records, first, 12).tasks[0]
    (after,) = session(records, second, 12).tasks
    assert len(records.history(naive(), setting_here())) == 1 + 24
    assert not set(first.asked) & set(second.asked[:12])
    assert after.trials == 12
    assert after.gain >= before.gain


def test_features_are_kept_for_the_next_session(records: Records) -> None:
    session(records, MadeUp(), 4)
    assert sum(bool(r.outcome.features) for r in records) == 4


@pytest.mark.parametrize(("times", "heavy"), [((10, 1), 0), ((1, 10), 1)])
def test_trials_go_where_most_time_is_lost(times: tuple[int, int], heavy: int, records: Records) -> None:
    """Nothing is ever gained, so that the heavy one is left when it has had all patience, and not before."""
    tasks = [Task(workload, n) for workload, n in zip((naive(), OTHER), times, strict=True)]
    budget = 2 * FIRST + (PATIENCE - 1) * BATCH
    report = session(records, MadeUp(lambda candidate: times_as_fast(1.0)), budget, *tasks)
    assert [p.trials for p in report.tasks][heavy] == budget - FIRST
    assert report.ending == "trials"


def test_small_gains_in_one_do_not_keep_trials_from_others(records: Records) -> None:
    """The first is a little faster each time, and so never left for want of gains."""
    gains = iter(1.02**k for k in range(100))
    heavy, other = Task(naive(), 3), Task(OTHER, 2)

    def answer(candidate: Candidate) -> Outcome:
        return times_as_fast(next(gains) if candidate.workload == heavy.workload else 1.0)

    report = session(records, MadeUp(answer), 40, heavy, other)
    assert min(p.trials for p in report.tasks) > FIRST


@pytest.mark.parametrize(("many", "batch"), [(1, BATCH), (10, 20)])
def test_a_round_has_enough_for_all_who_measure(
    many: int, batch: int, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposed = []

    class Noted:
        """A strategy of one's own: at random, and it is noted how many are asked for."""

        learns = False

        def begin(self, draws: Draws, random: Random, scores: Scores) -> Search:
            search = RandomSearch().begin(draws, random, scores)
            propose = search.propose

            def noted(count: int) -> list[Draw]:
                proposed.append(count)
                return propose(count)

            monkeypatch.setattr(search, "propose", noted)
            return search

    monkeypatch.setattr("graphopt.tuning.session.workers", lambda executor: many)
    session(records, MadeUp(), 40, search=Noted())
    assert proposed[:2] == [FIRST, batch]


def test_a_model_that_was_kept_serves_while_there_is_little_to_learn_from(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightgbm")
    session(records, MadeUp(), 24, search="evolution")
    kept = records.model(setting_here())
    records.prune(best=1)
    used, read = [], LearnedCostModel.read

    def noted(text: str) -> LearnedCostModel:
        used.append(text)
        return read(text)

    monkeypatch.setattr(LearnedCostModel, "read", staticmethod(noted))
    session(records, MadeUp(), 4, search="evolution")
    assert kept is not None
    assert set(used) == {kept.decode()}
    assert records.model(setting_here()) == kept


def test_what_is_never_gained_ends_it(records: Records) -> None:
    report = session(records, MadeUp(lambda candidate: times_as_fast(0.5)), None)
    assert (report.trials, report.ending) == (FIRST + (PATIENCE - 1) * BATCH, "done")
    assert session(records, MadeUp(), None, spaces=(pair,)).trials == 2  # there is no more in it


def test_problems_are_counted_by_kind(records: Records) -> None:
    def failing(candidate: Candidate) -> Outcome:
        return by_luck(candidate) if luck(candidate) > 1 else Outcome(problem=f"wrong: by {luck(candidate)}")

    executor = MadeUp(failing)
    (progress,) = session(records, executor).tasks
    assert progress.problems == {"wrong": sum(luck(c) <= 1 for c in executor.asked[:13])}
    assert progress.problems["wrong"] > 0


@pytest.mark.parametrize("space", [nothing, illegal])
def test_no_schedule_at_all_is_an_error_and_loses_nothing(space: Callable[..., object], records: Records) -> None:
    session(records, MadeUp(), 4)
    with pytest.raises(ScheduleError, match="no search space has a schedule of product"):
        session(records, MadeUp(), 4, spaces=(space,))
    with pytest.raises(ScheduleError, match="there is none"):
        session(records, MadeUp(), 4, spaces=())
    assert len(list(records)) == 1 + 4


def test_of_a_task_that_no_space_is_for_the_default_schedule_is_known(records: Records) -> None:
    def small(s: Any) -> None:
        if s.nest != OTHER.nest:
            raise ScheduleError("it is large")
        numbers(s)

    report = session(records, MadeUp(), 4, Task(naive()), Task(OTHER), spaces=(small,))
    assert [p.trials for p in report.tasks] == [0, 4]
    assert report.tasks[0].default == pytest.approx(1e-3)
    assert len(records.history(naive(), setting_here())) == 1


def test_a_search_that_learns_needs_lightgbm(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    executor = MadeUp()
    with pytest.raises(MissingDependencyError, match="or search at random"):
        session(records, executor, search="evolution")
    assert not executor.asked
    assert session(records, executor).trials == 12


def test_a_session_for_a_device_draws_from_its_spaces(records: Records) -> None:
    executor = MadeUp(lambda candidate: replace(by_luck(candidate), machine=SIMULATED))
    task = Task(Workload.of(product(7, 10, 12)))
    report = tune_tasks([task], records, executor, Budget(6), search="random", target="simulated")
    assert {c.target for c in executor.asked} == {"simulated"}
    assert [c.trace for c in executor.asked[:1]] == [default_trace(task.workload, "simulated").to_json()]
    (progress,) = report.tasks
    assert progress.best is not None
    assert progress.best.setting.machine == SIMULATED
    assert len(records.history(task.workload, setting_here(where=SIMULATED))) == len({c.trace for c in executor.asked})
    assert not records.history(task.workload, setting_here())


def test_the_best_are_measured_again_as_often_as_is_asked(records: Records) -> None:
    """All series count together, and a problem of one does."""
    executor = MadeUp()
    (progress,) = session(records, executor, budget=Budget(12, again=3)).tasks
    again = executor.drawn[12:]
    assert again[:FINALISTS] * 3 == again
    assert progress.best is not None
    assert len(progress.best.outcome.seconds) == 3 * 4
    failed = Outcome(problem="wrong: once")
    assert times_as_fast(2.0).joined(failed) == failed.joined(times_as_fast(2.0)) == failed


@pytest.mark.parametrize("budget", [{"trials": -1}, {"seconds": -0.5}, {"seconds": float("nan")}])
def test_a_budget_below_nothing_is_an_error(budget: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="a budget is a number from 0 on"):
        Budget(**budget)
