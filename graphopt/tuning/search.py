"""Search strategies: which schedules of a workload to measure next: at random, all of them, or by evolution that a cost
model guides.

The tradition is that of Ansor and of TVM's Meta-Schedule (Shao et al., NeurIPS 2022): many candidates are made from the
best that were measured, a model says which of them look fast, and few of those are measured.

A strategy is a value that a user sets; a search is one in progress, for one workload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from math import inf
from random import Random
from typing import Final, Literal, Protocol, TypeAlias, get_args

from graphopt.errors import ScheduleError, UsageError, nearest_or_some
from graphopt.frozen import dataclass
from graphopt.tuning.draws import Draw, Draws
from graphopt.tuning.record import Outcome

SearchName = Literal["evolution", "random", "exhaustive"]

MISSES: Final = 64
"""Candidates in a row that were known, after which a space is taken to be done."""

Scores: TypeAlias = Callable[[Sequence[Draw]], "Sequence[float] | None"]
"""What the cost model says of schedules: the greater, the faster; None while it knows nothing."""


class Search(Protocol):
    """A search of one workload's schedules: it proposes candidates, and is told what came of them.

    >>> search: tuning.Search = tuning.ExhaustiveSearch().begin(draws, Random(0), lambda candidates: None)
    >>> [first] = search.propose(1)
    >>> search.skip(first.text)
    >>> search.tell(first, Outcome(problem="slow: by far"))
    >>> first in search.propose(100)
    False
    """

    draws: Draws
    random: Random

    def propose(self, count: int) -> list[Draw]:
        """At most so many that were not proposed before; fewer, or none, where there are no more."""

    def tell(self, draw: Draw, outcome: Outcome) -> None:
        """What came of one."""

    def skip(self, text: str) -> None:
        """A trace that is not to be proposed."""


class SearchStrategy(Protocol):
    """A strategy of search; whatever has these two is one.

    >>> strategy: tuning.SearchStrategy = tuning.RandomSearch()
    >>> strategy.learns
    False
    """

    @property
    def learns(self) -> bool:
        """Whether its searches ask a cost model, which then is fitted to what is measured."""

    def begin(self, draws: Draws, random: Random, scores: Scores) -> Search:
        """A search of what can be drawn, that draws by ``random`` and may ask for ``scores``."""


@dataclass(frozen=True)
class RandomSearch:
    """Random search: each candidate by itself.

    >>> tuning.RandomSearch().learns
    False
    >>> search = tuning.RandomSearch().begin(draws, Random(0), lambda candidates: None)
    >>> len(search.propose(3))
    3
    """

    learns: bool = field(default=False, init=False)

    def begin(self, draws: Draws, random: Random, scores: Scores) -> Search:
        """A search that draws anew each time."""
        return _Each(draws, random, _fresh(draws, random), MISSES)


@dataclass(frozen=True)
class ExhaustiveSearch:
    """Exhaustive search: all that can be drawn, in order, for spaces that are small.

    >>> search = tuning.ExhaustiveSearch().begin(draws, Random(0), lambda candidates: None)
    >>> len(search.propose(100))
    4
    >>> search.propose(100)
    []
    """

    learns: bool = field(default=False, init=False)

    def begin(self, draws: Draws, random: Random, scores: Scores) -> Search:
        """A search that ends when all were proposed."""
        return _Each(draws, random, draws.every(), None)


@dataclass(frozen=True)
class Evolution:
    """Evolutionary search: candidates from the best so far; of many, those are measured that the cost model says are
    fast.

    Raises UsageError for a number out of range.

    >>> search = tuning.Evolution(population=4).begin(draws, Random(0), lambda candidates: None)
    >>> len(search.propose(3))
    3
    """

    population: int = 16
    """How many of the best others are made from."""
    pool: int = 4
    """How many candidates are made for each that is measured."""
    mutation: float = 0.5
    """The share of them that differs from one of the best in a decision,"""
    crossover: float = 0.25
    """and the share that has each decision from one of two; the others are drawn anew."""
    epsilon: float = 0.15
    """The share of those measured that the cost model does not choose, so that it learns of others as well."""
    learns: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        for name in ("population", "pool"):
            if getattr(self, name) < 1:
                raise UsageError(f"Evolution: {name}={getattr(self, name)} is to be 1 or more")
        for name in ("mutation", "crossover", "epsilon"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"Evolution: {name}={getattr(self, name)} is a share, from 0 to 1")
        if self.mutation + self.crossover > 1:
            raise UsageError(
                f"Evolution: mutation={self.mutation} and crossover={self.crossover} are shares of all candidates: "
                "together at most 1"
            )

    def begin(self, draws: Draws, random: Random, scores: Scores) -> Search:
        """A search that begins with what is drawn anew."""
        return _Evolving(draws, random, self, scores)


_STRATEGIES: Final[dict[str, SearchStrategy]] = {
    "evolution": Evolution(),
    "random": RandomSearch(),
    "exhaustive": ExhaustiveSearch(),
}


def strategy_of(search: str | SearchStrategy) -> SearchStrategy:
    """The strategy of a name, or itself. UsageError for anything else."""
    if isinstance(search, str):
        if search not in _STRATEGIES:
            raise UsageError(f"no search is called {search!r}{nearest_or_some(search, get_args(SearchName))}")
        return _STRATEGIES[search]
    if isinstance(search, type) or not callable(getattr(search, "begin", None)):
        raise UsageError(
            f"search={search!r} is no search strategy: give a name ({', '.join(_STRATEGIES)}) or a value such as "
            "graphopt.tuning.Evolution(population=16)"
        )
    return search


def _fresh(draws: Draws, random: Random) -> Iterator[Draw | None]:
    """Draws without end; None for one that is not legal."""
    while True:
        try:
            yield draws.fresh(random)
        except ScheduleError:
            yield None


@dataclass
class _Each:
    """Candidates one after the other, until so many in a row were known or illegal."""

    draws: Draws
    random: Random
    candidates: Iterator[Draw | None]
    patience: int | None
    seen: set[str] = field(default_factory=set)

    def propose(self, count: int) -> list[Draw]:
        """At most so many that were not proposed before."""
        found: list[Draw] = []
        misses = 0
        while len(found) < count and misses != self.patience:
            try:
                draw = next(self.candidates)
            except StopIteration:
                break
            if draw is None or draw.text in self.seen:
                misses += 1
                continue
            self.seen.add(draw.text)
            found.append(draw)
            misses = 0
        return found

    def tell(self, draw: Draw, outcome: Outcome) -> None:
        """What came of one: it is not proposed again."""
        self.skip(draw.text)

    def skip(self, text: str) -> None:
        """A trace that is not to be proposed."""
        self.seen.add(text)


@dataclass
class _Evolving:
    """An evolutionary search in progress."""

    draws: Draws
    random: Random
    settings: Evolution
    scores: Scores
    known: list[tuple[Draw, Outcome]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def propose(self, count: int) -> list[Draw]:
        """At most so many that were not proposed before, the most promising first."""
        pool = self._pool(count * self.settings.pool)
        scores = self.scores(pool)
        if scores is None:
            draws = pool[:count]
        else:
            ranked = [pool[k] for k in sorted(range(len(pool)), key=lambda k: -scores[k])]
            explored = round(count * self.settings.epsilon)
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
        best = sorted((pair for pair in self.known if pair[1].fastest < inf), key=lambda pair: pair[1].fastest)
        parents = [draw for draw, _ in best[: self.settings.population]]
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
        chance, crossover = self.random.random(), self.settings.crossover
        fresh = 1 - self.settings.mutation - crossover
        if not parents or chance < fresh:
            return self.draws.fresh(self.random)
        # of the sorted parents the better are taken more often
        one, other = (parents[int(len(parents) * self.random.random() ** 2)] for _ in range(2))
        if chance < fresh + crossover and one is not other:
            return self.draws.crossed(one, other, self.random)
        return self.draws.mutated(one, self.random)
