"""Reduction bounds: a loop's range in place of a condition that is tested at each step.

A window at the edge of an image asks at each step whether it is still inside, and adds nothing where it is not. The
steps that are inside follow one another, so that two bounds say the same, for images of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from graphopt.frozen import dataclass
from graphopt.lowering.analysis.canonical_nest import Chain
from graphopt.lowering.index.comparisons import is_inequality, positive
from graphopt.lowering.index.polynomials import Polynomial
from graphopt.lowering.loops.accumulation import accumulated, identity
from graphopt.lowering.loops.expressions import (
    Apply,
    Const,
    Expr,
    Load,
    Var,
    conjunction,
    conjuncts,
    maximum,
    minimum,
    select,
    substitute,
    variables,
)
from graphopt.lowering.loops.nest import Axis, Block, described, map_expressions


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound: ``factor * axis + rest`` is at least 0, for an axis that is reduced over."""

    axis: Var
    factor: int
    rest: Polynomial

    def ends(self) -> tuple[Expr, None] | tuple[None, Expr]:
        """The first point of the axis where it holds, or the one behind the last."""
        rest = self.rest.expr()
        if self.factor > 0:
            return (self.factor - 1 - rest) // self.factor, None
        return None, rest // -self.factor + 1


@dataclass(frozen=True, slots=True)
class Clip:
    """A reduction without its conditions, and the bounds that stand for them."""

    block: Block
    bounds: tuple[Bound, ...]

    def steps(self, axis: Axis, at: Mapping[Var, Expr]) -> tuple[Expr, Expr]:
        """The first point of a reduced axis that counts at a point of the others, and the one behind the last."""
        first: Expr = Const(0)
        end = axis.extent
        for bound in self.of(axis):
            low, high = bound.ends()
            first = first if low is None else maximum(first, substitute(low, at))
            end = end if high is None else minimum(end, substitute(high, at))
        return first, end

    def of(self, axis: Axis) -> list[Bound]:
        """The bounds on a reduced axis."""
        return [b for b in self.bounds if b.axis == axis.var]

    def moves(self, axis: Axis, along: Axis) -> bool:
        """Whether which points of a reduced axis count changes along another axis."""
        return any(along.var in variables(b.rest.expr()) for b in self.of(axis))

    def interior(self, along: Axis, reduced: Mapping[Var, int]) -> tuple[Expr, Expr] | None:
        """The first point of a spatial axis at which all points of the reduced axes count, and the one behind the last
        (not before the first): None where that is not said by sums. ``reduced`` are their extents."""
        first: Expr = Const(0)
        end = along.extent
        for bound in self.bounds:
            if along.var not in variables(bound.rest.expr()):
                continue
            worst = bound.rest + Polynomial({(): min(0, bound.factor * (reduced[bound.axis] - 1))})
            parts = worst.split(along.var)
            if parts is None or not (factor := parts[0].number):
                return None
            low, high = Bound(along.var, factor, parts[1]).ends()
            first = first if low is None else maximum(first, low)
            end = end if high is None else minimum(end, high)
        first = minimum(first, along.extent)
        return first, maximum(end, first)


def clipped(chain: Chain, is_wanted: Callable[[Bound], bool] | None = None) -> Clip | None:
    """The reduction of a chain by those bounds that are wanted, with its other conditions as they are. By default all
    are: None where what it combines rests on other conditions than on index expressions, each over one reduced axis."""
    store = chain.stores[0]
    operation = accumulated(Load(store.buffer, store.indices), store.value)
    if operation is None or len(chain.stores) > 1:
        return None
    fn, step = operation
    guard = _guard(step, fn)
    if guard is None:
        return Clip(chain.block, ())
    reduced, left, bounds = {a.var for a in chain.reduced}, list[Expr](), list[Bound]()
    for condition in conjuncts(guard.args[0]):
        bound = _bound(condition, reduced)
        if bound is None or (is_wanted is not None and not is_wanted(bound)):
            left.append(condition)
        else:
            bounds.append(bound)
    if left and is_wanted is None:
        return None
    inside = select(conjunction(*left), *guard.args[1:]) if left else guard.args[1]
    body = map_expressions(chain.block.body, lambda e: inside if e == guard else None)
    return Clip(described(replace(chain.block, body=body)), tuple(bounds))


def _guard(step: Expr, fn: str) -> Apply | None:
    """The choice in a step that makes it one that changes nothing."""
    if not isinstance(step, Apply):
        return None
    if step.fn == "select" and step.args[2] == identity(fn, step.dtype):
        return step
    if step.fn == "mul" and fn == "add":
        return next((g for a in step.args if (g := _guard(a, fn)) is not None), None)
    if step.fn == "cast" and fn == "add":
        return _guard(step.args[0], fn)
    return None


def _bound(condition: Expr, reduced: set[Var]) -> Bound | None:
    if not is_inequality(condition):
        return None
    axes = reduced & variables(condition)
    if len(axes) != 1:
        return None
    (axis,) = axes
    parts = positive(condition).split(axis)
    return None if parts is None or not parts[0].number else Bound(axis, parts[0].number, parts[1])
