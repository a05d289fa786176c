"""Cheapest DAG by eliminating one class after another: exact where the problem is thin, whatever its length.

Each class is a variable (its options, and "not computed" where it can be done without); an option
excludes "not computed" for the classes that it reads. Eliminating a variable leaves a table over its
neighbours, as in dynamic programming over the layouts at a cut, except that the cuts find themselves:
always the variable is taken next that leaves the smallest table (Bertelè and Brioschi, "Nonserial
Dynamic Programming", 1972). Where a table would be too large, some variables are held at what a
known choice says, and then others, which is a local search over very large neighbourhoods.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from graphopt.rewrite.dag import Choice, Problem, forced, needed, price

Table = npt.NDArray[np.float64]

LARGEST = 1 << 16
"""Entries of the largest table."""


@dataclass
class _Plan:
    """In which order variables go, with their neighbours then; and which are held."""

    order: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    held: list[int] = field(default_factory=list)


def eliminate(problem: Problem, largest: int = LARGEST) -> Choice | None:
    """The cheapest choice of a problem without cycles; None where a table would have more entries than ``largest``."""
    problem = _sure(problem)
    plan = _plan(problem, largest, hold=False, spare=frozenset())
    return None if plan is None else _solve(problem, plan, {})


def improve(problem: Problem, start: Choice, rounds: int = 8, largest: int = LARGEST) -> Choice:
    """A choice no dearer than ``start``, of a problem without cycles.

    Each round solves the problem exactly but for some classes that are held at the best choice so
    far, others than in the round before; it ends where two rounds in a row find nothing.
    """
    problem = _sure(problem)
    best, spare, idle = start, frozenset[int](), 0
    for _ in range(rounds):
        plan = _plan(problem, largest, hold=True, spare=spare)
        assert plan is not None
        found = _solve(problem, plan, best)
        idle = 0 if price(found) < price(best) * (1 - 1e-12) else idle + 1
        best = best if idle else found
        spare = frozenset(plan.held) if not spare & frozenset(plan.held) else frozenset()
        if not plan.held or idle == 2:
            break
    return best


def _sure(problem: Problem) -> Problem:
    """The problem with all classes that every choice computes as its roots: they are never "not computed"."""
    return Problem(problem.options, tuple(sorted(forced(problem))))


def _plan(problem: Problem, largest: int, *, hold: bool, spare: frozenset[int]) -> _Plan | None:
    left = _neighbours(problem)
    states = _states(problem)
    plan = _Plan()

    def entries(c: int) -> int:
        total = states[c]
        for n in left[c]:
            total *= states[n]
        return total

    queue = [(entries(c), c) for c in left]
    heapq.heapify(queue)
    current = {c: size for size, c in queue}
    while left:
        size, c = heapq.heappop(queue)
        if c not in left or current[c] != size:
            continue
        if size <= largest:
            plan.order.append((c, tuple(sorted(left[c]))))
        elif hold:
            c = min(left[c] | {c}, key=lambda n: (n in spare, -len(left[n]), n))
            plan.held.append(c)
        else:
            return None
        touched = left.pop(c)
        for n in touched:
            left[n].discard(c)
            if size <= largest:
                left[n] |= touched - {n}
        for n in sorted(touched):
            current[n] = entries(n)
            heapq.heappush(queue, (current[n], n))
    held = set(plan.held)
    plan.order = [(c, tuple(n for n in near if n not in held)) for c, near in plan.order]
    return plan


def _neighbours(problem: Problem) -> dict[int, set[int]]:
    roots = set(problem.roots)
    near: dict[int, set[int]] = {c: set() for c in problem.options}
    for c, options in problem.options.items():
        for option in options:
            for n in option.needs:
                if n not in roots:
                    near[c].add(n)
                    near[n].add(c)
    return near


def _states(problem: Problem) -> dict[int, int]:
    """How many states a class has: its options, after "not computed" where it is no root."""
    roots = set(problem.roots)
    return {c: len(options) + (c not in roots) for c, options in problem.options.items()}


def _solve(problem: Problem, plan: _Plan, held: Choice) -> Choice:
    """The cheapest choice when the held classes are as in a known choice."""
    roots = set(problem.roots)
    fixed: dict[int, int] = {}
    for c in plan.held:
        offset = c not in roots
        fixed[c] = problem.options[c].index(held[c]) + offset if c in held else 0
    tables = _tables(problem, roots, fixed)
    picks: list[tuple[int, tuple[int, ...], npt.NDArray[np.intp]]] = []
    states = _states(problem)
    for c, near in plan.order:
        joint = tuple(sorted((*near, c)))
        total: Table = np.zeros([states[n] for n in joint])
        for names, table in tables.pop(c).items():
            total += table.reshape([states[n] if n in names else 1 for n in joint])
            for n in names:
                if n != c:
                    del tables[n][names]
        axis = joint.index(c)
        picks.append((c, near, total.argmin(axis=axis)))
        _put(tables, near, total.min(axis=axis))
    state = dict(fixed)
    for c, near, pick in reversed(picks):
        state[c] = int(pick[tuple(state[n] for n in near)])
    chosen: Choice = {}
    for c, s in state.items():
        index = s - (c not in roots)
        if index >= 0:
            chosen[c] = problem.options[c][index]
    found = needed(chosen, problem.roots)
    assert found is not None
    return found


Tables = dict[int, dict[tuple[int, ...], Table]]


def _put(tables: Tables, names: tuple[int, ...], table: Table) -> None:
    """Add a table over these variables; those over the same variables are summed."""
    if names:
        old = tables[names[0]].get(names)
        new = table if old is None else old + table
        for n in names:
            tables[n][names] = new


def _tables(problem: Problem, roots: set[int], fixed: Mapping[int, int]) -> Tables:
    """The costs of options and the exclusions between them, as tables over the variables that are not fixed."""
    tables: Tables = {c: {} for c in problem.options if c not in fixed}
    for c, options in problem.options.items():
        absent = [] if c in roots else [0.0]
        if c not in fixed:
            _put(tables, (c,), np.array([*absent, *(o.cost for o in options)]))
        pairs: dict[int, list[int]] = {}
        for i, option in enumerate(options):
            for n in option.needs:
                if n not in roots:
                    pairs.setdefault(n, []).append(i + len(absent))
        for n, excluded in pairs.items():
            table: Table = np.zeros((len(options) + len(absent), len(problem.options[n]) + 1))
            table[excluded, 0] = np.inf
            if c in fixed and n in fixed:
                continue
            if c in fixed:
                _put(tables, (n,), table[fixed[c]])
            elif n in fixed:
                _put(tables, (c,), table[:, fixed[n]])
            else:
                _put(tables, (min(c, n), max(c, n)), table if c < n else table.T)
    return tables
