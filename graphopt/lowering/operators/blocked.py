"""Blocked layouts: ``[N, C/size, H, W, size]`` images for vectors; missing channels are zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.compute import Tensor, compute, lowest
from graphopt.lowering.loops.expressions import Const, Expr, conjunction, const, select
from graphopt.lowering.operators.elements import integer, text
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation
from graphopt.lowering.operators.pooling import steps_inside
from graphopt.lowering.operators.windows import Windows, image, integers, windows


def _block(op: Operation) -> Tensor:
    x, size = op.input(0), integer(op, "size")

    def element(n: Expr, block: Expr, *at: Expr) -> Expr:
        channel = block * size + at[-1]
        return _filled(x[(n, channel, *at[:-1])], [(channel, x.shape[1], size)])

    return compute(op.shape(), element, x.dtype, "blocked")


def _filled(value: Expr, channels: Sequence[tuple[Expr, Expr, int]]) -> Expr:
    """The element, or zero where one of the channels (index, how many there are, size of blocks) does not exist."""
    inside = [
        index < extent
        for index, extent, size in channels
        if not (isinstance(extent, Const) and extent.value % size == 0)
    ]
    return select(conjunction(*inside), value, const(0, value.dtype))


def _unblock(op: Operation) -> Tensor:
    x = op.input(0)
    size = x.shape[-1]

    def element(n: Expr, channel: Expr, *at: Expr) -> Expr:
        return x[(n, channel // size, *at, channel % size)]

    return compute(op.shape(), element, x.dtype, "plain")


def _block_weights(op: Operation) -> Tensor:
    w, size, form = op.input(0), integer(op, "size"), text(op, "form")

    def blocked(block: Expr, inner: Expr, *at: Expr) -> Expr:
        o, i = block * size + at[-1], inner * size + at[-2]
        return _filled(w[(o, i, *at[:-2])], [(o, w.shape[0], size), (i, w.shape[1], size)])

    def plain(block: Expr, i: Expr, *at: Expr) -> Expr:
        o = block * size + at[-1]
        return _filled(w[(o, i, *at[:-1])], [(o, w.shape[0], size)])

    def depthwise(block: Expr, *at: Expr) -> Expr:
        o = block * size + at[-1]
        return _filled(w[(o, Const(0), *at[:-1])], [(o, w.shape[0], size)])

    forms: dict[str, Callable[..., Expr]] = {"blocked": blocked, "plain": plain, "depthwise": depthwise}
    return compute(op.shape(), forms[form], w.dtype, "packed")


def _conv(op: Operation) -> Tensor:
    """A convolution whose result is blocked; the form says what its image and weights are."""
    x, w, shape, form, group = op.input(0), op.input(1), op.shape(), text(op, "form"), integer(op, "group")
    size, rank = shape[-1], len(shape) - 3
    plain = form == "plain"
    kernel = {"blocked": w.shape[2:-2], "plain": w.shape[2:-1], "depthwise": w.shape[1:-1]}[form]
    geometry = windows(op, x.shape[2 : 2 + rank], kernel, shape[2:-1])
    x, where = image(x, geometry, shape[2:-1], const(0, x.dtype))

    def element(n: Expr, block: Expr, *at: Expr) -> t.ReduceStage:
        lane, steps = at[-1], [t.reduce_axis(k) for k in kernel]
        offset = [s.var for s in steps]
        pixel = where.at(at[:-1], offset)
        if form == "depthwise":
            return t.sum(x[(n, block, *pixel, lane)] * w[(block, *offset, lane)], *steps)
        depth = t.reduce_axis(w.shape[1])
        if plain:
            return t.sum(x[(n, depth.var, *pixel)] * w[(block, depth.var, *offset, lane)], depth, *steps)
        inner = t.reduce_axis(size)
        first = depth.var if group == 1 else block // (shape[1] // group) * w.shape[1] + depth.var
        value = x[(n, first, *pixel, inner.var)]
        return t.sum(value * w[(block, depth.var, *offset, inner.var, lane)], depth, *steps, inner)

    total = compute(shape, element, name="conv")
    if not op.has(2):
        return total
    bias = op.input(2)
    return compute(shape, lambda *at: total[at] + bias[at[1], at[-1]], name="biased")


def _conv_transpose(op: Operation) -> Tensor:
    """Each point of the image makes a window of its own, each place in a window being an axis until the end."""
    x, w, shape = op.input(0), op.input(1), op.shape()
    kernel = w.shape[2:-2]
    parts = [n for pair in zip(x.shape[2:-1], kernel, strict=True) for n in pair]

    def element(n: Expr, block: Expr, *at: Expr) -> t.ReduceStage:
        depth, inner = t.reduce_axis(w.shape[1]), t.reduce_axis(w.shape[-2])
        value = x[(n, depth.var, *at[:-1:2], inner.var)]
        return t.sum(value * w[(block, depth.var, *at[1:-1:2], inner.var, at[-1])], depth, inner)

    total = compute((*shape[:2], *parts, shape[-1]), element, name="windows")

    def result(n: Expr, block: Expr, *at: Expr) -> Expr:
        places = [e for i, k in zip(at[:-1], kernel, strict=True) for e in (i // k, i % k)]
        value = total[(n, block, *places, at[-1])]
        return value + op.input(2)[block, at[-1]] if op.has(2) else value

    return compute(shape, result, name="spread")


def _windows(op: Operation, x: Tensor) -> Windows:
    kernel = tuple(Const(k) for k in integers(op, "kernel_shape", ()))
    if len(kernel) != x.rank - 3:
        raise NotLowered(f"{op.op} lacks its kernel_shape")
    return windows(op, x.shape[2:-1], kernel, op.shape()[2:-1])


def _max_pool(op: Operation) -> Tensor:
    x = op.input(0)
    x, where = image(x, _windows(op, x), op.shape()[2:-1], lowest(x.dtype))

    def element(n: Expr, block: Expr, *at: Expr) -> t.ReduceStage:
        steps = [t.reduce_axis(k) for k in where.kernel]
        return t.max(x[(n, block, *where.at(at[:-1], [s.var for s in steps]), at[-1])], *steps)

    return compute(op.shape(), element, name="maxpool")


def _average_pool(op: Operation) -> Tensor:
    x, shape = op.input(0), op.shape()
    where, sizes, counts_pads = _windows(op, x), x.shape[2:-1], bool(integer(op, "count_include_pad"))
    source, plain = image(x, where, shape[2:-1], const(0, x.dtype))

    def total(n: Expr, block: Expr, *at: Expr) -> t.ReduceStage:
        steps = [t.reduce_axis(k) for k in plain.kernel]
        return t.sum(source[(n, block, *plain.at(at[:-1], [s.var for s in steps]), at[-1])], *steps)

    sums = compute(shape, total, name="averagepool")
    return compute(
        shape, lambda *at: sums[at] / steps_inside(where, at[2:-1], sizes, counts_pads, x.dtype), name="mean"
    )


TABLE: LoweringTable = {
    "graphopt::Block": _block,
    "graphopt::Unblock": _unblock,
    "graphopt::BlockWeights": _block_weights,
    "graphopt::BlockedConv": _conv,
    "graphopt::BlockedConvTranspose": _conv_transpose,
    "graphopt::BlockedMaxPool": _max_pool,
    "graphopt::BlockedAveragePool": _average_pool,
}
