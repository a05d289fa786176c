"""Operations of which the output's shape is given, while the elements that it comes from are not known."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from graphopt.ir import evaluate, ops
from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import Array, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs
from graphopt.ir.tolerance import error
from graphopt.ir.types import TensorType
from graphopt.lowering.operators.node import tensor_of
from graphopt.lowering.operators.operation import Operation, SizeVars
from graphopt.lowering.operators.table import describe
from tests.lowering.operators.lowered import interpreted


def numbers(*shape: int, dtype: str = "float32") -> Array:
    """Numbers that are all different."""
    return np.arange(1, int(np.prod(shape)) + 1).reshape(shape).astype(dtype)


def ints(*values: int) -> Array:
    """A vector of integers."""
    return np.array(values, np.int64)


def operation(
    op: str,
    arrays: Sequence[Array | None],
    *shapes: tuple[int, ...],
    known: Collection[int] = (),
    dtype: str | None = None,
    **attrs: Any,
) -> Operation:
    """The op on inputs of which only types are known, but for those in ``known``; outputs are of a dtype, or the first
    input's."""
    facts = tuple(
        None if a is None else fact_of(Constant.of(a)) if k in known else Fact(TensorType(a.dtype.name, a.shape))
        for k, a in enumerate(arrays)
    )
    size = SizeVars()
    tensors = tuple(None if f is None else tensor_of(f, size, f"x{k}") for k, f in enumerate(facts))
    first = facts[0]
    assert first is not None
    outputs = tuple(Fact(TensorType(dtype or first.dtype or "", shape)) for shape in shapes)
    return Operation(op, Attrs(attrs), tensors, facts, outputs, ops.LATEST, size)


def run(
    op: str, arrays: Sequence[Array | None], shape: tuple[int, ...], known: Collection[int] = (), **rest: Any
) -> Array:
    """What the operation makes of the arrays."""
    made = operation(op, arrays, shape, known=known, **rest)
    return interpreted(made, describe(made), arrays)[0]


def agree_in_shape(op: str, arrays: Sequence[Array | None], known: Collection[int] = (), **attrs: Any) -> None:
    """Asserts that the description computes what the reference does, given the shape that this has."""
    want = np.asarray(evaluate.compute(op, Attrs(attrs), arrays, 1)[0])
    got = run(op, arrays, want.shape, known, dtype=want.dtype.name, **attrs)
    assert error(want, got) <= 1.0, f"{op}: {got} is not {want}"
