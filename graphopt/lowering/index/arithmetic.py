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
from math import gcd, prod
from types import MappingProxyType
from typing import Final, TypeAlias

from graphopt.frozen import dataclass
from graphopt.lowering.index.polynomials import Polynomial, Product, number
from graphopt.lowering.index.ranges import Ranges, ranges, tame
from graphopt.lowering.loops.expressions import INDEX, Apply, Const, Expr, Load, Var, apply, variables
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
    least, most = _lower_bound(facts, p, over), _upper_bound(facts, p, over)
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
    lows, highs = [_lower_bound(facts, p, inner) for p in starts], [_upper_bound(facts, p, inner) for p in ends]
    least, most = lows[0], highs[0]
    for other in lows[1:]:
        least = None if least is None or other is None else facts.chosen("min", least, other)
    for other in highs[1:]:
        most = None if most is None or other is None else facts.chosen("max", most, other)
    if least is None or most is None:
        return None
    extent = _upper_bound(facts, facts.collected(most - least), around)
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


# ------------------------------------------------------------------ interval bounds


def _lower_bound(facts: Ranges, p: Polynomial, over: frozenset[Var]) -> Polynomial | None:
    """A lower bound, free of the variables ``over``; None where none was found."""
    most = _upper_bound(facts, -p, over)
    return None if most is None else -most


def _upper_bound(facts: Ranges, p: Polynomial, over: frozenset[Var]) -> Polynomial | None:
    """An upper bound, free of the variables ``over``; None where none was found."""
    bound = _eliminated(facts, p, over)
    if bound is None:
        most = facts.interval(p)[1]
        return None if most is None else number(most)
    return bound


def _eliminated(facts: Ranges, p: Polynomial, over: frozenset[Var]) -> Polynomial | None:
    """The upper bound by elimination: one atom after another is replaced by its end."""
    while True:
        running = [a for a in p.atoms if variables(a) & over]
        if not running:
            return facts.collected(p)
        inner = min(running, key=facts.turn)
        parts = p.split_atom(inner)
        if parts is None:
            return None
        factor, rest = parts
        up = facts.at_least_zero(factor)
        if not up and not facts.at_least_zero(-factor):
            return None
        if isinstance(inner, Var):
            p = factor * (facts.extents[inner] - 1) + rest if up else rest
            continue
        if not (isinstance(inner, Apply) and tame(inner)):
            return None
        if inner.fn == "floordiv":
            bound = _quotient_bound(facts, inner, factor, rest, up, over)
            if bound is not None:
                return bound
        end = _atom_bound(facts, inner, over, up)
        if end is None:
            return None
        p = factor * end + rest


def _quotient_bound(
    facts: Ranges, inner: Apply, factor: Polynomial, rest: Polynomial, up: bool, over: frozenset[Var]
) -> Polynomial | None:
    """``factor * (x // d) + rest`` from above by ``x - d + 1 <= x // d * d <= x``, where x and the rest move together.

    Bounds of the quotient alone would forget that they do.
    """
    x, d = map(facts.polynomial, inner.args)
    n = d.number
    if n is None or n < 1 or not _shares(x, rest):
        return None
    end = _upper_bound(facts, facts.collected(factor * (x if up else x - n + 1) + rest * n), over)
    return None if end is None else facts.division(end, number(n))[0]


def _shares(x: Polynomial, rest: Polynomial) -> bool:
    """Whether the two have variables in common."""
    return bool({v for a in x.atoms for v in variables(a)} & {v for a in rest.atoms for v in variables(a)})


def _atom_bound(facts: Ranges, inner: Apply, over: frozenset[Var], up: bool) -> Polynomial | None:
    """The largest (``up``) or least value of an atom."""
    # Bounds by cases: division and remainder by what does not run are monotone or limited by the divisor; minima,
    # maxima and choices combine the bounds of their operands.
    reach = _upper_bound if up else _lower_bound
    match inner.fn:
        case "floordiv" if not variables(inner.args[1]) & over:
            x, d = map(facts.polynomial, inner.args)
            end = reach(facts, x, over)
            return None if end is None or not facts.divides(d) else facts.division(end, d)[0]
        case "mod" if not variables(inner.args[1]) & over:
            d = facts.polynomial(inner.args[1])
            return None if not facts.divides(d) else d - 1 if up else number(0)
        case "min" | "max":
            ends = [reach(facts, facts.polynomial(a), over) for a in inner.args]
            if None in ends:
                bounds = [e for e in ends if e is not None]
                return bounds[0] if bounds and up == (inner.fn == "min") else None
            return facts.chosen(inner.fn, *(e for e in ends if e is not None))
        case "select":
            a, b = (reach(facts, facts.polynomial(x), over) for x in inner.args[1:])
            if a is None or b is None:
                return None
            if not variables(inner.args[0]) & over:
                return facts.polynomial(apply("select", inner.args[0], facts.expr(a), facts.expr(b), dtype=INDEX))
            return facts.chosen("max" if up else "min", a, b)
    return None
