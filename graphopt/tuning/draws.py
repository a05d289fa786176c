"""Sampling and mutation of schedules: traces drawn from search spaces, or made from others by changing a decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from random import Random
from typing import Any, Final, NoReturn

from graphopt.errors import GraphoptError, ScheduleError, UsageError
from graphopt.frozen import dataclass
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

    def every(self) -> Iterator[Draw]:
        """All of them that are legal, each once: the last decision varies first. UsageError where a space draws by
        other means than ``sample_`` methods."""
        for space in range(len(self.spaces)):
            choices = _Enumeration()
            while choices.begin():
                with suppress(ScheduleError):
                    yield self._drawn(space, (), choices)

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
        return self._drawn(space, wanted, Random(random.randrange(1 << 32)))

    def _drawn(self, space: int, wanted: Sequence[Argument], random: Random) -> Draw:
        schedule = Schedule(self.workload.nest, wanted=wanted)
        schedule.random = random
        self.spaces[space](schedule)
        trace = schedule.trace
        if not trace.decisions:
            raise ScheduleError("the space draws nothing: it calls no sample_ method")
        return Draw(self.workload, space, tuple(trace.decisions.values()), trace, schedule.nest)


class _Enumeration(Random):
    """What takes each choice in turn instead of at random, over repeated runs of a function that asks for some."""

    def __init__(self) -> None:
        super().__init__(0)
        self._taken: list[tuple[int, int]] = []
        """Of the choices of the last run, which was taken, and of how many."""
        self._asked, self._is_new = 0, True

    def begin(self) -> bool:
        """Begin another run, in which the last choice that has another option takes that; whether there is one."""
        while self._taken and self._taken[-1][0] + 1 == self._taken[-1][1]:
            self._taken.pop()
        if self._taken:
            self._taken[-1] = self._taken[-1][0] + 1, self._taken[-1][1]
        is_another, self._asked, self._is_new = self._is_new or bool(self._taken), 0, False
        return is_another

    def _next(self, count: int) -> int:
        if self._asked == len(self._taken):
            self._taken.append((0, count))
        self._asked += 1
        return self._taken[self._asked - 1][0]

    def choice(self, seq: Any) -> Any:
        return seq[self._next(len(seq))]

    def choices(self, population: Any, weights: Any = None, *, cum_weights: Any = None, k: int = 1) -> list[Any]:
        if cum_weights is not None:
            self.random()
        possible = [x for x, w in zip(population, weights or (1,) * len(population), strict=True) if w]
        return [self.choice(possible) for _ in range(k)]

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return int(self.choice(range(start) if stop is None else range(start, stop, step)))

    def random(self) -> NoReturn:
        raise UsageError(
            "an exhaustive search goes through what sample_ methods draw, and this space draws in another way: "
            "search at random, or by evolution"
        )

    def getrandbits(self, k: int, /) -> NoReturn:
        self.random()
