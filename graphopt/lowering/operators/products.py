"""Matrix multiply: MatMul and Gemm, with batches and broadcasting."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.ir.infer_products import operand_axes
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.compute import Tensor, compute
from graphopt.lowering.loops.expressions import Const, Expr, cast, const, equal
from graphopt.lowering.operators.elements import (
    broadcast,
    fitting,
    inputs_fitting,
    integer,
    label,
    number,
    required,
    spread,
    wide,
    widened,
)
from graphopt.lowering.operators.operation import LoweringTable, Operation

THIN = 4
"""Columns of which fewer fill no vector."""
VECTOR = 8
"""Summands of which fewer fill no vector."""


def product(
    a: Tensor, b: Tensor, shape: Sequence[Expr], dtype: str, name: str, transpose: tuple[bool, bool] = (False, False),
    origin: Expr | None = None,
) -> Tensor:  # fmt: skip
    """``a @ b`` as numpy has it, the last two axes of either exchanged where asked; in the wide form of the dtype. The
    elements of ``a`` are counted from ``origin``."""
    rows, columns = a.rank > 1, b.rank > 1
    depth = a.shape[-2 if transpose[0] and rows else -1]
    inner, stack = wide(dtype), shape[: len(shape) - rows - columns]

    def element(*at: Expr) -> Expr | t.ReduceStage:
        if depth == Const(0):
            return const(0, inner)
        k = t.reduce_axis(depth)
        i, j = (at[-2 if columns else -1] if rows else None), (at[-1] if columns else None)
        batch = at[: len(stack)]
        x = _element(a, stack, batch, (k.var, i) if transpose[0] else (i, k.var))
        y = _element(b, stack, batch, (j, k.var) if transpose[1] else (k.var, j))
        x, y = cast(widened(x), inner), cast(widened(y), inner)
        return t.sum((x if origin is None else x - origin) * y, k)

    rest = b.shape[-1 if transpose[1] or not columns else -2]
    fits = required(equal(depth, rest), f"{name}: the matrices have different sizes where they meet")
    for stacked in (a, b):
        fits += fitting(name, stacked.shape[:-2], stack)
    return compute(shape, element, name=name, requirements=fits)


def _element(
    tensor: Tensor, stack: Sequence[Expr], batch: Sequence[Expr], last: tuple[Expr | None, Expr | None]
) -> Expr:
    """The element of matrices that broadcast to a stack; a missing index is that of an axis that a vector lacks."""
    indices = tuple(i for i in last if i is not None)
    if tensor.rank == 1:
        return tensor[indices]
    skipped = len(batch) - (tensor.rank - 2)
    return tensor[(*spread(tensor.shape[:-2], stack[skipped:], batch[skipped:]), *indices)]


def _in_order(x: Tensor, axes: Sequence[int]) -> Tensor:
    """The tensor with its axes in another order."""
    return compute([x.shape[k] for k in axes], lambda *at: x[tuple(at[axes.index(k)] for k in range(x.rank))], x.dtype)


def _along_sums(op: Operation, b: Tensor, is_transposed: bool) -> tuple[Tensor, bool]:
    """The second operand, and whether it is transposed. Too few columns to fill a vector are turned, so that vectors
    lie along what is summed up."""
    if is_transposed or not op.is_for_host or b.rank != 2:
        return b, is_transposed
    summands, columns = b.shape
    is_thin = isinstance(columns, Const) and 1 < columns.value < THIN
    if not is_thin or (isinstance(summands, Const) and summands.value < VECTOR):
        return b, is_transposed
    turned = compute(b.shape[::-1], lambda j, k: b[k, j], b.dtype, "turned", is_stored=True)
    return turned, True


def _matmul(op: Operation) -> Tensor:
    b, is_transposed = _along_sums(op, op.input(1), False)
    total = product(op.input(0), b, op.shape(), op.dtype(), label(op), (False, is_transposed))
    return rounded(total, op.dtype())


def rounded(total: Tensor, dtype: str) -> Tensor:
    """The tensor in a dtype of its own, where it was computed in a wider one."""
    return total if total.dtype == dtype else compute(total.shape, lambda *at: cast(total[at], dtype), name=total.name)


def _gemm(op: Operation) -> Tensor:
    dtype = op.dtype()
    b, is_transposed = _along_sums(op, op.input(1), bool(integer(op, "transB")))
    total = product(op.input(0), b, op.shape(), dtype, label(op), (bool(integer(op, "transA")), is_transposed))
    alpha, beta, kind = number(op, "alpha"), number(op, "beta"), total.dtype

    def element(*at: Expr) -> Expr:
        value: Expr = total[at]
        if alpha != 1:
            value = value * const(alpha, kind)
        if op.has(2):
            added = cast(widened(broadcast(op.input(2), op.shape(), at)), kind)
            value = value + (added if beta == 1 else added * const(beta, kind))
        return cast(value, dtype)

    return (
        total
        if alpha == 1 and not op.has(2) and kind == dtype
        else compute(total.shape, element, name="gemm", requirements=inputs_fitting(op, (2,), total.shape))
    )


def _fused_matmul(op: Operation) -> Tensor:
    a, b, dtype = op.input(0), op.input(1), op.dtype()
    a, b = (
        _in_order(x, operand_axes(x.rank, False, True)) if integer(op, name) else x
        for x, name in ((a, "transBatchA"), (b, "transBatchB"))
    )
    b, is_transposed = _along_sums(op, b, bool(integer(op, "transB")))
    transpose = bool(integer(op, "transA")), is_transposed
    total, alpha = product(a, b, op.shape(), dtype, "matmul", transpose), number(op, "alpha")
    if alpha == 1:
        return rounded(total, dtype)
    scale = const(alpha, total.dtype)
    return compute(total.shape, lambda *at: cast(total[at] * scale, dtype), name="scaled")


TABLE: LoweringTable = {"MatMul": _matmul, "Gemm": _gemm, "com.microsoft::FusedMatMul": _fused_matmul}
