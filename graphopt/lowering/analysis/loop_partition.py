"""Loop partitioning: the interior of an axis, where the conditions of a block hold and need not be tested.

A window at the edge of an image asks at each step whether it is inside; all but the first and last few windows need
not ask. A condition is a comparison of index expressions within a ``select``.

Index-set splitting: an axis in segments, along each of which a clamped, reflected or wrapped index is affine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from graphopt.lowering.analysis.axis_transforms import redrawn
from graphopt.lowering.analysis.canonical_nest import Chain
from graphopt.lowering.index.arithmetic import bounds, polynomial, simplify
from graphopt.lowering.index.comparisons import comparisons, is_inequality, positive
from graphopt.lowering.index.polynomials import Polynomial
from graphopt.lowering.loops.expressions import (
    Apply,
    Const,
    Expr,
    Var,
    loads_in,
    maximum,
    minimum,
    substitute,
    variables,
    walk,
)
from graphopt.lowering.loops.nest import Axis, Block, For, Stmt, described, expressions, map_expressions, statements

PIECEWISE = ("min", "max", "abs", "floordiv", "mod")
"""Functions of indices that are affine but where they bend."""

MOST_SEGMENTS, LONG = 5, 32
"""Loops that an axis may become (each is code), and elements of one of them that fill vectors."""

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


def affine_segments(chain: Chain, axis: Axis) -> list[tuple[Chain, Expr]]:
    """Index-set splitting (Griebl, Feautrier and Lengauer, 2000): the chain for each segment of an axis along which all
    indices are affine, the axis counted from there, and the segment's size.

    The chain itself where all are, where one bends at a point that is not known, or where no segment is long.
    """
    segments = _segments(chain, axis)
    if len(segments) < 2:
        return [(chain, axis.extent)]
    parts = list[tuple[Chain, Expr]]()
    for first, end in segments:
        part = Axis(Var(f"{axis.var.name}s"), Const(end - first), axis.kind)
        axes = [part if a == axis else a for a in chain.axes]
        parts.append((redrawn(chain, axes, {axis.var: part.var + first}), part.extent))
    return parts


def _segments(chain: Chain, axis: Axis) -> list[Inside]:
    """The segments of an axis; none where it stays whole."""
    bent = dict.fromkeys(i for access in chain.accesses for i in access.indices if _is_bent(i, axis.var))
    if not bent or not isinstance(axis.extent, Const) or axis.extent.value < LONG:
        return []
    todo, done = [(0, int(axis.extent.value))], list[Inside]()
    while todo:
        first, end = todo.pop()
        pieces = [_pieces(index, axis.var, first, end) for index in bent]
        if not all(pieces) or len(todo) + len(done) >= MOST_SEGMENTS:
            return []
        nearest = min(pieces, key=lambda p: p[0][1])
        if len(nearest) == 1:
            done.append((first, end))
        else:
            todo += reversed(nearest)
    return done if max(end - first for first, end in done) >= LONG else []


def chosen_segments(chain: Chain, axis: Axis) -> list[tuple[Chain, Expr]]:
    """As ``affine_segments`` gives them, of an axis of open size, split where choices turn from one value to the other:
    at sizes that the axis is compared with. Segments may be empty."""
    todo: list[tuple[Stmt, Expr, Expr]] = [(chain.block.body, Const(0), axis.extent)]
    done = list[tuple[Chain, Expr]]()
    others = {a.var for a in chain.axes}
    while todo:
        body, first, end = todo.pop()
        found = next((c for c in conditions(replace(chain.block, body=body)) if _is_bound(c, axis.var, others)), None)
        if found is None:
            part = Axis(Var(f"{axis.var.name}s"), maximum(end - first, 0), axis.kind)
            axes = [part if a == axis else a for a in chain.axes]
            whole = Chain(chain.loops, described(replace(chain.block, body=body)))
            done.append((redrawn(whole, axes, {axis.var: part.var + first}), part.extent))
            continue
        assert isinstance(found, Apply)
        cut = found.args[1]
        todo.append((_told(body, found, False), maximum(first, cut), end))
        todo.append((_told(body, found, True), first, minimum(cut, end)))
        if len(todo) + len(done) > MOST_SEGMENTS:
            return [(chain, axis.extent)]
    return done


def _is_bound(condition: Expr, var: Var, others: set[Var]) -> bool:
    """Whether it says that the axis is before a point that is the same for all elements."""
    if not isinstance(condition, Apply) or condition.fn != "lt" or condition.args[0] != var:
        return False
    return others.isdisjoint(variables(condition.args[1])) and not loads_in(condition.args[1])


def _told(body: Stmt, condition: Expr, holds: bool) -> Stmt:
    """The statement where it is known whether the condition holds."""
    return map_expressions(body, lambda e: Const(holds, "bool") if e == condition else None)


def _is_bent(index: Expr, var: Var) -> bool:
    return any(isinstance(e, Apply) and e.fn in PIECEWISE and var in variables(e) for e in walk(index))


def _pieces(index: Expr, var: Var, first: int, end: int) -> list[Inside]:
    """The part of an axis that is given, in two where the index bends within it; nothing where that is not known."""
    here = simplify(substitute(index, {var: var + first}), {var: end - first})
    for e in walk(here):
        if isinstance(e, Apply) and e.fn in PIECEWISE and var in variables(e):
            for p in _bends(e, var):
                lower, upper = _solved(p, var, {}) or (0, None)
                if 0 < (cut := lower or upper or 0) < end - first:
                    return [(first, first + cut), (first + cut, end)]
    return [] if _is_bent(here, var) else [(first, end)]


def _bends(e: Apply, var: Var) -> Iterator[Polynomial]:
    """What changes its sign where a function of indices bends."""
    args = [polynomial(a) for a in e.args]
    if e.fn == "abs":
        yield args[0]
    elif e.fn in ("min", "max"):
        yield args[0] - args[1]
    elif (divisor := args[1].number) and (parts := args[0].split(var)) and (start := parts[1].number) is not None:
        multiple = start // divisor * divisor
        yield from (args[0] - multiple, args[0] - multiple - divisor)


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


def steps_within(
    condition: Expr, loop: For, inside: Mapping[Var, Expr], around: Mapping[Var, Expr]
) -> tuple[Expr, Expr] | None:
    """The first step of a loop from which a condition holds for all values of the variables ``inside`` it, and the one
    behind the last, by the variables around it; None where that is not told."""
    if isinstance(condition, Apply) and condition.fn == "or":  # where one of two holds, neither need be tested
        each = (steps_within(c, loop, inside, around) for c in condition.args if loop.var in variables(c))
        return next((steps for steps in each if steps is not None), None)
    if not is_inequality(condition):
        return None
    ends = bounds(positive(condition).expr(), inside, {**around, loop.var: loop.extent})
    parts = None if ends is None else polynomial(ends[0]).split(loop.var)
    if parts is None or not (factor := parts[0].number):
        return None
    rest = parts[1].expr()
    if loop.var in variables(rest) or loads_in(rest):  # an element may change while the loop runs
        return None
    return (-(rest // factor), loop.extent) if factor > 0 else (Const(0), rest // -factor + 1)


def clipped(loop: For, steps: Sequence[tuple[Expr, Expr]], around: Mapping[Var, Expr]) -> tuple[Expr, Expr]:
    """The steps of a loop that are in all of these ranges: the first, and the one behind the last."""
    first: Expr = Const(0)
    end = loop.extent
    for low, high in steps:
        first, end = maximum(first, low), minimum(end, high)
    first = simplify(minimum(first, loop.extent), around)
    return first, simplify(maximum(first, end), around)
