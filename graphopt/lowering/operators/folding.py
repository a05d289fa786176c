"""Col2Im: overlapping blocks added up to an image."""

from __future__ import annotations

from graphopt.lowering.loops import compute as tensors
from graphopt.lowering.loops.compute import ReduceStage, Tensor, compute, reduce_axis
from graphopt.lowering.loops.expressions import Const, Expr, cast, conjunction, const, equal, select
from graphopt.lowering.operators.elements import label, required, wide
from graphopt.lowering.operators.indices import linear
from graphopt.lowering.operators.operation import LoweringTable, Operation


def _numbers(op: Operation, name: str, otherwise: list[int]) -> list[int]:
    """An attribute that lists numbers, of which the default goes by the block and not by the input."""
    value = op.attrs.get(name)
    return [int(n) for n in value if isinstance(n, int)] if isinstance(value, tuple) else otherwise


def col2im(op: Operation) -> Tensor:
    """An image as the sum of the blocks that columns hold."""
    x, shape = op.input(0), op.shape()
    block = [int(n) for n in op.known(2).reshape(-1)]
    rank, inner = len(block), wide(x.dtype)
    strides, dilations = _numbers(op, "strides", [1] * rank), _numbers(op, "dilations", [1] * rank)
    pads = _numbers(op, "pads", [0] * (2 * rank))
    axes = [reduce_axis(n) for n in block]
    counts = [
        (size + (pads[k] + pads[k + rank] - dilations[k] * (block[k] - 1) - 1)) // strides[k] + 1
        for k, size in enumerate(shape[2:])
    ]

    def summed(n: Expr, c: Expr, *at: Expr) -> ReduceStage:
        inside, places = [], []
        for k, (i, axis) in enumerate(zip(at, axes, strict=True)):
            moved = i + pads[k] - axis.var * dilations[k]
            places.append(moved // strides[k])
            inside += [equal(moved % strides[k], 0), moved >= 0, places[-1] < counts[k]]
        row = linear((c, *(a.var for a in axes)), (Const(1), *map(Const, block)))
        value = cast(x[n, row, linear(places, counts)], inner)
        return tensors.sum(select(conjunction(*inside), value, const(0, inner)), *axes)

    many = linear([count - 1 for count in counts], counts) + 1
    checked = required(equal(many, x.shape[2]), "Col2Im: there are not as many columns as blocks")
    sums = compute(shape, summed, None, label(op), checked)
    return sums if inner == x.dtype else compute(shape, lambda *at: cast(sums[at], x.dtype), x.dtype, label(op))


TABLE: LoweringTable = {"Col2Im": col2im}
