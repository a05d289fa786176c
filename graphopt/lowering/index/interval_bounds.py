"""Interval bounds: the least and the largest value of a polynomial while some of its variables run."""

from __future__ import annotations

from graphopt.lowering.index.polynomials import Polynomial, number
from graphopt.lowering.index.ranges import Ranges, tame
from graphopt.lowering.loops.expressions import INDEX, Apply, Var, apply, variables


def low(facts: Ranges, p: Polynomial, over: frozenset[Var]) -> Polynomial | None:
    """At least this much, free of the variables ``over``; None where nothing was found."""
    most = high(facts, -p, over)
    return None if most is None else -most


def high(facts: Ranges, p: Polynomial, over: frozenset[Var]) -> Polynomial | None:
    """At most this much, free of the variables ``over``; None where nothing was found."""
    bound = _high(facts, p, over)
    if bound is None:
        most = facts.interval(p)[1]
        return None if most is None else number(most)
    return bound


def _high(facts: Ranges, p: Polynomial, over: frozenset[Var]) -> Polynomial | None:
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
            bound = _related(facts, inner, factor, rest, up, over)
            if bound is not None:
                return bound
        end = _end(facts, inner, over, up)
        if end is None:
            return None
        p = factor * end + rest


def _related(
    facts: Ranges, inner: Apply, factor: Polynomial, rest: Polynomial, up: bool, over: frozenset[Var]
) -> Polynomial | None:
    """``factor * (x // d) + rest`` from above by ``x - d + 1 <= x // d * d <= x``, where x and the rest move together.

    Bounds of the quotient alone would forget that they do.
    """
    x, d = map(facts.polynomial, inner.args)
    n = d.number
    if n is None or n < 1 or not _shares(x, rest):
        return None
    end = high(facts, facts.collected(factor * (x if up else x - n + 1) + rest * n), over)
    return None if end is None else facts.division(end, number(n))[0]


def _shares(x: Polynomial, rest: Polynomial) -> bool:
    """Whether the two have variables in common."""
    return bool({v for a in x.atoms for v in variables(a)} & {v for a in rest.atoms for v in variables(a)})


def _end(facts: Ranges, inner: Apply, over: frozenset[Var], up: bool) -> Polynomial | None:
    """The largest (``up``) or least value of an atom."""
    reach = high if up else low
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
