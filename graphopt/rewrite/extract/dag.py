"""Extraction problem: one option for each class that is needed, so that the chosen DAG is cheapest; pruning and
splitting.

An *option* computes a class from other classes, at a cost. A choice is valid if every class that
the roots need has an option and no class needs itself. Shared classes are paid once, which makes
the problem hard in general; in e-graphs of real models nearly all of it can be decided by looking:
what is here removes options that no best choice has, and splits the rest into independent parts.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeAlias

import numpy as np

from graphopt.frozen import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One way to compute a class: what it costs, the classes that it reads, and what it stands for."""

    cost: float
    needs: tuple[int, ...]
    meaning: object = None


OptionChoice: TypeAlias = dict[int, Option]
"""The option chosen for each class that is needed."""


@dataclass(frozen=True)
class Problem:
    """Options of each class, those to be preferred among equals first; and the classes that must be computed."""

    options: Mapping[int, tuple[Option, ...]]
    roots: tuple[int, ...]


def needed(choice: Mapping[int, Option], roots: Iterable[int]) -> OptionChoice | None:
    """The part of a choice that the roots need, each class after those that it reads.

    None where an option is missing, or a class needs itself.
    """
    reached: OptionChoice = {}
    open_: set[int] = set()
    stack = [(c, False) for c in reversed(tuple(roots))]
    while stack:
        c, done = stack.pop()
        if done:
            open_.discard(c)
            reached[c] = choice[c]
        elif c not in reached:
            if c in open_ or c not in choice:
                return None
            open_.add(c)
            stack.append((c, True))
            stack.extend((n, False) for n in reversed(choice[c].needs) if n not in reached)
    return reached


def price(choice: Mapping[int, Option]) -> float:
    """What a choice costs, every class once."""
    return sum(option.cost for option in choice.values())


def prune(problem: Problem) -> Problem:
    """The same problem without options that some best choice does without. ValueError where nothing computes a root."""
    before = -1
    while (count := sum(map(len, problem.options.values()))) != before:
        before = count
        problem = _drop_underivable(problem)
        if all(len(options) == 1 for options in problem.options.values()):
            break
        below = Dominators(problem)
        problem = _drop_circular(problem, below)
        problem = _drop_dominated(problem, below)
    return problem


def _drop_underivable(problem: Problem) -> Problem:
    """Keep classes that the roots can reach, and options that can be computed from options without inputs."""
    users: dict[int, list[tuple[int, int]]] = {}
    missing: dict[tuple[int, int], int] = {}
    ready: list[int] = []
    for c, options in problem.options.items():
        for i, option in enumerate(options):
            missing[c, i] = len(option.needs)
            for n in option.needs:
                users.setdefault(n, []).append((c, i))
        if any(not option.needs for option in options):
            ready.append(c)
    derivable = set(ready)
    while ready:
        for c, i in users.get(ready.pop(), ()):
            missing[c, i] -= 1
            if not missing[c, i] and c not in derivable:
                derivable.add(c)
                ready.append(c)
    for root in problem.roots:
        if root not in derivable:
            raise ValueError(f"nothing computes class {root}")
    kept: dict[int, tuple[Option, ...]] = {}
    stack = list(problem.roots)
    while stack:
        c = stack.pop()
        if c not in kept:
            options = problem.options[c]
            kept[c] = tuple(o for i, o in enumerate(options) if not missing[c, i] and c not in o.needs)
            stack.extend(n for option in kept[c] for n in option.needs if n not in kept)
    return Problem({c: kept[c] for c in sorted(kept)}, problem.roots)


class Dominators:
    """For each class, the classes that every way to compute it passes, itself included, as bits of a number.

    This is the greatest solution of: a class, and whatever all its options have in common below them.
    """

    def __init__(self, problem: Problem) -> None:
        order = _children_first(problem)
        self.bit = {c: 1 << i for i, c in enumerate(order)}
        self.of = dict.fromkeys(order, (1 << len(order)) - 1)
        self._roots = problem.roots
        changed = True
        while changed:
            changed = False
            for c in order:
                dominators = self.bit[c] | self._common(problem.options[c])
                if dominators != self.of[c]:
                    self.of[c] = dominators
                    changed = True

    def _common(self, options: tuple[Option, ...]) -> int:
        common = -1
        for option in options:
            common &= self.below(option)
        return common

    def below(self, option: Option) -> int:
        """The classes that are computed wherever the option is chosen."""
        union = 0
        for n in option.needs:
            union |= self.of[n]
        return union

    def forced(self) -> set[int]:
        """The classes that every choice computes."""
        union = 0
        for c in self._roots:
            union |= self.of[c]
        return {c for c, bit in self.bit.items() if union & bit}


def forced(problem: Problem) -> set[int]:
    """Classes that every choice computes."""
    return Dominators(problem).forced()


def _children_first(problem: Problem) -> list[int]:
    """The classes that the roots reach, each after those that it needs, as far as circles allow."""
    ordered: dict[int, None] = {}
    seen: set[int] = set()
    stack = [(c, False) for c in reversed(problem.roots)]
    while stack:
        c, done = stack.pop()
        if done:
            ordered[c] = None
        elif c not in seen:
            seen.add(c)
            stack.append((c, True))
            stack.extend((n, False) for n in _successors(problem.options[c]) if n not in seen)
    return list(ordered)


def components(options: Mapping[int, tuple[Option, ...]]) -> dict[int, int]:
    """The strongly connected component of each class that lies on a cycle, named by a number (Tarjan, 1972)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    component: dict[int, int] = {}
    name = 0
    for root in options:
        if root in index:
            continue
        work = [(root, iter(_successors(options[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            c, successors = work[-1]
            for n in successors:
                if n not in index:
                    index[n] = low[n] = len(index)
                    stack.append(n)
                    on_stack.add(n)
                    work.append((n, iter(_successors(options[n]))))
                    break
                if n in on_stack:
                    low[c] = min(low[c], index[n])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[c])
                if low[c] == index[c]:
                    members = [stack.pop()]
                    while members[-1] != c:
                        members.append(stack.pop())
                    on_stack.difference_update(members)
                    if len(members) > 1:
                        component.update(dict.fromkeys(sorted(members), name))
                        name += 1
    return component


def _successors(options: tuple[Option, ...]) -> list[int]:
    if len(options) == 1:
        return list(options[0].needs)
    return list(dict.fromkeys(n for option in options for n in option.needs))


def _drop_circular(problem: Problem, below: Dominators) -> Problem:
    """Drop options that read a class which cannot be computed without the option's own class."""
    options = {
        c: tuple(o for o in alternatives if not below.below(o) & below.bit[c])
        if len(alternatives) > 1
        else alternatives
        for c, alternatives in problem.options.items()
    }
    return Problem(options, problem.roots)


def _drop_dominated(problem: Problem, below: Dominators) -> Problem:
    """Drop options that need all that another of the class needs, and cost no less. What is computed anyway does not
    count as a need, unless it may in turn need the class."""
    sure = below.forced()
    component = components(problem.options)
    options: dict[int, tuple[Option, ...]] = {}
    for c, alternatives in problem.options.items():
        here = component.get(c, -1)
        kept: list[tuple[int, int]] = []
        for i in (
            sorted(range(len(alternatives)), key=lambda i: (alternatives[i].cost, len(alternatives[i].needs), i))
            if len(alternatives) > 1
            else ()
        ):
            needs = 0
            for n in alternatives[i].needs:
                if n not in sure or component.get(n) == here:
                    needs |= below.bit[n]
            passed = below.below(alternatives[i])
            if all(less & ~passed for _, less in kept):
                kept.append((i, needs))
        options[c] = tuple(alternatives[i] for i, _ in sorted(kept)) if len(alternatives) > 1 else alternatives
    return Problem(options, problem.roots)


def greedy(problem: Problem) -> OptionChoice:
    """A good choice, quickly: what ``settle`` gives, as far as the roots need it."""
    choice = needed(settle(problem.options), problem.roots)
    if choice is None:
        raise ValueError("nothing computes one of the roots")
    return choice


def settle(options: Mapping[int, tuple[Option, ...]]) -> OptionChoice:
    """An option for each class that can be computed, each class after those that its option reads.

    Classes are settled in order of what they cost with all that they need, every class counted once
    (Knuth, "A generalization of Dijkstra's algorithm", 1977, on sets of classes).
    """
    read = {n for alternatives in options.values() for option in alternatives for n in option.needs}
    position = {c: i for i, c in enumerate(c for c in options if c in read)}
    costs = np.zeros(-(-len(position) // 8) * 8)
    closure: dict[int, int] = {}
    choice: OptionChoice = {}
    missing: dict[tuple[int, int], int] = {}
    users: dict[int, list[tuple[int, int]]] = {}
    queue: list[tuple[float, int, int]] = []

    def offer(c: int, i: int) -> None:
        option = options[c][i]
        total = option.cost
        if option.needs:
            bits = 0
            for n in option.needs:
                bits |= closure[n]
            packed = np.frombuffer(bits.to_bytes(len(costs) // 8, "little"), np.uint8)
            total += float(costs @ np.unpackbits(packed, bitorder="little"))
        heapq.heappush(queue, (total, c, i))

    for c, alternatives in options.items():
        for i, option in enumerate(alternatives):
            missing[c, i] = len(option.needs)
            for n in option.needs:
                users.setdefault(n, []).append((c, i))
            if not option.needs:
                offer(c, i)
    while queue:
        _, c, i = heapq.heappop(queue)
        if c in closure:
            continue
        choice[c] = options[c][i]
        closure[c] = 0
        if c in position:
            costs[position[c]] = choice[c].cost
            closure[c] = 1 << position[c]
            for n in choice[c].needs:
                closure[c] |= closure[n]
        for user, k in users.get(c, ()):
            missing[user, k] -= 1
            if not missing[user, k] and user not in closure:
                offer(user, k)
    return choice


def split(problem: Problem) -> tuple[OptionChoice, list[Problem]]:
    """What is decided already, and independent problems for the rest. The roots of each are its forced classes."""
    if all(len(alternatives) == 1 for alternatives in problem.options.values()):
        return {c: alternatives[0] for c, alternatives in problem.options.items()}, []
    sure = forced(problem)
    component = components(problem.options)
    parent = {c: c for c in problem.options}

    def find(c: int) -> int:
        while parent[c] != c:
            parent[c] = parent[parent[c]]
            c = parent[c]
        return c

    first: dict[int, int] = {}
    for c, options in problem.options.items():
        if c in component:
            parent[find(c)] = find(first.setdefault(component[c], c))
        for option in options:
            for n in option.needs:
                if n not in sure:
                    parent[find(n)] = find(c)
    groups: dict[int, list[int]] = {}
    for c in problem.options:
        groups.setdefault(find(c), []).append(c)
    decided: OptionChoice = {}
    parts: list[Problem] = []
    for group in groups.values():
        if all(c in sure and len(problem.options[c]) == 1 for c in group):
            decided.update((c, problem.options[c][0]) for c in group)
        else:
            parts.append(_restrict(problem, group, sure))
    return decided, parts


def _restrict(problem: Problem, group: list[int], sure: set[int]) -> Problem:
    """The problem of a group of classes, when all others that it needs are there."""
    inside = set(group)
    options = {
        c: tuple(
            Option(o.cost, tuple(n for n in o.needs if n in inside), o)  # the whole option is what it stands for
            for o in problem.options[c]
        )
        for c in group
    }
    return Problem(options, tuple(c for c in group if c in sure))


def outline(problem: Problem) -> Hashable:
    """A key that is equal for problems which differ only in the names of their classes, given in the same order."""
    position = {c: i for i, c in enumerate(problem.options)}
    return (
        tuple(position[c] for c in problem.roots),
        tuple(
            tuple((o.cost, tuple(position[n] for n in o.needs)) for o in options)
            for options in problem.options.values()
        ),
    )


def transfer(choice: Mapping[int, Option], solved: Problem, other: Problem) -> OptionChoice:
    """The choice for another problem of the same outline."""
    name = dict(zip(solved.options, other.options, strict=True))
    return {name[c]: other.options[name[c]][solved.options[c].index(option)] for c, option in choice.items()}


def unroll(problem: Problem, component: Mapping[int, int]) -> Problem:
    """A problem without cycles that has the same best choices: for each class on a cycle, one copy for each level that
    it may be computed at, which reads only lower levels. An option's meaning is (class, option), or None to pass a
    class on to the next level."""
    sizes: dict[int, int] = {}
    for name in component.values():
        sizes[name] = sizes.get(name, 0) + 1
    fresh = max(problem.options) + 1
    copies: dict[int, list[int]] = {}
    for c in problem.options:
        extra = sizes[component[c]] - 1 if c in component else 0
        copies[c] = [*range(fresh, fresh + extra), c]
        fresh += extra
    options: dict[int, tuple[Option, ...]] = {}
    for c, alternatives in problem.options.items():
        for level, copy in enumerate(copies[c]):
            at_level: list[Option] = [Option(0.0, (copies[c][level - 1],))] if level else []
            for o in alternatives:
                inner = c in component and any(component.get(n) == component[c] for n in o.needs)
                if inner == (level > 0):
                    needs = (copies[n][level - 1] if inner and component.get(n) == component[c] else n for n in o.needs)
                    at_level.append(Option(o.cost, tuple(needs), (c, o)))
            options[copy] = tuple(at_level)
    return Problem(options, problem.roots)


def roll(choice: Mapping[int, Option]) -> OptionChoice:
    """The choice that a choice of an unrolled problem stands for, given in the order of ``needed``.

    Where a class is computed at two levels, the lower one counts.
    """
    rolled: OptionChoice = {}
    for option in choice.values():
        if isinstance(option.meaning, tuple):
            c, original = option.meaning
            rolled.setdefault(c, original)
    return rolled


def orient(problem: Problem, component: Mapping[int, int], order: Iterable[int]) -> Problem:
    """The problem without options that read, on a cycle, a class which comes later in this order."""
    rank = {c: i for i, c in enumerate(order)}
    last = len(rank)
    return Problem(
        {
            c: tuple(
                o
                for o in alternatives
                if c not in component
                or all(component.get(n) != component[c] or rank.get(n, last) < rank.get(c, last) for n in o.needs)
            )
            for c, alternatives in problem.options.items()
        },
        problem.roots,
    )
