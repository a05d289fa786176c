"""Whoever measures nothing, and answers at once: what sessions are tested with."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from graphopt.calibration.machine import machine
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.tuning.record import Candidate, Outcome
from graphopt.tuning.session import default_trace
from graphopt.tuning.workload import Workload
from tests.tuning.nests import product

SIDES = (1, 2, 3, 4, 6, 8, 12, 16, 24)


def numbers(s: Schedule) -> None:
    """A space of 9 x 9 points that take no time to draw: nothing is done with them."""
    s.sample_categorical(SIDES)
    s.sample_categorical(SIDES)


def tiles(s: Schedule) -> None:
    """A space of tiles of 9 x 9 sizes."""
    i, j, _ = s.get_loops(s.get_block("c"))
    s.split(i, [None, s.sample_categorical(SIDES)])
    s.split(j, [None, s.sample_categorical(SIDES)])


def pair(s: Schedule) -> None:
    """A space of two points."""
    s.split(s.get_loops(s.get_block("c"))[0], [None, s.sample_categorical([2, 3])])


def nothing(s: Schedule) -> None:
    """A space that draws nothing."""
    s.unroll(s.get_loops(s.get_block("c"))[0])


def illegal(s: Schedule) -> None:
    """A space in which no schedule is legal: steps of a sum are not shared out."""
    s.sample_categorical([1, 2])
    s.parallel(s.get_loops(s.get_block("c"))[-1])


def naive() -> Workload:
    return Workload.of(product())


def luck(candidate: Candidate) -> float:
    """Between 0.5 and 1.5, by what the candidate is alone."""
    return 0.5 + int(sha256(candidate.trace.encode()).hexdigest()[:8], 16) / 2**32


def times_as_fast(gain: float, default: float = 1e-3) -> Outcome:
    return Outcome((default / gain,) * 4, (default,) * 4, machine=machine())


def by_luck(candidate: Candidate) -> Outcome:
    return times_as_fast(luck(candidate))


@dataclass
class MadeUp(Executor):
    """Answers what it is told to, and remembers what it was asked."""

    answer: Callable[[Candidate], Outcome] = by_luck
    asked: list[Candidate] = field(default_factory=list)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        candidate: Candidate = args[0]
        future: Future[Any] = Future()
        future.set_result(self.answer(candidate))
        self.asked.append(candidate)
        return future

    @property
    def drawn(self) -> list[Candidate]:
        """All but default schedules."""
        return [c for c in self.asked if c.trace != default_trace(c.workload).to_json()]
