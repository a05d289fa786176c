"""Generators: tensors made from sizes and a few numbers (shapes, ranges, diagonals, one-hot rows)."""

from __future__ import annotations

from functools import reduce

from graphopt.ir.constants import Constant
from graphopt.lowering.loops.compute import Tensor, compute
from graphopt.lowering.loops.expressions import INDEX, Const, Expr, cast, const, equal, select
from graphopt.lowering.operators.elements import integer, label, only, wide, widened
from graphopt.lowering.operators.indices import axis_of, counted
from graphopt.lowering.operators.operation import LoweringTable, Operation


def constant_of_shape(op: Operation) -> Tensor:
    """One value everywhere."""
    value = op.attr("value")
    element = value.array.reshape(-1)[0].item() if isinstance(value, Constant) else 0.0
    return compute(op.shape(), lambda *at: const(element, op.dtype()), op.dtype(), label(op))


def shape(op: Operation) -> Tensor:
    """The sizes of some axes."""
    rank = op.input(0).rank
    start, end = op.attr("start"), op.attr("end")
    sizes = op.input(0).shape[slice(*(v if isinstance(v, int) else None for v in (start, end)))] if rank else ()

    def size(k: Expr) -> Expr:
        return reduce(lambda rest, j: select(equal(k, j), sizes[j], rest), range(len(sizes) - 1), sizes[-1])

    return compute((len(sizes),), lambda k: size(k) if sizes else Const(0), INDEX, label(op))


def size(op: Operation) -> Tensor:
    """The number of elements."""
    total: Expr = Const(1)
    for extent in op.input(0).shape:
        total = total * extent
    return compute((), lambda: total, INDEX, label(op))


def range_(op: Operation) -> Tensor:
    """Numbers at equal distances."""
    dtype = op.dtype()
    start, step = (widened(only(op, k)) for k in (0, 2))

    def number(i: Expr) -> Expr:
        steps = cast(i, wide(dtype))
        return cast(start + (steps if step == const(1, step.dtype) else steps * step), dtype)

    return compute(op.shape(), number, dtype, label(op))


def eye_like(op: Operation) -> Tensor:
    """Ones on one diagonal."""
    offset, dtype = integer(op, "k"), op.dtype()
    return compute(
        op.shape(),
        lambda i, j: select(equal(i + offset, j), const(1, dtype), const(0, dtype)),
        dtype,
        label(op),
    )


def one_hot(op: Operation) -> Tensor:
    """One value where the position along an axis is the index, and another elsewhere; nowhere for an index that is out
    of range."""
    indices, values = op.input(0), op.input(2)
    axis = axis_of(op, "axis", indices.rank + 1)
    depth = op.shape()[axis]

    def element(*at: Expr) -> Expr:
        index = counted(cast(indices[(*at[:axis], *at[axis + 1 :])], INDEX), depth)
        return select(equal(index, at[axis]), values[1], values[0])

    return compute(op.shape(), element, op.dtype(), label(op))


TABLE: LoweringTable = {
    "ConstantOfShape": constant_of_shape,
    "EyeLike": eye_like,
    "OneHot": one_hot,
    "Range": range_,
    "Shape": shape,
    "Size": size,
}
