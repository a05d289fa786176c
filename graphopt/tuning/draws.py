"""Sampling and mutation of schedules: traces drawn from search spaces, or made from others by changing a decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Final

from graphopt.errors import GraphoptError, ScheduleError
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.lowering.schedule.trace import Argument, Trace
from graphopt.tuning.features import features
from graphopt.tuning.spaces import Space
from graphopt.tuning.workload import Workload

TRIES: Final = 16
"""Illegal draws in a row after which a space, or what is near a schedule, is taken to be empty."""


@dataclass(frozen=True)
class Draw:
    """A point of one of the search spaces: what was decided there, in order, and the nest that this gives."""

    workload: Workload
    space: int
    decisions: tuple[Argument, ...]
    trace: Trace
    nest: Nest

    @cached_property
    def text(self) -> str:
        """The trace as it is kept."""
        return self.trace.to_json()

    @cached_property
    def features(self) -> tuple[float, ...]:
        """The inputs of a cost model."""
        return features(self.nest, dict(self.workload.sizes))


@dataclass(frozen=True)
class Draws:
    """All that can be drawn for a workload from some spaces. ScheduleError where no space has anything for it."""

    workload: Workload
    spaces: tuple[Space, ...]

    @staticmethod
    def of(workload: Workload, spaces: Sequence[Space], random: Random) -> Draws:
        """Draws from those of the spaces that apply to the workload."""
        fitting, why = [], []
        for space in spaces:
            try:
                Draws(workload, (space,)).fresh(random)
                fitting.append(space)
            except ScheduleError as error:
                why.append(str(error))
        if not fitting:
            raise ScheduleError(
                f"no search space has a schedule of {workload.nest.name}: {'; '.join(why) or 'there is none'}"
            )
        return Draws(workload, tuple(fitting))

    def fresh(self, random: Random) -> Draw:
        """One that nothing is known of."""
        return self._tried(random, lambda: (random.randrange(len(self.spaces)), ()))

    def mutated(self, parent: Draw, random: Random) -> Draw:
        """One that differs from another in a decision, and in what depends on it."""

        def changed() -> tuple[int, tuple[Argument, ...]]:
            wanted = list(parent.decisions)
            wanted[random.randrange(len(wanted))] = None
            return parent.space, tuple(wanted)

        return self._tried(random, changed)

    def crossed(self, one: Draw, other: Draw, random: Random) -> Draw:
        """One that has each decision from one of two; of two spaces, those of the first."""
        if one.space != other.space:
            return self.mutated(one, random)
        pairs = list(zip(one.decisions, other.decisions, strict=False))
        return self._tried(random, lambda: (one.space, tuple(random.choice(pair) for pair in pairs)))

    def again(self, trace: Trace, random: Random) -> Draw | None:
        """The draw that a trace came from; None where it is none of these spaces'."""
        decisions = tuple(trace.decisions.values())
        for k in range(len(self.spaces)):
            try:
                draw = self._at(k, decisions, random)
            except GraphoptError:
                continue
            if draw.trace == trace:
                return draw
        return None

    def _tried(self, random: Random, choose: Callable[[], tuple[int, tuple[Argument, ...]]]) -> Draw:
        """The first that is legal of some."""
        for _ in range(TRIES):
            space, wanted = choose()
            try:
                return self._at(space, wanted, random)
            except ScheduleError as error:
                why = error
        raise ScheduleError(f"{TRIES} draws in a row are illegal, the last for this: {why}")

    def _at(self, space: int, wanted: Sequence[Argument], random: Random) -> Draw:
        schedule = Schedule(self.workload.nest, random.randrange(1 << 32), wanted)
        self.spaces[space](schedule)
        trace = schedule.trace
        if not trace.decisions:
            raise ScheduleError("the space draws nothing")
        return Draw(self.workload, space, tuple(trace.decisions.values()), trace, schedule.nest)
