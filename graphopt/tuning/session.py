"""Tuning: candidates of several workloads are proposed, measured, learned from and kept, until the budget is spent.

Each round goes to the workload in which the model loses most time, as TVM's task scheduler does it: what a run spends
in it under its best schedule, the less the longer nothing was gained there. What is measured is in the database before
the next is looked at, so that whatever ends a session, nothing is lost and the next goes on from it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from hashlib import sha256
from random import Random
from statistics import median
from typing import Final, Literal

from graphopt.errors import ReadError, ScheduleError
from graphopt.lowering.flops import flops
from graphopt.lowering.loops import Nest
from graphopt.lowering.schedule import Schedule
from graphopt.lowering.trace import Trace
from graphopt.runtime.sizes import evaluate
from graphopt.tuning.database import Records
from graphopt.tuning.draws import Draw, Draws
from graphopt.tuning.executors import outcomes
from graphopt.tuning.learned import CostModel, goal, require
from graphopt.tuning.record import Candidate, Outcome, Record
from graphopt.tuning.search import PARENTS, Evolution, RandomSearch, Search, Way
from graphopt.tuning.spaces import SPACES, Space
from graphopt.tuning.tables import setting_here
from graphopt.tuning.workload import Workload

BATCH: Final = 16
"""Candidates that are proposed at once."""
FIRST: Final = 4
"""Candidates of each workload in its first round, which tells how long it takes."""
PATIENCE: Final = 4
"""Rounds without a gain after which a workload is left as it is."""
GAIN: Final = 1.01
"""How many times as fast as the best before is a gain."""
FINALISTS: Final = 3
"""Of each workload, how many of the best are measured again: the fastest of many owes something to chance."""

Ending = Literal["done", "trials", "seconds", "interrupted"]


@dataclass(frozen=True)
class Task:
    """A workload with how often a run of the model does it, and the nodes that it computes."""

    workload: Workload
    times: int = 1
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Budget:
    """When to stop: after so many measurements, or so many seconds; None: only when nothing is gained any more."""

    trials: int | None = None
    seconds: float | None = None


@dataclass
class Progress:
    """How far a task is."""

    task: Task
    trials: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    """Candidates that do not count, by what was wrong."""
    default: float = 0.0
    """Seconds that the default schedule takes; 0 before anything was measured."""
    best: Record | None = None
    curve: list[tuple[int, float]] = field(default_factory=list)
    """After which measurement the best was how many times as fast as the default schedule."""

    @property
    def gain(self) -> float:
        """How many times as fast as the default schedule the best is: at least 1."""
        return max(1.0, self.best.outcome.gain if self.best else 0.0)

    @property
    def nest(self) -> Nest:
        """The nest under its best schedule, or its default one where none is faster."""
        trace = default_trace(self.task.workload) if self.best is None else Trace.from_json(self.best.candidate.trace)
        return trace.replay(self.task.workload.nest).nest

    @property
    def seconds(self) -> float:
        """Seconds that a run of the model spends in it, under the best schedule."""
        return self.task.times * self.default / self.gain


@dataclass(frozen=True)
class Report:
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


def tune(
    tasks: Sequence[Task],
    records: Records,
    executor: Executor,
    budget: Budget = Budget(),
    *,
    way: Way = "evolution",
    spaces: Sequence[Space] = SPACES,
    threads: int = 1,
    seed: int = 0,
    told: Told | None = None,
) -> Report:
    """Look for faster schedules of the tasks, and keep in ``records`` what is measured, by ``executor``.

    Of a task that no space has anything for, the default schedule alone is measured and kept; where spaces of one's own
    have nothing for any task, ScheduleError says why. The same ``seed`` gives the same candidates, as far as outcomes
    are the same. KeyboardInterrupt ends the session, and the report says so. MissingDependencyError where the search
    learns, and lightgbm is not installed.
    """
    if way == "evolution":
        require()
    return _Session(records, executor, budget, way, tuple(spaces), threads, seed, told or _silent).run(tasks)


def _silent(tasks: Sequence[Progress], trials: int) -> None:
    return


@dataclass
class _State:
    """A task under way."""

    progress: Progress
    search: Search
    default: str
    """The trace of the default schedule."""
    rounds: int = 0
    stale: int = 0
    """Rounds since the last gain."""
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
    way: Way
    spaces: tuple[Space, ...]
    threads: int
    seed: int
    told: Told
    rows: list[tuple[float, ...]] = field(default_factory=list)
    goals: list[float] = field(default_factory=list)
    states: list[_State] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    def run(self, tasks: Sequence[Task]) -> Report:
        """All of it."""
        ending: Ending = "done"
        try:
            self.remember()
            self.states = [self.begin(task) for task in tasks]
            self.refuse_empty()
            self.learn()
            self.defaults()
            for state in sorted((s for s in self.states if not s.is_done), key=_work, reverse=True):
                self.round(state, FIRST)
            while (chosen := self.chosen()) is not None:
                self.round(chosen, BATCH)
        except _Stopped as stopped:
            ending = stopped.ending
        except KeyboardInterrupt:
            ending = "interrupted"
        if ending != "interrupted":
            try:
                self.confirm()
            except KeyboardInterrupt:
                ending = "interrupted"
        return Report(tuple(s.progress for s in self.states), ending, time.monotonic() - self.begun)

    def remember(self) -> None:
        """Learn from what other sessions measured on this kind of machine."""
        here = setting_here(self.threads)
        for record in self.records:
            if record.setting == here and record.outcome.features:
                self.rows.append(record.outcome.features)
                self.goals.append(goal(record.outcome.speedup))

    def begin(self, task: Task) -> _State:
        """A task with what is known of it; it is done where there is nothing to choose."""
        random = Random(int(sha256(f"{self.seed}:{task.workload.key}".encode()).hexdigest()[:16], 16))
        history = self.records.history(task.workload, setting_here(self.threads))
        reason = None
        try:
            draws = Draws.of(task.workload, self.spaces, random)
        except ScheduleError as error:
            draws, reason = Draws(task.workload, ()), error
        search: Search = RandomSearch(draws, random) if self.way == "random" else Evolution(draws, random)
        default = default_trace(task.workload).to_json()
        state = _State(Progress(task), search, default, is_done=reason is not None, reason=reason)
        for record in history:
            search.skip(record.candidate.trace)
            self.note(state, record)
        for record in sorted(history, key=lambda r: -r.outcome.gain)[: PARENTS if draws.spaces else 0]:
            if record.outcome.gain and (draw := draws.again(Trace.from_json(record.candidate.trace), random)):
                search.tell(draw, record.outcome)
        return state

    def refuse_empty(self) -> None:
        """Raise where spaces have nothing for any task; that the built-in ones have nothing is nobody's mistake."""
        reasons = [s.reason for s in self.states if s.reason is not None]
        if self.spaces != tuple(SPACES) and reasons and len(reasons) == len(self.states):
            raise reasons[0]

    def defaults(self) -> None:
        """Measure the default schedules of those of which nothing is known: then it is known that there is none else,
        or how long they take."""
        new = {s.progress.task.workload: s for s in self.states if not s.progress.default}
        candidates = [Candidate(w, state.default, self.threads) for w, state in new.items()]
        for candidate, outcome in outcomes(self.executor, candidates):
            self.note(new[candidate.workload], self.kept(candidate, outcome))
            if self.is_late():
                raise _Stopped("seconds")

    def note(self, state: _State, record: Record) -> bool:
        """Take a measurement into account; whether it is a gain."""
        progress, outcome = state.progress, record.outcome
        if outcome.problem:
            progress.problems[outcome.problem.partition(":")[0]] += 1
            return False
        if not progress.default and outcome.beside:
            progress.default = median(outcome.beside)
        if record.candidate.trace == state.default:  # beside itself, it gains by chance alone
            return False
        gains = outcome.gain > progress.gain * GAIN
        if outcome.gain > progress.gain:
            progress.best = record
        return gains

    def chosen(self) -> _State | None:
        """The task to go on with; None where all are done."""
        open_ = [s for s in self.states if not s.is_done]
        return max(open_, key=lambda s: s.progress.seconds / (1 + s.stale), default=None)

    def round(self, state: _State, count: int) -> None:
        """One round of a task: propose, measure, keep, learn."""
        left = None if self.budget.trials is None else self.budget.trials - self.measured()
        draws = state.search.propose(count if left is None else min(count, left))
        gains, found = False, dict[str, Outcome]()
        for draw, record in self.measure(state, draws):
            found[draw.text] = record.outcome
            gains |= self.note(state, record)
            state.progress.trials += 1
            state.progress.curve.append((state.progress.trials, state.progress.gain))
            self.told([s.progress for s in self.states], self.measured())
        for draw in (draw for draw in draws if draw.text in found):  # whoever was done first
            state.search.tell(draw, found[draw.text])
            self.rows.append(draw.features)
            self.goals.append(goal(found[draw.text].speedup))
        state.rounds += 1
        state.stale = 0 if gains else state.stale + 1
        state.is_done = not draws or state.stale >= PATIENCE
        self.learn()
        self.check()

    def measure(self, state: _State, draws: Sequence[Draw]) -> Iterator[tuple[Draw, Record]]:
        """What came of candidates, once it is kept."""
        of = {draw.text: draw for draw in draws}
        candidates = [Candidate(state.progress.task.workload, text, self.threads) for text in of]
        for candidate, outcome in outcomes(self.executor, candidates):
            draw = of[candidate.trace]
            record = self.kept(candidate, replace(outcome, features=draw.features))
            yield draw, record
            if self.is_late():
                raise _Stopped("seconds")

    def kept(self, candidate: Candidate, outcome: Outcome) -> Record:
        """The record of an outcome, in the database."""
        record = Record(candidate, setting_here(self.threads, outcome.machine), outcome)
        self.records.keep(record)
        return record

    def learn(self) -> None:
        """Train the model anew, keep it, and give it to the searches."""
        if self.way == "random" or (model := CostModel.trained(self.rows, self.goals)) is None:
            return
        self.records.keep_model(setting_here(self.threads), model.text().encode())
        for state in self.states:
            if isinstance(state.search, Evolution):
                state.search.model = model

    def confirm(self) -> None:
        """Measure the best of each task again, so that none is taken for its luck."""
        for state in self.states:
            progress = state.progress
            if not progress.trials:
                continue
            history = self.records.ranked(progress.task.workload, setting_here(self.threads))
            best = [r for r in history if r.outcome.gain > 1][:FINALISTS]
            features = {r.candidate.trace: r.outcome.features for r in best}
            progress.best = None
            for candidate, outcome in outcomes(self.executor, [r.candidate for r in best]):
                self.note(state, self.kept(candidate, replace(outcome, features=features[candidate.trace])))

    def measured(self) -> int:
        """Measurements so far."""
        return sum(s.progress.trials for s in self.states)

    def is_late(self) -> bool:
        """Whether the time is up."""
        return self.budget.seconds is not None and time.monotonic() - self.begun >= self.budget.seconds

    def check(self) -> None:
        """Stop where the budget is spent."""
        if self.budget.trials is not None and self.measured() >= self.budget.trials:
            raise _Stopped("trials")
        if self.is_late():
            raise _Stopped("seconds")


def default_trace(workload: Workload) -> Trace:
    """The default schedule of a workload, as a trace."""
    schedule = Schedule(workload.nest)
    schedule.by_rule()
    return schedule.trace


def _work(state: _State) -> float:
    """About how much a task does in a run of the model, before anything is known of how long it takes."""
    workload = state.progress.task.workload
    sizes: Mapping[str, int] = dict(workload.sizes)
    known = {var: sizes[var.name] for var in workload.nest.sizes}
    try:
        return float(state.progress.task.times * evaluate(flops(workload.nest, known), {}))
    except (KeyError, ReadError):
        return 0.0
