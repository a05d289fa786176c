"""Deformable convolution: windows read the image at learned offsets, between its elements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.compute import Tensor, compute
from graphopt.lowering.loops.expressions import INDEX, Const, Expr, apply, cast, conjunction, const, select
from graphopt.lowering.operators.convolutions import with_bias
from graphopt.lowering.operators.elements import integer, label, required, wide, widened
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation
from graphopt.lowering.operators.windows import integers


def deform_conv(op: Operation) -> Tensor:
    """Elements of the image are sampled once for every window, weighed by the mask, and then convolved."""
    x, w, shape = op.input(0), op.input(1), op.shape()
    if x.rank != 4:
        raise NotLowered(f"DeformConv of an image of {x.rank - 2} dimensions")
    inner, kernel, channels = wide(x.dtype), w.shape[2:], x.shape[1]
    sampled = _sampled(op, x, kernel, shape[2:])
    group, depth = integer(op, "group"), w.shape[1]
    share = w.shape[0] // group

    def element(n: Expr, o: Expr, i: Expr, j: Expr) -> t.ReduceStage:
        c, *steps = (t.reduce_axis(s) for s in (depth, *kernel))
        channel = c.var if group == 1 else o // share * depth + c.var
        p, q = (s.var for s in steps)
        return t.sum(sampled[n, channel, p, q, i, j] * cast(widened(w[o, c.var, p, q]), inner), c, *steps)

    fits = required(apply("eq", channels, depth * group), "DeformConv: the weights do not fit the channels")
    return with_bias(op, compute(shape, element, name=label(op), requirements=fits), 3)


def _sampled(op: Operation, x: Tensor, kernel: Sequence[Expr], size: Sequence[Expr]) -> Tensor:
    """The elements that each window reads, [image, channel, row and column in the window, row and column of it]."""
    offset, mask, inner = op.input(2), op.input(4) if op.has(4) else None, wide(x.dtype)
    strides, dilations = integers(op, "strides", (1, 1)), integers(op, "dilations", (1, 1))
    pads, (height, width) = integers(op, "pads", (0,) * 4), kernel
    share = x.shape[1] // integer(op, "offset_group")

    def places(n: Expr, g: Expr, p: Expr, q: Expr, i: Expr, j: Expr) -> list[Expr]:
        tap = (g * height + p) * width + q
        coordinates = []
        for axis, (step, at) in enumerate(((p, i), (q, j))):
            fixed = at * strides[axis] - pads[axis] + step * dilations[axis]
            coordinates.append(cast(fixed, inner) + widened(offset[n, tap * 2 + axis, i, j]))
        return coordinates

    taps = (x.shape[0], Const(integer(op, "offset_group")), *kernel, *size)
    rows, columns = (
        compute(taps, lambda *at, axis=axis: places(*at)[axis], inner, name)
        for axis, name in enumerate(("rows", "columns"))
    )

    def element(n: Expr, c: Expr, p: Expr, q: Expr, i: Expr, j: Expr) -> Expr:
        g = c // share
        neighbours = []
        for table, extent in ((rows, x.shape[2]), (columns, x.shape[3])):
            coordinate = table[n, g, p, q, i, j]
            below = apply("floor", coordinate)
            part, first = coordinate - below, cast(below, INDEX)
            neighbours.append([(first, 1.0 - part, extent), (first + 1, part, extent)])
        terms = [_pixel(x, (n, c), (y[0], z[0])) * (y[1] * z[1]) for y in neighbours[0] for z in neighbours[1]]
        value = reduce(lambda a, b: a + b, terms)
        if mask is not None:
            value = value * cast(widened(mask[n, (g * height + p) * width + q, i, j]), inner)
        return value

    return compute((*x.shape[:2], *kernel, *size), element, inner, "sampled")


def _pixel(x: Tensor, image: tuple[Expr, Expr], at: tuple[Expr, Expr]) -> Expr:
    """An element of an image; zero outside of it."""
    inside = conjunction(*(e for i, size in zip(at, x.shape[2:], strict=True) for e in (i >= 0, i < size)))
    return select(inside, widened(x[(*image, *at)]), const(0, wide(x.dtype)))


TABLE: LoweringTable = {"DeformConv": deform_conv}
