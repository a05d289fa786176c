"""Polynomials of index expressions: sums of integer multiples of products of atoms, and their division.

An atom is a variable or an expression that is no sum (a division, a load). Products are kept in one
order, so that equal polynomials are equal values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

from graphopt.lowering.loops.expressions import INDEX, Apply, Const, Expr, Load, Var, apply, variables

Product: TypeAlias = tuple[Expr, ...]


@lru_cache(maxsize=1 << 16)
def text(atom: Expr) -> str:
    """The sorting key of atoms: what they are, part by part."""
    match atom:
        case Const(value, dtype):
            return f"Const({value!r}, {dtype})"
        case Apply(fn, args, dtype):
            return f"Apply({fn}, {', '.join(map(text, args))}, {dtype})"
        case Load(buffer, indices):
            number = getattr(buffer, "number", "")  # tensors of one name are told apart by it
            return f"Load({buffer.name}, {number}, {', '.join(map(text, (*buffer.shape, *indices)))}, {buffer.dtype})"
        case Var(name, dtype):
            return f"Var({name}, {dtype})"
    raise TypeError(f"{atom!r} is no expression")


@lru_cache(maxsize=1 << 16)
def by_text(product: Product) -> str:
    """The sorting key of products."""
    return " ".join(map(text, product))


def product(atoms: Iterable[Expr]) -> Product:
    """A product: atoms in their canonical order."""
    return tuple(sorted(atoms, key=text))


class Polynomial:
    """A polynomial: products with their coefficients; the empty product is the constant term. Immutable."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Product, int]) -> None:
        self.terms: Mapping[Product, int] = terms
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __add__(self, other: Polynomial | int) -> Polynomial:
        return self.plus(other if isinstance(other, Polynomial) else number(other), 1)

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        return self.plus(other if isinstance(other, Polynomial) else number(other), -1)

    def __neg__(self) -> Polynomial:
        return Polynomial({p: -n for p, n in self.terms.items()})

    def plus(self, other: Polynomial, times: int) -> Polynomial:
        """The sum with a multiple of the other."""
        terms = dict(self.terms)
        for p, n in other.terms.items():
            total = terms.get(p, 0) + n * times
            if total:
                terms[p] = total
            else:
                terms.pop(p, None)
        return Polynomial(terms)

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        if isinstance(other, int):
            return Polynomial({p: n * other for p, n in self.terms.items()} if other else {})
        terms: dict[Product, int] = {}
        for a, m in self.terms.items():
            for b, n in other.terms.items():
                joined = a if not b else b if not a else product((*a, *b))
                terms[joined] = terms.get(joined, 0) + m * n
        return Polynomial({p: n for p, n in terms.items() if n})

    @property
    def number(self) -> int | None:
        """The value of a constant polynomial; None for others."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    @property
    def constant(self) -> int:
        """The constant term."""
        return self.terms.get((), 0)

    @property
    def atoms(self) -> tuple[Expr, ...]:
        """The atoms, each once, in the order of their text."""
        return product({a for p in self.terms for a in p})

    @property
    def single(self) -> Expr | None:
        """The atom of a polynomial that is just one atom; None for others."""
        if len(self.terms) == 1:
            ((p, n),) = self.terms.items()
            if n == 1 and len(p) == 1:
                return p[0]
        return None

    def split(self, var: Var) -> tuple[Polynomial, Polynomial] | None:
        """The coefficient of ``var``, and the rest; None where ``var`` occurs within an atom or more than once."""
        parts = self.split_atom(var)
        if parts is None or any(var in variables(a) for part in parts for p in part.terms for a in p):
            return None
        return parts

    def split_atom(self, atom: Expr) -> tuple[Polynomial, Polynomial] | None:
        """The coefficient of an atom, and the rest, in which its variables may occur; None where the atom meets itself
        in a product."""
        factor: dict[Product, int] = {}
        rest: dict[Product, int] = {}
        for p, n in self.terms.items():
            times = p.count(atom)
            if times > 1:
                return None
            if times:
                factor[tuple(a for a in p if a != atom)] = n
            else:
                rest[p] = n
        return Polynomial(factor), Polynomial(rest)

    def expr(self, rank: Mapping[Var, int] = MappingProxyType({})) -> Expr:
        """The polynomial as an expression: what varies outermost (has the smallest rank) first, numbers last."""
        ordered = [(p, n) for p, n in self.terms.items() if p]
        if len(ordered) > 1:
            places = {p: term_order(p, rank) for p, _ in ordered}
            ordered.sort(key=lambda t: (places[t[0]][0], -abs(t[1]), places[t[0]]))
        positive = next((k for k, (_, n) in enumerate(ordered) if n > 0), None)
        if positive is not None:  # no sum begins with a minus
            ordered.insert(0, ordered.pop(positive))
        total: Expr | None = None
        for p, n in ordered:
            atoms = sorted(p, key=lambda a: term_order((a,), rank)) if len(p) > 1 else p
            term = _term(atoms, n if total is None else abs(n))
            total = term if total is None else apply("add" if n > 0 else "sub", total, term)
        return Const(self.constant) if total is None else total + self.constant


def term_order(p: Product, rank: Mapping[Var, int]) -> tuple[int, int, str]:
    """The sorting key of a product among the terms of a sum."""
    ranks = [rank[v] for a in p for v in variables(a) if v in rank]
    return (min(ranks, default=len(rank)), sum(not isinstance(a, Var) for a in p), by_text(p))


def _term(atoms: Sequence[Expr], times: int) -> Expr:
    total = atoms[0]
    for atom in atoms[1:]:
        total = Apply("mul", (total, atom), INDEX)
    if times == 1:
        return total
    return Apply("neg", (total,), INDEX) if times == -1 else Apply("mul", (total, Const(times)), INDEX)


def number(n: int) -> Polynomial:
    """A constant polynomial."""
    return Polynomial({(): n} if n else {})


def atom(expr: Expr) -> Polynomial:
    """The polynomial of one atom."""
    return Polynomial({(expr,): 1})


def divided(p: Polynomial, d: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Polynomial division: ``(q, r)`` with ``p == q * d + r``, where r keeps as little as term-wise division leaves."""
    n = d.number
    if n is not None:
        q = {t: c // n for t, c in p.terms.items() if t == () or c % n == 0}
        whole = Polynomial({t: c for t, c in q.items() if c})
        return whole, p.plus(whole, -n)
    lead = max(d.terms, key=lambda t: (len(t), tuple(map(text, t))))
    whole = Polynomial({})
    for _ in range(16):
        term = next((t for t in _descending(p) if _contains(t, lead) and p.terms[t] % d.terms[lead] == 0), None)
        if term is None:
            break
        step = Polynomial({_without(term, lead): p.terms[term] // d.terms[lead]})
        whole, p = whole + step, p - step * d
    return whole, p


def _descending(p: Polynomial) -> list[Product]:
    return sorted(p.terms, key=lambda t: (len(t), tuple(map(text, t))), reverse=True)


def _contains(whole: Product, part: Product) -> bool:
    return all(whole.count(a) >= part.count(a) for a in part)


def _without(whole: Product, part: Product) -> Product:
    left = list(whole)
    for a in part:
        left.remove(a)
    return tuple(left)


def replaced(p: Polynomial, value: Callable[[Expr], Polynomial | None]) -> Polynomial:
    """The polynomial with atoms substituted; None keeps one."""
    total = Polynomial({})
    for t, n in p.terms.items():
        product = number(n)
        for a in t:
            product = product * (value(a) or atom(a))
        total = total + product
    return total
