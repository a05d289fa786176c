"""Operation: one application of an op, with its input tensors, their facts, and attributes with defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import reduce
from typing import ClassVar, NamedTuple, TypeAlias

from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.constants import Array
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attr, Attrs
from graphopt.ir.types import (
    Broadcast,
    Dim,
    FloorDiv,
    Maximum,
    Minimum,
    Real,
    Size,
    SizeAtom,
    Symbol,
    Truncated,
    is_size,
)
from graphopt.ir.types import maximum as greatest
from graphopt.lowering.loops.compute import Tensor
from graphopt.lowering.loops.expressions import (
    INDEX,
    Const,
    Expr,
    Var,
    apply,
    cast,
    const,
    equal,
    maximum,
    minimum,
    select,
)


class NotLowered(Exception):  # noqa: N818  it is an answer, not an error
    """Why an op is left to the reference evaluator: what about it no nest can say."""


class NotKnown(NotLowered):
    """An op of which no nest can be written because the elements of one of its inputs are not known ahead of time."""

    def __init__(self, op: str, input: int) -> None:
        super().__init__(f"input {input} of {op} is not known ahead of time")
        self.input = input


class SizeVars:
    """The variables that stand for symbolic dimensions in nests, named in order of first use.

    What a nest learns nothing from when it is spelled out, such as a size that broadcasting gives, is one variable.
    Variables are at least 0: what may be negative is the difference of what is above 0 and what is below. The sizes of
    tensors of these ``facts`` are not.
    """

    spells_out: ClassVar[bool] = False
    """Whether even that is spelled out, so that all variables stand for symbols."""

    def __init__(self, facts: Iterable[Fact | None] = ()) -> None:
        self.variables: dict[SizeAtom, Var] = {}
        shapes = (fact.shape or () for fact in facts if fact is not None)
        self._lengths = {atom for shape in shapes for size in shape if (atom := _alone(size)) is not None}

    def __call__(self, size: Size) -> Expr:
        """A size as an expression."""
        if isinstance(size, int):
            return Const(size)
        total: Expr = Const(0)
        for monomial, coefficient in size.terms:
            total = (
                total + reduce(lambda a, b: a * b, map(self._atom, monomial)) * coefficient
                if monomial
                else (total + coefficient)
            )
        return total

    def _atom(self, atom: SizeAtom) -> Expr:
        if isinstance(atom, Symbol) or not (self.spells_out or _is_plain(atom)):
            number = Dim((((atom,), 1),))
            if not self.spells_out and not is_size(number):
                if is_size(-number):  # what is above 0 is nothing, and what is below all of it
                    parts = [-size for size in atom.sizes] if isinstance(atom, Minimum) else []
                    opposite = _alone(greatest(*parts)) if parts else None
                    return Const(0) - self.variables.setdefault(
                        opposite or Maximum((0, -number)), Var(f"n{len(self.variables)}")
                    )
                whole = self(greatest(0, number))
                return whole if atom in self._lengths else whole - self(greatest(0, -number))
            return self.variables.setdefault(atom, Var(f"n{len(self.variables)}"))
        match atom:
            case FloorDiv():
                return self(atom.numerator) // self(atom.denominator)
            case Broadcast():
                return reduce(lambda a, b: select(equal(a, 1), b, a), map(self, atom.sizes))
            case Minimum():
                return reduce(minimum, map(self, atom.sizes))
            case Maximum():
                return reduce(maximum, map(self, atom.sizes))
            case Truncated():
                return cast(apply("trunc", self.real(atom.number)), INDEX)

    def real(self, number: Real) -> Expr:
        """A float that is computed of sizes as an expression."""
        if number.value is not None:
            return const(number.value, number.dtype)
        if number.parts:
            above, below = number.parts
            return cast(self(above), number.dtype) / float(below)
        parts = [self.real(a) for a in number.arguments if isinstance(a, Real)]
        return cast(parts[0], number.dtype) if number.function == "cast" else apply(number.function, *parts)


def _alone(size: Size) -> SizeAtom | None:
    """The atom that a size is; None where it is more or less."""
    ((monomial, times),) = size.terms if isinstance(size, Dim) and len(size.terms) == 1 else (((), 0),)
    return monomial[0] if times == 1 and len(monomial) == 1 else None


def _is_plain(atom: SizeAtom) -> bool:
    """Whether an atom is a quotient of sums of products of symbols."""
    if not isinstance(atom, FloorDiv):
        return False
    parts = (p for p in (atom.numerator, atom.denominator) if isinstance(p, Dim))
    return all(isinstance(a, Symbol) for p in parts for monomial, _ in p.terms for a in monomial)


@dataclass(frozen=True)
class Operation:
    """A node with the tensors that it reads and all that is known of its inputs and outputs."""

    op: str
    attrs: Attrs
    inputs: tuple[Tensor | None, ...]
    facts: tuple[Fact | None, ...]
    """Of the inputs; None for those left out."""
    outputs: tuple[Fact, ...]
    opset: int
    size: SizeVars = field(default_factory=SizeVars, compare=False)
    is_for_host: bool = True
    """Whether it may be computed in tiles by functions that the host has."""
    found: tuple[Tensor, ...] = ()
    """What its shape function leaves for it (``shape_functions``)."""

    def attr(self, name: str) -> Attr | None:
        """An attribute, or its default."""
        first = self.facts[0] if self.facts else None
        return ops.attribute(self.op, self.attrs, name, None if first is None else first.rank)

    def has(self, k: int) -> bool:
        """Whether the k-th input is given."""
        return k < len(self.inputs) and self.inputs[k] is not None

    def input(self, k: int) -> Tensor:
        """The k-th input, which the op cannot do without."""
        tensor = self.inputs[k] if k < len(self.inputs) else None
        if tensor is None:
            raise NotLowered(f"{self.op} lacks its input {k}")
        return tensor

    def constant(self, k: int) -> Array | None:
        """The elements of the k-th input, where they are known."""
        fact = self.facts[k] if k < len(self.facts) else None
        return None if fact is None or fact.constant is None else fact.constant.array

    def known(self, k: int) -> Array:
        """The elements of the k-th input; NotKnown where they are not known."""
        array = self.constant(k)
        if array is None:
            raise NotKnown(self.op, k)
        return array

    def elements(self, k: int) -> tuple[Expr, ...]:
        """The elements of an integer input of rank 0 or 1 as expressions over sizes (shapes, axes, starts)."""
        fact = self.facts[k] if k < len(self.facts) else None
        sizes = None if fact is None else fact.elements
        if sizes is None and fact is not None and fact.constant is not None:
            sizes = tuple(int(e) for e in fact.constant.array.reshape(-1))
        if sizes is None:
            raise NotKnown(self.op, k)
        return tuple(map(self.size, sizes))

    def shape(self, k: int = 0) -> tuple[Expr, ...]:
        """The shape of the k-th output."""
        shape = self.outputs[k].shape
        if shape is None:
            raise NotLowered(f"the rank of output {k} of {self.op} is not known")
        return tuple(map(self.size, shape))

    def dtype(self, k: int = 0) -> str:
        """The dtype of the k-th output."""
        dtype = self.outputs[k].dtype
        if dtype is None:
            raise NotLowered(f"the dtype of output {k} of {self.op} is not known")
        return dtype


class Shapes(NamedTuple):
    """What a shape function gives: the sizes of the axes of each output, and tensors that are left for the op, with
    their shapes."""

    outputs: Sequence[Sequence[Expr]]
    found: Sequence[tuple[Tensor, tuple[Size, ...]]] = ()


OperatorLowering: TypeAlias = Callable[[Operation], "Tensor | Sequence[Tensor]"]
LoweringTable: TypeAlias = Mapping[str, OperatorLowering]
"""From ops to functions that describe what they compute; an entry ``Op@13`` is for what opset 13 means by it."""
DTYPES = frozenset(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)) | {
    "bool",
    "float16",
    "float32",
    "float64",
    "bfloat16",
}
"""The dtypes that nests compute with."""
NARROW = frozenset({"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"}) | {
    "float4_e2m1fn",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "int2",
    "int4",
    "uint2",
    "uint4",
}
"""Dtypes of at most 8 bits with which nothing is computed: nests see a byte for each element, its code."""
CODE = "uint8"
"""The dtype of codes."""


def held(dtype: str) -> str:
    """The dtype by which nests see elements of a dtype."""
    return CODE if dtype in NARROW else dtype
