"""Search strategies: which schedules of a workload to measure next, at random or by evolution that a cost model guides.

The tradition is that of Ansor and of TVM's Meta-Schedule (Shao et al., NeurIPS 2022): many candidates are made from the
best that were measured, a model says which of them look fast, and few of those are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal, Protocol

from graphopt.errors import ScheduleError
from graphopt.tuning.draws import Draw, Draws
from graphopt.tuning.learned import LearnedCostModel
from graphopt.tuning.record import Outcome

Way = Literal["evolution", "random"]

PARENTS: Final = 16
"""How many of the best others are made from."""
POOL: Final = 4
"""How many candidates are made for each that is measured."""
FRESH: Final = 0.25
"""The share of them that is made from no other,"""
CROSSED: Final = 0.25
"""and the share that is made from two."""
EXPLORED: Final = 0.15
"""The share of those measured that the model does not choose, so that it learns of others as well."""
MISSES: Final = 64
"""Candidates in a row that were known, after which a space is taken to be done."""


class Search(Protocol):
    """Proposes candidates, and is told what came of them."""

    draws: Draws
    random: Random

    def propose(self, count: int) -> list[Draw]:
        """At most so many that were not proposed before; fewer, or none, where there are no more."""

    def tell(self, draw: Draw, outcome: Outcome) -> None:
        """What came of one."""

    def skip(self, text: str) -> None:
        """A trace that is not to be proposed."""


@dataclass
class RandomSearch:
    """Each candidate by itself."""

    draws: Draws
    random: Random
    seen: set[str] = field(default_factory=set)

    def propose(self, count: int) -> list[Draw]:
        """At most so many that were not proposed before."""
        draws: list[Draw] = []
        misses = 0
        while len(draws) < count and misses < MISSES:
            try:
                draw = self.draws.fresh(self.random)
            except ScheduleError:
                misses += 1
                continue
            if draw.text in self.seen:
                misses += 1
                continue
            self.seen.add(draw.text)
            draws.append(draw)
            misses = 0
        return draws

    def tell(self, draw: Draw, outcome: Outcome) -> None:
        """What came of one: it is not proposed again."""
        self.skip(draw.text)

    def skip(self, text: str) -> None:
        """A trace that is not to be proposed."""
        self.seen.add(text)


@dataclass
class Evolution:
    """Candidates from the best so far; of many, those are proposed that the model says are fast."""

    draws: Draws
    random: Random
    model: LearnedCostModel | None = None
    known: list[tuple[Draw, Outcome]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def propose(self, count: int) -> list[Draw]:
        """At most so many that were not proposed before, the most promising first."""
        pool = self._pool(count * POOL)
        if self.model is None:
            draws = pool[:count]
        else:
            scores = self.model.scores([draw.features for draw in pool])
            ranked = [pool[k] for k in sorted(range(len(pool)), key=lambda k: -scores[k])]
            explored = round(count * EXPLORED)
            draws, rest = ranked[: count - explored], ranked[count - explored :]
            draws += self.random.sample(rest, min(explored, len(rest)))
        self.seen |= {draw.text for draw in draws}
        return draws

    def tell(self, draw: Draw, outcome: Outcome) -> None:
        """What came of one."""
        self.skip(draw.text)
        self.known.append((draw, outcome))

    def skip(self, text: str) -> None:
        """A trace that is not to be proposed."""
        self.seen.add(text)

    def _pool(self, size: int) -> list[Draw]:
        """Candidates that were not proposed yet."""
        best = sorted((pair for pair in self.known if pair[1].speedup), key=lambda pair: -pair[1].speedup)
        parents = [draw for draw, _ in best[:PARENTS]]
        pool: dict[str, Draw] = {}
        misses = 0
        while len(pool) < size and misses < MISSES:
            try:
                draw = self._made(parents)
            except ScheduleError:
                misses += 1
                continue
            if draw.text in self.seen or draw.text in pool:
                misses += 1
                continue
            pool[draw.text] = draw
            misses = 0
        return list(pool.values())

    def _made(self, parents: Sequence[Draw]) -> Draw:
        chance = self.random.random()
        if not parents or chance < FRESH:
            return self.draws.fresh(self.random)
        # of the sorted parents the better are taken more often
        one, other = (parents[int(len(parents) * self.random.random() ** 2)] for _ in range(2))
        if chance < FRESH + CROSSED and one is not other:
            return self.draws.crossed(one, other, self.random)
        return self.draws.mutated(one, self.random)
