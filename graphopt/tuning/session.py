"""Tuning sessions: candidates of several workloads are proposed, measured, learned from and kept, within a budget.

Each round goes to the workload in which most is expected of another trial, much as Ansor's task scheduler has it (Zheng
et al., OSDI 2020): what each of the last round's saved, or a share of what a run spends in it, the less the more were
made. What is measured is in the database before the next is looked at, so that whatever ends a session, nothing is lost
and the next goes on from it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from hashlib import sha256
from random import Random
from statistics import median
from typing import Final, Literal
from warnings import warn

import numpy as np

from graphopt.calibration.measured_file import Setting
from graphopt.calibration.schedule_tables import setting_here
from graphopt.errors import ReadError, ScheduleError, UsageError
from graphopt.frozen import dataclass
from graphopt.lowering.analysis.flops import flops
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.lowering.schedule.trace import Trace
from graphopt.platforms import platform_of
from graphopt.runtime.sizes import evaluate
from graphopt.target import CPU
from graphopt.target import target as target_named
from graphopt.tuning.database import Records
from graphopt.tuning.draws import Draw, Draws
from graphopt.tuning.executors import outcomes, workers
from graphopt.tuning.features import NAMES
from graphopt.tuning.learned import CostModel, LearnedCostModel, goal, require
from graphopt.tuning.oracle import UNCHECKED
from graphopt.tuning.record import Candidate, Outcome, Record
from graphopt.tuning.search import Search, SearchName, SearchStrategy, strategy_of
from graphopt.tuning.spaces import Space, scheduled_by_rule, spaces_for
from graphopt.tuning.workload import Workload

BATCH: Final = 8
"""Candidates that are proposed at once, where no more are measured at once: the next are chosen by what these tell."""
FIRST: Final = 4
"""Candidates of a workload's first round, which tells whether there is anything to gain."""
HOPE: Final = 0.5
"""What share of a workload's time its first trials are expected to save."""
PATIENCE: Final = 4
"""Rounds without a gain after which a workload is left as it is."""
ENOUGH: Final = 8
"""Measurements from which on there is something to learn."""
RECALLED: Final = 16
"""How many of the best that other sessions found a search is told of."""
GAIN: Final = 1.01
"""How many times as fast as the best before is a gain."""
FINALISTS: Final = 3
"""How many of a workload's best are measured again at once: the fastest of many owes something to chance."""

Ending = Literal["done", "trials", "seconds", "interrupted"]


@dataclass(frozen=True)
class Task:
    """A workload with how often a run of the model does it, and the nodes that it computes.

    >>> tuning.Task(workload, times=3).times
    3
    """

    workload: Workload
    times: int = 1
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Budget:
    """When to stop: after so many measurements, or so many seconds; None: only when nothing is gained any more.

    Default schedules, and the best that are measured again at the end, are not among the measurements; nor is that end
    among the seconds. A workload is left after ``patience`` rounds without a gain (None: never, so that all of the
    budget, or of the space, is spent).

    >>> tuning.Budget(trials=8)
    Budget(trials=8, seconds=None, patience=4, again=1)
    """

    trials: int | None = None
    seconds: float | None = None
    patience: int | None = PATIENCE
    again: int = 1
    """How often the best are measured again at the end, in turns."""

    def __post_init__(self) -> None:
        for name in ("trials", "seconds"):
            if (value := getattr(self, name)) is not None and not value >= 0:
                raise UsageError(f"{name}={value}: a budget is a number from 0 on, or None for no end")


@dataclass
class Progress:
    """How far a task is."""

    task: Task
    target: str = CPU.name
    trials: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    """Candidates that do not count, by what was wrong."""
    default: float = 0.0
    """Seconds that the default schedule takes; 0 before anything was measured."""
    best: Record | None = None
    """The fastest of all that are known; None where none is faster than the default schedule."""
    records: dict[str, Record] = field(default_factory=dict)
    """What this session measured, by the trace, in order, as it was measured last; without the default schedule."""
    confirmed: set[str] = field(default_factory=set)
    """The traces that were measured again at the end."""
    curve: list[tuple[int, float]] = field(default_factory=list)
    """After which measurement the best was how many times as fast as the default schedule."""

    @property
    def gain(self) -> float:
        """How many times as fast as the default schedule the best is: at least 1."""
        return max(1.0, self.best.outcome.gain if self.best else 0.0)

    @property
    def nest(self) -> Nest:
        """The nest under its best schedule, or its default one where none is faster."""
        workload, best = self.task.workload, self.best
        trace = default_trace(workload, self.target) if best is None else Trace.from_json(best.candidate.trace)
        return trace.replay(workload.nest).nest

    @property
    def seconds(self) -> float:
        """Seconds that a run of the model spends in it, under the best schedule."""
        return self.task.times * self.default / self.gain


@dataclass(frozen=True)
class TuningReport:
    """What a session found."""

    tasks: tuple[Progress, ...]
    ending: Ending
    seconds: float

    @property
    def trials(self) -> int:
        """Measurements of this session."""
        return sum(p.trials for p in self.tasks)


Told = Callable[[Sequence[Progress], int], None]
"""Called after each measurement with how far tasks are, and how many measurements there were."""


def renamed(search: SearchName | SearchStrategy, way: SearchName | None) -> SearchName | SearchStrategy:
    """The search, by the name that the argument had in the last version where that is used."""
    if way is None:
        return search
    warn("way= is search= now, and its old name will go", DeprecationWarning, stacklevel=3)
    return way


def tune(
    tasks: Sequence[Task],
    records: Records,
    executor: Executor,
    budget: Budget = Budget(),
    *,
    way: SearchName = "evolution",
    spaces: Sequence[Space] | None = None,
    target: str = CPU.name,
    threads: int = 1,
    seed: int = 0,
    told: Told | None = None,
) -> TuningReport:
    """``tune_tasks``, by the name that it had in the last version, with a ``DeprecationWarning``."""
    warn("graphopt.tuning.tune is tune_tasks now, and its old name will go", DeprecationWarning, stacklevel=2)
    return tune_tasks(
        tasks,
        records,
        executor,
        budget,
        search=way,
        spaces=spaces,
        target=target,
        threads=threads,
        seed=seed,
        told=told,
    )


def tune_tasks(
    tasks: Sequence[Task],
    records: Records,
    executor: Executor,
    budget: Budget = Budget(),
    *,
    search: SearchName | SearchStrategy = "evolution",
    cost_model: CostModel | None = None,
    spaces: Sequence[Space] | None = None,
    target: str = CPU.name,
    threads: int = 1,
    seed: int = 0,
    told: Told | None = None,
) -> TuningReport:
    """Look for faster schedules of the tasks, and keep in ``records`` what is measured, by ``executor``.

    ``target`` is what schedules are for; ``spaces`` are where they are drawn from, those of the target where None.
    ``search`` is how; a ``cost_model`` of one's own guides it instead of the learned one, and is not kept.
    Of a task that no space has anything for, the default schedule alone is measured and kept; where spaces of one's own
    have nothing for any task, ScheduleError says why. The same ``seed`` gives the same candidates, as far as outcomes
    are the same. KeyboardInterrupt ends the session, and the report says so. UsageError for a search that there is not,
    MissingDependencyError where the search learns, and lightgbm is not installed.

    >>> tasks, budget = [tuning.Task(workload)], tuning.Budget(trials=0)
    >>> with tuning.Records(Path("tuning.sqlite"), write=True) as records, tuning.executor_named() as executor:
    ...     report = tuning.tune_tasks(tasks, records, executor, budget, search="random")
    >>> report.ending, len(report.tasks)
    ('trials', 1)
    """
    strategy = strategy_of(search)
    check_learning(strategy, cost_model)
    drawn = spaces_for(target) if spaces is None else tuple(spaces)
    session = _Session(records, executor, budget, strategy, cost_model, drawn, target, threads, seed, told or _silent)
    return session.run(tasks)


def check_learning(strategy: SearchStrategy, cost_model: CostModel | None = None) -> None:
    """Raise where a search cannot be guided as it is asked for: UsageError for a cost model that nobody would ask, or
    that is none, and MissingDependencyError where the learned one is wanted, and lightgbm is not installed."""
    if cost_model is None:
        if strategy.learns:
            require()
        return
    if isinstance(cost_model, type) or not all(callable(getattr(cost_model, n, None)) for n in ("fit", "predict")):
        raise UsageError(
            f"cost_model={cost_model!r} is no cost model: it is to be a value with the methods fit, predict"
        )
    if not strategy.learns:
        raise UsageError(f"{strategy!r} asks no cost model: leave cost_model out, or search by evolution")


def _silent(tasks: Sequence[Progress], trials: int) -> None:
    return


@dataclass
class _TaskState:
    """A task under way."""

    progress: Progress
    search: Search
    rounds: int = 0
    stale: int = 0
    """Rounds since the last gain."""
    saved: float = 0.0
    """Seconds of a run of the model that each trial of the last round saved."""
    is_done: bool = False
    reason: ScheduleError | None = None
    """Why there is nothing to choose."""


class _Stopped(Exception):  # noqa: N818 - it is no error
    """The budget is spent."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending


@dataclass
class _Session:
    records: Records
    executor: Executor
    budget: Budget
    strategy: SearchStrategy
    cost_model: CostModel | None
    spaces: tuple[Space, ...]
    target: str
    threads: int
    seed: int
    told: Told
    rows: list[tuple[float, ...]] = field(default_factory=list)
    goals: list[float] = field(default_factory=list)
    states: list[_TaskState] = field(default_factory=list)
    model: CostModel | None = None
    """The cost model, once it knows anything."""
    begun: float = field(default_factory=time.monotonic)

    def run(self, tasks: Sequence[Task]) -> TuningReport:
        """All of it."""
        ending: Ending = "done"
        try:
            self.remember()
            self.states = [self.begin(task) for task in tasks]
            self.refuse_empty()
            self.learn()
            self.defaults()
            while (chosen := self.chosen()) is not None:
                self.round(chosen)
        except _Stopped as stopped:
            ending = stopped.ending
        except KeyboardInterrupt:
            ending = "interrupted"
        if ending != "interrupted":
            try:
                self.confirm()
            except KeyboardInterrupt:
                ending = "interrupted"
        return TuningReport(tuple(s.progress for s in self.states), ending, time.monotonic() - self.begun)

    def remember(self) -> None:
        """Learn from what other sessions measured on this kind of machine."""
        here = self.here
        for record in self.records:
            if record.setting == here and len(record.outcome.features) == len(NAMES):  # of other versions, others
                self.rows.append(record.outcome.features)
                self.goals.append(goal(record.outcome.speedup))

    def begin(self, task: Task) -> _TaskState:
        """A task with what is known of it; it is done where there is nothing to choose."""
        random = Random(int(sha256(f"{self.seed}:{task.workload.key}".encode()).hexdigest()[:16], 16))
        history = self.records.history(task.workload, self.here)
        reason = None
        try:
            draws = Draws.of(task.workload, self.spaces, random)
        except ScheduleError as error:
            draws, reason = Draws(task.workload, ()), error
        search = self.strategy.begin(draws, random, self.scores)
        state = _TaskState(Progress(task, self.target), search, is_done=reason is not None, reason=reason)
        for record in history:
            search.skip(record.candidate.trace)
            if not record.outcome.problem:
                self.note(state, record)
        return state

    def recall(self, state: _TaskState) -> None:
        """Tell a search of the best that other sessions found. It takes a while, and of most tasks of a large model
        nobody asks."""
        search, workload = state.search, state.progress.task.workload
        history = self.records.history(workload, self.here)
        best = sorted((r for r in history if r.outcome.gain), key=lambda r: (-r.outcome.gain, r.candidate.trace))
        for record in best[:RECALLED]:
            if draw := search.draws.again(Trace.from_json(record.candidate.trace), search.random):
                search.tell(draw, record.outcome)

    def refuse_empty(self) -> None:
        """Raise where spaces have nothing for any task; that the built-in ones have nothing is nobody's mistake."""
        reasons = [s.reason for s in self.states if s.reason is not None]
        if self.spaces != spaces_for(self.target) and reasons and len(reasons) == len(self.states):
            raise reasons[0]

    def defaults(self) -> None:
        """Measure the default schedules of those of which nothing is known: then it is known that there is none else,
        or how long they take. What cannot be measured beside its own is left as it is."""
        unknown = sorted((s for s in self.states if not s.progress.default), key=_work, reverse=True)
        new = {s.progress.task.workload: s for s in unknown}
        records = measured_by_default(list(new), self.records, self.executor, self.threads, self.end, self.target)
        for record in records:
            state = new[record.candidate.workload]
            self.note(state, record)
            state.is_done |= record.outcome.kind == UNCHECKED
        self.check()

    def note(self, state: _TaskState, record: Record) -> None:
        """Take a measurement into account."""
        progress, outcome = state.progress, record.outcome
        if outcome.problem:
            progress.problems[outcome.kind] += 1
            return
        if not progress.default and outcome.beside:
            progress.default = median(outcome.beside)
        if outcome.gain > progress.gain:
            progress.best = record

    def chosen(self) -> _TaskState | None:
        """The task to go on with; None where all are done."""
        open_ = [s for s in self.states if not s.is_done]
        return max(open_, key=_worth, default=None)

    def round(self, state: _TaskState) -> None:
        """One round of a task: propose, measure, keep, learn."""
        progress, count, before = state.progress, self.batch if state.rounds else FIRST, state.progress.gain
        spent = progress.seconds
        if not state.rounds:
            self.recall(state)
        left = None if self.budget.trials is None else self.budget.trials - self.measured()
        draws = state.search.propose(count if left is None else min(count, left))
        outcomes: dict[str, Outcome] = {}
        for record in self.measure(state, draws):
            outcomes[record.candidate.trace] = record.outcome
            progress.records[record.candidate.trace] = record
            self.note(state, record)
            progress.trials += 1
            progress.curve.append((progress.trials, progress.gain))
            self.told([s.progress for s in self.states], self.measured())
        for draw in (draw for draw in draws if draw.text in outcomes):  # whoever was done first
            state.search.tell(draw, outcomes[draw.text])
            self.rows.append(draw.features)
            self.goals.append(goal(outcomes[draw.text].speedup))
        state.rounds += 1
        state.saved = (spent - progress.seconds) / max(len(outcomes), 1)
        state.stale = 0 if progress.gain > before * GAIN else state.stale + 1
        state.is_done = not draws or state.stale == self.budget.patience
        self.learn()
        self.check()

    def measure(self, state: _TaskState, draws: Sequence[Draw]) -> Iterator[Record]:
        """What came of candidates, once it is kept."""
        features = {draw.text: draw.features for draw in draws}
        workload = state.progress.task.workload
        candidates = [Candidate(workload, text, self.threads, self.target) for text in features]
        for candidate, outcome in outcomes(self.executor, candidates, until=self.end):
            yield _kept(self.records, candidate, replace(outcome, features=features[candidate.trace]))

    def learn(self) -> None:
        """Fit the cost model anew, and keep the learned one; of too few measurements, take the one that was kept: it
        may have learned from records that were pruned."""
        if not self.strategy.learns:
            return
        here = self.here
        if len(self.rows) >= ENOUGH:
            self.model = self.cost_model or LearnedCostModel()
            self.model.fit(np.array(self.rows), np.array(self.goals))
            if isinstance(self.model, LearnedCostModel):
                self.records.keep_model(here, self.model.text().encode())
        elif self.cost_model is None and (text := self.records.model(here)) is not None:
            with suppress(ReadError):  # it may know other features
                self.model = LearnedCostModel.read(text.decode())

    def scores(self, draws: Sequence[Draw]) -> list[float] | None:
        """What the cost model says of schedules, once it knows anything."""
        if self.model is None or not draws:
            return None
        scores = [float(x) for x in np.ravel(self.model.predict(np.array([draw.features for draw in draws])))]
        if len(scores) != len(draws):
            raise UsageError(
                f"the cost model gave {len(scores)} scores for {len(draws)} schedules: predict gives one each"
            )
        return scores

    def confirm(self) -> None:
        """Measure the best of each task again, until the best is one that was: none is taken for its luck."""
        for state in self.states:
            progress = state.progress
            if not progress.trials or progress.best is None:
                continue
            where = progress.task.workload, progress.best.setting
            try:
                confirm(progress, partial(self.records.ranked, *where), self.records, self.executor, self.budget.again)
            finally:
                progress.best = self.records.best(*where)

    @property
    def batch(self) -> int:
        """How many candidates make a round: enough for all who measure to have one waiting."""
        return max(BATCH, 2 * workers(self.executor))

    @property
    def here(self) -> Setting:
        """What is measured on this machine for the target."""
        return here(self.target, self.threads)

    def measured(self) -> int:
        """Measurements so far."""
        return sum(s.progress.trials for s in self.states)

    @property
    def end(self) -> float | None:
        """When the time is up, by the clock that is ``time.monotonic``."""
        return None if self.budget.seconds is None else self.begun + self.budget.seconds

    def check(self) -> None:
        """Stop where the budget is spent."""
        if self.budget.trials is not None and self.measured() >= self.budget.trials:
            raise _Stopped("trials")
        if self.end is not None and time.monotonic() >= self.end:
            raise _Stopped("seconds")


def confirm(
    progress: Progress, ranked: Callable[[], Sequence[Record]], records: Records, executor: Executor, again: int = 1
) -> Record | None:
    """The best of ``ranked``, the best first, once it was measured again; None where there is none.

    Some are measured ``again`` in turns, and kept in ``records``, until the first is one of them.
    """
    while (best := ranked()) and best[0].candidate.trace not in progress.confirmed:
        some = [r for r in best[:FINALISTS] if r.candidate.trace not in progress.confirmed]
        features = {r.candidate.trace: r.outcome.features for r in some}
        progress.confirmed |= features.keys()
        measured: dict[str, Outcome] = {}
        for _ in range(again):
            for candidate, outcome in outcomes(executor, [r.candidate for r in some]):
                trace = candidate.trace
                measured[trace] = outcome = measured[trace].joined(outcome) if trace in measured else outcome
                record = _kept(records, candidate, replace(outcome, features=features[trace]))
                if trace in progress.records:
                    progress.records[trace] = record
    return best[0] if best else None


def measured_by_default(
    workloads: Sequence[Workload],
    records: Records,
    executor: Executor,
    threads: int = 1,
    until: float | None = None,
    target: str = CPU.name,
) -> Iterator[Record]:
    """What default schedules of workloads for a target take, once it is kept in ``records``, as they are done, by the
    time ``until`` if there is one. Raises as ``outcomes``."""
    candidates = [Candidate(w, default_trace(w, target).to_json(), threads, target) for w in workloads]
    for candidate, outcome in outcomes(executor, candidates, until=until):
        # one schedule, which is no faster than itself
        yield _kept(records, candidate, replace(outcome, seconds=outcome.beside))


def _kept(records: Records, candidate: Candidate, outcome: Outcome) -> Record:
    """The record of an outcome, in the database."""
    record = Record(candidate, here(candidate.target, candidate.threads, outcome.machine), outcome)
    records.keep(record)
    return record


def here(target: str, threads: int, where: str = "") -> Setting:
    """What is measured for a target on the machine that is called so, or else on this one."""
    return setting_here(threads, where or platform_of(target_named(target).device).machine())


def default_trace(workload: Workload, target: str = CPU.name) -> Trace:
    """The default schedule of a workload for a target, as a trace."""
    schedule = Schedule(workload.nest)
    scheduled_by_rule(schedule, target)
    return schedule.trace


def _worth(state: _TaskState) -> float:
    """Seconds of a run of the model that another trial is expected to save."""
    progress = state.progress
    return max(state.saved, HOPE * progress.seconds / (BATCH + progress.trials))


def _work(state: _TaskState) -> float:
    """About how much a task does in a run of the model, before anything is known of how long it takes."""
    workload = state.progress.task.workload
    sizes: Mapping[str, int] = dict(workload.sizes)
    size_by_var = {var: sizes[var.name] for var in workload.nest.sizes}
    try:
        return float(state.progress.task.times * evaluate(flops(workload.nest, size_by_var), {}))
    except (KeyError, ReadError):
        return 0.0
