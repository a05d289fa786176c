"""Index arithmetic: simplification, bounds, proofs and addresses of integer expressions over variables of known
extents.

A variable with an extent runs from 0 up to it, and is running, so that its extent is at least 1; any
other index variable is a size, at least 0. Extents come in the order of the loops, outermost first:
sums are written in that order. Integers are taken as unbounded, which loop variables and sizes are
for all that matters; elements that were loaded may be anything, and wrap around: of them only sums and
products are rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod
from types import MappingProxyType
from typing import Final, TypeAlias

from graphopt.lowering.index.interval_bounds import high, low
from graphopt.lowering.index.polynomials import Polynomial, Product
from graphopt.lowering.index.ranges import Ranges, ranges
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, Var, variables
from graphopt.lowering.loops.nest import BufferRegion, Range

Extents: TypeAlias = Mapping[Var, Expr] | Mapping[Var, int] | Mapping[Var, Expr | int]
NOTHING: Final[Extents] = MappingProxyType({})


def simplify(expr: Expr, extents: Extents) -> Expr:
    """Simplification: sums in one order, divisions worked out, conditions decided where possible.

    An expression of any dtype is taken; indices and conditions within it are simplified.
    """
    return ranges_over(extents).simplified(expr)


def prove(condition: Expr, extents: Extents) -> bool:
    """Whether the condition provably holds; False where no proof was found."""
    return ranges_over(extents).holds(condition)


def bounds(expr: Expr, extents: Extents, around: Extents | None = None) -> tuple[Expr, Expr] | None:
    """The bounds of an expression while the variables of ``extents`` run; None where none were found.

    Other variables stay in the bounds; ``around`` gives extents of some of them. Bounds are not always reached.
    """
    facts = ranges_over({**(around or {}), **extents})
    p, over = facts.polynomial(expr), frozenset(extents)
    least, most = low(facts, p, over), high(facts, p, over)
    return None if least is None or most is None else (facts.expr(least), facts.expr(most))


@dataclass(frozen=True, slots=True)
class Affine:
    """``offset + sum(coefficients[v] * v)``; neither the offset nor the coefficients hold the variables."""

    coefficients: Mapping[Var, Expr]
    offset: Expr


def affine(expr: Expr, over: Iterable[Var], extents: Extents | None = None) -> Affine | None:
    """The expression as an affine function of some variables; None where it is none."""
    facts = ranges_over(extents or {})
    rest = facts.polynomial(expr)
    chosen = tuple(over)
    coefficients: dict[Var, Expr] = {}
    for var in chosen:
        parts = rest.split(var)
        if parts is None:
            return None
        coefficients[var], rest = facts.expr(parts[0]), parts[1]
    offset = facts.expr(rest)
    left = {v for e in (offset, *coefficients.values()) for v in variables(e)}
    return None if left & set(chosen) else Affine(coefficients, offset)


def cover(regions: Sequence[BufferRegion], inner: Extents, around: Extents | None = None) -> BufferRegion:
    """The smallest box found that contains the regions, all of one buffer, while the variables of ``inner`` run.

    Where the box starts may depend on the variables ``around``, how large it is does not. It may reach out of
    the buffer where the regions do; an axis without bounds is covered whole.
    """
    facts = ranges_over({**(around or {}), **inner})
    buffer = regions[0].buffer
    sides = []
    for k, size in enumerate(buffer.shape):
        side = _covered([r.ranges[k] for r in regions], frozenset(inner), frozenset(around or ()), facts)
        sides.append(Range(Const(0), size) if side is None else side)
    return BufferRegion(buffer, tuple(sides))


def _covered(sides: Sequence[Range], inner: frozenset[Var], around: frozenset[Var], facts: Ranges) -> Range | None:
    starts = [facts.polynomial(s.start) for s in sides]
    ends = [facts.polynomial(s.start) + facts.polynomial(s.extent) for s in sides]
    lows, highs = [low(facts, p, inner) for p in starts], [high(facts, p, inner) for p in ends]
    least, most = lows[0], highs[0]
    for other in lows[1:]:
        least = None if least is None or other is None else facts.chosen("min", least, other)
    for other in highs[1:]:
        most = None if most is None or other is None else facts.chosen("max", most, other)
    if least is None or most is None:
        return None
    extent = high(facts, facts.collected(most - least), around)
    return None if extent is None else Range(facts.expr(least), facts.expr(extent))


def polynomial(expr: Expr, extents: Extents = NOTHING) -> Polynomial:
    """The index expression as a polynomial; equal polynomials are equal values."""
    return ranges_over(extents).polynomial(expr)


def address_of(load: Load, extents: Extents = NOTHING) -> Polynomial:
    """The address of an element: its number, counted from its buffer's start."""
    return ranges_over(extents).address(load)


def multiple(product: Product, times: int) -> int:
    """A divisor of a product of so many times, for all values of its variables."""
    return abs(times) * prod(map(_factor, product))


def _factor(atom: Expr) -> int:
    if isinstance(atom, Apply) and atom.fn == "mod" and isinstance(atom.args[1], Const):
        terms = polynomial(atom.args[0]).terms
        return gcd(int(atom.args[1].value), *(multiple(p, t) for p, t in terms.items()))
    return 1


def ranges_over(extents: Extents) -> Ranges:
    """The ranges of variables with these extents."""
    return ranges(tuple(extents.items()))
