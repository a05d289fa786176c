"""Gather: elements read at positions that an index tensor holds."""

from __future__ import annotations

from graphopt.lowering.loops.compute import Requirement, Tensor, compute, require
from graphopt.lowering.loops.expressions import INDEX, Const, Expr, cast, conjunction
from graphopt.lowering.operators.elements import integer, label, required
from graphopt.lowering.operators.indices import axis_of, clamped, counted, digits, linear, matching, positions, within
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation


def gather(op: Operation) -> Tensor:
    """Whole slices of an axis, one for each index."""
    x, indices, axis = op.input(0), op.input(1), axis_of(op)
    position, requirements = positions(op, 1, x.shape[axis])

    def where(*at: Expr) -> Expr:
        behind = axis + indices.rank
        return x[(*at[:axis], position(*at[axis:behind]), *at[behind:])]

    return compute(op.shape(), where, x.dtype, label(op), requirements)


def gather_elements(op: Operation) -> Tensor:
    """One element for each index, which replaces one of the indices that it stands at."""
    x, indices, axis = op.input(0), op.input(1), axis_of(op)
    position, requirements = positions(op, 1, x.shape[axis])
    pairs = zip(indices.shape, x.shape, strict=True)
    fits = conjunction(*(a <= b for k, (a, b) in enumerate(pairs) if k != axis))
    requirements += required(fits, "GatherElements: there are more indices than elements along another axis")

    def where(*at: Expr) -> Expr:
        return x[(*at[:axis], position(*at), *at[axis + 1 :])]

    return compute(op.shape(), where, x.dtype, label(op), requirements)


def gather_nd(op: Operation) -> Tensor:
    """One slice for each row of indices."""
    x, indices, batch = op.input(0), op.input(1), integer(op, "batch_dims")
    depth = row_length(op, indices)
    sizes = x.shape[batch : batch + depth]

    def where(*at: Expr) -> Expr:
        row, rest = at[: indices.rank - 1], at[indices.rank - 1 :]
        indices_of_row = [clamped(counted(cast(indices[(*row, k)], INDEX), size), size) for k, size in enumerate(sizes)]
        return x[(*at[:batch], *indices_of_row, *rest)]

    checked = [*matching(op, indices.shape[:batch], x.shape[:batch]), rows_within(op, indices, sizes)]
    return compute(op.shape(), where, x.dtype, label(op), checked)


def extract_features(op: Operation) -> Tensor:
    """The columns that indices say, one behind another."""
    x, indices = op.input(0), op.input(1)
    position, requirements = positions(op, 1, x.shape[-1])

    def column(*at: Expr) -> Expr:
        where = position(*digits(at[-1], indices.shape))
        return x[(*at[:-1], where)] if x.rank > 1 else x[where]

    shape = (*(x.shape[:-1] or (Const(1),)), linear([size - 1 for size in indices.shape], indices.shape) + 1)
    return compute(shape, column, x.dtype, label(op), requirements)


def row_length(op: Operation, indices: Tensor) -> int:
    """The number of indices in a row of an index tensor. NotLowered where it is not known."""
    last = indices.shape[-1]
    if not isinstance(last, Const):
        raise NotLowered(f"the last size of the indices of {op.op} is not known")
    return int(last.value)


def rows_within(op: Operation, indices: Tensor, sizes: tuple[Expr, ...]) -> Requirement:
    """The requirements that each index of each row lies within its axis."""

    def holds(*row: Expr) -> Expr:
        return conjunction(*(within(cast(indices[(*row, k)], INDEX), size) for k, size in enumerate(sizes)))

    return require(indices.shape[:-1], holds, f"{op.op}: an index is out of range")


TABLE: LoweringTable = {
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "ai.onnx.ml::ArrayFeatureExtractor": extract_features,
}
