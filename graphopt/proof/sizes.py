"""Proofs for all sizes: tensors of a known rank whose sizes are symbols, their elements terms over the index.

An axis is a sequence of blocks, each a product of sizes: what ``Concat`` makes of axes has their blocks one after the
other, and what ``Reshape`` makes of several has their product; an axis of size one is one block of no sizes, an empty
axis has no block. So an element has a place for each axis: a block, and an index for each size of it. A sum over an
axis is a linear operator, and a reduction of which no more is known an operator that ignores order. Two axes that have
to agree are unified, in every way in which they can; broadcasting has three. Sizes may be 0 as well as anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, permutations, product
from math import prod
from typing import Any, TypeVar

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.contrib_semantics import MEANINGS
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Attr, Attrs, Graph, Header, Value
from graphopt.ir.infer import infer_node
from graphopt.ir.types import Dim, Size, Symbol, TensorType, symbol
from graphopt.proof.evidence import right_expressions
from graphopt.proof.indices import Bounded, Plans, attribute_options, parameter_places, pattern_of
from graphopt.proof.scalars import headed
from graphopt.proof.symbols import Algebra, Opaque, integer, is_defined_otherwise
from graphopt.rewrite.checking.check import applied
from graphopt.rewrite.checking.examples import Example
from graphopt.rewrite.checking.examples.arrays import numpy_dtype
from graphopt.rewrite.checking.examples.pattern import ConcreteCall, ConcretePattern, Leaf, LiteralLeaf, Tree, variants
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.guards.comparison import Unproven
from graphopt.rewrite.match.build import Refused, build
from graphopt.rewrite.match.matcher import Match, matches
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.rule.rule import (
    Field,
    FunctionCall,
    GuardExpr,
    NameRef,
    Rule,
    Soundness,
    calls,
    subexpressions,
    variables,
)

T = TypeVar("T")
Block = tuple[str, ...]
"""A product of sizes, by name."""
Extent = tuple[Block, ...]
"""The size of an axis: a sum of blocks."""
ONE: Extent = ((),)
Place = tuple[int, tuple[Any, ...]]
"""Where an element is on an axis: the block, and an index for each of its sizes."""
START: Place = (0, ())

DEEPEST = 4
WEIGHT = 8
"""The work that one case is counted as."""
PATHS = 1000
"""How many ways of giving ranks, attributes and sizes are looked at for one way of writing a rule and one rank."""


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
        self.named: dict[float, str] = {}
        """Numbers that stand for any number."""
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

    def value(self, number: float | int | bool) -> int:
        """A known element, or the symbol that a number stands for."""
        name = self.named.get(number) if isinstance(number, float) else None
        return super().value(number) if name is None else self._atom(("symbol", (name, ())))

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
                case ("value" | "size", _):
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

    # -- exponentials and logarithms, over the reals

    def _arithmetic(self, op: str, inputs: Sequence[int]) -> int | None:
        match op:
            case "Exp":
                result = self.value(1)
                for monomial, coefficient in self._parts(inputs[0]):
                    log: Any = self._terms[monomial[0][0]] if len(monomial) == 1 and monomial[0][1] == 1 else ()
                    whole = int(coefficient) if coefficient.denominator == 1 and abs(coefficient) < 5 else 1
                    inner = self._polynomial({monomial: coefficient / whole})
                    power = self._atom(("Exp", (), (inner,)))
                    if log[:1] == ("Log",) and coefficient == whole:
                        power = log[2][0]
                    power = power if whole > 0 else self._inverse(power)
                    for _ in range(abs(whole)):
                        result = self._times(result, power)
                return result
            case "Log":
                parts = self._parts(inputs[0])
                if len(parts) == 1:
                    monomial, coefficient = parts[0]
                    powers = [(a, e) for a, e in monomial if self._terms[a][0] == "Exp"]
                    rest = self._polynomial({tuple(p for p in monomial if p not in powers): coefficient})
                    if not powers and coefficient == 1 and [e for _, e in monomial] == [-1]:
                        return self._sum([(self.call("Log", (), [self._product([(monomial[0][0], 1)])]), -1)])
                    if powers:
                        terms = [(self._terms[a][2][0], e) for a, e in powers]
                        if rest != self.value(1):
                            terms.append((self.call("Log", (), [rest]), 1))
                        return self._sum(terms)
                return None
        return super()._arithmetic(op, inputs)


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


# -- ops


class Evaluator:
    """What ops make of tensors of symbolic sizes."""

    def __init__(self, algebra: SizedAlgebra, sizes: Sizes) -> None:
        self.algebra, self.sizes = algebra, sizes

    def leaf(self, name: str, extents: Sequence[Extent]) -> Tensor:
        """An operand."""
        known = tuple(self.sizes.of(e) for e in extents)
        return Tensor(known, lambda places: self.algebra.placed(name, places))

    def constant(self, constant: Constant) -> Tensor:
        """A constant."""
        array = constant.array
        if array.size > 64:
            raise Opaque("a large constant")
        extents = tuple(((),) * n for n in array.shape)
        return Tensor(extents, lambda p: self.algebra.value(array[tuple(b for b, _ in p)].item()), constant)

    def apply(self, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n_outputs: int, opset: int) -> list[Tensor]:
        """The results of an op."""
        function = SIZED.get(op)
        if op in ops.KINDS["elementwise"] and not is_defined_otherwise(op):
            return [self._elementwise(op, attrs, inputs)]
        if op in ops.KINDS["reduce"]:
            return [self._reduce(op, attrs, inputs)]
        if function is not None:
            return function(self, op, attrs, inputs, n_outputs)
        if op in MEANINGS:
            return self._by_meaning(op, attrs, inputs, n_outputs)
        raise Opaque(op)

    def _by_meaning(self, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n_outputs: int) -> list[Tensor]:
        """What an op is in other ops, where it says so without looking at sizes."""

        def apply(inner: str, given: Sequence[Any], n_outputs: int = 1, **inner_attrs: Attr) -> tuple[Tensor, ...]:
            tensors = [x if x is None or isinstance(x, Tensor) else self.constant(Constant.of(x)) for x in given]
            return tuple(self.apply(inner, ops.canonical(inner, Attrs(inner_attrs)), tensors, n_outputs, ops.LATEST))

        try:
            outputs: Any = MEANINGS[op](apply, attrs, inputs)  # type: ignore[arg-type]
        except (TypeError, AttributeError, NotImplementedError, AssertionError, KeyError) as error:
            raise Opaque(op) from error
        if not all(isinstance(x, Tensor) for x in outputs[:n_outputs]):
            raise Opaque(op)
        return list(outputs[:n_outputs])

    def spread(self, shapes: Sequence[tuple[Extent, ...]]) -> tuple[Extent, ...]:
        """The shape that shapes are broadcast to."""
        rank = max(map(len, shapes), default=0)
        result: list[Extent] = [ONE] * rank
        for shape in shapes:
            for i, extent in enumerate(shape):
                at = rank - len(shape) + i
                result[at] = self.sizes.broadcast(result[at], extent)
        return tuple(map(self.sizes.of, result))

    def element(self, x: Tensor, places: Sequence[Place]) -> int:
        """The element of what is broadcast to a shape of these places."""
        own = places[len(places) - x.rank :]
        return x.at([START if self.sizes.of(e) == ONE else p for e, p in zip(x.extents, own, strict=True)])

    def _elementwise(self, op: str, attrs: Attrs, inputs: Sequence[Tensor | None]) -> Tensor:
        given = [x for x in inputs if x is not None]
        extents = self.spread([x.extents for x in given])
        key = (*(("absent", i) for i, x in enumerate(inputs) if x is None), *plain(attrs))

        def at(places: Sequence[Place]) -> int:
            return self.algebra.call(op, key, [self.element(x, places) for x in given])

        return Tensor(extents, at)

    def reduced(self, op: str, rows: Sequence[tuple[list[Any], int]]) -> int:
        """A reduction of all elements of some blocks."""
        algebra = self.algebra
        if algebra.is_real and op == "ReduceMean":
            count = algebra._sum([(algebra._product([]), 0)])
            for bound, _ in rows:
                part = algebra.value(1)
                for _, size in bound:
                    part = algebra._times(part, algebra.size(size))
                count = algebra._sum([(count, 1), (part, 1)])
            return algebra._times(self.reduced("ReduceSum", rows), algebra._inverse(count))
        if algebra.is_real and op in (
            "ReduceSum",
            "ReduceSumSquare",
            "ReduceL2",
            "ReduceLogSumExp",
            "ReduceLogSum",
            "ReduceL1",
        ):
            total = []
            for bound, body in rows:
                match op:
                    case "ReduceSumSquare" | "ReduceL2":
                        body = algebra._times(body, body)
                    case "ReduceLogSumExp":
                        body = algebra.call("Exp", (), [body])
                    case "ReduceL1":
                        body = algebra.call("Abs", (), [body])
                total.append((algebra.summed(bound, body) if bound else body, 1))
            number = algebra._sum(total)
            if op == "ReduceL2":
                return algebra.call("Sqrt", (), [number])
            return algebra.call("Log", (), [number]) if "Log" in op else number
        lone = [body for bound, body in rows if not bound]
        if len(rows) == 1 and lone and op in ("ReduceMax", "ReduceMin"):
            return lone[0]  # of one element
        parts = []
        for bound, body in rows:
            # a maximum of maxima is one
            number = algebra.over(op, bound, body) if bound else body
            parts.append(number)
        return algebra._atom((op, ("all",), tuple(sorted(parts))))

    def _reduce(self, op: str, attrs: Attrs, inputs: Sequence[Tensor | None]) -> Tensor:
        x = inputs[0]
        assert x is not None
        given = inputs[1] if len(inputs) > 1 else None
        if given is not None and given.constant is None:
            raise Opaque("axes that are computed")
        axes = [] if given is None or given.constant is None else [int(a) for a in given.constant.array.reshape(-1)]
        if any(not -x.rank <= a < x.rank for a in axes):
            raise Impossible
        axes = [a % x.rank for a in axes]
        if not axes:
            if attrs.get("noop_with_empty_axes"):
                return x
            axes = [*range(x.rank)]
        return self.along(op, x, axes, bool(attrs.get("keepdims", 1)))

    def along(self, op: str, x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
        """A reduction along axes."""
        extents = tuple(self.sizes.of(e) for e in x.extents)
        result = tuple(ONE if i in axes else e for i, e in enumerate(extents) if keep or i not in axes)

        def at(places: Sequence[Place]) -> int:
            outer = iter(places)
            fixed: list[Place | None] = []
            for i in range(x.rank):
                place = next(outer) if keep or i not in axes else None
                fixed.append(None if i in axes else place)
            rows = []
            inside = [i for i in range(x.rank) if i in axes]
            for inner, bound in indices_of([extents[i] for i in inside], self.algebra):
                whole = list(fixed)
                for i, place in zip(inside, inner, strict=True):
                    whole[i] = place
                rows.append((bound, x.at(whole)))  # type: ignore[arg-type]
            return self.reduced(op, rows)

        return Tensor(result, at)

    def products(self, rows: Sequence[tuple[list[Any], int, int]]) -> int:
        """A sum of products of two elements each."""
        algebra = self.algebra
        if algebra.is_real:
            return self.reduced("ReduceSum", [(bound, algebra._times(a, b)) for bound, a, b in rows])
        return self.reduced("dot", [(bound, algebra.call("Mul", (), [a, b])) for bound, a, b in rows])


def plain(attrs: Attrs) -> tuple[Hashable, ...]:
    """Attributes as a part of a term."""
    return tuple((name, repr(value)) for name, value in attrs.items())


Function = Callable[[Evaluator, str, Attrs, Sequence[Tensor | None], int], list[Tensor]]


def _axis(attrs: Attrs, rank: int, default: int, extra: int = 0) -> int:
    axis = integer(attrs, "axis", default)
    if not -(rank + extra) <= axis < rank + extra:
        raise Impossible
    return axis % (rank + extra) if rank + extra else 0


def _numbers(x: Tensor | None) -> list[int]:
    if x is None or x.constant is None:
        raise Opaque("what a computation tells")
    return [int(n) for n in x.constant.array.reshape(-1)]


def _identity(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    return [x for x in inputs[:1] if x is not None]


def _transpose(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x = inputs[0]
    assert x is not None
    given: Any = attrs.get("perm")
    perm = [int(p) for p in given] if given is not None else [*range(x.rank)][::-1]
    if sorted(perm) != [*range(x.rank)]:
        raise Impossible
    return [
        Tensor(tuple(x.extents[p] for p in perm), lambda places: x.at([places[perm.index(i)] for i in range(x.rank)]))
    ]


def _squeeze(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x = inputs[0]
    assert x is not None
    if len(inputs) < 2 or inputs[1] is None:
        raise Opaque("Squeeze of all axes")
    axes = _numbers(inputs[1])
    if any(not -x.rank <= a < x.rank for a in axes):
        raise Impossible
    axes = [a % x.rank for a in axes]
    if len(set(axes)) != len(axes):
        raise Impossible
    for a in axes:
        e.sizes.one(x.extents[a])
    kept = [i for i in range(x.rank) if i not in axes]

    def at(places: Sequence[Place]) -> int:
        inner = iter(places)
        return x.at([START if i in axes else next(inner) for i in range(x.rank)])

    return [Tensor(tuple(x.extents[i] for i in kept), at)]


def _unsqueeze(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x = inputs[0]
    assert x is not None
    given = _numbers(inputs[1])
    rank = x.rank + len(given)
    if any(not -rank <= a < rank for a in given) or len({a % rank for a in given}) != len(given):
        raise Impossible
    axes = [a % rank for a in given]
    outer = iter(x.extents)
    extents = tuple(ONE if i in axes else next(outer) for i in range(rank))
    return [Tensor(extents, lambda places: x.at([p for i, p in enumerate(places) if i not in axes]))]


def _regrouped(e: Evaluator, x: Tensor, groups: Sequence[Extent]) -> Tensor:
    """The same elements in the same order, with other products of the same sizes as axes."""
    own = [e.sizes.of(extent) for extent in x.extents]
    if any(len(extent) != 1 for extent in own) or any(len(group) != 1 for group in groups):
        raise Opaque("a reshape of a sum of sizes")
    flat = [name for extent in own for name in extent[0]]
    if [name for group in groups for name in group[0]] != flat:
        raise Opaque("a reshape to other sizes")

    def at(places: Sequence[Place]) -> int:
        digits = iter(index for _, indices in places for index in indices)
        return x.at([(0, tuple(next(digits) for _ in extent[0])) for extent in own])

    return Tensor(tuple(groups), at)


def _flatten(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x = inputs[0]
    assert x is not None
    axis = integer(attrs, "axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise Impossible
    axis = axis + x.rank if axis < 0 else axis
    own = [e.sizes.of(extent) for extent in x.extents]
    if any(len(extent) != 1 for extent in own):
        raise Opaque("a reshape of a sum of sizes")
    halves = [tuple(name for extent in part for name in extent[0]) for part in (own[:axis], own[axis:])]
    return [_regrouped(e, x, [(half,) for half in halves])]


def _reshape(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x = inputs[0]
    assert x is not None
    target = _numbers(inputs[1])
    if attrs.get("allowzero"):
        raise Opaque("allowzero")
    own = [e.sizes.of(extent) for extent in x.extents]
    if any(len(extent) != 1 for extent in own):
        raise Opaque("a reshape of a sum of sizes")
    if any(i >= x.rank for i, size in enumerate(target) if size == 0) or target.count(-1) > 1:
        raise Impossible
    groups: list[Extent | None] = []
    for i, size in enumerate(target):
        if size > 1:
            raise Opaque("a reshape to sizes that are numbers")
        groups.append(own[i] if size == 0 else ONE if size == 1 else None)
    flat = [name for extent in own for name in extent[0]]
    if None in groups:
        at = groups.index(None)
        before = sum(len(g[0]) for g in groups[:at] if g)
        after = sum(len(g[0]) for g in groups[at + 1 :] if g)
        if before + after > len(flat):
            raise Opaque("a reshape to other sizes")
        groups[at] = (tuple(flat[before : len(flat) - after]),)
    return [_regrouped(e, x, [g for g in groups if g is not None])]


def _concat(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    given = [x for x in inputs if x is not None]
    axis = _axis(attrs, given[0].rank, 0)
    if any(x.rank != given[0].rank for x in given) or not given[0].rank:
        raise Impossible
    extents = list(given[0].extents)
    for x in given[1:]:
        for i in range(x.rank):
            if i != axis:
                extents[i] = e.sizes.unify(extents[i], x.extents[i])
    parts = [e.sizes.of(x.extents[axis]) for x in given]
    extents[axis] = tuple(block for part in parts for block in part)

    def at(places: Sequence[Place]) -> int:
        block, indices = places[axis]
        for x, part in zip(given, parts, strict=True):
            if block < len(part):
                return x.at([(block, indices) if i == axis else p for i, p in enumerate(places)])
            block -= len(part)
        raise Opaque("a place beyond an axis")

    return [Tensor(tuple(extents), at)]


def _expand(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x = inputs[0]
    assert x is not None
    target = _numbers(inputs[1])
    if any(size != 1 for size in target):
        raise Opaque("Expand to sizes that are numbers")
    rank = max(x.rank, len(target))
    extents = (*(ONE,) * (rank - x.rank), *x.extents)
    return [Tensor(extents, lambda places: x.at(places[rank - x.rank :]))]


def _gather(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x, i = inputs[:2]
    assert x is not None
    assert i is not None
    axis = _axis(attrs, x.rank, 0)
    if not x.rank:
        raise Impossible
    extent = e.sizes.of(x.extents[axis])
    if len(extent) != 1 or len(extent[0]) != 1:
        raise Opaque("Gather from a sum of sizes")

    def at(places: Sequence[Place]) -> int:
        picked = Ref(i.at(places[axis : axis + i.rank]))
        place: Place = (0, (("pick", picked),))
        return x.at([*places[:axis], place, *places[axis + i.rank :]])

    return [Tensor((*x.extents[:axis], *i.extents, *x.extents[axis + 1 :]), at)]


def _matmul(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    a, b = inputs[:2]
    assert a is not None
    assert b is not None
    if not a.rank or not b.rank:
        raise Impossible
    inner = e.sizes.unify(a.extents[-1], b.extents[-2 if b.rank > 1 else 0])
    batch = e.spread([a.extents[:-2], b.extents[:-2]])
    rows = a.extents[-2:-1] if a.rank > 1 else ()
    columns = b.extents[-1:] if b.rank > 1 else ()

    def at(places: Sequence[Place]) -> int:
        where = places[: len(batch)]
        row = places[len(batch) : len(batch) + len(rows)]
        column = places[len(batch) + len(rows) :]

        def of(x: Tensor, core: Sequence[Place]) -> int:
            outer = where[len(where) - max(x.rank - 2, 0) :] if x.rank > 2 else []
            return x.at(
                [START if e.sizes.of(s) == ONE else p for s, p in zip(x.extents[:-2], outer, strict=True)] + [*core]
                if x.rank > 2
                else [*core]
            )

        found = []
        for (place,), bound in indices_of([e.sizes.of(inner)], e.algebra):
            found.append((bound, of(a, [*row, place]), of(b, [place, *column])))
        return e.products(found)

    return [Tensor((*batch, *rows, *columns), at)]


def _scaled(e: Evaluator, factor: Any, x: Tensor) -> Tensor:
    if factor in (None, 1.0):
        return x
    number = e.algebra.value(float(factor))
    return Tensor(x.extents, lambda places: e.algebra.call("Mul", (), [number, x.at(places)]))


def _turned(x: Tensor) -> Tensor:
    return Tensor((*x.extents[:-2], x.extents[-1], x.extents[-2]), lambda p: x.at([*p[:-2], p[-1], p[-2]]))


def _gemm(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    if not e.algebra.is_real:
        raise Opaque("Gemm")
    a, b, c = (*inputs, None)[:3]
    assert a is not None
    assert b is not None
    if a.rank != 2 or b.rank != 2:
        raise Impossible
    left, right = (_turned(a) if attrs.get("transA") else a), (_turned(b) if attrs.get("transB") else b)
    whole = _scaled(e, attrs.get("alpha"), _matmul(e, op, Attrs(), [left, right], 1)[0])
    if c is None:
        return [whole]
    added = e._elementwise("Add", Attrs(), [whole, _scaled(e, attrs.get("beta"), c)])
    for x, y in zip(added.extents, whole.extents, strict=True):
        e.sizes.unify(x, y)
    return [added]


def _fused_matmul(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    if attrs.get("transBatchA") or attrs.get("transBatchB"):
        raise Opaque("FusedMatMul of transposed batches")
    a, b = inputs[:2]
    assert a is not None
    assert b is not None
    left = _turned(a) if attrs.get("transA") and a.rank > 1 else a
    right = _turned(b) if attrs.get("transB") and b.rank > 1 else b
    return [_scaled(e, attrs.get("alpha"), _matmul(e, op, Attrs(), [left, right], 1)[0])]


def _softmax(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x = inputs[0]
    assert x is not None
    axis = _axis(attrs, x.rank, -1)
    if not x.rank:
        raise Impossible
    algebra = e.algebra
    if algebra.is_real:
        total = e.along("ReduceLogSumExp", x, [axis], True)

        def at_real(places: Sequence[Place]) -> int:
            log = algebra.call("Sub", (), [x.at(places), e.element(total, places)])
            return algebra.call("Exp", (), [log]) if op == "Softmax" else log

        return [Tensor(x.extents, at_real)]
    row = e.along(f"row of {op}", x, [axis], True)
    return [Tensor(x.extents, lambda p: algebra._atom((op, (), (x.at(p), e.element(row, p)))))]


def _batch_norm(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x, scale, bias, mean, variance = inputs[:5]
    assert x is not None
    if attrs.get("training_mode"):
        raise Opaque("training")
    if x.rank < 2:
        raise Impossible
    for p in (scale, bias, mean, variance):
        assert p is not None
        if p.rank != 1:
            raise Impossible
        e.sizes.unify(p.extents[0], x.extents[1])
    given: Any = attrs.get("epsilon", 1e-5)
    algebra = e.algebra

    def at(places: Sequence[Place]) -> int:
        s, o, m, v = (p.at([places[1]]) for p in (scale, bias, mean, variance) if p is not None)
        root = algebra.call("Sqrt", (), [algebra.call("Add", (), [v, algebra.value(float(given))])])
        centred = algebra.call("Sub", (), [x.at(places), m])
        scaled = algebra.call("Div", (), [algebra.call("Mul", (), [centred, s]), root])
        return algebra.call("Add", (), [scaled, o])

    return [Tensor(x.extents, at)]


def _global_mean(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x = inputs[0]
    assert x is not None
    if x.rank < 3:
        raise Impossible
    kind = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}[op]
    return [e.along(kind, x, [*range(2, x.rank)], True)]


def _normalized(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    """Rows divided by the root of the mean of their squares, over the reals."""
    x, scale, bias = (*inputs, None, None)[:3]
    assert x is not None
    if not e.algebra.is_real or n > 1:
        raise Opaque(op)
    if not x.rank:
        raise Impossible
    axes = [*range(_axis(attrs, x.rank, -1), x.rank)]
    given: Any = attrs.get("epsilon", 1e-5)
    if op == "LayerNormalization":
        x = e._elementwise("Sub", Attrs(), [x, e.along("ReduceMean", x, axes, True)])
    squares = e.along("ReduceMean", e._elementwise("Mul", Attrs(), [x, x]), axes, True)
    epsilon = Tensor((), lambda _: e.algebra.value(float(given)))
    root = e._elementwise("Sqrt", Attrs(), [e._elementwise("Add", Attrs(), [squares, epsilon])])
    result = e._elementwise("Div", Attrs(), [x, root])
    for with_op, other in (("Mul", scale), ("Add", bias)):
        if other is not None:
            result = e._elementwise(with_op, Attrs(), [result, other])
            if result.rank != x.rank:
                raise Impossible
            for a, b in zip(result.extents, x.extents, strict=True):
                e.sizes.unify(a, b)
    return [result]


def _quantized(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x, scale, zero = (*inputs, None)[:3]
    assert x is not None
    if attrs.get("block_size"):
        raise Opaque("blocks of scales")
    axis = integer(attrs, "axis", 1)
    given = [x]
    for parameter in (scale, zero):
        if parameter is None:
            continue
        if parameter.rank > 1:
            raise Impossible
        if parameter.rank and e.sizes.of(parameter.extents[0]) != ONE:
            if not -x.rank <= axis < x.rank:
                raise Impossible
            e.sizes.unify(parameter.extents[0], x.extents[axis])
            extents = tuple(parameter.extents[0] if i == axis % x.rank else ONE for i in range(x.rank))
            parameter = _on_axis(parameter, extents, axis % x.rank)
        given.append(parameter)
    rest = Attrs({name: a for name, a in attrs.items() if name != "axis"})
    return [e._elementwise(op, rest, given)]


def _on_axis(x: Tensor, extents: tuple[Extent, ...], axis: int) -> Tensor:
    """A vector along an axis of a shape."""
    return Tensor(extents, lambda places: x.at([places[axis]]))


def _conv(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    """A convolution over the reals: bilinear in the image, of which pixels are picked or zeros put, and the kernel."""
    x, w, b = (*inputs, None, None)[:3]
    assert x is not None
    assert w is not None
    if not e.algebra.is_real:
        raise Opaque(op)
    if x.rank != w.rank or x.rank < 3:
        raise Impossible
    algebra = e.algebra
    group = integer(attrs, "group", 1)
    pads: Any = attrs.get("pads")
    is_padded = bool(pads and any(pads)) or attrs.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")
    key = (*plain(Attrs({n: a for n, a in attrs.items() if n not in ("group", "kernel_shape")})),)
    inside = [e.sizes.of(extent) for extent in (x.extents[1], *x.extents[2:])]
    kernel = [e.sizes.of(extent) for extent in w.extents[1:]]
    if group == 1:
        e.sizes.unify(x.extents[1], w.extents[1])
    images, filters = e.sizes.of(x.extents[0]), e.sizes.of(w.extents[0])
    if any(len(extent) != 1 for extent in (*inside[1:], *kernel[1:])) or (group > 1 and len(inside[0]) != 1):
        raise Opaque("a convolution of sums of sizes")
    sizes = tuple(
        ((f"{op} {i} {key} {image} {window}",),)
        for i, (image, window) in enumerate(zip(inside[1:], kernel[1:], strict=True))
    )

    def at(places: Sequence[Place]) -> int:
        rows = []
        for inner, bound in indices_of([e.sizes.of(extent) for extent in w.extents[1:]], algebra):
            picked: list[Place] = []
            factor = algebra.value(1)
            for axis, (position, window, image) in enumerate(zip(places[2:], inner[1:], inside[1:], strict=True)):
                pixel = ("pixel", axis, key, position[1], window[1])
                picked.append((0, tuple(("of", pixel, i) for i in range(len(image[0])))))
                if is_padded:
                    factor = algebra._times(factor, algebra._atom(("factor", ("inside", pixel, image))))
            channel = inner[0]
            if group > 1:
                grouped = ("channel", group, e.sizes.of(w.extents[0]), places[1], inner[0])
                channel = (0, tuple(("of", grouped, i) for i in range(len(inside[0][0]))))
            element = algebra._times(factor, x.at([places[0], channel, *picked]))
            rows.append((bound, element, w.at([places[1], *inner])))
        return e.products(rows)

    whole = Tensor((images, filters, *sizes), at)
    if b is None:
        return [whole]
    if b.rank != 1:
        raise Impossible
    e.sizes.unify(b.extents[0], w.extents[0])
    extents = (ONE, e.sizes.of(w.extents[0]), *(ONE,) * (x.rank - 2))
    return [e._elementwise("Add", Attrs(), [whole, _on_axis(b, extents, 1)])]


SIZED: dict[str, Function] = {
    "Identity": _identity, "Transpose": _transpose, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Flatten": _flatten,
    "Reshape": _reshape, "Concat": _concat, "Expand": _expand, "Gather": _gather, "MatMul": _matmul, "Gemm": _gemm,
    "com.microsoft::FusedMatMul": _fused_matmul, "Softmax": _softmax, "LogSoftmax": _softmax,
    "LayerNormalization": _normalized, "RMSNormalization": _normalized, "QuantizeLinear": _quantized,
    "DequantizeLinear": _quantized, "Conv": _conv, "BatchNormalization": _batch_norm,
    "GlobalAveragePool": _global_mean, "GlobalMaxPool": _global_mean,
}  # fmt: skip
"""What ops make of tensors of symbolic sizes, beside those that act on each element and reductions."""


# -- rules


def prove(rule: Rule) -> Bounded:
    """The proof of a rule for all sizes, up to a rank, or why there is none."""
    is_open = any(c.is_variable for t in rule.lhs for c in calls(t))  # an unknown op is read as none in particular
    kinds = [False] + ([True] if rule.soundness in (Soundness.REALS, Soundness.APPROX) and not is_open else [])
    why = ""
    for is_real in kinds:
        reached, fired, work = 0, False, 0
        for rank in range(DEEPEST + 1):
            try:
                count, cases = _all_of_rank(rule, rank, is_real)
            except Opaque as opaque:
                why = f"{opaque} at symbolic sizes"
                if reached < 2 or "cases" not in str(opaque):
                    fired = False
                break
            except Different as different:
                fired, why = False, str(different)
                break
            except (GraphoptError, ValueError) as error:
                fired, why = False, f"symbolic sizes: {error}"
                break
            fired = fired or count > 0
            reached, work = rank, work + WEIGHT * cases
        if fired:
            return Bounded("reals" if is_real else "index", f"all sizes, rank <= {reached}", work=work)
    return Bounded(None, why=why or "it fires at no symbolic sizes")


def _all_of_rank(rule: Rule, rank: int, is_real: bool) -> tuple[int, int]:
    """How often the rule fires on operands of this rank at the most, and how many cases were looked at."""
    fired, cases = 0, 0
    for written in (w for variant in variants(rule) for w in headed(variant)):
        has_stars = any(v.starred for t in rule.lhs for v in variables(t))
        for stars in (1, 2, 3) if has_stars else (1,):
            pattern = pattern_of(written, stars)
            if pattern is None:
                continue
            choices = Choices()
            for _ in choices.runs(PATHS):
                cases += 1
                with suppress(Impossible):
                    fired += _Case(rule, pattern, choices, rank, SizedAlgebra(is_real)).prove()
    return fired, cases


class _Case:
    """One way of giving the left side ranks, attributes and sizes."""

    def __init__(
        self, rule: Rule, pattern: ConcretePattern, choices: Choices, rank: int, algebra: SizedAlgebra
    ) -> None:
        self.rule, self.pattern, self.choices, self.rank = rule, pattern, choices, rank
        self.plans = Plans(rule, pattern, 0)
        self.handed_on = _handed_on(rule)
        self.any_number = set(self.handed_on)
        """Names that stand for any number."""
        self.sizes = Sizes(choices)
        self.evaluator = Evaluator(algebra, self.sizes)
        self.algebra = algebra
        self.leaves: dict[str, tuple[str, tuple[Extent, ...]] | Constant] = {}
        self.attrs: dict[str, Any] = {}
        self.steps: dict[int, tuple[Attrs, list[Tensor], tuple[Fact, ...]]] = {}

    def prove(self) -> int:
        """How many matches agree. Raises Different where one does not."""
        for root in self.pattern.roots:
            self.visit(root, None)
        ranks = [len(leaf[1]) for leaf in self.leaves.values() if not isinstance(leaf, Constant)]
        if max(ranks, default=0) != self.rank:
            raise Impossible
        heads = tuple(g for g in self.rule.where if _is_of_head(g))
        loose = replace(self.rule, where=heads)
        fired = 0
        # which of the ways to match comes first does not depend on sizes
        which = self.choices.choose(range(self.ways(loose)))
        for guard in self.rule.where:
            self.assume(guard, loose, which)
        self.fit(loose, which)
        self.sizes.settle()
        graph, space, found = self.matched(loose)
        want = self.compute(graph)
        if which >= len(found):
            raise Opaque("a match that sizes change")
        for match in found[which : which + 1]:
            if any(self.is_false(g, match, space) for g in self.rule.where):
                raise Impossible
            other = applied(Example(graph, match, {}))
            if other == "the right side is the left side":
                continue
            if isinstance(other, str) and _is_ill_typed(other, self.rule):
                raise Impossible  # whatever the sizes are
            if isinstance(other, str):
                raise Opaque(f"the right side ({other})")
            self.agree(want, self.compute(other))
            fired += 1
        return fired

    def matched(self, rule: Rule) -> tuple[Graph, Workspace, list[Match]]:
        """The left side as a graph, and the ways in which a rule matches it as a whole."""
        graph = self.graph()
        try:
            space = Workspace(graph)
        except GraphoptError:
            raise Impossible from None
        found = matches(rule, space, graph.producer(graph.outputs[0]))  # type: ignore[arg-type]
        return graph, space, [m for m in found if list(m.roots) == graph.outputs]

    def ways(self, rule: Rule) -> int:
        """In how many ways a rule matches."""
        return len(self.matched(rule)[2])

    def assume(self, guard: GuardExpr, rule: Rule, which: int) -> None:
        """Let sizes be such that a guard holds, where it says which are equal; other guards are left out."""
        match guard:
            case FunctionCall("and", parts):
                for part in parts:
                    self.assume(part, rule, which)
                return
            case FunctionCall("==", (left, right)):
                pass
            case FunctionCall("or", parts) if not any(_is_about_use(p) for p in parts):
                _, space, found = self.matched(rule)
                if any(_holds(p, found[which], space) for p in parts):
                    return
                options = [p for p in parts if not self.is_false(p, found[which], space)]
                self.assume(self.choices.choose(options), rule, which)
                return
            case _:
                return
        names = {p.name for p in subexpressions(guard) if isinstance(p, NameRef)}
        if _is_about_use(guard) or names & self.any_number:
            return
        _, space, found = self.matched(rule)
        if _holds(guard, found[which], space):
            return
        try:
            sides = [expressions.evaluate(e, found[which].bindings, space) for e in (left, right)]
        except (expressions.Unknown, GraphoptError, ValueError, TypeError, LookupError):
            return
        self.equate(*sides)

    def fit(self, rule: Rule, which: int) -> None:
        """Let sizes be such that the right side has the left one's type, without which a rule does not fire."""
        graph, _, found = self.matched(rule)
        space = Workspace(graph.copy())
        for root, term in zip(found[which].roots, rule.rhs, strict=False):
            try:
                value = build(term, found[which].bindings, space)
            except (Refused, GraphoptError):
                return
            if not isinstance(value, Value):
                return
            wanted, actual = space.fact(root), space.fact(value)
            if wanted.shape is None or actual.shape is None:
                return
            if wanted.rank != actual.rank or wanted.dtype != actual.dtype:
                raise Impossible
            self.equate(wanted.shape, actual.shape)

    def equate(self, a: object, b: object) -> None:
        """Let sizes be equal."""
        if isinstance(a, tuple) and isinstance(b, tuple):
            if len(a) != len(b):
                raise Impossible
            for x, y in zip(a, b, strict=True):
                self.equate(x, y)
            return
        extents = [_extent(s) for s in (a, b)]
        if None in extents or extents[0] == extents[1]:
            return
        left, right = (e for e in extents if e is not None)
        if ONE in (left, right):
            self.sizes.one(left if right == ONE else right)
        else:
            self.sizes.unify(left, right)

    def is_false(self, guard: GuardExpr, found: Match, space: Workspace) -> bool:
        """Whether a guard does not hold, whatever the sizes are. What is not known is assumed to hold."""
        match guard:
            case FunctionCall("and", parts):
                return any(self.is_false(p, found, space) for p in parts)
            case FunctionCall("or", parts):
                return all(self.is_false(p, found, space) for p in parts)
        names = {p.name for p in subexpressions(guard) if isinstance(p, NameRef)}
        if _is_about_use(guard) or names & self.any_number:
            return False
        if _holds(FunctionCall("not", (guard,)), found, space):
            return True
        try:
            expressions.truth(expressions.evaluate(guard, found.bindings, space))
        except Unproven:
            return False
        except expressions.Unknown:  # it asks for an axis that is not there, or for elements
            is_of_several = any(isinstance(bound, tuple) for bound in found.bindings.values.values())
            return not is_of_several and not _is_about_elements(guard)
        except (GraphoptError, ValueError, TypeError, LookupError):
            return False
        return False

    # -- the left side

    def visit(self, tree: Tree | None, wish: str | None) -> tuple[Tensor | None, Fact | None]:
        """What a part of the pattern is."""
        match tree:
            case None:
                return None, None
            case LiteralLeaf(value):
                constant = _literal(value, wish)
                return self.evaluator.constant(constant), Fact(TensorType(constant.dtype, constant.shape), True)
            case Leaf(key):
                if key not in self.leaves and tree.name in self.handed_on:
                    number = self.algebra.stand_in(key)
                    dtype = self.plans.dtype(tree.name, wish)
                    rank = self.choices.choose([0, 1])
                    self.leaves[key] = Constant.of(np.full((1,) * rank, number, numpy_dtype(dtype)), dtype)
                if key not in self.leaves:
                    known = self.plans.hints.rank_of.get(tree.name)
                    ranks = [r for r in range(self.rank + 1) if known is None or r == known]
                    rank = self.choices.choose(ranks)
                    extents = tuple(((f"{key}.{i}",),) for i in range(rank))
                    self.leaves[key] = self.plans.dtype(tree.name, wish), extents
                return self.leaf(key)
        return self.step(tree)

    def leaf(self, key: str) -> tuple[Tensor, Fact]:
        """An operand that the pattern leaves open."""
        leaf = self.leaves[key]
        if isinstance(leaf, Constant):
            return self.evaluator.constant(leaf), Fact(TensorType(leaf.dtype, leaf.shape), True, leaf)
        tensor = self.evaluator.leaf(key, leaf[1])
        return tensor, Fact(TensorType(leaf[0], tuple(map(size_of, tensor.extents))))

    def step(self, step: ConcreteCall) -> tuple[Tensor, Fact]:
        """What a call of the pattern is."""
        if id(step) not in self.steps:
            places = parameter_places(step.op) if step.op not in ("Gather", "Trilu") else ()
            tensors: list[Tensor | None] = [None] * len(step.inputs)
            facts: dict[int, Fact | None] = {}
            for i, tree in enumerate(step.inputs):
                if i not in places:
                    tensors[i], facts[i] = self.visit(tree, self.plans.wish(step.op, i, facts))
            first = next((x for x in tensors if x is not None), None)
            rank = 0 if first is None else first.rank
            attrs = self.attributes(step, rank)
            for i in places:
                if i < len(step.inputs):
                    tensors[i], facts[i] = self.parameter(step, i, rank)
            try:
                results = self.evaluator.apply(step.op, attrs, tensors, step.n_outputs, ops.LATEST)
                given = [self.refreshed(facts.get(i), x) for i, x in enumerate(tensors)]
                types = infer_node(step.op, attrs, given, step.n_outputs, ops.LATEST)
            except (GraphoptError, ValueError):
                raise Impossible from None
            self.steps[id(step)] = attrs, results, types
        attrs, results, types = self.steps[id(step)]
        return results[step.call.output], types[step.call.output]

    def refreshed(self, fact: Fact | None, tensor: Tensor | None) -> Fact | None:
        """A fact with the sizes that are known by now."""
        if fact is None or tensor is None or fact.constant is not None or fact.dtype is None:
            return fact
        return Fact(TensorType(fact.dtype, tuple(size_of(self.sizes.of(e)) for e in tensor.extents)), fact.is_const)

    def attributes(self, step: ConcreteCall, rank: int) -> Attrs:
        """The attributes of a call: each that makes a difference."""
        attrs = Attrs()
        shape = (1,) * rank
        for name, expr in step.call.attrs:
            if isinstance(expr, NameRef):
                default = ops.attribute(step.op, Attrs(), name) if ops.schema(step.op) else None
                if expr.name not in self.attrs and isinstance(default, float):
                    if not _is_handed_on(self.rule, expr.name):
                        raise Opaque(f"what is computed from the attribute {name} of {step.op}")
                    self.attrs[expr.name] = self.algebra.stand_in(f"attribute {expr.name}")
                    self.any_number.add(expr.name)
                if expr.name not in self.attrs:
                    self.attrs[expr.name] = self.choices.choose(attribute_options(step.op, name, shape, step))
                attrs = attrs.with_(**{name: self.attrs[expr.name]})
            else:
                try:
                    value: Any = expressions.evaluate(
                        expr, self.plans.no_bindings(self.attrs), self.plans.no_operands()
                    )
                except expressions.Unknown:
                    raise Opaque(f"the attribute {name} of {step.op}") from None
                attrs = attrs.with_(**{name: value})
        schema = ops.schema(step.op)
        for name in schema.required if schema else ():
            if name not in dict(step.call.attrs):
                attrs = attrs.with_(**{name: self.choices.choose(attribute_options(step.op, name, shape, step))})
        return ops.canonical(step.op, attrs)

    def parameter(self, step: ConcreteCall, i: int, rank: int) -> tuple[Tensor | None, Fact | None]:
        """An operand that says where elements go: each axis or axes."""
        tree = step.inputs[i]
        if isinstance(tree, Leaf) and tree.key not in self.leaves:
            if step.op == "Unsqueeze":
                options = [a for n in (1, 2) for a in combinations(range(rank + n), n)] + [(-1,)]
            elif step.op == "Squeeze" or step.op in ops.KINDS["reduce"]:
                options = [a for n in range(1, min(rank, 3) + 1) for a in combinations(range(rank), n)]
                options += [(-1,)] if rank else []
            else:
                raise Opaque(f"any operand {i} of {step.op}")
            self.leaves[tree.key] = Constant.of(numpy_array(self.choices.choose(options)))
        tensor, fact = self.visit(tree, "int64")
        if isinstance(tree, Leaf) and fact is not None and fact.constant is None:
            raise Opaque(f"what {step.op} is told by a computation")
        if isinstance(tree, LiteralLeaf):
            constant = _literal(tree.value, "int64")
            fact = Fact(TensorType("int64", constant.shape), True, constant)
        return tensor, fact

    # -- graphs

    def graph(self) -> Graph:
        """The left side as a graph."""
        graph = Graph(header=Header(opsets=(("", ops.LATEST), ("com.microsoft", 1))))
        made: dict[str, Value] = {}
        steps: dict[int, int] = {}

        def value(tree: Tree | None, dtype: str | None) -> Value | None:
            match tree:
                case None:
                    return None
                case Leaf(key):
                    if key not in made:
                        leaf, fact = self.leaves[key], self.leaf(key)[1]
                        if isinstance(leaf, Constant):
                            made[key] = graph.add_constant(leaf)
                        else:
                            assert fact.type is not None
                            made[key] = graph.add_input(key, fact.type)
                    return made[key]
                case LiteralLeaf(number):
                    return graph.add_constant(_literal(number, dtype))
            if id(tree) not in steps:
                attrs = self.steps[id(tree)][0]
                places = parameter_places(tree.op)
                facts: dict[int, Fact | None] = {}
                inputs = []
                for i, part in enumerate(tree.inputs):
                    is_place = i in places and tree.op not in ("Gather", "Trilu")
                    inputs.append(value(part, "int64" if is_place else self.plans.wish(tree.op, i, facts)))
                    if not is_place:
                        facts[i] = self.visit(part, self.plans.wish(tree.op, i, facts))[1]
                steps[id(tree)] = graph.add(tree.op, tuple(inputs), attrs, tree.n_outputs).id
            return Value(steps[id(tree)], tree.call.output)

        for i, root in enumerate(self.pattern.roots):
            result = value(root, None)
            if result is None or result in graph.outputs:
                raise Impossible
            graph.add_output(f"y{i}", result)
        return graph

    def compute(self, graph: Graph) -> list[Tensor]:
        """The outputs of a graph."""
        values: dict[Value, Tensor] = {}
        for node in graph.order():
            first = Value(node.id)
            if node.op == INPUT:
                leaf = self.leaves[graph.names[first]]
                assert not isinstance(leaf, Constant)
                values[first] = self.evaluator.leaf(graph.names[first], leaf[1])
            elif node.op == CONSTANT:
                constant = graph.constant_of(first)
                assert constant is not None
                values[first] = self.evaluator.constant(constant)
            elif graph.is_used(node.id):
                given = [None if v is None else values[v] for v in node.inputs]
                results = self.evaluator.apply(node.op, node.attrs, given, node.n_outputs, graph.opset)
                values.update(zip(node.outputs, results, strict=False))
        return [values[v] for v in graph.outputs if v is not None]

    def agree(self, want: Sequence[Tensor], got: Sequence[Tensor]) -> None:
        """Raises Different where two sides are not the same at some place."""
        for a, b in zip(want, got, strict=True):
            extents = [self.sizes.of(e) for e in a.extents]
            if extents != [self.sizes.of(e) for e in b.extents]:
                raise Different("sizes differ at symbolic sizes")
            for places, _ in indices_of(extents, self.algebra):
                if a.at(places) != b.at(places):
                    raise Different("terms differ at symbolic sizes")


def _literal(value: Any, wish: str | None) -> Constant:
    name = wish or ("int64" if isinstance(value, int | tuple) and not isinstance(value, bool) else "float32")
    name = "bool" if isinstance(value, bool) else name
    return Constant.of(np.asarray(value).astype(numpy_dtype(name)), name)


def numpy_array(numbers: Sequence[int]) -> Any:
    """Axes as an array."""
    return np.asarray(numbers, np.int64)


def _handed_on(rule: Rule) -> frozenset[str]:
    """Constants whose one number becomes an attribute of the right side as it is, so that it may be any number.

    Guards may speak of it, since they are assumed; where anything is computed from it, it is none of them.
    """
    handed: set[str] = set()
    for side in rule.rhs:
        for call in calls(side):
            for _, expr in call.attrs:
                names = {
                    p.of.name
                    for p in subexpressions(expr)
                    if isinstance(p, Field) and isinstance(p.of, NameRef) and p.name in _ELEMENTS
                }
                match expr:
                    case Field(NameRef(name), "scalar"):
                        handed.add(name)
                    case _ if names:
                        return frozenset()
    return frozenset(handed)


def _is_of_head(guard: GuardExpr) -> bool:
    """Whether a guard says which op an op variable is."""
    match guard:
        case FunctionCall("in", (NameRef(), _)):
            return True
    return False


def _is_about_use(guard: GuardExpr) -> bool:
    """Whether a guard asks what is constant or used elsewhere, which symbols for elements do not answer."""
    return any(isinstance(p, Field) and p.name in ("is_const", "uses") for p in subexpressions(guard))


def _extent(size: object) -> Extent | None:
    """A size of a type as a sum of products; None where it is none."""
    if isinstance(size, bool):
        return None
    if isinstance(size, int):
        return ((),) * size if 0 <= size <= 8 else None
    if not isinstance(size, Dim):
        return None
    blocks: list[Block] = []
    for monomial, count in size.terms:
        if count < 0 or not all(isinstance(atom, Symbol) for atom in monomial):
            return None
        blocks += [tuple(atom.name for atom in monomial if isinstance(atom, Symbol))] * count
    return tuple(blocks) if len({n for b in blocks for n in b}) == sum(map(len, blocks)) else None


def _holds(guard: GuardExpr, match: Match, space: Workspace) -> bool:
    """Whether a guard holds, whatever the sizes are."""
    try:
        return expressions.holds(guard, match.bindings, space) is None
    except (GraphoptError, ValueError, TypeError, LookupError):
        return False


def _is_about_elements(guard: GuardExpr) -> bool:
    """Whether a guard asks for elements, of which symbols know nothing."""
    return any(isinstance(p, Field) and p.name in _ELEMENTS for p in subexpressions(guard))


_ELEMENTS = frozenset({"value", "scalar", "low", "high", "elements", "small"})


def _is_ill_typed(why: str, rule: Rule) -> bool:
    """Whether an op of the right side does not take the types of its operands, by what inference says of the op."""
    written = {call.op for side in rule.rhs for call in calls(side)}
    return any(why.startswith(f"{op} of ") for op in written)


def _is_handed_on(rule: Rule, name: str) -> bool:
    """Whether the right side takes an attribute as it is, and computes nothing from it."""
    for expr in right_expressions(rule):
        if any(p == NameRef(name) for p in subexpressions(expr)) and expr != NameRef(name):
            return False
    return True
