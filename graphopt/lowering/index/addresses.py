"""Index expressions as polynomials: what an address becomes when it is written into source.

A polynomial is a sum of integer multiples of products of atoms; an atom is a variable or an expression
that is no sum (a division, a load). Loops that were fused come apart into ``f // n`` and ``f % n``,
and where both are scaled as a row-major address scales them they come together again as ``f``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod
from typing import TypeAlias

from graphopt.lowering.loops.expressions import INDEX, Apply, Const, Expr, Load, Var, apply, variables

Product: TypeAlias = tuple[Expr, ...]
Bounds: TypeAlias = Mapping[Var, int]
"""Variables that run from 0 up to a known extent."""


@dataclass(frozen=True, slots=True)
class Polynomial:
    """The sum of the products, each so many times; the empty product is the constant term."""

    terms: Mapping[Product, int]

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for product, times in other.terms.items():
            terms[product] = terms.get(product, 0) + times
        return Polynomial({p: t for p, t in terms.items() if t})

    def __mul__(self, other: Polynomial) -> Polynomial:
        terms: dict[Product, int] = {}
        for a, m in self.terms.items():
            for b, n in other.terms.items():
                product = tuple(sorted((*a, *b), key=_text)) if a and b else a or b
                terms[product] = terms.get(product, 0) + m * n
        return Polynomial({p: t for p, t in terms.items() if t})

    @property
    def number(self) -> int | None:
        """The value, where it is a number."""
        return self.terms.get((), 0) if not self.terms.keys() - {()} else None

    def split(self, var: Var) -> tuple[Polynomial, Polynomial] | None:
        """What ``var`` is multiplied by, and the rest; None where ``var`` occurs within an atom or more than once."""
        factor: dict[Product, int] = {}
        rest: dict[Product, int] = {}
        for product, times in self.terms.items():
            inside = [atom for atom in product if var in variables(atom)]
            if not inside:
                rest[product] = times
            elif inside == [var]:
                factor[tuple(a for a in product if a != var)] = times
            else:
                return None
        return Polynomial(factor), Polynomial(rest)

    def expr(self, order: Sequence[Var] = ()) -> Expr:
        """The polynomial as an expression; terms over variables early in ``order`` come first, constants last."""
        rank = {v: k for k, v in enumerate(order)}

        def place(product: Product) -> tuple[int, str]:
            deepest = max((rank.get(v, -1) for atom in product for v in variables(atom)), default=-1)
            return (deepest if product else len(rank), by_text(product))

        total: Expr = Const(0)
        for product in sorted(self.terms, key=place):
            times = self.terms[product]
            term: Expr = Const(abs(times)) if not product else product[0]
            for atom in product[1:]:
                term = Apply("mul", (term, atom), "int64")
            if product and abs(times) != 1:
                term = Apply("mul", (term, Const(abs(times))), "int64")
            if total == Const(0):
                total = term if times > 0 else apply("neg", term)
            else:
                total = Apply("add" if times > 0 else "sub", (total, term), "int64")
        return total


@lru_cache(1 << 14)
def _text(atom: Expr) -> str:
    """What atoms are ordered by."""
    return repr(atom)


@lru_cache(1 << 14)
def by_text(product: Product) -> str:
    """What products are ordered by."""
    return " ".join(map(_text, product))


class _Bounds(dict[Var, int]):
    """Bounds that results are remembered for."""

    def __hash__(self) -> int:  # type: ignore[override]
        if not hasattr(self, "_hash"):
            self._hash = hash(frozenset(self.items()))
        return self._hash


def polynomial(expr: Expr, bounds: Bounds | None = None) -> Polynomial:
    """The index expression as a polynomial, divisions worked out as far as the bounds allow."""
    return _whole(expr, bounds if isinstance(bounds, _Bounds) else _Bounds(bounds or {}))


def address_of(load: Load, bounds: Bounds | None = None) -> Polynomial:
    """The number of an element, counted from its buffer's start."""
    total = Polynomial({})
    for index, stride in zip(load.indices, load.buffer.row_major, strict=True):
        total += polynomial(index, bounds) * polynomial(stride, bounds)
    return total


def gathered(p: Polynomial, bounds: Bounds) -> Polynomial:
    """The sum with ``(f // n) * n * c + (f % n) * c`` written as ``f * c``."""
    return _gathered(p, _Bounds(bounds))


@lru_cache(1 << 14)
def _whole(expr: Expr, bounds: _Bounds) -> Polynomial:
    return _gathered(_polynomial(expr, bounds), bounds)


def tidy(expr: Expr, bounds: Bounds, order: Sequence[Var] = ()) -> Expr:
    """The index expression, simplified."""
    return polynomial(expr, bounds).expr(order)


@lru_cache(1 << 14)
def _polynomial(expr: Expr, bounds: _Bounds) -> Polynomial:
    if isinstance(expr, Const):
        return Polynomial({(): int(expr.value)} if expr.value else {})
    if isinstance(expr, Apply) and expr.dtype == "int64":
        if expr.fn in ("add", "sub", "mul"):
            a, b = (_polynomial(x, bounds) for x in expr.args)
            return a * b if expr.fn == "mul" else a + (b if expr.fn == "add" else _scaled(b, -1))
        if expr.fn == "neg":
            return _scaled(_polynomial(expr.args[0], bounds), -1)
        if expr.fn in ("floordiv", "mod") and (n := _divisor(expr)) is not None:
            return _divided(expr.fn, polynomial(expr.args[0], bounds), n, bounds)
        if expr.fn == "floordiv":
            number, divisor = expr.args
            return Polynomial({(_floor(tidy(number, bounds), tidy(divisor, bounds), bounds),): 1})
    atom = _inside(expr, bounds)
    if isinstance(atom, Const) and atom.dtype == INDEX:
        return _polynomial(atom, bounds)
    return Polynomial({(atom,): 1})


def multiple(product: Product, times: int) -> int:
    """A number of which so many times a product is a multiple, whatever its variables are."""
    return abs(times) * prod(map(_factor, product))


def _factor(atom: Expr) -> int:
    if isinstance(atom, Apply) and atom.fn == "mod" and isinstance(atom.args[1], Const):
        terms = polynomial(atom.args[0]).terms
        return gcd(int(atom.args[1].value), *(multiple(p, t) for p, t in terms.items()))
    return 1


def _floor(number: Expr, divisor: Expr, bounds: _Bounds) -> Expr:
    """The quotient as an atom: ``a // b // c`` is ``a // (b * c)``, where c is a number or a product of sizes."""
    terms = polynomial(divisor, bounds).terms
    is_size = all(t > 0 and all(isinstance(atom, Var) for atom in product) for product, t in terms.items())
    if is_size and isinstance(number, Apply) and number.fn == "floordiv":
        inner, first = number.args
        return Apply("floordiv", (inner, tidy(Apply("mul", (first, divisor), INDEX), bounds)), INDEX)
    return Apply("floordiv", (number, divisor), INDEX)


def _inside(expr: Expr, bounds: _Bounds) -> Expr:
    """An atom with the index expressions within it simplified."""
    if isinstance(expr, Load):
        return Load(expr.buffer, tuple(tidy(i, bounds) for i in expr.indices))
    if isinstance(expr, Apply) and expr.args and expr.fn not in ("add", "sub", "mul"):
        args = tuple(tidy(a, bounds) if a.dtype == "int64" else _inside(a, bounds) for a in expr.args)
        if args != expr.args:
            return apply(expr.fn, *args, dtype=expr.type)
    return expr


def _scaled(p: Polynomial, n: int) -> Polynomial:
    return Polynomial({product: times * n for product, times in p.terms.items()})


def _divided(fn: str, p: Polynomial, n: int, bounds: _Bounds) -> Polynomial:
    """``p // n`` or ``p % n``: what is a multiple of n comes out, and what is below it vanishes."""
    whole = Polynomial({product: t // n for product, t in p.terms.items() if t % n == 0})
    rest = Polynomial({product: t for product, t in p.terms.items() if t % n})
    step = gcd(n, *(t for product, t in rest.terms.items() if product))
    within = rest.terms.get((), 0)
    if 0 < within < step:  # of numbers that are so far apart all have the same place between them
        rest += Polynomial({(): -within})
        found = _divided(fn, rest, n, bounds)
        return found + (whole if fn == "floordiv" else Polynomial({(): within}))
    low, high = _range(rest, bounds)
    if low is not None and high is not None and low >= 0 and high < n:
        return whole if fn == "floordiv" else rest
    if rest.number is not None:
        quotient, remainder = divmod(rest.number, n)
        if fn == "mod":
            return Polynomial({(): remainder} if remainder else {})
        return whole + Polynomial({(): quotient} if quotient else {})
    inner = rest.expr()
    atom = _floor(inner, Const(n), bounds) if fn == "floordiv" else Apply(fn, (inner, Const(n)), "int64")
    return Polynomial({(atom,): 1}) + (whole if fn == "floordiv" else Polynomial({}))


def _divisor(division: Apply) -> int | None:
    """What is divided by, where that is a number above 0."""
    divisor = division.args[1]
    return int(divisor.value) if isinstance(divisor, Const) and int(divisor.value) > 0 else None


def _range(p: Polynomial, bounds: _Bounds) -> tuple[int | None, int | None]:
    """Least and largest value, where all atoms are variables with bounds, or remainders and quotients of such."""
    low = high = 0
    for product, times in p.terms.items():
        top = 1
        for atom in product:
            most = _most(atom, bounds)
            if most is None:
                return None, None
            top *= most
        low, high = (low, high + times * top) if times > 0 else (low + times * top, high)
        if not product and times > 0:
            low += times
        elif not product:
            high += times
    return low, high


def _most(atom: Expr, bounds: _Bounds) -> int | None:
    """The largest value of an atom that is never negative."""
    if isinstance(atom, Var) and atom in bounds:
        return max(0, bounds[atom] - 1)
    if isinstance(atom, Apply) and atom.fn in ("floordiv", "mod") and (n := _divisor(atom)) is not None:
        low, high = _range(_polynomial(atom.args[0], bounds), bounds)
        if atom.fn == "mod":
            return n - 1 if high is None or low is None or low < 0 else min(high, n - 1)
        return high // n if low is not None and low >= 0 and high is not None else None
    return None


def _gathered(p: Polynomial, bounds: _Bounds) -> Polynomial:
    """``(f // n) * n * c + (f % n) * c`` is ``f * c``."""
    for product, times in p.terms.items():
        for atom in product:
            if not (isinstance(atom, Apply) and atom.fn == "mod"):
                continue
            others = list(product)
            others.remove(atom)
            scale = Polynomial({tuple(others): times})
            wanted = _quotient(atom, bounds) * _polynomial(atom.args[1], bounds) * scale
            if wanted.terms and all(p.terms.get(q) == t for q, t in wanted.terms.items()):
                kept = Polynomial({q: t for q, t in p.terms.items() if q not in wanted.terms and q != product})
                whole = _polynomial(atom.args[0], bounds) * scale
                return _gathered(kept + whole, bounds)
    return p


def _quotient(mod: Apply, bounds: _Bounds) -> Polynomial:
    """``f // n`` of ``f % n``."""
    number, divisor = mod.args
    if (n := _divisor(mod)) is not None:
        return _divided("floordiv", _polynomial(number, bounds), n, bounds)
    return Polynomial({(_floor(tidy(number, bounds), tidy(divisor, bounds), bounds),): 1})
