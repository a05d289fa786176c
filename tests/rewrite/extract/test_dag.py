"""Pruning and splitting lose no cheapest choice."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings

from graphopt.rewrite.extract.dag import (
    Option,
    Problem,
    components,
    forced,
    greedy,
    needed,
    orient,
    price,
    prune,
    roll,
    split,
    unroll,
)
from tests.rewrite.dag_problems import brute_force, problem, problems


def test_needed_lists_what_the_roots_need_after_what_it_reads() -> None:
    p = problem((3,), c0=[(1, ())], c1=[(1, (0,))], c2=[(1, ())], c3=[(1, (1, 0))])
    assert list(needed({c: o[0] for c, o in p.options.items()}, p.roots) or ()) == [0, 1, 3]


def test_needed_refuses_circles_and_gaps() -> None:
    p = problem((1,), c0=[(1, (1,))], c1=[(1, (0,))])
    assert needed({c: o[0] for c, o in p.options.items()}, (1,)) is None
    assert needed({1: p.options[1][0]}, (1,)) is None


def test_options_that_only_lead_back_are_dropped() -> None:
    # x = T(T(x)): reading it from its double transpose can never start
    p = prune(problem((1,), c0=[(5, ()), (0, (1,))], c1=[(1, (0,))]))
    assert [o.cost for o in p.options[0]] == [5]


def test_dominated_options_are_dropped() -> None:
    p = prune(problem((2,), c0=[(1, ())], c1=[(1, ())], c2=[(3, (0,)), (4, (0, 1)), (3, (0,))]))
    assert p.options.keys() == {0, 2}
    assert len(p.options[2]) == 1


def test_what_is_computed_anyway_is_no_need() -> None:
    p = prune(problem((1, 2), c0=[(9, ())], c1=[(1, (0,))], c2=[(1, (0,)), (2, ())]))
    assert [o.cost for o in p.options[2]] == [1]


def test_a_root_that_nothing_computes() -> None:
    with pytest.raises(ValueError, match="class 1"):
        prune(problem((1,), c0=[(1, (1,))], c1=[(1, (0,))]))


def test_forced_classes_are_those_of_every_option() -> None:
    p = problem((3,), c0=[(1, ())], c1=[(1, (0,))], c2=[(1, (0,))], c3=[(1, (0, 1)), (1, (0, 2))])
    assert forced(p) == {0, 3}


def test_a_chain_is_decided_without_search() -> None:
    n = 5000
    p = Problem({c: (Option(1.0, (c - 1,) if c else ()),) for c in range(n)}, (n - 1,))
    decided, parts = split(prune(p))
    assert len(decided) == n
    assert not parts


def test_components_are_those_on_cycles() -> None:
    p = problem((3,), c0=[(1, ())], c1=[(1, (0,)), (1, (2,))], c2=[(1, (1,)), (1, (0,))], c3=[(1, (2,))])
    assert components(p.options) == {1: 0, 2: 0}


@settings(max_examples=150, deadline=None)
@given(problems())
def test_pruning_keeps_a_cheapest_choice(p: Problem) -> None:
    best = brute_force(p)
    if best is None:
        with pytest.raises(ValueError, match="nothing computes"):
            prune(p)
    else:
        assert brute_force(prune(p)) == best


@settings(max_examples=100, deadline=None)
@given(problems())
def test_parts_add_up(p: Problem) -> None:
    best = brute_force(p)
    if best is not None:
        decided, parts = split(prune(p))
        assert price(decided) + sum(brute_force(part) or 0 for part in parts) == best


@settings(max_examples=100, deadline=None)
@given(problems())
def test_an_unrolled_problem_has_the_same_best_choice(p: Problem) -> None:
    best = brute_force(p)
    if best is None:
        return
    p = prune(p)
    flat = unroll(p, components(p.options))
    assert not components(flat.options)
    if sum(len(o) > 1 for o in flat.options.values()) < 12:
        names = list(flat.options)
        found = [
            needed(dict(zip(names, picks, strict=True)), flat.roots)
            for picks in product(*(o for o in flat.options.values() if o))
            if all(flat.options.values())
        ]
        chosen = [f for f in found if f is not None]
        if chosen:
            cheapest = min(chosen, key=price)
            assert price(cheapest) == best
            rolled = needed(roll(cheapest), p.roots)
            assert rolled is not None
            assert price(rolled) == best


@settings(max_examples=100, deadline=None)
@given(problems())
def test_a_greedy_choice_is_valid_and_survives_its_own_order(p: Problem) -> None:
    if brute_force(p) is None:
        return
    p = prune(p)
    found = greedy(p)
    assert needed(found, p.roots) == found
    straight = orient(p, components(p.options), found)
    assert not components(straight.options)
    assert all(o in straight.options[c] for c, o in found.items())
