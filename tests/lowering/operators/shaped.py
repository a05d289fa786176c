"""Operations of which the output's shape is given, while the elements that it comes from are not known."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from graphopt.ir import ops
from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import Array, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs
from graphopt.ir.types import TensorType
from graphopt.lowering.operators.node import tensor_of
from graphopt.lowering.operators.operation import Operation, Sizes
from graphopt.lowering.operators.table import describe
from tests.lowering.operators.lowered import interpreted


def numbers(*shape: int, dtype: str = "float32") -> Array:
    """Numbers that are all different."""
    return np.arange(1, int(np.prod(shape)) + 1).reshape(shape).astype(dtype)


def ints(*values: int) -> Array:
    """A vector of integers."""
    return np.array(values, np.int64)


def operation(
    op: str, arrays: Sequence[Array], *shapes: tuple[int, ...], known: Collection[int] = (), **attrs: Any
) -> Operation:
    """The op on inputs of which only types are known, but for those in ``known``; outputs are of the first's dtype."""
    facts = tuple(
        fact_of(Constant.of(a)) if k in known else Fact(TensorType(a.dtype.name, a.shape)) for k, a in enumerate(arrays)
    )
    size = Sizes()
    tensors = tuple(tensor_of(f, size, f"x{k}") for k, f in enumerate(facts))
    outputs = tuple(Fact(TensorType(arrays[0].dtype.name, shape)) for shape in shapes)
    return Operation(op, Attrs(attrs), tensors, facts, outputs, ops.LATEST, size)


def run(op: str, arrays: Sequence[Array], shape: tuple[int, ...], known: Collection[int] = (), **attrs: Any) -> Array:
    """What the operation makes of the arrays."""
    made = operation(op, arrays, shape, known=known, **attrs)
    return interpreted(made, describe(made), arrays)[0]
