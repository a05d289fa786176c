"""Searches propose what was not proposed before: any, or what is near the best and what a model takes to be fast."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any, cast

import pytest

from graphopt.errors import UsageError
from graphopt.tuning.draws import Draw, Draws
from graphopt.tuning.features import NAMES
from graphopt.tuning.record import Outcome
from graphopt.tuning.search import (
    Evolution,
    ExhaustiveSearch,
    RandomSearch,
    Scores,
    Search,
    SearchStrategy,
    strategy_of,
)
from tests.tuning.made_up import SIDES, naive, numbers, pair, tiles, times_as_fast


def ignorant(draws: Sequence[Draw]) -> None:
    """A cost model that knows nothing."""


def search(kind: SearchStrategy, space: Any = numbers, seed: int = 0, scores: Scores = ignorant) -> Search:
    random = Random(seed)
    return kind.begin(Draws.of(naive(), (space,), random), random, scores)


def width(draws: Sequence[Draw]) -> list[float]:
    """A model that says that tiles are fast which are wide: those of the second split."""
    return [draw.features[NAMES.index("extent 1")] for draw in draws]


@pytest.mark.parametrize("kind", [RandomSearch(), ExhaustiveSearch(), Evolution()])
def test_nothing_is_proposed_twice_and_a_space_has_an_end(kind: SearchStrategy) -> None:
    one = search(kind, pair)
    assert len({draw.text for draw in one.propose(10)}) == 2
    assert one.propose(10) == []
    other = search(kind, pair)
    (first, second) = search(kind, pair).propose(10)
    other.skip(first.text)
    assert [draw.text for draw in other.propose(10)] == [second.text]


@pytest.mark.parametrize("kind", [RandomSearch(), Evolution()])
def test_the_same_seed_proposes_the_same(kind: SearchStrategy) -> None:
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


def found(kind: SearchStrategy, seed: int) -> float:
    """The best of 24 of the 81 points."""
    one, best = search(kind, seed=seed), 0.0
    for _ in range(4):
        for draw in one.propose(6):
            one.tell(draw, worth(draw))
            best = max(best, worth(draw).speedup)
    return best


def test_evolution_goes_up_where_neighbours_are_alike() -> None:
    seeds = range(5)
    assert sum(found(Evolution(), seed) for seed in seeds) > sum(found(RandomSearch(), seed) for seed in seeds)


def test_what_failed_has_no_children() -> None:
    one = search(Evolution())
    (good, bad) = one.propose(2)
    one.tell(good, times_as_fast(0.1))
    one.tell(bad, Outcome(problem="crashed: it did"))

    def children(parent: Draw, others: list[Draw]) -> int:
        """How many differ in one decision."""
        return sum(sum(a == b for a, b in zip(parent.decisions, d.decisions, strict=True)) == 1 for d in others)

    proposed = one.propose(12)
    assert children(good, proposed) > 2 * children(bad, proposed)


def test_of_many_those_are_proposed_that_the_model_says_are_fast() -> None:
    blind, guided = search(Evolution(), tiles, 4), search(Evolution(), tiles, 4, width)
    without, wide = ([SIDES[cast(int, d.decisions[1])] for d in s.propose(8)] for s in (blind, guided))
    assert sum(wide[:7]) > sum(without[:7])
    assert wide[:7] == sorted(wide[:7], reverse=True)  # the last is one that the model did not choose


def test_an_exhaustive_search_goes_through_all_in_order() -> None:
    proposed = search(ExhaustiveSearch()).propose(100)
    assert [draw.decisions for draw in proposed] == list(product(range(len(SIDES)), repeat=2))
    assert search(ExhaustiveSearch()).propose(3) == proposed[:3]


def test_shares_of_evolution_are_what_they_say() -> None:
    """Without mutation and crossover it draws anew alone; with mutation alone all are neighbours of one of the best."""
    mutants = search(Evolution(population=1, mutation=1.0, crossover=0.0))
    (first, *others) = mutants.propose(4)
    mutants.tell(first, times_as_fast(2.0))
    for draw in others:
        mutants.tell(draw, times_as_fast(1.0))
    assert all(sum(a != b for a, b in zip(first.decisions, d.decisions, strict=True)) == 1 for d in mutants.propose(8))
    anew = search(Evolution(mutation=0.0, crossover=0.0))
    anew.tell(first, times_as_fast(2.0))
    assert sum(sum(a != b for a, b in zip(first.decisions, d.decisions, strict=True)) == 2 for d in anew.propose(8)) > 4


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"population": 0}, "population=0 is to be 1 or more"),
        ({"pool": -1}, "pool=-1 is to be 1 or more"),
        ({"mutation": 1.5}, "mutation=1.5 is a share, from 0 to 1"),
        ({"mutation": 0.8, "crossover": 0.4}, "together at most 1"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        Evolution(**settings)


def test_a_search_that_there_is_not_is_an_error() -> None:
    assert strategy_of("random") == RandomSearch()
    with pytest.raises(UsageError, match=r"no search is called 'evolutoin'.*evolution"):
        strategy_of("evolutoin")
    for wrong in (Evolution, 3):
        with pytest.raises(UsageError, match="is no search strategy: give a name"):
            strategy_of(cast(Any, wrong))
