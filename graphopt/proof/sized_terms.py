"""Tensors of symbolic sizes: a known rank, sizes that are symbols, and elements that are terms over the index.

An axis is a sequence of blocks, each a product of sizes: what ``Concat`` makes of axes has their blocks one after the
other, and what ``Reshape`` makes of several has their product; an axis of size one is one block of no sizes, an empty
axis has no block. So an element has a place for each axis: a block, and an index for each size of it. A sum over an
axis is a linear operator, and a reduction of which no more is known an operator that ignores order. Two axes that have
to agree are unified, in every way in which they can; broadcasting has three. Sizes may be 0 as well as anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations, product
from math import prod
from typing import Any, TypeVar

from graphopt.ir.constants import Constant
from graphopt.ir.types import Size, symbol
from graphopt.proof.symbols import Algebra, Opaque

T = TypeVar("T")
Block = tuple[str, ...]
"""A product of sizes, by name."""
Extent = tuple[Block, ...]
"""The size of an axis: a sum of blocks."""
ONE: Extent = ((),)
Place = tuple[int, tuple[Any, ...]]
"""Where an element is on an axis: the block, and an index for each of its sizes."""
START: Place = (0, ())


class Different(Exception):  # noqa: N818
    """Terms differ."""


class Impossible(Exception):  # noqa: N818
    """Shapes do not fit."""


# -- choices


class Choices:
    """Every way through a computation that makes choices, by running it again for each."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, int]] = []
        self._next = 0

    def choose(self, options: Sequence[T]) -> T:
        """One of the options; in the course of all runs, each."""
        if not options:
            raise Impossible
        if self._next == len(self._taken):
            self._taken.append((0, len(options)))
        taken = options[self._taken[self._next][0]]
        self._next += 1
        return taken

    def runs(self, limit: int) -> Iterator[None]:
        """A step for each way. Raises Opaque where there are more."""
        for _ in range(limit):
            self._next = 0
            yield
            while self._taken and self._taken[-1][0] + 1 == self._taken[-1][1]:
                self._taken.pop()
            if not self._taken:
                return
            position, count = self._taken[-1]
            self._taken[-1] = position + 1, count
        raise Opaque(f"a rule of more than {limit} cases")


# -- terms


class SizedAlgebra(Algebra):
    """Terms over indices: symbols have places, and operators bind indices."""

    def __init__(self, is_real: bool) -> None:
        super().__init__(is_real)
        self._fresh = 0
        self._free: dict[int, frozenset[Any]] = {}

    def index(self) -> Hashable:
        """An index that nothing else has."""
        self._fresh += 1
        return ("index", self._fresh)

    def size(self, name: str) -> int:
        """A size as a number."""
        return self._atom(("size", name))

    def placed(self, leaf: str, places: Sequence[Place]) -> int:
        """An element of an operand."""
        return self._atom(("symbol", (leaf, tuple(places))))

    def free(self, number: int) -> frozenset[Any]:
        """The indices that a term has free."""
        if number not in self._free:
            self._free[number] = frozenset(self._indices(self._terms[number]))
        return self._free[number]

    def _indices(self, term: Any) -> Iterator[Any]:
        if isinstance(term, Ref):
            yield from self.free(term.number)
            return
        match term:
            case ("index", _):
                yield term
            case ("polynomial", parts):
                for monomial, _ in parts:
                    for atom, _ in monomial:
                        yield from self.free(atom)
            case ("over", _, _, names, body):
                yield from (i for i in self.free(body) if i not in names)
            case ("sqrt", inner):
                yield from self.free(inner)
            case ("symbol" | "factor", name):
                yield from self._of_places(name)
            case ("value" | "size", _):
                return
            case (_, attrs, inputs):
                yield from self._of_places(attrs)
                for i in inputs:
                    yield from self.free(i)

    def _of_places(self, part: Any) -> Iterator[Any]:
        if isinstance(part, Ref):
            yield from self.free(part.number)
        elif isinstance(part, tuple):
            if len(part) == 2 and part[0] == "index":
                yield part
            else:
                for p in part:
                    yield from self._of_places(p)

    def renamed(self, number: int, names: dict[Any, Any]) -> int:
        """A term with other indices."""
        if not self.free(number) & names.keys():
            return number
        term = self._terms[number]
        match term:
            case ("polynomial", parts):
                total = []
                for monomial, coefficient in parts:
                    power = self._polynomial({(): coefficient})
                    for atom, exponent in monomial:
                        base = self.renamed(atom, names)
                        base = base if exponent > 0 else self._inverse(base)
                        for _ in range(abs(exponent)):
                            power = self._times(power, base)
                    total.append((power, 1))
                return self._sum(total)
            case ("over", op, sizes, bound, body):
                return self._atom(("over", op, sizes, bound, self.renamed(body, names)))
            case ("sqrt", inner):
                return self._atom(("sqrt", self.renamed(inner, names)))
            case ("symbol" | "factor" as kind, name):
                return self._atom((kind, self.replaced(name, names)))
        op, attrs, inputs = term
        return self.call(op, self.replaced(attrs, names), [self.renamed(i, names) for i in inputs])

    def replaced(self, part: Any, names: dict[Any, Any]) -> Any:
        """A place with other indices."""
        if isinstance(part, Ref):
            return Ref(self.renamed(part.number, names))
        if not isinstance(part, tuple):
            return part
        if len(part) == 2 and part[0] == "index":
            return names.get(part, part)
        return tuple(self.replaced(p, names) for p in part)

    def stand_in(self, name: str) -> float:
        """A number that stands for any number, and that no rule has."""
        number = 0.37109375 + len(self.named) / 1024
        self.named[number] = name
        return number

    # -- operators

    def over(self, op: str, bound: Sequence[tuple[Any, str]], body: int, is_ordered: bool = False) -> int:
        """An operator on all that a term is for some indices, whatever they are called and their order."""
        depth = 1 + max((self._depth(i) for i in self.free(body)), default=0)
        depth = max(depth, 1 + self._height(body))
        best = None
        if len(bound) > 5:
            raise Opaque("an operator over many axes")
        for order in permutations(bound) if not is_ordered else [tuple(bound)]:
            names = tuple(("index", (depth, i)) for i in range(len(order)))
            body_named = self.renamed(body, dict(zip((b for b, _ in order), names, strict=True)))
            number = self.intern(("over", op, tuple(s for _, s in order), names, body_named))
            best = number if best is None else min(best, number)
        assert best is not None
        return self._polynomial({((best, 1),): Fraction(1)}) if self.is_real else best

    def _depth(self, index: Any) -> int:
        return index[1][0] if isinstance(index[1], tuple) else 0

    def _height(self, number: int) -> int:
        """The depth of the binders within a term."""
        if not hasattr(self, "_heights"):
            self._heights: dict[int, int] = {}
        if number not in self._heights:
            term = self._terms[number]
            match term:
                case ("polynomial", parts):
                    height = max((self._height(a) for m, _ in parts for a, _ in m), default=0)
                case ("over", _, _, names, body):
                    height = max([self._depth(n) for n in names] + [self._height(body)])
                case ("sqrt", inner):
                    height = self._height(inner)
                case ("symbol" | "factor", name):
                    height = self._height_of(name)
                case ("value" | "size", _) | ("undefined",):
                    height = 0
                case (_, attrs, inputs):
                    height = max([self._height_of(attrs), *(self._height(i) for i in inputs)])
            self._heights[number] = height
        return self._heights[number]

    def _height_of(self, part: Any) -> int:
        if isinstance(part, Ref):
            return self._height(part.number)
        return max((self._height_of(p) for p in part), default=0) if isinstance(part, tuple) else 0

    def summed(self, bound: Sequence[tuple[Any, str]], body: int) -> int:
        """The sum of a term over indices, over the reals: linear, and in one form however it is nested."""
        total = []
        for monomial, coefficient in self._parts(body):
            names = list(bound)
            factors: list[tuple[int, int]] = []
            waiting = list(monomial)
            while waiting:
                atom, exponent = waiting.pop()
                term = self._terms[atom]
                if exponent > 0 and term[:2] == ("over", "ReduceSum") and self.free(atom) & {n for n, _ in names}:
                    for _ in range(exponent):
                        fresh = {old: self.index() for old in term[3]}
                        names += [(fresh[old], size) for old, size in zip(term[3], term[2], strict=True)]
                        ((inner, one),) = self._parts(self.renamed(term[4], fresh))
                        assert one == 1
                        waiting += inner
                else:
                    factors.append((atom, exponent))
            total.append((self._separated(names, factors, coefficient), 1))
        return self._sum(total)

    def _separated(self, bound: list[tuple[Any, str]], factors: list[tuple[int, int]], coefficient: Fraction) -> int:
        """A sum of a product as the product of the sums of what shares indices."""
        result = self._polynomial({(): coefficient})
        rest = list(factors)
        names = list(bound)
        while names:
            index, size = names.pop(0)
            together, part = [(index, size)], []
            grown = True
            while grown:
                grown = False
                held = {n for n, _ in together}
                for f in list(rest):
                    if self.free(f[0]) & held:
                        rest.remove(f)
                        part.append(f)
                        grown = True
                reach = {i for f in part for i in self.free(f[0])}
                for n in list(names):
                    if n[0] in reach:
                        names.remove(n)
                        together.append(n)
                        grown = True
            if not part:
                result = self._times(result, self.size(size))
                continue
            body = self._product(part)
            result = self._times(result, self.over("ReduceSum", together, body))
        return self._times(result, self._product(rest))

    def _product(self, factors: Iterable[tuple[int, int]]) -> int:
        powers: dict[int, int] = {}
        for atom, exponent in factors:
            powers[atom] = powers.get(atom, 0) + exponent
        return self._polynomial({tuple(sorted((a, e) for a, e in powers.items() if e)): Fraction(1)})


@dataclass(frozen=True)
class Ref:
    """A term inside of a place."""

    number: int


# -- tensors


@dataclass
class Tensor:
    """The sizes of the axes, and the element at a place."""

    extents: tuple[Extent, ...]
    at: Callable[[Sequence[Place]], int]
    constant: Constant | None = None

    dtype = "float64"
    """For what makes constants of the same dtype, which terms have none of."""

    @property
    def ndim(self) -> int:
        """How many axes there are, as numpy calls it."""
        return len(self.extents)

    @property
    def rank(self) -> int:
        """How many axes there are."""
        return len(self.extents)


class Sizes:
    """What sizes are, as far as it is known: some are others, or sums or products of others."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self._known: dict[str, Extent] = {}
        self._open: list[tuple[Extent, Extent]] = []
        self.is_settled = False

    def of(self, extent: Extent) -> Extent:
        """A size in what is not known of any other."""
        blocks: list[Block] = []
        for block in extent:
            parts: list[Block] = [()]
            for name in block:
                known = self._known.get(name)
                if known is None:
                    parts = [(*p, name) for p in parts]
                    continue
                known = self.of(known)
                if len(known) > 1 and len(block) > 1:
                    raise Opaque("a product of sums")
                parts = [(*p, *k) for p in parts for k in known]
            blocks += parts
        return tuple(blocks)

    def unify(self, a: Extent, b: Extent) -> Extent:
        """The size that both are."""
        a, b = self.of(a), self.of(b)
        if a == b:
            return a
        if self.is_settled:
            raise Different("sizes differ")
        whole = a, b
        for one, other in ((a, b), (b, a)):
            if len(one) == 1 and len(one[0]) == 1 and not any(one[0][0] in block for block in other):
                self._known[one[0][0]] = other
                return other
        names = {n for e in (a, b) for block in e for n in block}
        if not names:
            raise Impossible
        while a and b and a[0] == b[0]:
            a, b = a[1:], b[1:]
        while a and b and a[-1] == b[-1]:
            a, b = a[:-1], b[:-1]
        if whole != (a, b):
            self.unify(a, b)
        else:
            self._open.append((a, b))
        return self.of(whole[0])

    def settle(self) -> None:
        """Take no more as known; what had to be equal is by now. Raises Opaque where that is not seen."""
        waiting, self._open = self._open, []
        for a, b in waiting:
            self.unify(a, b)
        if self._open:
            raise Opaque("an equation of sizes")
        self.is_settled = True

    def broadcast(self, a: Extent, b: Extent) -> Extent:
        """The size that both are broadcast to."""
        a, b = self.of(a), self.of(b)
        if a == b or b == ONE:
            return a
        if a == ONE:
            return b
        if self.is_settled:
            raise Different("sizes differ")
        match self.choices.choose(("equal", "left", "right")):
            case "equal":
                return self.unify(a, b)
            case "left":
                self.one(a)
            case _:
                self.one(b)
        return self.broadcast(a, b)

    def one(self, extent: Extent) -> None:
        """Let a size be one."""
        extent = self.of(extent)
        if extent == ONE:
            return
        if self.is_settled:
            raise Different("sizes differ")
        if not extent:
            raise Impossible
        which = self.choices.choose(range(len(extent)))
        for i, block in enumerate(extent):
            if i == which:
                for name in block:
                    self._known[name] = ONE
            elif not block:
                raise Impossible
            else:
                self._known[self.choices.choose(block)] = ()


def size_of(extent: Extent) -> Size:
    """A size as types have it."""
    return sum((prod((symbol(n) for n in block), start=1) for block in extent), start=0)


def indices_of(extents: Sequence[Extent], algebra: SizedAlgebra) -> Iterator[tuple[tuple[Place, ...], list[Any]]]:
    """A place in each combination of blocks, and its indices with their sizes."""
    for blocks in product(*(list(enumerate(e)) for e in extents)):
        bound: list[tuple[Any, str]] = []
        places = []
        for number, block in blocks:
            names = tuple(algebra.index() for _ in block)
            bound += zip(names, block, strict=True)
            places.append((number, names))
        yield tuple(places), bound
