"""Padding and cropping: Pad and CenterCropPad."""

from __future__ import annotations

from graphopt.lowering.loops.compute import Tensor, compute
from graphopt.lowering.loops.expressions import Const, Expr, apply, conjunction, const, maximum, minimum, select
from graphopt.lowering.operators.elements import label, scalar, text
from graphopt.lowering.operators.indices import axes_of, clamped, element, length
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation


def pad(op: Operation) -> Tensor:
    """Elements before and behind each axis: one value, or elements of the input. A negative pad takes elements away."""
    x, shape, mode = op.input(0), op.shape(), text(op, "mode") or "constant"
    if length(op, 1) > 2 * x.rank:
        raise NotLowered(f"{length(op, 1)} pads of {x.rank} axes")
    axes = axes_of(op, 3, x.rank) or tuple(range(length(op, 1) // 2))
    fill = _fill(op) if mode == "constant" else None
    before = {axis: element(op, 1, k) for k, axis in enumerate(axes)}
    behind = {axis: element(op, 1, k + len(axes)) for k, axis in enumerate(axes)}

    def padded(*at: Expr) -> Expr:
        where, inside = list(at), []
        for axis in axes:
            front, back = before[axis], behind[axis]
            if fill is not None:
                where[axis] = at[axis] - front
                inside += _inside(where[axis], x.shape[axis], front, back)
            else:
                cut = maximum(-front, 0)
                kept = x.shape[axis] - cut - maximum(-back, 0)
                where[axis] = _reached(mode, at[axis] - maximum(front, 0), kept, front, back) + cut
        return x[tuple(where)] if fill is None else select(conjunction(*inside), x[tuple(where)], fill)

    return compute(shape, padded, x.dtype, label(op))


def _fill(op: Operation) -> Expr:
    if not op.has(2):
        return const(0, op.input(0).dtype)
    constant, value = scalar(op, 2), op.input(2)
    return constant if constant is not None else value[(0,) * value.rank]


def _inside(index: Expr, size: Expr, front: Expr, back: Expr) -> list[Expr]:
    """The conditions under which an index lies in the input, those left out that hold anyway."""
    conditions = []
    if not (isinstance(front, Const) and front.value <= 0):
        conditions.append(index >= 0)
    if not (isinstance(back, Const) and back.value <= 0):
        conditions.append(index < size)
    return conditions


def _reached(mode: str, index: Expr, size: Expr, front: Expr, back: Expr) -> Expr:
    """The element of ``size`` for an index that may lie before or behind them."""
    if front == Const(0) and back == Const(0):
        return index
    if mode == "edge":
        return clamped(index, size)
    if mode == "wrap":
        return index % size
    if mode != "reflect":
        raise NotLowered(f"Pad has no mode {mode}")
    turn = (size - 1) * 2
    sizes = [n.value for n in (size, front, back) if isinstance(n, Const)]
    once = len(sizes) == 3 and max(sizes[1:]) < sizes[0]
    away = apply("abs", index) if once else index % maximum(turn, 1)
    return minimum(away, turn - away)


def center_crop_pad(op: Operation) -> Tensor:
    """The middle of each axis, or the whole axis in the middle of zeros."""
    x, shape = op.input(0), op.shape()

    def element(*at: Expr) -> Expr:
        where, inside = list(at), []
        for axis, (size, whole) in enumerate(zip(x.shape, shape, strict=True)):
            if size == whole:
                continue
            shift = select(whole > size, -((whole - size) // 2), (size - whole) // 2)
            where[axis] = at[axis] + shift
            if not (isinstance(size, Const) and isinstance(whole, Const) and whole.value < size.value):
                inside += [where[axis] >= 0, where[axis] < size]
        return select(conjunction(*inside), x[tuple(where)], const(0, x.dtype))

    return compute(shape, element, x.dtype, label(op))


TABLE: LoweringTable = {"CenterCropPad": center_crop_pad, "Pad": pad}
