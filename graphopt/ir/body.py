"""Bodies: what an op computes, said in other ops, as a graph that is built from what is known of the op's inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphopt.frozen import dataclass
from graphopt.ir.constants import Array, Constant
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.graph import Attrs, Graph, Value
from graphopt.ir.op_table import Contrib

Operand: TypeAlias = "Value | Array | np.generic | int | float | Sequence[int] | None"
"""What a node of a body reads: a value, or a constant (Python's numbers are float32 and int64)."""


class Body:
    """The body of a call as it is built: ``body.Add(x, y)`` adds a node, ``body("Split", x, outputs=3)`` one with
    several outputs, ``body.names`` has what is known of inputs by name."""

    def __init__(self, op: str, schema: Contrib, attrs: Attrs, facts: Sequence[Fact | None]) -> None:
        self.graph, self.schema, self.attrs = Graph(op), schema, attrs
        self.inputs: list[Value | None] = []
        self.facts: dict[Value, Fact] = {}
        names = [word.rstrip("?") for word in schema.inputs.split()]
        for name, fact in zip(names, (*facts, *[None] * (len(names) - len(facts))), strict=True):
            value = self.graph.add_input(name, None if fact is None else fact.type)
            self.inputs.append(value if fact is not None else None)
            self.facts[value] = fact or NOTHING

    def __getattr__(self, op: str) -> Callable[..., Value]:
        def call(*inputs: Operand, **attrs: Any) -> Value:
            return self(op, *inputs, **attrs)[0]

        return call

    def __call__(self, op: str, *inputs: Operand, outputs: int = 1, captures: int = 0, **attrs: Any) -> Sequence[Value]:
        """The outputs of a new node; attributes that are None are left out."""
        given = tuple(self.value(operand) for operand in inputs)
        kept = Attrs({name: attr for name, attr in attrs.items() if attr is not None})
        return self.graph.add(op, given, kept, outputs, captures=captures).outputs

    def value(self, operand: Operand) -> Value | None:
        """An operand as a value."""
        if operand is None or isinstance(operand, Value):
            return operand
        array = np.asarray(operand)
        is_typed = isinstance(operand, np.ndarray | np.generic)
        dtype = None if is_typed else {"f": np.float32, "i": np.int64}.get(array.dtype.kind)
        return self.graph.add_constant(Constant.of(array if dtype is None else array.astype(dtype)))

    def attr(self, name: str) -> Any:
        """An attribute, or its default; None where it has none."""
        default = self.schema.attributes.get(name)
        return self.attrs.get(name, None if isinstance(default, type) else default)

    def given(self, *names: str) -> dict[str, Any]:
        """Those of some attributes that the call states."""
        return {name: self.attrs[name] for name in names if name in self.attrs}

    def dtype(self, value: Value) -> str:
        """The dtype of an input; ValueError where it is not known."""
        if (dtype := self.facts[value].dtype) is None:
            raise ValueError("the dtype of an input is not known")
        return dtype

    def rank(self, value: Value) -> int:
        """The rank of an input; ValueError where it is not known."""
        if (rank := self.facts[value].rank) is None:
            raise ValueError("the rank of an input is not known")
        return rank

    def turned(self, value: Value, rank: int, back: bool = False) -> Value:
        """Images with the channels, which stand last, in front; or back again."""
        perm = (0, *range(2, rank), 1) if back else (0, rank - 1, *range(1, rank - 1))
        return self.Transpose(value, perm=perm)


Definition: TypeAlias = "Callable[..., Value | Sequence[Value | None]]"
"""The outputs of a body, from it and its inputs in order (None for those left out). Raises ValueError where the op is
not said for such inputs."""


@dataclass(frozen=True)
class Composite:
    """A composite op; the schema is None where ONNX has one."""

    schema: Contrib | None
    define: Definition
