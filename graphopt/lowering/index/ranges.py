"""Index simplification: canonical forms, ranges and proofs of index expressions, from the extents of their
variables."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from math import gcd
from threading import get_ident
from typing import Any, Final, TypeAlias, TypeVar, cast

from graphopt.lowering.index.polynomials import Polynomial, atom, divided, number, product, replaced, term_order, text
from graphopt.lowering.loops.expressions import (
    COMPARISONS,
    INDEX,
    Apply,
    Const,
    Expr,
    Load,
    Var,
    apply,
    as_expr,
    children,
    substitute,
    variables,
    walk,
)

Method = TypeVar("Method", bound=Callable[..., Any])
Interval: TypeAlias = tuple[int | None, int | None]
NEGATED: Final = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
EFFORT: Final = 400
"""The maximal number of steps of a proof."""
KEPT: Final = 1 << 12
"""The capacity of the caches, in expressions."""


def _cached(method: Method) -> Method:
    """The method with its results kept: for good, or for the time of the proof that asks, since what is found then
    depends on how many steps it has left."""

    @wraps(method)
    def found(self: Ranges, *args: Polynomial) -> Any:
        known = self._within if self._left else self._results
        asked = (method.__name__, *args)
        if asked not in known:
            result = method(self, *args)
            if len(known) >= KEPT:
                known.clear()
            known[asked] = result
        return known[asked]

    return cast(Method, found)


def ranges(extents: tuple[tuple[Var, Expr | int], ...]) -> Ranges:
    """The ranges of variables with these extents, cached."""
    return _ranges(extents, get_ident())  # a proof under way is no other thread's business


@lru_cache(maxsize=1024)
def _ranges(extents: tuple[tuple[Var, Expr | int], ...], thread: int) -> Ranges:
    return Ranges(extents)


class Ranges:
    """Simplifier and prover for expressions over variables of known extents; caches its results."""

    def __init__(self, extents: tuple[tuple[Var, Expr | int], ...]) -> None:
        self.rank = {v: k for k, (v, _) in enumerate(extents)}
        self.extents: dict[Var, Polynomial] = {}
        self.positive: set[Var] = set()
        self._intervals: dict[Expr, Interval] = {}
        self._polynomials: dict[Expr, Polynomial] = {}
        self._results: dict[Hashable, Any] = {}
        self._within: dict[Hashable, Any] = {}
        self._left = 0
        if not extents:
            return
        outer, var, extent = ranges(extents[:-1]), extents[-1][0], as_expr(extents[-1][1])
        self.extents, self.positive = {**outer.extents, var: outer.polynomial(extent)}, set(outer.positive)
        for size in sorted(variables(extent) - self.rank.keys() - self.positive, key=text):
            # an extent is at least 1, so a size that would make it 0 is not 0
            most = outer.interval(outer.polynomial(substitute(extent, {size: Const(0)})))[1]
            if most is not None and most <= 0:
                self.positive.add(size)
        if self.positive != outer.positive:  # from which more follows of the extents around
            self.extents = {}
            for loop, steps in extents:
                self.extents[loop] = self.polynomial(as_expr(steps))

    # ------------------------------------------------------------------ simpler forms

    def expr(self, p: Polynomial) -> Expr:
        """The polynomial as an expression."""
        return p.expr(self.rank)

    def simplified(self, expr: Expr) -> Expr:
        """Simplification to the canonical form of this module."""
        if isinstance(expr, Const):
            return expr
        if expr.dtype == INDEX:
            simple = self.expr(self.polynomial(expr))
        elif isinstance(expr, Apply) and expr.fn in COMPARISONS and expr.args[0].dtype == INDEX:
            simple = self._condition(expr)
        else:
            simple = self._inside(expr)
        return expr if simple == expr else simple

    def _inside(self, expr: Expr) -> Expr:
        """The expression with its parts simplified."""
        before = children(expr)
        after = tuple(map(self.simplified, before))
        if all(a is b for a, b in zip(before, after, strict=True)):
            return expr
        if isinstance(expr, Load):
            return Load(expr.buffer, after)
        assert isinstance(expr, Apply)
        return apply(expr.fn, *after, dtype=expr.type)

    def _condition(self, expr: Apply) -> Expr:
        if self.holds(expr):
            return Const(True, "bool")
        if self.holds(Apply(NEGATED[expr.fn], expr.args, "bool")):
            return Const(False, "bool")
        a, b = map(self.polynomial, expr.args)
        if not tame(expr):
            return apply(expr.fn, self.expr(a), self.expr(b))
        less = {"lt": b - a - 1, "le": b - a, "gt": a - b - 1, "ge": a - b}.get(expr.fn)
        if less is None:
            return _balanced(self, expr.fn, a - b)
        less = self._coarser(self.collected(less))
        return _balanced(self, *(("gt", less + 1) if expr.fn in ("lt", "gt") else ("ge", less)))

    def _coarser(self, p: Polynomial) -> Polynomial:
        """A polynomial that is negative exactly where this one is, in larger steps where smaller ones do not matter."""
        for g in sorted({abs(n) for t, n in p.terms.items() if t and abs(n) > 1}, reverse=True):
            whole, rest = divided(p, number(g))
            least, most = self.interval(rest)
            if least is not None and most is not None and least >= 0 and most < g:
                return whole
        return p

    def polynomial(self, expr: Expr) -> Polynomial:
        """The index expression as a polynomial."""
        polynomial = self._polynomials.get(expr)
        if polynomial is None:
            if len(self._polynomials) >= KEPT:
                self._polynomials.clear()
                self._intervals.clear()
            left, self._left = self._left, 0  # what is kept must not depend on the proof that first asked for it
            polynomial = self._polynomials[expr] = self.collected(self._polynomial(expr))
            self._left = left
        return polynomial

    def _polynomial(self, expr: Expr) -> Polynomial:
        # Structural recursion: sums and products are those of polynomials, divisions are worked out by division(), and
        # any other expression is an atom with simplified parts.
        if isinstance(expr, Const):
            return number(int(expr.value))
        if isinstance(expr, Var):
            extent = self.extents.get(expr)
            return Polynomial({}) if extent is not None and extent.number == 1 else atom(expr)
        if not isinstance(expr, Apply):
            return atom(self._inside(expr))
        if expr.fn in ("add", "sub", "mul"):
            a, b = map(self.polynomial, expr.args)
            return a + b if expr.fn == "add" else a - b if expr.fn == "sub" else a * b
        if expr.fn == "neg":
            return -self.polynomial(expr.args[0])
        if expr.fn in ("floordiv", "mod") and divided_whole(expr):
            d = self.polynomial(expr.args[1])
            if self.divides(d):
                quotient, remainder = self.division(self.polynomial(expr.args[0]), d)
                return quotient if expr.fn == "floordiv" else remainder
        if expr.fn in ("min", "max") and tame(expr):
            return self.chosen(expr.fn, *map(self.polynomial, expr.args))
        if expr.fn == "abs" and tame(expr):
            p = self.polynomial(expr.args[0])
            return p if self.at_least_zero(p) else -p if self.at_least_zero(-p) else atom(self._inside(expr))
        inner = self._inside(expr)
        return atom(inner) if isinstance(inner, Apply) and inner.fn == expr.fn else self.polynomial(inner)

    def address(self, load: Load) -> Polynomial:
        """The number of an element, counted from its buffer's start."""
        total = Polynomial({})
        for index, stride in zip(load.indices, load.buffer.row_major, strict=True):
            total += self.polynomial(index) * self.polynomial(stride)
        return self.collected(total)

    def chosen(self, fn: str, a: Polynomial, b: Polynomial) -> Polynomial:
        """The minimum or maximum of two."""
        if self.at_least_zero(a - b):
            return b if fn == "min" else a
        if self.at_least_zero(b - a):
            return a if fn == "min" else b
        first, second = sorted((self.expr(a), self.expr(b)), key=lambda e: (isinstance(e, Const), text(e)))
        return atom(Apply(fn, (first, second), INDEX))

    @_cached
    def division(self, p: Polynomial, d: Polynomial) -> tuple[Polynomial, Polynomial]:
        """Quotient and remainder, rounded down, of a division by a positive polynomial."""
        if d.number == 0:  # of an axis without elements: nothing is divided
            return Polynomial({}), p
        whole, rest = divided(p, d)
        n = d.number
        for q, r in self._candidates(rest, n):
            k = self._quotient(r, d)
            if k is not None:
                return whole + q + k, r - d * k
        if n is not None:
            g = gcd(n, *(c for t, c in rest.terms.items() if t))
            if g > 1:
                q, r = self.division(divided(rest, number(g))[0], number(n // g))
                return whole + q, r * g + rest.constant % g
        return whole + self._floor(rest, d), self._mod(rest, d)

    def divides(self, d: Polynomial) -> bool:
        """Whether a divisor is provably positive: it is not 0, for a division by 0 is not carried out."""
        return d.number != 0 and self.at_least_zero(d)

    def _candidates(self, rest: Polynomial, n: int | None) -> list[tuple[Polynomial, Polynomial]]:
        """Ways to write ``rest`` as ``q * n + r``."""
        candidates = [(Polynomial({}), rest)]
        if n is not None and any(abs(c) > n for c in rest.terms.values()):
            q = Polynomial({t: _toward_zero(c, n) for t, c in rest.terms.items() if abs(c) >= n})
            candidates.append((q, rest - q * n))
        return candidates

    def _quotient(self, r: Polynomial, d: Polynomial) -> int | None:
        """The one value that ``r // d`` has, where it has one."""
        least, most = self.interval(r)
        n = d.number
        if n is not None and least is not None and most is not None:
            return least // n if least // n == most // n else None
        if self.at_least_zero(r):
            return 0 if self.at_least_zero(d - 1 - r) else None
        return -1 if self.at_least_zero(-r - 1) and self.at_least_zero(r + d) else None

    def _floor(self, rest: Polynomial, d: Polynomial) -> Polynomial:
        """``rest // d`` where nothing more comes out of it."""
        inner = _only(rest, "floordiv")
        if inner is not None:  # (x // a + y) // d = (x + a * y) // (a * d)
            x, a = map(self.polynomial, inner.args)
            if self.divides(a):
                return self.division(x + a * (rest - atom(inner)), a * d)[0]
        single = rest.single
        if isinstance(single, Apply) and single.fn == "mod":  # x % (a * d) // d = x // d % a
            x, m = map(self.polynomial, single.args)
            a, left = divided(m, d)
            if not left.terms and self.divides(a):
                return self.division(self.division(x, d)[0], a)[1]
        return atom(Apply("floordiv", (self.expr(rest), self.expr(d)), INDEX)) if rest.terms else rest

    def _mod(self, rest: Polynomial, d: Polynomial) -> Polynomial:
        """``rest % d`` where nothing more comes out of it."""
        for t, c in rest.terms.items():
            inner = t[0] if len(t) == 1 else None
            if isinstance(inner, Apply) and inner.fn == "mod":  # c * (x % m) % d = c * x % d where d divides c * m
                x, m = map(self.polynomial, inner.args)
                if not divided(m * c, d)[1].terms:
                    return self.division(rest + (x - atom(inner)) * c, d)[1]
        return atom(Apply("mod", (self.expr(rest), self.expr(d)), INDEX)) if rest.terms else rest

    @_cached
    def collected(self, p: Polynomial) -> Polynomial:
        """The polynomial with quotients and remainders of one division recombined."""
        for _ in range(32):
            collected = self._collected(p)
            if collected is None:
                break
            p = collected
        return p

    def _collected(self, p: Polynomial) -> Polynomial | None:
        for t, c in p.terms.items():
            for inner in t:
                if not divided_whole(inner):
                    continue
                assert isinstance(inner, Apply)
                x, d = map(self.polynomial, inner.args)
                n, others = d.number, Polynomial({_less(t, inner): c})
                if inner.fn == "mod":  # (x // d) * d + x % d = x, which holds of every divisor
                    gone = others * d * atom(Apply("floordiv", inner.args, INDEX))
                    if _holds_all(p, gone):
                        return p - gone + others * (x - atom(inner))
                if not self.divides(d):
                    continue
                if inner.fn == "mod":  # and where the quotient is written otherwise
                    gone = others * d * self.division(x, d)[0]
                    if gone.terms and _holds_all(p, gone):
                        return p - gone + others * (x - atom(inner))
                    rejoined = self._rejoined(p, inner, others)
                    if rejoined is not None:
                        return rejoined
                elif n is not None and c % n == 0:  # x - (x // n) * n = x % n
                    others = Polynomial({_less(t, inner): -c // n})
                    if _holds_all(p, others * x):
                        return p - others * x + others * atom(inner) * n + others * self.division(x, d)[1]
        return None

    def _rejoined(self, p: Polynomial, mod: Apply, others: Polynomial) -> Polynomial | None:
        """The polynomial, which has ``others * (x % d)``, with this and another term written as one; None where there
        is no such term."""
        x, d = map(self.polynomial, mod.args)
        for other in p.atoms:
            gone = others * d * atom(other)
            if not (isinstance(other, Apply) and other.fn in ("floordiv", "mod") and _holds_all(p, gone)):
                continue
            if not (tame(mod) or divided_whole(other)):
                continue
            y, e = map(self.polynomial, other.args)
            if other.fn == "mod":  # (y % e) * d + x % d = (y * d + x % d) % (d * e), worth it where x is in y // d
                whole = self.collected(y * d + atom(mod))
                if mod not in whole.atoms and self.divides(e):
                    return p - gone + others * (self.division(whole, d * e)[1] - atom(mod))
                continue
            times, left = divided(e, d)
            if not left.terms and self.divides(times):  # y // e = y // times // d, and z // d * d + z % d = z
                z = self.division(y, times)[0]
                if not self.division(z - x, d)[1].terms:
                    return p - gone + others * (z - atom(mod))
        return None

    # ------------------------------------------------------------------ ranges in numbers

    def interval(self, p: Polynomial) -> Interval:
        """The range in numbers; None for an unknown end."""
        least: int | None = 0
        most: int | None = 0
        for t, c in p.terms.items():
            part: Interval = (c, c)
            for a in t:
                part = _times(part, self.of_atom(a))
            least = None if least is None or part[0] is None else least + part[0]
            most = None if most is None or part[1] is None else most + part[1]
        return least, most

    def of_atom(self, expr: Expr) -> Interval:
        """The range of an atom."""
        interval = self._intervals.get(expr)
        if interval is None:
            interval = self._intervals[expr] = self._of_atom(expr)
        return interval

    def _of_atom(self, expr: Expr) -> Interval:
        # Interval arithmetic (Moore, 1966), with ends at infinity.
        if isinstance(expr, Var):
            if expr.type != INDEX:
                return None, None
            if expr not in self.extents:
                return int(expr in self.positive), None
            most = self.interval(self.extents[expr])[1]
            return 0, None if most is None else max(most - 1, 0)
        if not (isinstance(expr, Apply) and tame(expr)):
            return None, None
        parts = [self.interval(self.polynomial(a)) for a in expr.args if a.dtype == INDEX]
        lows, highs = [a for a, _ in parts], [b for _, b in parts]
        match expr.fn:
            case "min":
                return _lowest(lows), min((b for b in highs if b is not None), default=None)
            case "max":
                return max((a for a in lows if a is not None), default=None), _highest(highs)
            case "select":
                return _lowest(lows), _highest(highs)
            case "abs":
                ends = [None if e is None else abs(e) for e in (lows[0], highs[0])]
                return 0, None if None in ends else max(e for e in ends if e is not None)
            case "floordiv" if lows[1] is not None and lows[1] >= 0:
                return self._of_quotient(lows, highs)
            case "mod" if lows[1] is not None and lows[1] >= 0:
                ends = [None if highs[1] is None else highs[1] - 1]
                if lows[0] is not None and lows[0] >= 0:
                    ends.append(highs[0])
                return 0, min((e for e in ends if e is not None), default=None)
        return None, None

    def _of_quotient(self, lows: list[int | None], highs: list[int | None]) -> Interval:
        a, b = lows[0], highs[0]
        d, e = (None if end is None else max(end, 1) for end in (lows[1], highs[1]))
        assert d is not None
        least = None if a is None else a // d if a < 0 else 0 if e is None else a // e
        return least, None if b is None else b // d if b >= 0 else -1

    # ------------------------------------------------------------------ proofs

    def holds(self, condition: Expr) -> bool:
        """Whether the condition provably holds."""
        # A comparison holds where the difference of its sides has a proved sign; connectives are proved part by part.
        if isinstance(condition, Const):
            return bool(condition.value)
        if not isinstance(condition, Apply):
            return False
        args = condition.args
        match condition.fn:
            case "and":
                return all(map(self.holds, args))
            case "or":
                return any(map(self.holds, args))
            case "not":
                return self.fails(args[0])
        if condition.fn not in COMPARISONS or args[0].dtype != INDEX:
            return False
        a, b = map(self.polynomial, args)
        if not tame(condition):
            return a == b and condition.fn in ("eq", "le", "ge")
        match condition.fn:
            case "lt":
                return self.at_least_zero(b - a - 1)
            case "le":
                return self.at_least_zero(b - a)
            case "gt":
                return self.at_least_zero(a - b - 1)
            case "ge":
                return self.at_least_zero(a - b)
            case "eq":
                return self.at_least_zero(a - b) and self.at_least_zero(b - a)
        return self.at_least_zero(a - b - 1) or self.at_least_zero(b - a - 1)

    def fails(self, condition: Expr) -> bool:
        """Whether the condition provably fails."""
        if isinstance(condition, Const):
            return not condition.value
        if not isinstance(condition, Apply):
            return False
        match condition.fn:
            case "and":
                return any(map(self.fails, condition.args))
            case "or":
                return all(map(self.fails, condition.args))
            case "not":
                return self.holds(condition.args[0])
        return condition.fn in COMPARISONS and self.holds(Apply(NEGATED[condition.fn], condition.args, "bool"))

    @_cached
    def at_least_zero(self, p: Polynomial) -> bool:
        """Whether the polynomial is provably non-negative."""
        number = p.number
        if number is not None:
            return number >= 0
        if self._left:  # asked within a proof
            return self._proved(p)
        self._left, outer, self._within = EFFORT, self._within, {}
        try:
            return self._proved(self.collected(p))
        finally:
            self._left, self._within = 0, outer

    @_cached
    def _proved(self, p: Polynomial) -> bool:
        least, most = self.interval(p)
        if least is not None and least >= 0:
            return True
        if self._left <= 1 or (most is not None and most < 0):
            return False
        self._left -= 1
        for inner in sorted(p.atoms, key=self.turn):
            if isinstance(inner, Var) and inner not in self.extents:
                break
            parts = p.split_atom(inner)
            if parts is not None:
                return self._without(inner, *parts)
        return self._of_sizes(p)

    def turn(self, expr: Expr) -> tuple[int, int, str]:
        """The elimination order of atoms in proofs: choices, divisions, then loops from the innermost out, then
        sizes."""
        if isinstance(expr, Var):
            return (2, -self.rank[expr], expr.name) if expr in self.extents else (3, 0, expr.name)
        choice = isinstance(expr, Apply) and expr.fn in ("min", "max", "select")
        return (0 if choice else 1, -max((self.rank.get(v, 0) for v in variables(expr)), default=0), text(expr))

    def _without(self, inner: Expr, factor: Polynomial, rest: Polynomial) -> bool:
        """Whether ``factor * inner + rest`` is at least 0, by what is known of ``inner``."""
        # Elimination of one atom: a sum that is monotone in it is least at one of its ends; choices are proved case by
        # case.
        if isinstance(inner, Apply) and inner.fn == "select":
            return all(self._proved(factor * self.polynomial(a) + rest) for a in inner.args[1:])
        up = self._proved(factor)
        if not up and not self._proved(-factor):
            return False
        if isinstance(inner, Var):
            return self._proved(rest if up else factor * (self.extents[inner] - 1) + rest)
        if isinstance(inner, Apply) and tame(inner):
            if inner.fn in ("min", "max"):
                cases = [self._proved(factor * self.polynomial(a) + rest) for a in inner.args]
                return all(cases) if up == (inner.fn == "min") else any(cases)
            if inner.fn in ("floordiv", "mod"):
                x, d = map(self.polynomial, inner.args)
                if self._proved(d) and self._division_proved(inner.fn, x, d, factor, rest, up):
                    return True
        least, most = self.of_atom(inner)
        end = least if up else most
        return end is not None and self._proved(factor * end + rest)

    def _division_proved(
        self, fn: str, x: Polynomial, d: Polynomial, factor: Polynomial, rest: Polynomial, up: bool
    ) -> bool:
        if fn == "mod":
            if up:
                return self._proved(rest)
            return self._proved(factor * (d - 1) + rest) or (self._proved(x) and self._proved(factor * x + rest))
        # x - d + 1 <= (x // d) * d <= x, and an integer is at least 0 where d times it is above -d
        near = x - d + 1 if up else x
        return self._proved(self.collected(rest * d + factor * near + d - 1))

    def _of_sizes(self, p: Polynomial) -> bool:
        """Whether a polynomial in sizes is at least 0: where no term is negative, sizes counted from their least."""
        if any(not isinstance(a, Var) or a in self.extents for a in p.atoms):
            return False
        shifted = replaced(p, lambda a: atom(a) + 1 if a in self.positive else None)
        return all(n >= 0 for n in shifted.terms.values())


@lru_cache(1 << 14)
def tame(expr: Expr) -> bool:
    """Whether an expression is over loop variables and sizes only, whose arithmetic does not wrap around."""
    return all(e.dtype in (INDEX, "bool") and not isinstance(e, Load) for e in walk(expr))


@lru_cache(1 << 14)
def divided_whole(expr: Expr) -> bool:
    """Whether an expression is a quotient or remainder whose arithmetic does not wrap around: one over loop variables
    and sizes only, or one of quotients and remainders of a single element, which may be any number, by these."""
    if not (isinstance(expr, Apply) and expr.fn in ("floordiv", "mod")):
        return False
    x, d = expr.args
    if not tame(d):
        return False
    is_element = isinstance(x, Load) or (isinstance(x, Apply) and x.fn == "cast")
    return is_element or tame(x) or divided_whole(x)


def _balanced(facts: Ranges, fn: str, p: Polynomial) -> Expr:
    """``p fn 0`` with terms moved so that all are positive, what varies outermost on the left, numbers on the right."""
    over = Polynomial({t: n for t, n in p.terms.items() if n > 0 and t})
    under = Polynomial({t: -n for t, n in p.terms.items() if n < 0 and t})
    first = min((t for t in p.terms if t), key=lambda t: term_order(t, facts.rank), default=())
    if first in over.terms:
        return apply(fn, facts.expr(over), facts.expr(under - p.constant))
    mirrored = {"gt": "lt", "ge": "le"}.get(fn, fn)
    return apply(mirrored, facts.expr(under), facts.expr(over + p.constant))


def _only(p: Polynomial, fn: str) -> Apply | None:
    """The one atom that is such a function and a term of its own, where there is just one."""
    atoms = (t[0] for t, c in p.terms.items() if c == 1 and len(t) == 1)
    matches = [a for a in atoms if isinstance(a, Apply) and a.fn == fn]
    return matches[0] if len(matches) == 1 else None


def _less(t: tuple[Expr, ...], inner: Expr) -> tuple[Expr, ...]:
    left = list(t)
    left.remove(inner)
    return product(left)


def _holds_all(p: Polynomial, part: Polynomial) -> bool:
    return all(p.terms.get(t) == n for t, n in part.terms.items())


def _toward_zero(a: int, n: int) -> int:
    return a // n if a >= 0 else -(-a // n)


def _times(a: Interval, b: Interval) -> Interval:
    """The range of a product; None is without end."""
    # Interval arithmetic (Moore, 1966): the product's ends are products of ends; where some are infinite, signs decide.
    if None not in a and None not in b:
        ends = [x * y for x in a for y in b if x is not None and y is not None]
        return min(ends), max(ends)
    if a == (0, 0) or b == (0, 0):
        return 0, 0
    (al, ah), (bl, bh) = a, b
    if al is not None and al >= 0 and bl is not None and bl >= 0:
        return al * bl, None
    if ah is not None and ah <= 0 and bl is not None and bl >= 0:
        return None, ah * bl
    if al is not None and al >= 0 and bh is not None and bh <= 0:
        return None, al * bh
    return None, None


def _lowest(values: list[int | None]) -> int | None:
    bounds = [v for v in values if v is not None]
    return min(bounds) if len(bounds) == len(values) else None


def _highest(values: list[int | None]) -> int | None:
    bounds = [v for v in values if v is not None]
    return max(bounds) if len(bounds) == len(values) else None
