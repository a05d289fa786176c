"""Loop partitioning: the interior of an axis, where the conditions of a block hold and need not be tested.

A window at the edge of an image asks at each step whether it is inside; all but the first and last few windows need
not ask. A condition is a comparison of index expressions within a ``select``.

Index-set splitting: an axis in pieces, along each of which a clamped or reflected index goes in equal steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from graphopt.lowering.analysis.canonical_nest import Chain
from graphopt.lowering.index.arithmetic import polynomial, simplify
from graphopt.lowering.index.polynomials import Polynomial
from graphopt.lowering.loops.expressions import INDEX, Apply, Const, Expr, Var, substitute, variables, walk
from graphopt.lowering.loops.nest import Axis, Block, described, expressions, map_expressions, statements

COMPARISONS = ("lt", "le", "gt", "ge")
TURNS = ("min", "max", "abs")
"""Functions of indices that go in equal steps but where they turn."""

PIECES, WORTH_CUTTING = 5, 32
"""Most pieces of an axis, and fewest elements of one that goes in equal steps."""

Inside = tuple[int, int]
"""The first point of an axis at which conditions hold, and the one behind the last."""


def interior(chain: Chain, axis: Axis) -> tuple[Inside, Block] | None:
    """The interior of an axis, where all conditions on it hold for every reduction step, and the block without them.

    None where there are no such conditions, where one depends on anything else, or where it holds nowhere.
    """
    if not isinstance(axis.extent, Const):
        return None
    first, end = 0, int(axis.extent.value)
    met: set[Expr] = set()
    reduced = {a.var: int(a.extent.value) for a in chain.reduced if isinstance(a.extent, Const)}
    for condition in dict.fromkeys(conditions(chain.block)):
        if axis.var not in variables(condition):
            continue
        assert isinstance(condition, Apply)
        bounds = _solved(positive(condition), axis.var, reduced)
        if bounds is None:
            return None
        first, end = max(first, bounds[0]), end if bounds[1] is None else min(end, bounds[1])
        met.add(condition)
    if not met or first >= end:
        return None
    whole = map_expressions(chain.block.body, lambda e: Const(True, "bool") if e in met else None)
    return (first, end), described(replace(chain.block, body=whole))


def conditions(block: Block) -> Iterator[Expr]:
    """The comparisons of indices that choices rest on."""
    for stmt in statements(block.body):
        for whole in expressions(stmt):
            for part in walk(whole):
                if isinstance(part, Apply) and part.fn == "select":
                    yield from comparisons(part.args[0])


def comparisons(condition: Expr) -> Iterator[Apply]:
    """The comparisons of indices in a conjunction."""
    if isinstance(condition, Apply) and condition.fn == "and":
        for arg in condition.args:
            yield from comparisons(arg)
    elif isinstance(condition, Apply) and condition.fn in COMPARISONS and condition.args[0].dtype == INDEX:
        yield condition


def positive(condition: Apply) -> Polynomial:
    """An expression that is non-negative just where the condition holds."""
    a, b = (polynomial(x) for x in condition.args)
    if condition.fn in ("lt", "le"):
        a, b = b, a
    return a - b - (condition.fn in ("lt", "gt"))


def pieces(chain: Chain, axis: Axis) -> list[Inside]:
    """Index-set splitting: the pieces of an axis along which no index turns (Griebl, Feautrier and Lengauer, 2000).

    The whole axis where nothing turns, where it turns at what is not known, or where no piece is long; nothing where
    its extent is not known.
    """
    if not isinstance(axis.extent, Const):
        return []
    whole = (0, int(axis.extent.value))
    turning = dict.fromkeys(index for access in chain.accesses for index in access.indices if _turns(index, axis.var))
    if not turning or whole[1] < WORTH_CUTTING:
        return [whole]
    todo, straight = [whole], list[Inside]()
    while todo:
        first, end = todo.pop()
        cuts = [_cut(index, axis.var, first, end) for index in turning]
        if (cut := next((c for c in cuts if c), None)) is not None:
            todo += [(cut, end), (first, cut)]
        elif all(c is None for c in cuts):
            straight.append((first, end))
        else:
            return [whole]
        if len(todo) + len(straight) > PIECES:
            return [whole]
    return straight if max(end - first for first, end in straight) >= WORTH_CUTTING else [whole]


def _turns(index: Expr, var: Var) -> bool:
    return any(isinstance(e, Apply) and e.fn in TURNS and var in variables(e) for e in walk(index))


def _cut(index: Expr, var: Var, first: int, end: int) -> int | None:
    """Where an index turns between two points of an axis; None where it does not, 0 where that is not known."""
    here = simplify(substitute(index, {var: var + first}), {var: end - first})
    for e in walk(here):
        if isinstance(e, Apply) and e.fn in TURNS and var in variables(e):
            a = polynomial(e.args[0])
            bounds = _solved(a + a if e.fn == "abs" else a - polynomial(e.args[1]), var, {})
            cut = 0 if bounds is None else bounds[0] or bounds[1] or 0
            if 0 < cut < end - first:
                return first + cut
    return 0 if _turns(here, var) else None


def _solved(p: Polynomial, var: Var, reduced: Mapping[Var, int]) -> tuple[int, int | None] | None:
    """From which ``var`` on, and up to which, ``p`` is at least 0 for all values of the reduced axes."""
    parts = p.split(var)
    if parts is None or not (factor := parts[0].number):
        return None
    least = 0
    for product, times in parts[1].terms.items():
        if not product:
            least += times
        elif len(product) == 1 and isinstance(product[0], Var) and product[0] in reduced:
            least += min(0, times * (reduced[product[0]] - 1))
        else:
            return None
    return (max(0, -(least // factor)), None) if factor > 0 else (0, least // -factor + 1)
