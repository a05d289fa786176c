"""Results of tuning one nest: the best schedule with its time beside the default one, and all that were measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from math import inf
from typing import Final

from graphopt.display import Displayed, shortened
from graphopt.frozen import dataclass
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.lowering.schedule.trace import Trace
from graphopt.tuning.record import Record
from graphopt.tuning.session import Ending, Progress, default_trace

ENDINGS: Final[Mapping[Ending, str]] = {
    "done": "no further gain",
    "trials": "all trials are done",
    "seconds": "the time is up",
    "interrupted": "interrupted",
}
"""Why a session ended, in words."""
REASONS: Final = 3
"""Kinds of failures that are told in full."""
LENGTH: Final = 160
"""Characters of a failure that are told."""


@dataclass(frozen=True, repr=False)
class Trial(Displayed):
    """A schedule that was measured: the seconds of a run of it, and of the default schedule in turn with it.

    Both are the least of several series of runs, which other work on the machine made no longer.

    A failed one has a ``problem``, a line that begins with its kind: ``illegal``, ``not built``, ``slow``,
    ``crashed``, ``failed``, ``wrong``, ``lost`` or ``unchecked``. Its ``seconds`` are infinite.

    >>> trial = tuning.Trial(graphopt.Schedule(nest).trace, 1e-6, 2e-6)
    >>> trial.gain, trial
    (2.0, <Trial 1.00 us, 2.00x as fast as by default (2.00 us)>)
    """

    trace: Trace = field(repr=False)
    seconds: float
    default_seconds: float
    problem: str = ""

    @property
    def gain(self) -> float:
        """How many times as fast as the default schedule it is; 0 where it failed."""
        return 0.0 if self.problem else self.default_seconds / self.seconds

    def __repr__(self) -> str:
        return f"<Trial {shortened(str(self))}>"

    def __str__(self) -> str:
        return self.problem or compared(self.seconds, self.default_seconds)


@dataclass(frozen=True, repr=False)
class TunedNest(Displayed):
    """The best schedule that tuning found for a nest: its trace and time, and how it stands beside the default one.

    ``seconds`` are those of a run under it, ``default_seconds`` of the default schedule in turn with it, at ``sizes``;
    ``trials`` are all schedules that were measured, as they were done; ``times`` is how often a run of the model does
    it, to compute ``nodes``.

    >>> found = tuning.TunedNest(nest, graphopt.Schedule(nest).trace, 1e-6, 2e-6, (), "trials", 1.0)
    >>> found.gain, found
    (2.0, <TunedNest plus_one: 1.00 us, 2.00x as fast as by default (2.00 us)>)
    """

    before: Nest = field(repr=False)
    """The nest as it was."""
    trace: Trace = field(repr=False)
    seconds: float
    default_seconds: float
    trials: tuple[Trial, ...] = field(repr=False)
    ending: Ending
    elapsed: float
    sizes: tuple[tuple[str, int], ...] = ()
    times: int = 1
    nodes: tuple[str, ...] = ()

    @property
    def schedule(self) -> Schedule:
        """The schedule, to go on from."""
        return self.trace.replay(self.before)

    @cached_property
    def nest(self) -> Nest:
        """The nest under the schedule."""
        return self.schedule.nest

    @property
    def gain(self) -> float:
        """How many times as fast as the default schedule it is: below 1 where the best of a space is slower."""
        return self.default_seconds / self.seconds

    @property
    def failures(self) -> tuple[Trial, ...]:
        """The trials that do not count, with what was wrong."""
        return tuple(t for t in self.trials if t.problem)

    def __repr__(self) -> str:
        return f"<TunedNest {self.before.name}: {compared(self.seconds, self.default_seconds)}>"

    def __str__(self) -> str:
        at = f" at {', '.join(f'{name}={n}' for name, n in self.sizes)}" if self.sizes else ""
        return "\n".join(
            (
                f"{self.before.name}{at}: {compared(self.seconds, self.default_seconds)}",
                measured(self.trials, self.elapsed, self.ending),
                *failed(self.failures),
            )
        )


def tuned_nest(progress: Progress, before: Nest, best: Record | None, ending: Ending, elapsed: float) -> TunedNest:
    """What became of a task: its ``best`` schedule, or the default one where there is none."""
    task = progress.task
    if best is None:
        trace, seconds, default = default_trace(task.workload, progress.target), progress.default, progress.default
    else:
        trace = Trace.from_json(best.candidate.trace)
        seconds, default = best.outcome.fastest, min(best.outcome.beside)
    trials = tuple(trial(record) for record in progress.records.values())
    return TunedNest(
        before, trace, seconds, default, trials, ending, elapsed, task.workload.sizes, task.times, task.nodes
    )


def trial(record: Record) -> Trial:
    """A record as the trial that it was."""
    outcome, trace = record.outcome, Trace.from_json(record.candidate.trace)
    problem = outcome.problem or ("" if outcome.seconds else "failed: it was not timed")
    return Trial(trace, outcome.fastest, min(outcome.beside, default=inf), problem)


def compared(seconds: float, default: float) -> str:
    """How a time stands beside that of default schedules."""
    return f"{duration(seconds)}, {default / seconds:.2f}x as fast as by default ({duration(default)})"


def measured(trials: Sequence[Trial], elapsed: float, ending: Ending) -> str:
    """How much was measured, and why no more."""
    many = f"{len(trials)} schedule{'s' * (len(trials) != 1)}"
    return f"{many} measured in {elapsed:.0f} s: {ENDINGS[ending]}"


def failed(failures: Sequence[Trial]) -> Iterator[str]:
    """Lines that say how many failed, and why the most did."""
    if not failures:
        return
    kinds = Counter(t.problem.partition(":")[0] for t in failures)
    yield f"{len(failures)} failed: {', '.join(f'{n} {kind}' for kind, n in kinds.most_common())}"
    for kind, _ in kinds.most_common(REASONS):
        line = next(t.problem for t in failures if t.problem.partition(":")[0] == kind)
        yield f"  {line if len(line) <= LENGTH else line[: LENGTH - 3] + '...'}"


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds * 1e6:.2f} us"
