"""Searches propose what was not proposed before: any, or what is near the best and what a model takes to be fast."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, cast

import pytest

from graphopt.tuning.draws import Draw, Draws
from graphopt.tuning.features import NAMES
from graphopt.tuning.learned import LearnedCostModel
from graphopt.tuning.record import Outcome
from graphopt.tuning.search import Evolution, RandomSearch, Search
from tests.tuning.made_up import SIDES, naive, numbers, pair, tiles, times_as_fast


def search(kind: Any, space: Any = numbers, seed: int = 0) -> Search:
    random = Random(seed)
    made: Search = kind(Draws.of(naive(), (space,), random), random)
    return made


class Wide:
    """A model that says that tiles are fast which are wide: those of the second split."""

    def scores(self, rows: Sequence[Sequence[float]]) -> list[float]:
        return [row[NAMES.index("extent 1")] for row in rows]


@pytest.mark.parametrize("kind", [RandomSearch, Evolution])
def test_nothing_is_proposed_twice_and_a_space_has_an_end(kind: type) -> None:
    one = search(kind, pair)
    assert len({draw.text for draw in one.propose(10)}) == 2
    assert one.propose(10) == []
    other = search(kind, pair)
    (first, second) = search(kind, pair).propose(10)
    other.skip(first.text)
    assert [draw.text for draw in other.propose(10)] == [second.text]


@pytest.mark.parametrize("kind", [RandomSearch, Evolution])
def test_the_same_seed_proposes_the_same(kind: type) -> None:
    def proposed(seed: int) -> list[str]:
        one, found = search(kind, seed=seed), []
        for _ in range(3):
            for draw in one.propose(6):
                one.tell(draw, worth(draw))
                found.append(draw.text)
        return found

    assert proposed(1) == proposed(1) != proposed(2)


def worth(draw: Draw) -> Outcome:
    """What is fastest has the sides 24 and 24."""
    return times_as_fast(sum(cast(int, d) + 1 for d in draw.decisions) / (2 * len(SIDES)))


def found(kind: type, seed: int) -> float:
    """The best of 24 of the 81 points."""
    one, best = search(kind, seed=seed), 0.0
    for _ in range(4):
        for draw in one.propose(6):
            one.tell(draw, worth(draw))
            best = max(best, worth(draw).speedup)
    return best


def test_evolution_goes_up_where_neighbours_are_alike() -> None:
    seeds = range(5)
    assert sum(found(Evolution, seed) for seed in seeds) > sum(found(RandomSearch, seed) for seed in seeds)


def test_what_failed_has_no_children() -> None:
    one = search(Evolution)
    (good, bad) = one.propose(2)
    one.tell(good, times_as_fast(0.1))
    one.tell(bad, Outcome(problem="crashed: it did"))

    def children(parent: Draw, others: list[Draw]) -> int:
        """How many differ in one decision."""
        return sum(sum(a == b for a, b in zip(parent.decisions, d.decisions, strict=True)) == 1 for d in others)

    proposed = one.propose(12)
    assert children(good, proposed) > 2 * children(bad, proposed)


def test_of_many_those_are_proposed_that_the_model_says_are_fast() -> None:
    blind, guided = search(Evolution, tiles, 4), search(Evolution, tiles, 4)
    assert isinstance(guided, Evolution)
    guided.model = cast(LearnedCostModel, Wide())
    without, wide = ([SIDES[cast(int, d.decisions[1])] for d in s.propose(8)] for s in (blind, guided))
    assert sum(wide[:7]) > sum(without[:7])
    assert wide[:7] == sorted(wide[:7], reverse=True)  # the last is one that the model did not choose
