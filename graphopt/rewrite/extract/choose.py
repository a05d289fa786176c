"""Extraction: the choice of e-nodes that costs least on a target, from classes of equal terms to one graph.

The cheapest *DAG*: shared work is paid once, and nothing needs itself. What remains of the problem
after pruning falls into independent parts; each is solved exactly, by elimination where it is thin
and by an integer program where it is small, and otherwise by a greedy choice that local search
improves. No limit is one of time, except a safety stop that the result reports. The result is never
dearer than the graph that was explored, and is that very graph where nothing is cheaper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import field
from math import inf, isclose

from graphopt.frozen import dataclass
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Graph, Value
from graphopt.ir.work import stored_bytes
from graphopt.rewrite.egraph.egraph_snapshot import ENode, Saturated
from graphopt.rewrite.extract.cost import Breakdown, CostModel
from graphopt.rewrite.extract.dag import (
    Option,
    OptionChoice,
    Problem,
    components,
    greedy,
    needed,
    orient,
    outline,
    price,
    prune,
    roll,
    split,
    transfer,
    unroll,
)
from graphopt.rewrite.extract.eliminate import LARGEST, eliminate, improve
from graphopt.rewrite.extract.implementations import breakdown, decode, problem
from graphopt.rewrite.extract.terms import Terms, as_classes
from graphopt.target import Target


@dataclass(frozen=True)
class SolverLimits:
    """How far the search for the cheapest choice goes. The defaults keep parts of some thousand classes to seconds."""

    table: int = LARGEST
    """Variables of the largest table of an elimination."""
    unroll: int = 6
    """Classes on a cycle, up to which the cycle is unrolled."""
    options: int = 400
    """Options of the largest integer program; on larger ones the solver takes long, and local search finds as much."""
    nodes: int = 100
    """Nodes of the solver's search tree."""
    gap: float = 1e-6
    """How far from the proven bound the solver may end."""
    seconds: float = 30.0
    """Safety stop of one integer program; a result that it ended says that it cannot be reproduced."""


@dataclass(frozen=True)
class Extraction:
    """What was chosen, and what that costs."""

    choice: Mapping[int, ENode]
    """The e-node of each class that the outputs need, constants included, each after those that it reads."""
    cost: Breakdown
    original: Breakdown
    """What the graph that was explored costs under the same model."""
    optimal: bool
    """Whether no choice can cost less under this model (and fits the limit of bytes)."""
    nbytes: int
    """Bytes of the constants that the choice stores, once those computed from constants have been folded."""
    cost_model: CostModel = field(repr=False, compare=False)
    """The prices by which it was chosen."""
    changed: bool = True
    """False where the choice is the graph that was explored."""
    reproducible: bool = True
    """False where the safety stop ended the search."""
    as_expected: bool = True
    """False where the choice, by itself, costs something else than the search took it for: while there are several
    e-nodes to choose from, what the target fuses is an estimate."""


@dataclass(frozen=True)
class Solution:
    """A choice, its price, and whether it is proven to be the cheapest."""

    choice: OptionChoice
    optimal: bool
    reproducible: bool = True


FREE, PAGE, WORTH = 0.1, 4096, 0.05
"""By what share, or by how many bytes if that is more, constants may grow for any gain, and what share of the time more
has to save."""


@dataclass(frozen=True, slots=True)
class Growth:
    """By how many bytes stored constants may grow: for any gain, and where that saves a share ``WORTH`` of the time."""

    free: int
    most: int

    def less(self, taken: int) -> Growth:
        """What is left of it."""
        return Growth(self.free - taken, self.most - taken)


ATTEMPTS = 10
"""How often constants get ten times as dear at most."""


def allowance(stored: int, target: Target, share: float | None = None) -> Growth:
    """By how many bytes the constants of a model may grow: by a ``share`` of what is stored; by default by 10 %, and,
    where that pays, by 10 MB. Those of a program, which is no file that is handed on, by three times as many."""
    if share is not None:
        return Growth(int(share * stored), int(share * stored))
    most = max(int(FREE * stored) if target.makes_models else 3 * stored, 10_000_000)
    return Growth(max(int(FREE * stored), PAGE) if target.makes_models else most, most)


def extract(
    saturated: Saturated, cost_model: CostModel, growth: Growth | None = None, limits: SolverLimits | None = None
) -> Extraction:
    """The cheapest graph among those that the classes hold.

    ``growth`` is by how many bytes the stored constants may grow (default: ``allowance``). Classes
    that are computed from constants alone cost nothing but their bytes.
    """
    terms = Terms(saturated, cost_model)
    stored = stored_bytes(saturated.graph)
    room = growth or allowance(stored, cost_model.target)
    byte = cost_model.target.prices.stored_byte
    original = terms.complete(saturated.originals)
    assert original is not None
    before = _appraise(terms, original)
    solution, chosen, proven = Solution({}, optimal=False), original, False
    larger: tuple[Solution, dict[int, ENode], bool] | None = None
    for attempt in range(ATTEMPTS):  # constants get dearer until they fit
        solution = solve(problem(terms, byte), limits or SolverLimits())
        candidate = terms.complete(decode(solution.choice))
        added = inf if candidate is None else terms.stored_by(candidate) - stored
        if candidate is not None and added <= room.free:
            chosen, proven = candidate, solution.optimal and not attempt
            break
        if candidate is not None and added <= room.most and larger is None:
            larger = solution, candidate, solution.optimal and not attempt
        byte *= 10
    after = before if chosen == original else _appraise(terms, chosen)
    if larger is not None:
        faster = _appraise(terms, larger[1])
        if faster.total.seconds <= (1 - WORTH) * after.total.seconds:
            (solution, chosen, proven), after = larger, faster
    expected = isclose(breakdown(solution.choice).total.seconds, after.total.seconds, rel_tol=1e-6)
    byte = cost_model.target.prices.stored_byte

    def total(cost: Breakdown, choice: Mapping[int, ENode]) -> float:
        return cost.total.seconds + byte * terms.stored_by(choice)

    changed = total(after, chosen) < total(before, original) * (1 - 1e-9)
    if not changed:
        chosen, after = original, before
    reproducible = solution.reproducible
    stored = terms.stored_by(chosen)
    return Extraction(chosen, after, before, proven, stored, cost_model, changed, reproducible, expected)


@dataclass(frozen=True)
class Forced:
    """What would be chosen if classes had to be computed by given e-nodes, wherever they are needed."""

    choice: Mapping[int, ENode]
    cost: Breakdown
    nbytes: int
    """Bytes of the constants that the choice stores."""


def forced(
    terms: Terms,
    nodes: Mapping[int, ENode],
    kept: Mapping[int, ENode] | None = None,
    limits: SolverLimits | None = None,
) -> Forced | None:
    """The cheapest choice in which these e-nodes compute their classes; None where that would be circular.

    Where a choice is to be ``kept``, all else stays as it is there, and only what these read beyond it is chosen.
    """
    nodes = {**{c: node for c, node in (kept or {}).items() if c in terms.working}, **nodes}
    only, byte = terms.only(nodes), terms.cost_model.target.prices.stored_byte
    for _ in range(ATTEMPTS):  # what is folded into others may be circular until constants are dearer
        try:
            solution = solve(problem(only, byte), limits or SolverLimits())
        except ValueError:  # nothing computes the outputs then
            return None
        choice = only.complete(decode(solution.choice))
        if choice is not None:
            return Forced(choice, _appraise(terms, choice), terms.stored_by(choice))
        byte *= 10
    return None


def appraise(graph: Graph, facts: Mapping[Value, Fact], cost_model: CostModel) -> Breakdown:
    """What a graph costs, executed as cheaply as the target can."""
    saturated = as_classes(graph, facts)
    terms = Terms(saturated, cost_model)
    original = terms.complete(saturated.originals)
    assert original is not None
    return _appraise(terms, original)


def _appraise(terms: Terms, choice: Mapping[int, ENode]) -> Breakdown:
    """What a choice costs as the graph that it is."""
    return breakdown(solve(problem(terms.restrict(choice), 0.0), SolverLimits()).choice)


def solve(problem: Problem, limits: SolverLimits) -> Solution:
    """The cheapest choice for a problem, part by part. ValueError where nothing computes a root."""
    if all(len(options) == 1 for options in problem.options.values()):
        only = needed({c: options[0] for c, options in problem.options.items()}, problem.roots)
        if only is not None:
            return Solution(only, optimal=True)
    choice, parts = split(prune(problem))
    optimal = reproducible = True
    solved: dict[Hashable, tuple[Solution, Problem]] = {}
    for part in parts:
        key = outline(part)
        if key not in solved:
            solved[key] = (_solve_part(part, limits), part)
        solution, like = solved[key]
        for c, option in transfer(solution.choice, like, part).items():
            assert isinstance(option.meaning, Option)
            choice[c] = option.meaning
        optimal &= solution.optimal
        reproducible &= solution.reproducible
    reached = needed(choice, problem.roots)
    assert reached is not None
    return Solution(reached, optimal, reproducible)


def _solve_part(part: Problem, limits: SolverLimits) -> Solution:
    """A part that does not fall apart any more."""
    component = components(part.options)
    circles = Counter(component.values())
    if max(circles.values(), default=0) <= limits.unroll:
        flat = eliminate(prune(unroll(part, component)), limits.table)
        if flat is not None:
            return Solution(roll(flat), optimal=True)
    start = greedy(part)
    choice = improve(orient(part, component, start), start, largest=limits.table)
    program = integer_program(part, component, limits)
    if program is not None and price(program.choice) < price(choice):
        return program
    proven = program is not None and program.optimal
    return Solution(choice, proven, program is None or program.reproducible)


def integer_program(problem: Problem, component: Mapping[int, int], limits: SolverLimits) -> Solution | None:
    """The cheapest choice by integer programming; None where the problem is too large or the solver finds nothing.

    One truth value for each option and each class; a class that is needed has one option, an option
    has all its classes; along an option, on a cycle, levels go up (Miller, Tucker and Zemlin, 1960).
    """
    options = [(c, option) for c, alternatives in problem.options.items() for option in alternatives]
    if len(options) > limits.options:
        return None
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    classes = {c: len(options) + i for i, c in enumerate(problem.options)}
    levels = {c: len(options) + len(classes) + i for i, c in enumerate(component)}
    width = len(options) + len(classes) + len(levels)
    circles = Counter(component.values())
    by_need: dict[tuple[int, int], list[int]] = {}
    by_class: dict[int, list[int]] = {}
    for i, (c, option) in enumerate(options):
        by_class.setdefault(c, []).append(i)
        for n in option.needs:
            by_need.setdefault((c, n), []).append(i)
    rows: list[tuple[dict[int, float], float, float]] = []
    for c, alternatives in by_class.items():
        rows.append(({classes[c]: -1.0, **dict.fromkeys(alternatives, 1.0)}, 0.0, 0.0))
    for (c, n), alternatives in by_need.items():
        rows.append(({classes[n]: 1.0, **dict.fromkeys(alternatives, -1.0)}, 0.0, np.inf))
        if c in component and component[c] == component.get(n):
            length = float(circles[component[c]])
            rows.append(({levels[c]: 1.0, levels[n]: -1.0, **dict.fromkeys(alternatives, -length)}, 1 - length, np.inf))
    entries = [(r, column, value) for r, (row, _, _) in enumerate(rows) for column, value in row.items()]
    matrix = csr_array(
        ([v for _, _, v in entries], ([r for r, _, _ in entries], [k for _, k, _ in entries])), (len(rows), width)
    )
    low, high = np.zeros(width), np.ones(width)
    low[[classes[c] for c in problem.roots]] = 1.0
    for c, column in levels.items():
        high[column] = circles[component[c]] - 1
    scale = max((option.cost for _, option in options), default=1.0) or 1.0
    cost = np.array([option.cost / scale for _, option in options] + [0.0] * (width - len(options)))
    result = milp(
        cost,
        integrality=np.array([1] * len(options) + [0] * (width - len(options))),
        bounds=Bounds(low, high),
        constraints=LinearConstraint(matrix, [lo for _, lo, _ in rows], [hi for _, _, hi in rows]),
        options={"node_limit": limits.nodes, "mip_rel_gap": limits.gap, "time_limit": limits.seconds},
    )
    timed_out = "ime limit" in result.message
    if result.x is None:
        return None
    chosen = {c: option for (c, option), x in zip(options, result.x, strict=False) if x > 0.5}
    choice = needed(chosen, problem.roots)
    return None if choice is None else Solution(choice, result.status == 0, not timed_out)
