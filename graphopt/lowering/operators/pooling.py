"""Pooling: maximum, mean or norm over windows and over whole images."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.compute import Tensor, compute, compute_several, lowest
from graphopt.lowering.loops.expressions import (
    INDEX,
    Const,
    Expr,
    apply,
    cast,
    conjunction,
    const,
    maximum,
    minimum,
    select,
)
from graphopt.lowering.operators.elements import integer, label, number, wide, widened
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation
from graphopt.lowering.operators.products import rounded
from graphopt.lowering.operators.windows import Windows, integers, over_channels, windows


def _windows(op: Operation, x: Tensor) -> Windows:
    kernel = tuple(Const(k) for k in integers(op, "kernel_shape", ()))
    if len(kernel) != x.rank - 2:
        raise NotLowered(f"{op.op} lacks its kernel_shape")
    return windows(op, x.shape[2:], kernel, op.shape()[2:])


def _max_pool(op: Operation) -> Tensor | Sequence[Tensor]:
    x = op.input(0)
    geometry = _windows(op, x)
    if len(op.outputs) > 1:
        return _max_pool_with_places(op, x, geometry)
    return over_channels(op, x, geometry, lowest(x.dtype), lambda value, _, steps: t.max(value, *steps))


def _channels_last_max_pool(op: Operation) -> Tensor:
    x, kernel = op.input(0), tuple(Const(k) for k in integers(op, "kernel_shape", ()))
    sizes, shape = x.shape[1:-1], op.shape()
    if len(kernel) != len(sizes):
        raise NotLowered(f"{op.op} lacks its kernel_shape")
    where = windows(op, sizes, kernel, shape[1:-1])

    def element(n: Expr, *rest: Expr) -> t.ReduceStage:
        *at, c = rest
        steps = [t.reduce_axis(k) for k in where.kernel]
        position = where.at(tuple(at), [s.var for s in steps])
        inside = conjunction(*(e for p, s in zip(position, sizes, strict=True) for e in (p >= 0, p < s)))
        held = [minimum(maximum(p, 0), s - 1) for p, s in zip(position, sizes, strict=True)]
        return t.max(select(inside, x[(n, *held, c)], lowest(x.dtype)), *steps)

    return compute(shape, element, name=label(op))


def _max_pool_with_places(op: Operation, x: Tensor, where: Windows) -> tuple[Tensor, ...]:
    """The largest of each window and its place in the whole input, the first of equals."""
    sizes = x.shape[2:]
    columns = bool(integer(op, "storage_order"))

    def element(n: Expr, c: Expr, *at: Expr) -> t.ReduceStage:
        steps = [t.reduce_axis(k) for k in where.kernel]
        position = where.at(at, [s.var for s in steps])
        inside = conjunction(*(e for p, s in zip(position, sizes, strict=True) for e in (p >= 0, p < s)))
        held = [minimum(maximum(p, 0), s - 1) for p, s in zip(position, sizes, strict=True)]
        value = select(inside, x[(n, c, *held)], lowest(x.dtype))
        number: Expr = Const(0)
        for p, s in zip(position[::-1] if columns else position, sizes[::-1] if columns else sizes, strict=True):
            number = number * s + p
        whole: Expr = n * x.shape[1] + c
        for s in sizes:
            whole = whole * s
        return t.reduction(
            steps,
            [value, select(inside, whole + number, const(-1, INDEX))],
            [lowest(x.dtype), const(-1, INDEX)],
            lambda best, new: [maximum(best[0], new[0]), select(_wins(best, new), new[1], best[1])],
        )

    return compute_several(op.shape(), element, ("maxpool", "places"))


def _wins(best: Sequence[Expr], new: Sequence[Expr]) -> Expr:
    """Whether a new element takes the place of the best so far: it is larger, or the first."""
    return apply("or", new[0] > best[0], conjunction(apply("lt", best[1], 0), apply("ge", new[1], 0)))


def _average_pool(op: Operation) -> Tensor:
    x, shape, dtype = op.input(0), op.shape(), op.dtype()
    where, inner = _windows(op, x), wide(dtype)
    counts_pads, sizes = bool(integer(op, "count_include_pad")), x.shape[2:]

    def total(value: Expr, _: Sequence[Expr], steps: Sequence[t.IterVar]) -> t.ReduceStage:
        return t.sum(cast(widened(value), inner), *steps)

    sums = over_channels(op, x, where, const(0, x.dtype), total)

    def mean(n: Expr, c: Expr, *at: Expr) -> Expr:
        return cast(sums[(n, c, *at)] / steps_inside(where, at, sizes, counts_pads, inner), dtype)

    return compute(shape, mean, name="mean")


def steps_inside(w: Windows, at: Sequence[Expr], sizes: Sequence[Expr], counts_pads: bool, dtype: str) -> Expr:
    """The number of elements of a window that count: those inside the image, with its pads where these count."""
    counted: Expr = Const(1)
    for k, p, s, d, b, a, size in zip(w.kernel, at, w.strides, w.dilations, w.before, w.after, sizes, strict=True):
        first = p * s - b
        low, high = (-b, size + a) if counts_pads else (Const(0), size)
        skipped = maximum((low - first + (d - 1)) // d, 0)
        reached = minimum((high - first + (d - 1)) // d, k)
        counted = counted * maximum(reached - skipped, 0)
    return cast(counted, dtype)


def _lp_pool(op: Operation) -> Tensor:
    x, dtype, p = op.input(0), op.dtype(), number(op, "p")
    inner = wide(dtype)

    def total(value: Expr, _: Sequence[Expr], steps: Sequence[t.IterVar]) -> t.ReduceStage:
        return t.sum(_power(apply("abs", cast(widened(value), inner)), p), *steps)

    return _root(over_channels(op, x, _windows(op, x), const(0, x.dtype), total), p, dtype)


def _power(value: Expr, p: float) -> Expr:
    return value if p == 1 else value * value if p == 2 else apply("pow", value, const(p, value.dtype))


def _root(total: Tensor, p: float, dtype: str) -> Tensor:
    def element(*at: Expr) -> Expr:
        if p == 2:
            return cast(apply("sqrt", total[at]), dtype)
        return cast(apply("pow", total[at], const(1 / p, total.dtype)), dtype)

    return rounded(total, dtype) if p == 1 else compute(total.shape, element, name="root")


def _over_image(op: Operation, combine: str) -> Tensor:
    """One number for each channel."""
    x, dtype = op.input(0), op.dtype()
    inner, p = wide(dtype), number(op, "p") if combine == "lp" else 1.0
    if Const(0) in x.shape[2:]:
        raise NotLowered(f"{op.op} of an empty image")

    def element(n: Expr, c: Expr, *_: Expr) -> t.ReduceStage:
        steps = [t.reduce_axis(s) for s in x.shape[2:]]
        value: Expr = x[(n, c, *(s.var for s in steps))]
        if combine == "max":
            return t.max(value, *steps)
        value = cast(widened(value), inner)
        return t.sum(_power(apply("abs", value), p) if combine == "lp" else value, *steps)

    total = compute(op.shape(), element, name=label(op))
    if combine == "lp":
        return _root(total, p, dtype)
    if combine == "max":
        return total
    size: Expr = Const(1)
    for s in x.shape[2:]:
        size = size * s
    return compute(op.shape(), lambda *at: cast(total[at] / cast(size, inner), dtype), name="mean")


TABLE: LoweringTable = {
    "MaxPool": _max_pool,
    "com.microsoft::NhwcMaxPool": _channels_last_max_pool,
    "AveragePool": _average_pool,
    "LpPool": _lp_pool,
    "GlobalMaxPool": lambda op: _over_image(op, "max"),
    "GlobalAveragePool": lambda op: _over_image(op, "sum"),
    "GlobalLpPool": lambda op: _over_image(op, "lp"),
}
