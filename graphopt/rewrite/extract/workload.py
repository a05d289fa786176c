"""Workload keys: an op with everything that its time depends on, as a line of text that reads back; the key of tables
of measured times.

Shapes are numbers; of constants only those are told whose elements decide what is done (shapes, axes,
exponents), and their elements with them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import BITS, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs
from graphopt.ir.types import TensorType

FEW = 16
"""Constants of at most this many elements may be shapes, axes and the like."""

BY_ELEMENTS = frozenset({"Pow", "Resize", "Upsample"})
"""Ops whose floating-point constants decide how long they take."""


@dataclass(frozen=True, slots=True)
class WorkloadOperand:
    """A tensor that an op reads: ``elements``, flat, where they are constants that decide what is done."""

    dtype: str
    shape: tuple[int, ...]
    is_const: bool = False
    elements: tuple[int | float | bool, ...] | None = None

    @property
    def size(self) -> int:
        """The number of elements."""
        total = 1
        for n in self.shape:
            total *= n
        return total

    @property
    def nbytes(self) -> float:
        """The bytes that the elements take."""
        return self.size * BITS[self.dtype] / 8

    def fact(self) -> Fact:
        """What is known of such a tensor."""
        if self.elements is None:
            return Fact(TensorType(self.dtype, self.shape), self.is_const)
        return fact_of(Constant.of(np.array(self.elements, self.dtype).reshape(self.shape)))


@dataclass(frozen=True, slots=True)
class OpWorkload:
    """One call of an op, in a runtime's blocked layout or in the plain one."""

    op: str
    attrs: Attrs
    inputs: tuple[WorkloadOperand | None, ...]
    n_outputs: int = 1
    blocked: bool = False

    def text(self) -> str:
        """The workload as a line of text, the same for equal workloads."""
        fields: dict[str, Any] = {"op": self.op}
        if self.attrs:
            fields["attrs"] = dict(self.attrs)
        fields["inputs"] = [None if x is None else _words(x) for x in self.inputs]
        if self.n_outputs != 1:
            fields["outputs"] = self.n_outputs
        if self.blocked:
            fields["blocked"] = True
        return json.dumps(fields, separators=(",", ":"))

    @staticmethod
    def parse(text: str) -> OpWorkload:
        """The workload that a text means. Raises ValueError where it means none."""
        try:
            fields = json.loads(text)
            attrs = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.get("attrs", {}).items()}
            inputs = tuple(None if x is None else _operand(x) for x in fields["inputs"])
            return OpWorkload(
                fields["op"], Attrs(attrs), inputs, fields.get("outputs", 1), bool(fields.get("blocked", False))
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a workload: {text[:80]}") from error


def workload(
    op: str, attrs: Attrs, inputs: Sequence[tuple[Fact, tuple[int, ...]] | None], n_outputs: int, blocked: bool
) -> OpWorkload | None:
    """The workload of a call, given a fact and a shape for each input; None for one that a text cannot tell."""
    if "@" in op or not all(map(_is_plain, attrs.values())):
        return None
    operands: list[WorkloadOperand | None] = []
    for x in inputs:
        if x is None:
            operands.append(None)
            continue
        fact, shape = x
        if fact.dtype not in BITS or fact.rank is None:
            return None
        operands.append(WorkloadOperand(fact.dtype, shape, fact.is_const, _elements(op, fact)))
    return OpWorkload(op, ops.canonical(op, attrs), tuple(operands), n_outputs, blocked)


def _elements(op: str, fact: Fact) -> tuple[int | float | bool, ...] | None:
    constant = fact.constant
    if constant is None or constant.size > FEW or constant.dtype not in ("int64", "int32", "float32", "bool"):
        return None
    if constant.dtype == "float32" and op not in BY_ELEMENTS:
        return None
    return tuple(constant.array.reshape(-1).tolist())


def _is_plain(attr: object) -> bool:
    if isinstance(attr, tuple):
        return all(isinstance(a, int | float | str) for a in attr)
    return isinstance(attr, int | float | str)


def _words(x: WorkloadOperand) -> Any:
    kind = f"{x.dtype}[{','.join(map(str, x.shape))}]"
    if x.elements is not None:
        return [kind, *x.elements]
    return f"const {kind}" if x.is_const else kind


def _operand(words: Any) -> WorkloadOperand:
    kind, elements = (words[0], tuple(words[1:])) if isinstance(words, list) else (words, None)
    is_const = elements is not None or kind.startswith("const ")
    dtype, _, shape = kind.removeprefix("const ").partition("[")
    sizes = tuple(int(n) for n in _split(shape.rstrip("]")))
    if dtype not in BITS or any(n < 0 for n in sizes):
        raise ValueError(f"not a tensor: {kind}")
    return WorkloadOperand(dtype, sizes, is_const, elements)


def _split(text: str) -> Iterator[str]:
    return iter(text.split(",") if text else ())
