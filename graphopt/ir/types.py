"""Types of values: a dtype and a shape whose dimensions are integers or polynomials over symbols.

A dimension (``Size``) is an ``int`` or a ``Dim``. A ``Dim`` is kept in one normal form, a sum of
monomials with integer coefficients over *atoms*; an atom is a named symbol (an unknown size, at
least 0), a floor division that does not come out even, the least or greatest of some sizes, the broadcast of
sizes that are not yet known to agree, or the whole part of a float that a model computes of sizes (``Real``).
Equal means equal normal forms: ``a == b`` is a proof, ``a != b`` is not knowing.
Arithmetic between sizes gives back an ``int`` wherever the symbols cancel.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import cached_property, lru_cache, reduce, total_ordering
from itertools import count
from typing import TypeAlias

from graphopt.frozen import dataclass

OPEN = "?!"
"""What the names of open sizes begin with."""

_PLAIN = re.compile(r"(?!(broadcast|max|min|trunc)$)[A-Za-z_?][\w~]*|\?!\d+")
_IN_TEXT = re.compile(r"`(?P<dotted>[\w.]+)`|`[^`]*`|(?P<unnamed>\?[\w~!]*)")
"""What is in a size's text that it says otherwise in words: names in backquotes, and sizes that nobody named."""


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


@dataclass(frozen=True, slots=True)
class Maximum:
    """The greatest of these sizes, none of which is known to be it."""

    sizes: tuple[Size, ...]

    def __str__(self) -> str:
        return f"max({', '.join(map(text_of, self.sizes))})"


@dataclass(frozen=True, slots=True)
class Truncated:
    """A float without what is behind its point."""

    number: Real

    def __str__(self) -> str:
        return f"trunc({self.number})"


SizeAtom: TypeAlias = Symbol | FloorDiv | Broadcast | Minimum | Maximum | Truncated
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
        if isinstance(other, Dim):
            return _sum((*self.terms, *other.terms))
        *others, (last, constant) = self.terms if self.terms[-1][0] == () else (*self.terms, ((), 0))
        return Dim((*others, (last, constant + other))) if constant + other else Dim(tuple(others))

    __radd__ = __add__

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + (-1 * other)

    def __rsub__(self, other: Size) -> Size:
        return other + (-1 * self)

    def __mul__(self, other: Size) -> Size:
        if isinstance(other, Dim):
            return _sum(
                (tuple(sorted((*left, *right), key=str)), a * b) for left, a in self.terms for right, b in other.terms
            )
        return self if other == 1 else Dim(tuple((m, c * other) for m, c in self.terms)) if other else 0

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        return _divide(self, other)

    def __rfloordiv__(self, other: Size) -> Size:
        return _divide(other, self)


Size: TypeAlias = int | Dim


def text_of(size: Size) -> str:
    """The size as graphs' text has it."""
    return size.text if isinstance(size, Dim) else str(size)


def in_words(size: Size) -> str:
    """The size in words, with ``?`` for whatever nobody named.

    >>> from graphopt.ir.types import fresh_symbol, in_words, symbol
    >>> in_words(fresh_symbol()), in_words(2 * fresh_symbol()), in_words(2 * symbol("x.0")), in_words(symbol("n-1"))
    ('?', '2*?', '2*x.0', 'n-1')
    """
    atom = _atom(size)
    if isinstance(atom, Symbol):
        return "?" if atom.name.startswith("?") else atom.name
    return _IN_TEXT.sub(lambda found: found["dotted"] or ("?" if found["unnamed"] else found[0]), text_of(size))


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
    if numerator == 0:
        return 0
    divisor = _terms(denominator)
    if len(divisor) != 1:
        even = _evenly(numerator, denominator)
        return _sum([(_floor(numerator, denominator), 1)]) if even is None else even
    (atoms, factor) = divisor[0]
    parts: list[tuple[Monomial, int]] = []
    rest: list[tuple[Monomial, int]] = []
    for monomial, coefficient in _terms(numerator):
        left = _without(monomial, atoms)
        if left is None:
            rest.append((monomial, coefficient))
            continue
        quotient, remainder = divmod(coefficient, factor) if factor > 0 else (0, coefficient)
        if factor < 0 and coefficient % factor == 0:
            quotient, remainder = coefficient // factor, 0
        parts.append((left, quotient))
        rest.append((monomial, remainder))
    left_over = _sum(rest)
    if isinstance(left_over, int) and not atoms:
        return _sum([*parts, ((), left_over // factor)])
    if left_over == 0:
        return _sum(parts)
    if not atoms and 2 * max(((m, c) for m, c in _terms(left_over) if m), key=_rank)[1] > factor > 0:
        return _sum(parts) - (factor - 1 - left_over) // factor  # the floor that is rounded up, of the two forms
    return _sum([*parts, (_floor(left_over, denominator), 1)])


def _evenly(numerator: Size, denominator: Size) -> Size | None:
    """The quotient of polynomials, where nothing is left over."""
    lead, factor = max(_terms(denominator), key=_rank)
    quotient: Size = 0
    while numerator != 0:
        monomial, coefficient = max(_terms(numerator), key=_rank)
        left = _without(monomial, lead)
        if left is None or coefficient % factor:
            return None
        step = _sum([(left, coefficient // factor)])
        quotient, numerator = quotient + step, numerator - step * denominator
    return quotient


def _rank(term: tuple[Monomial, int]) -> tuple[int, list[str]]:
    """The place of a term in an order in which products keep it: by degree, then by the factors' names."""
    return len(term[0]), [str(atom) for atom in term[0]]


def _without(monomial: Monomial, atoms: Monomial) -> Monomial | None:
    """The monomial divided by atoms; None where they are not all in it."""
    left = list(monomial)
    for atom in atoms:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _floor(numerator: Size, denominator: Size) -> Monomial:
    """The floor as an atom: ``(a // b + c) // d`` is ``(a + b*c) // (b*d)`` for positive numbers b and d, and what
    divides both parts is left out."""
    terms = [(m, c) for m, c in _terms(numerator) if m]
    if isinstance(denominator, int) and denominator > 0 and len(terms) == 1:
        (monomial, coefficient) = terms[0]
        match monomial:
            case (FloorDiv(above, int(below)),) if coefficient == 1 and below > 0:
                offset = numerator - Dim(tuple(terms))
                return _floor(above + below * offset, below * denominator)
    common = math.gcd(*(c for _, c in terms), *(c for _, c in _terms(denominator)))
    if common > 1:  # the floor of (g*a + r) / (g*d) is that of (a + r // g) / d
        numerator, denominator = (_sum((m, c // common) for m, c in _terms(size)) for size in (numerator, denominator))
    return (FloorDiv(numerator, denominator),)


def symbol(name: str) -> Dim:
    """The size called ``name``: the same name is the same size."""
    return Dim((((Symbol(name),), 1),))


_fresh = count()


def axis_name(input: str, axis: int) -> str:
    """What the size of an axis of an input is called where the model has no name for it."""
    return f"{input}.{axis}"


def fresh_symbol(is_open: bool = False) -> Dim:
    """A size that is equal to no other; an open one differs from run to run, whatever is declared of it."""
    return symbol(f"{OPEN if is_open else '?'}{next(_fresh)}")


def fresh_number() -> Dim:
    """An integer that is equal to no other and, unlike sizes, may be negative."""
    return symbol(f"?~{next(_fresh)}")


BOUNDS = 512
"""How many sums of bounds are looked at to prove that a number is no less than 0."""


@lru_cache(1 << 16)
def is_size(number: Size, tries: int = BOUNDS) -> bool:
    """Whether the number is provably at least 0: it is a sum of sizes, or one of the sums that are less than it is."""
    if isinstance(number, int):
        return number >= 0
    if all(coefficient > 0 and all(map(_is_natural, monomial)) for monomial, coefficient in number.terms):
        return True
    lower = list(_at_least(number)) if tries > len(number.terms) else []
    return any(is_size(least, tries // max(2, len(lower))) for least in lower)


def _at_least(number: Dim) -> Iterator[Size]:
    """Numbers that are negative where the number is, made by a bound of one of its atoms."""
    for monomial, coefficient in number.terms:
        rest = number - Dim(((monomial, coefficient),))
        match monomial:
            case (Minimum(sizes),) if coefficient < 0:
                yield from (rest + coefficient * size for size in sizes)
            case (Maximum(sizes),) if coefficient > 0:
                yield from (rest + coefficient * size for size in sizes)
            case (FloorDiv(above, int(below)),) if below > 0:  # whole numbers are negative where they are below -1
                quotient = above if coefficient < 0 else above - (below - 1)
                yield below * rest + coefficient * quotient + (below - 1)


def _is_natural(atom: SizeAtom) -> bool:
    match atom:
        case Symbol(name):
            return not name.startswith("?~")
        case FloorDiv(numerator, denominator):
            return is_size(numerator) and is_size(denominator)
        case Broadcast(sizes) | Minimum(sizes):
            return all(map(is_size, sizes))
        case Maximum(sizes):
            return any(map(is_size, sizes))
        case Truncated(number):
            return number.is_natural


def is_anonymous(size: Size) -> bool:
    """Whether the size rests on a symbol that nobody named."""
    return any(name.startswith("?") for name in symbols(size))


def is_open_size(size: Size) -> bool:
    """Whether the size rests on one that is open."""
    return any(name.startswith(OPEN) for name in symbols(size))


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
                case Broadcast(sizes) | Minimum(sizes) | Maximum(sizes):
                    names.update(*map(symbols, sizes))
                case Truncated(number):
                    names.update(*map(symbols, number.sizes))
    return names


def sums(names: Set[str]) -> dict[str, Size]:
    """The sizes among some that are called as a sum of others of them, as that sum.

    >>> sums({"past", "past + new", "new", "new+1"})
    {'new+1': new + 1, 'past + new': new + past}
    """
    found: dict[str, Size] = {}
    for name in sorted(names):
        parts = [part.strip() for part in name.split("+")]
        if len(parts) > 1 and all(part in names or part.isdecimal() for part in parts):
            found[name] = sum((int(part) if part.isdecimal() else symbol(part) for part in parts), 0)
    return found


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
                case Maximum(parts):
                    product = product * maximum(*(substitute(p, sizes) for p in parts))
                case Truncated(number):
                    product = product * number.substituted(sizes).truncated()
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
    kept = _undominated(Minimum, sizes, lambda part, other: is_size(part - other))
    return kept[0] if len(kept) == 1 else Dim((((Minimum(tuple(kept)),), 1),))


def maximum(*sizes: Size) -> Size:
    """The greatest of these sizes."""
    kept = _undominated(Maximum, sizes, lambda part, other: is_size(other - part))
    return kept[0] if len(kept) == 1 else Dim((((Maximum(tuple(kept)),), 1),))


def _undominated(
    kind: type[Minimum | Maximum], sizes: Iterable[Size], gives_way: Callable[[Size, Size], bool]
) -> list[Size]:
    """The sizes, those of the same kind taken apart, of which none is known to give way to another."""
    parts: list[Size] = []
    for size in sizes:
        inner = _atom(size)
        parts.extend(inner.sizes if isinstance(inner, Minimum | Maximum) and isinstance(inner, kind) else [size])
    kept: list[Size] = []
    for part in sorted(set(parts), key=text_of):
        if not any(gives_way(part, other) for other in kept):
            kept = [other for other in kept if not gives_way(other, part)] + [part]
    return kept


# -- floats that are computed of sizes


LARGEST = 1 << 22
"""Sizes of which models compute in floats are taken to be at most this: float32 holds whole numbers up to four times
as many exactly, so that a size, its half or three times it are no approximations."""
MANTISSA: Mapping[str, int] = {"float32": 24, "float64": 53}
"""The dtypes in which floats are followed, and how many bits of a whole number they hold."""


@dataclass(frozen=True, slots=True)
class Real:
    """A float that a model computes of sizes: a function of floats, rounded as the dtype rounds, or a quotient.

    ``quotient`` has a size and a power of two as arguments, all others have reals. Constants are quotients, too. Where
    all is exact, numbers have one form, so that equal is a proof here, too; what is rounded is kept as it is computed,
    and so evaluates just as the model does.
    """

    dtype: str
    function: str
    arguments: tuple[Real | Size, ...]

    def __str__(self) -> str:
        if (value := self.value) is not None:
            return f"{self.dtype}({value!r})"
        if self.parts:
            above, below = self.parts
            return f"{self.dtype}.of({text_of(above)})" if below == 1 else f"{self.dtype}.of({text_of(above)}, {below})"
        return f"{self.dtype}.{self.function}({', '.join(map(str, self.arguments))})"

    @classmethod
    def of(cls, size: Size, dtype: str) -> Real:
        """A size as a float."""
        return cls._quotient(dtype, size, 1)

    @classmethod
    def constant(cls, value: float, dtype: str) -> Real | None:
        """A number; None where it is none."""
        return cls(dtype, "quotient", float(value).as_integer_ratio()) if math.isfinite(value) else None

    @classmethod
    def _quotient(cls, dtype: str, above: Size, below: int) -> Real:
        if isinstance(above, int):  # rounded here and now
            above, below = _rounded(above / below, dtype).as_integer_ratio()
        common = math.gcd(below, *(c for _, c in _terms(above)))
        return cls(dtype, "quotient", (above // common, below // common))

    @property
    def value(self) -> float | None:
        """The number, where no symbol is in it."""
        return self.parts[0] / self.parts[1] if self.parts and isinstance(self.parts[0], int) else None

    @property
    def parts(self) -> tuple[Size, int] | None:
        """Of a quotient the size and the power of two."""
        match self:
            case Real(function="quotient", arguments=(Dim() | int() as above, int(below))):
                return above, below
        return None

    @property
    def sizes(self) -> Iterator[Size]:
        """The sizes that it is computed of."""
        for argument in self.arguments:
            if isinstance(argument, Real):
                yield from argument.sizes
            else:
                yield argument

    @property
    def is_natural(self) -> bool:
        """Whether it is provably at least 0."""
        if self.parts:
            return is_size(self.parts[0])
        return self.function not in ("sub", "neg") and all(a.is_natural for a in self._reals)

    @property
    def _reals(self) -> list[Real]:
        return [a for a in self.arguments if isinstance(a, Real)]

    @property
    def exact(self) -> tuple[Size, int] | None:
        """The size and the power of two whose quotient it is, where it is that without rounding."""
        return self.parts if self.parts and _bits(self.parts[0]) <= MANTISSA[self.dtype] else None

    @property
    def fraction(self) -> tuple[Size, Size] | None:
        """The whole numbers of which it is the quotient, rounded once; None where it is none."""
        match [a.exact for a in self.arguments if isinstance(a, Real)]:
            case [(a, below), (b, other)] if self.function == "div":
                return a * other, b * below
        return self.exact

    def substituted(self, sizes: dict[str, Size]) -> Real:
        """The number with named symbols replaced."""
        if self.parts:
            return Real._quotient(self.dtype, substitute(self.parts[0], sizes), self.parts[1])
        if self.function == "cast":
            return self._reals[0].substituted(sizes).cast(self.dtype)
        return real(self.function, *(a.substituted(sizes) for a in self._reals))

    def cast(self, dtype: str) -> Real:
        """The number in another dtype."""
        if dtype == self.dtype:
            return self
        if self.exact:
            return Real._quotient(dtype, *self.exact)
        return Real(dtype, "cast", (self,))

    def truncated(self) -> Size:
        """The number without what is behind its point, as a cast to integers leaves it."""
        if self.exact:
            above, below = self.exact
            if below == 1 or is_size(above):
                return above // below
            if is_size(-above):
                return -((-above) // below)
        if self.is_natural:
            below_it = real("floor", self)
            if below_it.exact:
                return below_it.exact[0]
            if self.function == "floor":
                return self._reals[0].truncated()
        return Dim((((Truncated(self),), 1),))


def real(function: str, *arguments: Real) -> Real:
    """A function of reals of one dtype."""
    dtype = arguments[0].dtype
    values = [a.value for a in arguments]
    numbers = [v for v in values if v is not None]
    if len(numbers) == len(values):
        try:
            value = Real.constant(_rounded(REAL_FUNCTIONS[function](*numbers), dtype), dtype)
        except (ArithmeticError, ValueError):  # infinite, or no number
            value = None
        return Real(dtype, function, arguments) if value is None else value
    exact = [a.exact for a in arguments]
    parts = [e for e in exact if e is not None]
    if len(parts) == len(exact):
        found = _exactly(function, dtype, parts)
        result = None if found is None else Real._quotient(dtype, *found)
        if result is not None and result.exact:
            return result
    if function in ("floor", "ceil") and arguments[0].function == "div":
        quotient = _whole_quotient(arguments[0], is_up=function == "ceil")
        if quotient is not None:
            return Real.of(quotient, dtype)
    return Real(dtype, function, arguments)


REAL_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "abs": abs,
    "add": lambda a, b: a + b,
    "ceil": math.ceil,
    "div": lambda a, b: a / b,
    "floor": math.floor,
    "max": max,
    "min": min,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "round": round,
    "sqrt": math.sqrt,
    "sub": lambda a, b: a - b,
}
"""The functions of floats that are followed: of doubles, which rounded once more are those of float32, too."""


def _rounded(value: float, dtype: str) -> float:
    """A number as the dtype holds it."""
    return float(value) if dtype == "float64" else float(struct.unpack("f", struct.pack("f", value))[0])


def _exactly(function: str, dtype: str, parts: list[tuple[Size, int]]) -> tuple[Size, int] | None:
    """What a function gives of quotients, as a quotient, if that is one of a size and a power of two."""
    (a, below), (b, other) = (*parts, (0, 1))[:2]
    match function:
        case "add" | "sub":
            return a * other + b * below * (1 if function == "add" else -1), below * other
        case "mul":
            return a * b, below * other
        case "div" if isinstance(b, int) and b:
            above, divisor = (a * other, b * below) if b > 0 else (-a * other, -b * below)
            power = divisor & -divisor
            whole = above // (divisor // power)
            return (whole, power) if whole * (divisor // power) == above else None
        case "min" | "max":
            one, another = a * other, b * below
            return (minimum if function == "min" else maximum)(one, another), below * other
        case "neg":
            return -a, below
        case "abs" if is_size(a):
            return a, below
        case "floor":
            return a // below, 1
        case "ceil":
            return (a + (below - 1)) // below, 1
        case "round" if below == 1:
            return a, 1
    return None


def _whole_quotient(number: Real, is_up: bool) -> Size | None:
    """The floor or ceiling of a rounded quotient of whole numbers, which is that of the quotient itself where both
    are so small that no quotient comes as near to a whole number as rounding goes."""
    if number.fraction is None:
        return None
    above, divisor = number.fraction
    if is_size(above) and is_size(divisor) and _bound(above) + _bound(divisor) <= 1 << MANTISSA[number.dtype]:
        return (above + (divisor - 1) * is_up) // divisor
    return None


def _bits(size: Size) -> float:
    """How many bits the size has at most, its trailing zeros aside."""
    common = math.gcd(*(c for _, c in _terms(size)))
    return math.log2(_bound(size) / max(common & -common, 1) or 1)


def _bound(size: Size) -> float:
    """What the size never exceeds in either direction, if no symbol does ``LARGEST``."""
    if isinstance(size, int):
        return abs(size)
    return sum(abs(c) * reduce(lambda a, b: a * b, map(_bound_of, m), 1.0) for m, c in size.terms)


def _bound_of(atom: SizeAtom) -> float:
    match atom:
        case Symbol(name):
            return math.inf if name.startswith("?~") else LARGEST
        case FloorDiv(numerator, denominator):
            return _bound(numerator) / (denominator if isinstance(denominator, int) and denominator > 0 else 1)
        case Broadcast(sizes) | Minimum(sizes) | Maximum(sizes):
            return max(map(_bound, sizes))
    return math.inf


@dataclass(frozen=True, slots=True)
class Unranked:
    """A shape of which not even the rank is known; equal only to itself."""

    token: int
    is_open: bool = False
    """Whether it has another rank in another run, whatever is declared of it."""

    def __str__(self) -> str:
        return "*"


def unranked(is_open: bool = False) -> Unranked:
    """A shape that is equal to no other."""
    return Unranked(next(_fresh), is_open)


Shape: TypeAlias = tuple[Size, ...] | Unranked


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense tensor. ``dtype`` is numpy's or ml_dtypes' name (``float32``, ``bfloat16``, ``int4``, ``string``).

    >>> graphopt.TensorType("float32", (2, 3)).rank, str(graphopt.TensorType("float32", (2, 3)))
    (2, 'float32[2, 3]')
    """

    dtype: str
    shape: Shape

    def __str__(self) -> str:
        body = "*" if isinstance(self.shape, Unranked) else ", ".join(map(in_words, self.shape))
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
    def count(self) -> int | None:
        """The number of elements, where it is a number."""
        numbers = () if isinstance(self.shape, Unranked) else tuple(n for n in self.shape if isinstance(n, int))
        return math.prod(numbers) if len(numbers) == self.rank or 0 in numbers else None

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
