"""Gather and scatter: elements read at positions that an index tensor holds, and a copy of a tensor with updates
written one after another at such positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from graphopt.lowering.loops.compute import Requirement, Tensor, compute, fresh, loop, procedure, require
from graphopt.lowering.loops.expressions import (
    INDEX,
    Const,
    Expr,
    cast,
    conjunction,
    maximum,
    minimum,
    select,
)
from graphopt.lowering.loops.nest import Buffer, Check, For, Stmt, Store, seq
from graphopt.lowering.operators.elements import integer, label, required, text, widened
from graphopt.lowering.operators.indices import axis_of, clamped, counted, digits, matching, positions, within
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


IN_PLACE = "in_place"
"""The attribute of an op that writes updates into the memory of its first input, which nobody else reads."""
IndexedBody = Callable[[tuple[Expr, ...]], Stmt]
_COMBINED: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": maximum,
    "min": minimum,
}


def over(shape: Sequence[Expr], body: IndexedBody) -> Stmt:
    """Serial loops over all indices of a shape, the last axis innermost."""
    if not shape:
        return body(())
    return loop(shape[0], lambda i: over(shape[1:], lambda rest: body((i, *rest))))


def vectors_over(op: Operation, shape: Sequence[Expr], body: IndexedBody) -> Stmt:
    """One loop in vectors over all indices of a shape, in row-major order; serial loops where there are no vectors."""
    if not shape or not op.is_for_host:
        return over(shape, body)
    place, total = fresh(), reduce(lambda a, b: a * b, shape)
    return For(place, total, body(tuple(digits(place, shape))), "vectorized")


def scatter_elements(op: Operation) -> Sequence[Tensor]:
    """Each update goes where it stands, but along one axis where its index says."""
    x, indices, updates, axis = op.input(0), op.input(1), op.input(2), axis_of(op)
    write = _written(op)
    pairs = zip(indices.shape, x.shape, strict=True)
    inside = conjunction(*(a <= b for k, (a, b) in enumerate(pairs) if k != axis))
    fits = required(inside, f"{op.op}: there are more indices than elements along another axis")
    fits += matching(op, indices.shape, updates.shape)

    def build(out: Buffer) -> Stmt:
        def update(at: tuple[Expr, ...]) -> Stmt:
            index = cast(indices[at], INDEX)
            target = (*at[:axis], counted(index, x.shape[axis]), *at[axis + 1 :])
            return seq(Check(within(index, x.shape[axis]), _message(op)), write(out, target, updates[at]))

        return seq(*_checks(fits), *_copied(op, x, out), over(indices.shape, update))

    return procedure([(label(op), x.shape, x.dtype)], (*_copies(op, x), indices, updates), build)


def scatter_nd(op: Operation) -> Sequence[Tensor]:
    """Each slice of updates goes where its row of indices says."""
    x, indices, updates = op.input(0), op.input(1), op.input(2)
    depth, write = row_length(op, indices), _written(op)
    fits = matching(op, updates.shape, (*indices.shape[:-1], *x.shape[depth:]))

    def build(out: Buffer) -> Stmt:
        def update(row: tuple[Expr, ...]) -> Stmt:
            row_indices = [cast(indices[(*row, k)], INDEX) for k in range(depth)]
            inside = conjunction(*(within(i, size) for i, size in zip(row_indices, x.shape, strict=False)))
            target = tuple(counted(i, size) for i, size in zip(row_indices, x.shape, strict=False))
            put = vectors_over(op, x.shape[depth:], lambda rest: write(out, (*target, *rest), updates[(*row, *rest)]))
            return put if inside == Const(True, "bool") else seq(Check(inside, _message(op)), put)

        return seq(*_checks(fits), *_copied(op, x, out), over(indices.shape[:-1], update))

    return procedure([(label(op), x.shape, x.dtype)], (*_copies(op, x), indices, updates), build)


def _checks(requirements: Sequence[Requirement]) -> list[Stmt]:
    """Requirements as statements, at each point of their axes."""
    checks: list[Stmt] = []
    for r in requirements:
        stmt: Stmt = Check(r.condition, r.message)
        for axis in reversed(r.axes):
            stmt = For(axis.var, axis.extent, stmt)
        checks.append(stmt)
    return checks


def _copies(op: Operation, x: Tensor) -> tuple[Tensor, ...]:
    """What has to be copied before updates are written: nothing where the result lies where it lay."""
    return () if op.attr(IN_PLACE) else (x,)


def _copied(op: Operation, x: Tensor, out: Buffer) -> list[Stmt]:
    return [vectors_over(op, x.shape, lambda at: Store(out, at, x[at]))] if _copies(op, x) else []


def _written(op: Operation) -> Callable[[Buffer, tuple[Expr, ...], Expr], Stmt]:
    """The store of an update."""
    reduction = text(op, "reduction") or "none"
    if reduction == "none":
        return Store
    if reduction not in _COMBINED or op.dtype() == "bool":
        raise NotLowered(f"{op.op} does not reduce {op.dtype()} by {reduction}")
    combine = _COMBINED[reduction]

    def write(out: Buffer, target: tuple[Expr, ...], value: Expr) -> Stmt:
        return Store(out, target, cast(combine(widened(out[target]), widened(value)), out.dtype))

    return write


def _message(op: Operation) -> str:
    return f"{op.op}: an index is out of range"


def tensor_scatter(op: Operation) -> Tensor:
    """A stretch of an axis taken from an update, from where the batch's index says on, and the rest as it was."""
    x, update, axis = op.input(0), op.input(1), axis_of(op)
    size, count = x.shape[axis], update.shape[axis]
    circular = text(op, "mode") == "circular"
    starts = op.input(2) if op.has(2) else None

    def element(*at: Expr) -> Expr:
        start = Const(0) if starts is None else cast(starts[at[0]], INDEX)
        offset = at[axis] - start
        if circular:
            offset = offset % size
        inside = (offset < count) if circular else conjunction(offset >= 0, offset < count)
        return select(inside, update[(*at[:axis], offset, *at[axis + 1 :])], x[at])

    def fits(batch: Expr) -> Expr:
        assert starts is not None
        start = cast(starts[batch], INDEX)
        return start >= 0 if circular else conjunction(start >= 0, start + count <= size)

    alike = [k for k in range(x.rank) if k != axis]
    checked = matching(op, [update.shape[k] for k in alike], [x.shape[k] for k in alike])
    if starts is None:
        checked += required(count <= size, _message(op))
    else:
        checked += [*matching(op, starts.shape, x.shape[:1]), require(starts.shape, fits, _message(op))]
    if _copies(op, x):
        return compute(op.shape(), element, x.dtype, label(op), checked)

    def build(out: Buffer) -> Stmt:
        def written(at: tuple[Expr, ...]) -> Stmt:
            row = at[axis] if starts is None else at[axis] + cast(starts[at[0]], INDEX)
            row = row % size if circular else row
            return Store(out, (*at[:axis], row, *at[axis + 1 :]), update[at])

        return seq(*_checks(checked), over(update.shape, written))

    (result,) = procedure([(label(op), op.shape(), x.dtype)], [update, *([] if starts is None else [starts])], build)
    return result


TABLE: LoweringTable = {
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "TensorScatter": tensor_scatter,
}
