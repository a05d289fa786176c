"""Types of values: a dtype and a shape whose dimensions are integers or polynomials over symbols.

A dimension (``Size``) is an ``int`` or a ``Dim``. A ``Dim`` is kept in one normal form, a sum of
monomials with integer coefficients over *atoms*; an atom is a named symbol (an unknown size, at
least 0), a floor division that does not come out even, the least of some sizes, or the broadcast of
sizes that are not yet known to agree. Equal means equal normal forms: ``a == b`` is a proof, ``a != b`` is not knowing.
Arithmetic between sizes gives back an ``int`` wherever the symbols cancel.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, total_ordering
from itertools import count
from typing import TypeAlias

_PLAIN = re.compile(r"(?!(broadcast|min)$)[A-Za-z_?][\w~]*")


def quoted(name: str) -> str:
    """A name in backquotes, with JSON's escapes: as it stands in text where it is not plain."""
    body = json.dumps(name, ensure_ascii=False)[1:-1].replace("`", "\\u0060")
    return f"`{body}`"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size that has a name, whatever its spelling; names that start with ``?`` stand for sizes nobody named."""

    name: str

    def __str__(self) -> str:
        return self.name if _PLAIN.fullmatch(self.name) else quoted(self.name)


@dataclass(frozen=True, slots=True)
class FloorDiv:
    """``numerator // denominator`` where the division does not come out even for all sizes."""

    numerator: Size
    denominator: Size

    def __str__(self) -> str:
        return f"(({text_of(self.numerator)}) // ({text_of(self.denominator)}))"


@dataclass(frozen=True, slots=True)
class Broadcast:
    """The size that numpy's broadcasting gives these sizes, none of which is known to be the larger."""

    sizes: tuple[Size, ...]

    def __str__(self) -> str:
        return f"broadcast({', '.join(map(text_of, self.sizes))})"


@dataclass(frozen=True, slots=True)
class Minimum:
    """The least of these sizes, none of which is known to be it."""

    sizes: tuple[Size, ...]

    def __str__(self) -> str:
        return f"min({', '.join(map(text_of, self.sizes))})"


SizeAtom: TypeAlias = Symbol | FloorDiv | Broadcast | Minimum
Monomial: TypeAlias = tuple[SizeAtom, ...]


@total_ordering
class Dim:
    """A polynomial over atoms that is not a plain integer. Immutable; made by arithmetic and ``symbol``."""

    __slots__ = ("__dict__", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Dim) and self.terms == other.terms)

    def __lt__(self, other: Dim) -> bool:
        """An arbitrary but fixed order of normal forms, not of sizes."""
        return self.text < other.text

    @cached_property
    def text(self) -> str:
        """The size as graphs' text has it: names that are not plain stand in backquotes."""
        parts: list[str] = []
        for monomial, coefficient in self.terms:
            factors = "*".join(map(str, monomial))
            size = abs(coefficient)
            body = factors if factors and size == 1 else f"{size}*{factors}" if factors else str(size)
            sign = "-" if coefficient < 0 else "+" if parts else ""
            parts.append(f"{sign} {body}" if parts else sign + body)
        return " ".join(parts)

    def __str__(self) -> str:
        """The size in words: a name alone is spelled as the model has it."""
        atom = _atom(self)
        return atom.name if isinstance(atom, Symbol) else self.text

    __repr__ = __str__

    def __add__(self, other: Size) -> Size:
        return _sum((*self.terms, *_terms(other)))

    __radd__ = __add__

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + (-1 * other)

    def __rsub__(self, other: Size) -> Size:
        return other + (-1 * self)

    def __mul__(self, other: Size) -> Size:
        return _sum(
            (tuple(sorted((*left, *right), key=str)), a * b) for left, a in self.terms for right, b in _terms(other)
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        return _divide(self, other)

    def __rfloordiv__(self, other: Size) -> Size:
        return _divide(other, self)


Size: TypeAlias = int | Dim


def text_of(size: Size) -> str:
    """The size as graphs' text has it."""
    return size.text if isinstance(size, Dim) else str(size)


def _terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    return size.terms if isinstance(size, Dim) else (((), size),)


def _sum(terms: Iterable[tuple[Monomial, int]]) -> Size:
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    kept = {m: c for m, c in total.items() if c}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    order = sorted(kept, key=lambda m: (not m, [str(a) for a in m]))
    return Dim(tuple((m, kept[m]) for m in order))


def _divide(numerator: Size, denominator: Size) -> Size:
    """Floor division. What divides evenly comes out of the floor, and floors within floors become one."""
    if isinstance(numerator, int) and isinstance(denominator, int):
        return numerator // denominator
    if numerator == denominator:
        return 1
    divisor = _terms(denominator)
    if len(divisor) != 1:
        return _sum([((FloorDiv(numerator, denominator),), 1)]) if numerator != 0 else 0
    (atoms, factor) = divisor[0]
    even: list[tuple[Monomial, int]] = []
    rest: list[tuple[Monomial, int]] = []
    for monomial, coefficient in _terms(numerator):
        left = _without(monomial, atoms)
        if left is None:
            rest.append((monomial, coefficient))
            continue
        quotient, remainder = divmod(coefficient, factor) if factor > 0 else (0, coefficient)
        if factor < 0 and coefficient % factor == 0:
            quotient, remainder = coefficient // factor, 0
        even.append((left, quotient))
        rest.append((monomial, remainder))
    left_over = _sum(rest)
    if isinstance(left_over, int) and not atoms:
        return _sum([*even, ((), left_over // factor)])
    if left_over == 0:
        return _sum(even)
    return _sum([*even, (_floor(left_over, denominator), 1)])


def _without(monomial: Monomial, atoms: Monomial) -> Monomial | None:
    """The monomial divided by atoms; None where they are not all in it."""
    left = list(monomial)
    for atom in atoms:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _floor(numerator: Size, denominator: Size) -> Monomial:
    """The floor as an atom: ``(a // b + c) // d`` is ``(a + b*c) // (b*d)`` for positive numbers b and d."""
    terms = [(m, c) for m, c in _terms(numerator) if m]
    if isinstance(denominator, int) and denominator > 0 and len(terms) == 1:
        (monomial, coefficient) = terms[0]
        match monomial:
            case (FloorDiv(above, int(below)),) if coefficient == 1 and below > 0:
                offset = numerator - Dim(tuple(terms))
                return (FloorDiv(above + below * offset, below * denominator),)
    return (FloorDiv(numerator, denominator),)


def symbol(name: str) -> Dim:
    """The size called ``name``: the same name is the same size."""
    return Dim((((Symbol(name),), 1),))


_fresh = count()


def fresh_symbol() -> Dim:
    """A size that is equal to no other."""
    return symbol(f"?{next(_fresh)}")


def fresh_number() -> Dim:
    """An integer that is equal to no other and, unlike sizes, may be negative."""
    return symbol(f"?~{next(_fresh)}")


def is_size(number: Size) -> bool:
    """Whether the number is provably at least 0."""
    if isinstance(number, int):
        return number >= 0
    for monomial, coefficient in number.terms:
        if coefficient > 0 and all(map(_is_natural, monomial)):
            continue
        if coefficient < 0 and len(monomial) == 1 and isinstance(monomial[0], Minimum):
            rest = number - Dim(((monomial, coefficient),))
            return any(is_size(rest + coefficient * size) for size in monomial[0].sizes)
        return False
    return True


def _is_natural(atom: SizeAtom) -> bool:
    match atom:
        case Symbol(name):
            return not name.startswith("?~")
        case FloorDiv(numerator, denominator):
            return is_size(numerator) and is_size(denominator)
        case Broadcast(sizes) | Minimum(sizes):
            return all(map(is_size, sizes))


def is_anonymous(size: Size) -> bool:
    """Whether the size rests on a symbol that nobody named."""
    return any(name.startswith("?") for name in symbols(size))


def symbols(size: Size) -> set[str]:
    """The names of all symbols that the size depends on."""
    if isinstance(size, int):
        return set()
    names: set[str] = set()
    for monomial, _ in size.terms:
        for atom in monomial:
            match atom:
                case Symbol(name):
                    names.add(name)
                case FloorDiv(numerator, denominator):
                    names |= symbols(numerator) | symbols(denominator)
                case Broadcast(sizes) | Minimum(sizes):
                    names.update(*map(symbols, sizes))
    return names


def substitute(size: Size, sizes: dict[str, Size]) -> Size:
    """The size with named symbols replaced. ValueError where the sizes do not fit each other."""
    if isinstance(size, int):
        return size
    total: Size = 0
    for monomial, coefficient in size.terms:
        product: Size = coefficient
        for atom in monomial:
            match atom:
                case Symbol(name):
                    product = product * sizes.get(name, symbol(name))
                case FloorDiv(numerator, denominator):
                    divisor = substitute(denominator, sizes)
                    if divisor == 0:
                        raise ValueError(f"{size} divides by zero for these sizes")
                    product = product * (substitute(numerator, sizes) // divisor)
                case Broadcast(parts):
                    product = product * broadcast(*(substitute(p, sizes) for p in parts))
                case Minimum(parts):
                    product = product * minimum(*(substitute(p, sizes) for p in parts))
        total = total + product
    return total


def broadcast(*sizes: Size) -> Size:
    """The size of one axis of a valid broadcast of these sizes.

    Raises ValueError where two of them are integers that do not agree.
    """
    parts: dict[Size, None] = {}
    for size in sizes:
        inner = _atom(size)
        for part in inner.sizes if isinstance(inner, Broadcast) else (size,):
            if part != 1:
                parts[part] = None
    parts = {part: None for part in parts if not _gives_way(part, parts)}
    numbers = [s for s in parts if isinstance(s, int)]
    if len(numbers) > 1:
        raise ValueError(f"sizes {' and '.join(map(str, numbers))} do not broadcast")
    if numbers:  # every symbolic size must be 1 or this number
        return numbers[0]
    if len(parts) <= 1:
        return next(iter(parts), 1)
    return Dim((((Broadcast(tuple(sorted(parts, key=text_of))),), 1),))


def _atom(size: Size) -> SizeAtom | None:
    """The atom that the size is, if it is one alone."""
    match size:
        case Dim(terms=(((atom,), 1),)):
            return atom
    return None


def _gives_way(size: Size, others: Iterable[Size]) -> bool:
    """Whether the size is the least of one of the others and positive numbers: then it is that, or 1."""
    atom = _atom(size)
    if not isinstance(atom, Minimum):
        return False
    return any(
        part in others and all(isinstance(p, int) and p > 0 for p in atom.sizes if p != part) for part in atom.sizes
    )


def minimum(*sizes: Size) -> Size:
    """The least of these sizes."""
    parts: list[Size] = []
    for size in sizes:
        inner = _atom(size)
        parts.extend(inner.sizes if isinstance(inner, Minimum) else [size])
    kept: list[Size] = []
    for part in sorted(set(parts), key=text_of):
        if not any(is_size(part - other) for other in kept):
            kept = [other for other in kept if not is_size(other - part)] + [part]
    return kept[0] if len(kept) == 1 else Dim((((Minimum(tuple(kept)),), 1),))


@dataclass(frozen=True, slots=True)
class Unranked:
    """A shape of which not even the rank is known; equal only to itself."""

    token: int

    def __str__(self) -> str:
        return "*"


def unranked() -> Unranked:
    """A shape that is equal to no other."""
    return Unranked(next(_fresh))


Shape: TypeAlias = tuple[Size, ...] | Unranked


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense tensor. ``dtype`` is numpy's or ml_dtypes' name (``float32``, ``bfloat16``, ``int4``, ``string``)."""

    dtype: str
    shape: Shape

    def __str__(self) -> str:
        body = "*" if isinstance(self.shape, Unranked) else ", ".join(map(str, self.shape))
        return f"{self.dtype}[{body}]"

    @property
    def text(self) -> str:
        """The type as graphs' text has it."""
        body = "*" if isinstance(self.shape, Unranked) else ", ".join(map(text_of, self.shape))
        return f"{self.dtype}[{body}]"

    @property
    def rank(self) -> int | None:
        """The number of axes, where it is known."""
        return None if isinstance(self.shape, Unranked) else len(self.shape)

    @property
    def size(self) -> Size | None:
        """The number of elements, where the rank is known."""
        if isinstance(self.shape, Unranked):
            return None
        total: Size = 1
        for size in self.shape:
            total = total * size
        return total


@dataclass(frozen=True, slots=True)
class SparseTensorType:
    """A sparse tensor; carried, never rewritten."""

    dtype: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A sequence of values of one type."""

    element: Type


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value that may be absent."""

    element: Type


@dataclass(frozen=True, slots=True)
class OpaqueType:
    """A type that only its ops understand (a map, say): carried, never looked into."""

    text: bytes


Type: TypeAlias = TensorType | SparseTensorType | SequenceType | OptionalType | OpaqueType
