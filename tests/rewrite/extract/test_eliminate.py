"""Elimination finds the cheapest choice; with classes held, a choice no dearer than the one it starts from."""

from __future__ import annotations

from hypothesis import given, settings

from graphopt.rewrite.extract.dag import Option, Problem, greedy, price, prune
from graphopt.rewrite.extract.eliminate import eliminate, improve
from tests.rewrite.dag_problems import brute_force, problem, problems


def test_shared_work_is_paid_once() -> None:
    # as trees 5 + 5 is dearer than 4 + 4; as a DAG class 0 is paid once
    p = problem((1, 2), c0=[(5, ())], c1=[(0, (0,)), (4, ())], c2=[(0, (0,)), (4, ())])
    found = eliminate(p)
    assert found is not None
    assert price(found) == 5


@settings(max_examples=200, deadline=None)
@given(problems(circular=False))
def test_it_is_exact(p: Problem) -> None:
    found = eliminate(prune(p))
    assert found is not None
    assert price(found) == brute_force(p)


@settings(max_examples=100, deadline=None)
@given(problems(circular=False))
def test_holding_classes_never_makes_it_worse(p: Problem) -> None:
    p = prune(p)
    start = greedy(p)
    found = improve(p, start, largest=2)
    assert (brute_force(p) or 0) <= price(found) <= price(start)


def test_tables_have_a_limit() -> None:
    every = tuple(range(1, 8))
    options = {0: (Option(0.0, every), Option(20.0, ()))} | {c: (Option(1.0, ()), Option(0.5, ())) for c in every}
    assert eliminate(Problem(options, (0,)), largest=2) is None


def test_a_long_ladder_is_thin() -> None:
    options: dict[int, tuple[Option, ...]] = {0: (Option(1.0, ()),), 1: (Option(1.0, ()),)}
    for c in range(2, 1000, 2):
        options[c] = (Option(1.0, (c - 2,)), Option(2.5, (c - 1,)))
        options[c + 1] = (Option(1.0, (c - 1,)), Option(0.5, (c - 2, c)))
    found = eliminate(Problem(options, (998, 999)))
    assert found is not None
    assert price(found) == 500.5
