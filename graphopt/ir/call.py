"""Call: an op applied to operands of which only facts are known, as type inference sees it.

Sizes that inference cannot express get a symbol of their own. Where the operands' facts settle the
size, the symbol is named by a hash of those facts, so that inferring the same thing twice, in any
run, gives equal types; where it depends on elements that nobody knows, the symbol is fresh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.constants import SMALL, Array, Constant
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.graph import Attr, Attrs, Graph
from graphopt.ir.types import (
    MANTISSA,
    Real,
    Shape,
    Size,
    TensorType,
    Type,
    Unranked,
    fresh_number,
    fresh_symbol,
    symbol,
    unranked,
)

FEW = 8
"""Tensors of floats with more elements are not followed."""
ApplyOp: TypeAlias = Callable[..., tuple[Array, ...]]
"""``apply(op, inputs, **attributes)``: an ONNX op on arrays."""
Arrays: TypeAlias = Sequence["Array | None"]
Semantics: TypeAlias = Callable[[ApplyOp, Attrs, Arrays], tuple[Array, ...]]
"""``meaning(apply, attributes, inputs)``: what an op computes, in other ops of ONNX."""


@dataclass(slots=True)
class OpCall:
    """An op, its attributes and what is known of its inputs."""

    op: str
    attrs: Attrs
    inputs: Sequence[Fact | None]
    n_outputs: int
    opset: int
    infer: Callable[[str, Attrs, Sequence[Fact | None], int, int], tuple[Fact, ...]]
    """``infer_node``, for an op whose outputs are those of another op on some of its inputs."""

    # -- operands

    def has(self, index: int) -> bool:
        """Whether an input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def fact(self, index: int) -> Fact:
        """What is known of an input; nothing of one that is absent."""
        fact = self.inputs[index] if index < len(self.inputs) else None
        return fact if fact is not None else NOTHING

    def type(self, index: int) -> Type | None:
        """The type of an input."""
        return self.fact(index).type

    def dtype(self, index: int) -> str | None:
        """The dtype of an input."""
        return self.fact(index).dtype

    def shape(self, index: int) -> tuple[Size, ...] | None:
        """The shape of an input whose rank is known."""
        return self.fact(index).shape

    def any_shape(self, index: int) -> Shape | None:
        """The shape of an input, be its rank known or not; None where nothing is known."""
        type_ = self.fact(index).type
        return type_.shape if isinstance(type_, TensorType) else None

    def elements(self, index: int) -> tuple[Size, ...] | None:
        """The elements of a small integer input."""
        return self.fact(index).elements

    def reals(self, index: int) -> tuple[Real, ...] | None:
        """The elements of a small float input, where they are constants or computed of sizes."""
        constant = self.constant(index)
        if constant is None or constant.dtype not in MANTISSA or constant.size > FEW or len(constant.shape) > 1:
            return self.fact(index).reals
        numbers = constant.array.reshape(-1).tolist()
        reals = tuple(r for n in numbers if (r := Real.constant(n, constant.dtype)) is not None)
        return reals if len(reals) == len(numbers) else None

    def numbers(self, index: int) -> tuple[Size | Real, ...] | None:
        """The elements of a small input, of whole numbers or of floats."""
        elements = self.elements(index)
        return self.reals(index) if elements is None else elements

    def element(self, index: int) -> Size | None:
        """The only element of an integer input."""
        elements = self.fact(index).elements
        return elements[0] if elements is not None and len(elements) == 1 else None

    def constant(self, index: int) -> Constant | None:
        """The elements of an input that is at hand."""
        return self.fact(index).constant

    # -- attributes

    def attr(self, name: str) -> Attr | None:
        """An attribute or its default."""
        return ops.attribute(self.op, self.attrs, name)

    def integer(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        value = ops.attribute(self.op, self.attrs, name)
        return value if isinstance(value, int) else default

    def integers(self, name: str) -> tuple[int, ...] | None:
        """An attribute that is a list of integers."""
        value = ops.attribute(self.op, self.attrs, name)
        return tuple(v for v in value if isinstance(v, int)) if isinstance(value, tuple) else None

    def text(self, name: str) -> str:
        """An attribute that is a string; empty where it is absent."""
        value = ops.attribute(self.op, self.attrs, name)
        return value.decode() if isinstance(value, bytes) else value if isinstance(value, str) else ""

    # -- results

    def out_dtype(self, port: int = 0) -> str | None:
        """The dtype that the schema gives an output: that of an input with the same letter, or the only one allowed."""
        return self._letter_dtype(port)

    def _letter_dtype(self, port: int) -> str | None:
        schema = ops.schema(self.op)
        formal = schema.output(port) if schema else None
        if schema is None or formal is None:
            return None
        for index, fact in enumerate(self.inputs):
            operand = schema.input(index)
            if operand is not None and operand.constraint == formal.constraint and fact is not None and fact.dtype:
                return fact.dtype
        allowed = schema.allowed[formal.constraint]
        return next(iter(allowed)) if len(allowed) == 1 else None

    def tensor(self, shape: Shape, port: int = 0) -> TensorType | None:
        """A tensor of the dtype that the schema gives an output."""
        dtype = self._letter_dtype(port)
        return None if dtype is None else TensorType(dtype, shape)

    def size_of_its_own(self, *what: object, values: Sequence[int] = ()) -> Size:
        """A size that inference cannot express, told from others of this call by ``what``.

        It depends on the shapes of the inputs, and on the elements of the inputs in ``values``.
        """
        key = self._key(what, values)
        return fresh_symbol() if key is None else symbol(f"?{key.hex()}")

    def number_of_its_own(self, *what: object) -> Size:
        """An integer that inference cannot express; it depends on the elements of all inputs."""
        key = self._key(what, range(len(self.inputs)))
        return fresh_number() if key is None else symbol(f"?~{key.hex()}")

    def shape_of_its_own(self, *what: object, values: Sequence[int] = ()) -> Unranked:
        """A shape of unknown rank, told apart and depending on inputs as in ``size_of_its_own``."""
        key = self._key(what, values)
        return unranked() if key is None else Unranked(int.from_bytes(key) | 1 << 48)

    def _key(self, what: tuple[object, ...], values: Sequence[int]) -> bytes | None:
        """A hash of everything that the result depends on; None where not all of that is known."""
        parts: list[object] = [self.op, what, len(self.inputs)]
        for name, value in self.attrs.items():
            if isinstance(value, (Graph, Constant)):
                return None
            parts.append((name, value))
        for index, fact in enumerate(self.inputs):
            if fact is None:
                parts.append(None)
            elif not isinstance(fact.type, TensorType):
                return None
            else:
                shape = fact.type.shape
                parts.append(("token", shape.token) if isinstance(shape, Unranked) else shape)
            if index in values and fact is not None:
                elements = fact.elements or fact.reals or _elements(fact.constant)
                if elements is None:
                    return None
                parts.append(elements)
        return blake2b(repr(parts).encode(), digest_size=6).digest()


def _elements(constant: Constant | None) -> object:
    return None if constant is None or constant.size > SMALL else (constant.dtype, constant.digest)
