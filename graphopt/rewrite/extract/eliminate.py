"""Variable elimination for the cheapest DAG: exact where the problem is thin, whatever its length. It is a solver of
its own, which knows nothing of e-graphs.

Whether a class is computed is a variable, and what its cheapest option costs is a table over the
class and the classes that its options read. Eliminating a variable leaves a table over its
neighbours, as in dynamic programming over the layouts at a cut, except that the cuts find themselves:
always the variable is taken next that has the fewest neighbours (Bertelè and Brioschi, "Nonserial
Dynamic Programming", 1972). Where a table would be too large, some variables are held at what a
known choice says, and then others, which is a local search over very large neighbourhoods.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import field

import numpy as np
import numpy.typing as npt

from graphopt.frozen import dataclass
from graphopt.rewrite.extract.dag import Option, OptionChoice, Problem, forced, needed, price

CostTable = npt.NDArray[np.float64]

LARGEST = 20
"""Variables of the largest table, which has two to this power entries."""

JOINT = 8
"""Classes that the options of one class may read together, to be one table; otherwise each option is a variable."""


def eliminate(problem: Problem, largest: int = LARGEST) -> OptionChoice | None:
    """The cheapest choice of a problem without cycles; None where a table would get more than ``largest`` variables."""
    system = _System(problem)
    plan = system.plan(largest, hold=False, spare=frozenset())
    return None if plan is None else system.solve(plan, {})


def improve(problem: Problem, start: OptionChoice, rounds: int = 8, largest: int = LARGEST) -> OptionChoice:
    """A choice no dearer than ``start``, of a problem without cycles.

    Each round solves the problem exactly but for some classes that are held at the best choice so
    far, others than in the round before; it ends where two rounds in a row find nothing.
    """
    system = _System(problem)
    best, spare, idle = start, frozenset[int](), 0
    for _ in range(rounds):
        plan = system.plan(largest, hold=True, spare=spare)
        assert plan is not None
        improved = system.solve(plan, best)
        idle = 0 if price(improved) < price(best) * (1 - 1e-12) else idle + 1
        best = best if idle else improved
        spare = frozenset(plan.held) if not spare & frozenset(plan.held) else frozenset()
        if not plan.held or idle == 2:
            break
    return best


@dataclass
class _EliminationPlan:
    """In which order variables go, with their neighbours then; and which are held."""

    order: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    held: list[int] = field(default_factory=list)


class _System:
    """The variables of a problem, and the tables over them whose sum is to be made least.

    A variable is a class that may be left out, or an option (of a class whose options read many
    classes): its name is then a negative number.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.roots = forced(problem)
        self.tables: list[tuple[tuple[int, ...], CostTable]] = []
        self.variables: set[int] = {c for c in problem.options if c not in self.roots}
        self._links: list[tuple[int, Option, int, int]] = []
        self._made = 0
        for c, options in problem.options.items():
            self._describe(c, options)

    def _describe(self, c: int, options: tuple[Option, ...]) -> None:
        """The tables of one class."""
        reads = {n for o in options for n in o.needs if n not in self.roots}
        if len(options) == 1:
            self._chosen(c, options[0].cost, options[0].needs)
        elif len(reads) <= JOINT:
            self._joint(c, options, tuple(sorted(reads)))
        else:
            self._split(c, options)

    def _chosen(self, c: int, cost: float, needs: Iterable[int]) -> None:
        """Where a variable is set it costs, and so are all that it needs."""
        if c not in self.roots:
            self._add((c,), np.array([0.0, cost]))
            for n in needs:
                if n not in self.roots:
                    self._add((c, n), np.array([[0.0, 0.0], [np.inf, 0.0]]))

    def _joint(self, c: int, options: tuple[Option, ...], reads: tuple[int, ...]) -> None:
        """The cheapest of the options that what is computed allows."""
        cheapest: CostTable = np.full((2,) * len(reads), np.inf)
        for option in options:
            cut = tuple(1 if n in option.needs else slice(None) for n in reads)
            cheapest[cut] = np.minimum(cheapest[cut], option.cost)
        if c in self.roots:
            self._add(reads, cheapest)
        else:
            self._add((*reads, c), np.stack([np.zeros_like(cheapest), cheapest], axis=-1))

    def _split(self, c: int, options: tuple[Option, ...]) -> None:
        """A variable for each option, and a chain of variables that says whether one of the first few is set."""
        before: tuple[int, ...] = ()
        for i, option in enumerate(options):
            last = i == len(options) - 1
            v, after = self._fresh(), c if last else self._fresh()
            self._chosen(v, option.cost, option.needs)
            scope = (*before, v)
            any_: CostTable = np.zeros((2,) * len(scope))
            any_[(0,) * len(scope)] = np.inf  # nothing was chosen: what comes after is not computed
            if last and c in self.roots:
                self._add(scope, any_)
            else:
                self._add((*scope, after), np.stack([np.zeros_like(any_), any_], axis=-1))
            self._links.append((c, option, v, after))
            before = (after,)

    def _fresh(self) -> int:
        self._made += 1
        self.variables.add(-self._made)
        return -self._made

    def _add(self, scope: tuple[int, ...], table: CostTable) -> None:
        if not scope:
            return
        order = sorted(range(len(scope)), key=scope.__getitem__)
        self.tables.append((tuple(scope[i] for i in order), table.transpose(order)))

    def plan(self, largest: int, *, hold: bool, spare: frozenset[int]) -> _EliminationPlan | None:
        """An order of elimination; None where a table becomes too large and nothing may be held."""
        left: dict[int, set[int]] = {v: set() for v in self.variables}
        for scope, _ in self.tables:
            for v in scope:
                left[v].update(scope)
        for v, near in left.items():
            near.discard(v)
        queue = [(len(near), v) for v, near in left.items()]
        heapq.heapify(queue)
        plan = _EliminationPlan()
        while left:
            size, v = heapq.heappop(queue)
            if v not in left or len(left[v]) != size:
                continue
            fits = size < largest
            if fits:
                plan.order.append((v, tuple(sorted(left[v]))))
            elif hold:
                v = min(left[v] | {v}, key=lambda n: (n in spare, -len(left[n]), n))
                plan.held.append(v)
            else:
                return None
            touched = left.pop(v)
            for n in touched:
                left[n].discard(v)
                if fits:
                    left[n] |= touched - {n}
            for n in sorted(touched):
                heapq.heappush(queue, (len(left[n]), n))
        held = set(plan.held)
        plan.order = [(v, tuple(n for n in near if n not in held)) for v, near in plan.order]
        return plan

    def solve(self, plan: _EliminationPlan, start: OptionChoice) -> OptionChoice:
        """The cheapest choice when the held variables are as in a known choice."""
        state = self._state(start)
        fixed = {v: state[v] for v in plan.held}
        waiting: dict[int, dict[tuple[int, ...], CostTable]] = {v: {} for v, _ in plan.order}
        for scope, table in self.tables:
            cut = tuple(fixed[v] if v in fixed else slice(None) for v in scope)
            _put(waiting, tuple(v for v in scope if v not in fixed), table[cut])
        picks: list[tuple[int, tuple[int, ...], npt.NDArray[np.bool_]]] = []
        for v, near in plan.order:
            joint = (*near, v)
            total: CostTable = np.zeros((2,) * len(joint))
            for scope, table in waiting.pop(v).items():
                total += _spread(scope, table, joint)
                for n in scope:
                    if n != v:
                        del waiting[n][scope]
            picks.append((v, near, total[..., 1] < total[..., 0]))
            _put(waiting, near, np.minimum(total[..., 0], total[..., 1]))
        for v, near, pick in reversed(picks):
            fixed[v] = int(pick[tuple(fixed[n] for n in near)])
        return self._choice({c for c in self.problem.options if c in self.roots or fixed[c]})

    def _state(self, choice: OptionChoice) -> dict[int, int]:
        """What the variables are in a choice."""
        state = {v: int(v in choice) for v in self.variables}
        reached: dict[int, int] = {}
        for c, option, v, after in self._links:
            state[v] = int(choice.get(c) is option)
            reached[c] = reached.get(c, 0) | state[v]
            if after != c:
                state[after] = reached[c]
        return state

    def _choice(self, computed: set[int]) -> OptionChoice:
        """For each class that is computed, its cheapest option whose classes are."""
        chosen: OptionChoice = {}
        for c in computed:
            fitting = [o for o in self.problem.options[c] if computed.issuperset(o.needs)]
            if fitting:
                chosen[c] = min(fitting, key=lambda o: o.cost)
        choice = needed(chosen, self.problem.roots)
        assert choice is not None
        return choice


def _put(waiting: dict[int, dict[tuple[int, ...], CostTable]], scope: tuple[int, ...], table: CostTable) -> None:
    """Add a table over variables in ascending order; those over the same variables are summed."""
    if scope:
        old = waiting[scope[0]].get(scope)
        new = table if old is None else old + table
        for v in scope:
            waiting[v][scope] = new


def _spread(scope: tuple[int, ...], table: CostTable, joint: tuple[int, ...]) -> CostTable:
    """A table over ascending variables as one that broadcasts over others, of which the last is out of order."""
    last = joint[-1]
    if last in scope:
        table = np.moveaxis(table, scope.index(last), -1)
    return table.reshape([2 if v in scope else 1 for v in joint])
