"""MaxUnpool: pooled elements at their positions in the image, zeros elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.lowering.index.arithmetic import prove
from graphopt.lowering.loops.compute import Tensor, procedure
from graphopt.lowering.loops.expressions import INDEX, Const, Expr, cast, conjunction, const
from graphopt.lowering.loops.nest import Buffer, Check, Stmt, Store, seq
from graphopt.lowering.operators.elements import label
from graphopt.lowering.operators.indexing import over, vectors_over
from graphopt.lowering.operators.indices import digits, matching
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation
from graphopt.lowering.operators.windows import integers


def max_unpool(op: Operation) -> Sequence[Tensor]:
    """Indices count the elements of all that was pooled; an output that is larger has zeros behind it."""
    x, places, shape = op.input(0), op.input(1), op.shape()
    rank = x.rank - 2
    kernel = integers(op, "kernel_shape", ())
    if len(kernel) != rank:
        raise NotLowered(f"{op.op} lacks its kernel_shape")
    strides, pads = integers(op, "strides", (1,) * rank), integers(op, "pads", (0,) * 2 * rank)
    before, after = pads[:rank], pads[rank:]
    pooled = [
        (size - 1) * s + (k - b - a)
        for size, s, k, b, a in zip(x.shape[2:], strides, kernel, before, after, strict=True)
    ]
    whole = (*x.shape[:2], *pooled)
    count: Expr = Const(1)
    for size in whole:
        count = count * size

    def build(out: Buffer) -> Stmt:
        def put(at: tuple[Expr, ...]) -> Stmt:
            position = cast(places[at], INDEX)
            target = tuple(digits(position, whole))
            inside = conjunction(
                position >= 0,
                position < count,
                *(i < n for i, n, m in zip(target, shape, whole, strict=True) if not prove(m <= n, {})),
            )
            return seq(Check(inside, f"{op.op}: an index is out of range"), Store(out, target, x[at]))

        zeros = vectors_over(op, shape, lambda at: Store(out, at, const(0, x.dtype)))
        fits = [Check(r.condition, r.message) for r in matching(op, places.shape, x.shape)]
        return seq(*fits, zeros, over(x.shape, put))

    return procedure([(label(op), shape, x.dtype)], (x, places), build)


TABLE: LoweringTable = {"MaxUnpool": max_unpool}
