"""Convolution and transposed convolution in one to three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphopt.kernels.host import lanes as lanes_of
from graphopt.lowering.index.arithmetic import simplify
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.compute import IterVar, Tensor, compute
from graphopt.lowering.loops.expressions import Const, Expr, cast, conjunction, const, equal, maximum, select
from graphopt.lowering.operators.elements import integer, label, wide, widened
from graphopt.lowering.operators.indices import matching
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation
from graphopt.lowering.operators.products import rounded
from graphopt.lowering.operators.windows import (
    Windows,
    channels_at_once,
    image,
    integers,
    over_channels,
    padded,
    windows,
)

WASTE = 1.25
"""What phases of a transposed convolution may multiply more than there is before a product of matrices is faster,"""
DEEP = 8
"""and how many channels make a product worth what is written and read in between."""
LONG = 11
"""Elements of a window in a row from which on its padding is written once, in a depthwise convolution: to ask at each
element whether it is there takes longer (``tests/bench/convolutions.py g64``; lines gain as much, from 15 on)."""


def _conv(op: Operation) -> Tensor:
    x, w = op.input(0), op.input(1)
    total = convolution(op, x, w)
    return with_bias(op, total, 2)


def convolution(op: Operation, x: Tensor, w: Tensor) -> Tensor:
    """The sum over each window, without a bias, in the wide form of the dtype."""
    shape, group, inner = op.shape(), integer(op, "group"), wide(x.dtype)
    if Const(0) in w.shape[1:]:
        raise NotLowered(f"{op.op} over an empty window")
    where = windows(op, x.shape[2:], w.shape[2:], shape[2:])
    is_depthwise = {x.shape[1], *w.shape[:1], shape[1]} == {Const(group)} and w.shape[1] == Const(1)
    if is_depthwise and channels_at_once(op, x, where):
        return _depthwise(op, x, w, where)
    row = where.kernel[-1]
    is_long = is_depthwise and op.is_for_host and isinstance(row, Const) and row.value >= LONG
    x, where = image(x, where, shape[2:], const(0, x.dtype), is_stored=is_long)
    share = w.shape[0] // group

    def element(n: Expr, o: Expr, *at: Expr) -> t.ReduceStage:
        depth = t.reduce_axis(w.shape[1])
        steps = [t.reduce_axis(k) for k in where.kernel]
        offset = [s.var for s in steps]
        channel = depth.var if group == 1 else o // share * w.shape[1] + depth.var
        value = x[(n, channel, *where.at(at, offset))]
        weight = w[(o, depth.var, *offset)]
        return t.sum(cast(widened(value), inner) * cast(widened(weight), inner), depth, *steps)

    fits = matching(op, (x.shape[1], w.shape[0]), (w.shape[1] * group, shape[1]))
    return compute(shape, element, name=label(op), requirements=fits)


def _depthwise(op: Operation, x: Tensor, w: Tensor, where: Windows) -> Tensor:
    """A convolution of each channel with a window of its own."""
    inner = wide(x.dtype)
    weights = compute((w.shape[0], *w.shape[2:]), lambda c, *at: w[(c, 0, *at)], w.dtype, "weights")

    def total(value: Expr, weights: Sequence[Expr], steps: Sequence[IterVar]) -> t.ReduceStage:
        return t.sum(cast(widened(value), inner) * cast(widened(weights[0]), inner), *steps)

    return over_channels(op, x, where, const(0, x.dtype), total, [weights])


def with_bias(op: Operation, total: Tensor, k: int) -> Tensor:
    """The convolution with its bias, the op's k-th input, in the op's own dtype."""
    dtype = op.dtype()
    if not op.has(k):
        return rounded(total, dtype)
    bias = op.input(k)

    def element(n: Expr, o: Expr, *at: Expr) -> Expr:
        return cast(total[(n, o, *at)] + cast(widened(bias[o]), total.dtype), dtype)

    return compute(total.shape, element, name="biased", requirements=matching(op, bias.shape, total.shape[1:2]))


def _conv_transpose(op: Operation) -> Tensor:
    w, shape = op.input(1), op.shape()
    where = _transposed(op, op.input(0).shape[2:], w.shape[2:], shape[2:])
    plain = all(isinstance(k, Const) for k in where.kernel)
    if plain and all(s == 1 or d == 1 for s, d in zip(where.strides, where.dilations, strict=True)):
        return with_bias(op, _by_phases(op, where), 2)
    return _scattered(op, where)


def _by_phases(op: Operation, where: Windows) -> Tensor:
    """A transposed convolution by phases: the results whose places leave the same rest when they are divided by the
    strides, each of which has the same share of the window.

    A place, counted from before what is cut off, is ``stride * i + p``. Element ``p + stride * t`` of the window meets
    the element ``i - t`` of the image there. A phase is a convolution; or, in columns, all elements of the window meet
    all of the image first, which is a product of matrices, and phases sum up what lies in the same place.
    """
    shape, strides = op.shape(), where.strides
    phases = _Phases(op, where)
    depth = op.input(0).shape[1]
    is_deep = integer(op, "group") == 1 and isinstance(depth, Const) and int(depth.value) >= DEEP
    parts = phases.of_columns() if is_deep and phases.are_wasteful() else phases.of_convolutions()

    def result(n: Expr, o: Expr, *at: Expr) -> Expr:
        places = [i + b for i, b in zip(at, where.before, strict=True)]
        which = [i % s for i, s in zip(places, strides, strict=True)]
        return parts[(n, o, *which, *(i // s for i, s in zip(places, strides, strict=True)))]

    return compute(shape, result, name=label(op))


class _Phases:
    """The phases of a transposed convolution: a tensor of batch, channels, phases and places."""

    def __init__(self, op: Operation, where: Windows) -> None:
        self.op, self.where, self.inner = op, where, wide(op.dtype())
        self.x, self.w, self.rank, shape = op.input(0), op.input(1), len(where.kernel), op.shape()
        kernel, strides = [int(k.value) for k in where.kernel if isinstance(k, Const)], where.strides
        self.kernel, self.taps = kernel, [-(-k // s) for k, s in zip(kernel, strides, strict=True)]
        self.steps = [d if s == 1 else 1 for s, d in zip(strides, where.dilations, strict=True)]
        sides = zip(shape[2:], where.before, strides, strict=True)
        self.counts = [simplify((n + b + (s - 1)) // s, {}) for n, b, s in sides]
        self.shape = (*shape[:2], *map(Const, strides), *self.counts)
        self.fits = matching(op, self.x.shape[1:2], self.w.shape[:1])

    def are_wasteful(self) -> bool:
        """Whether convolutions multiply much more than there is: where some phases have fewer elements of the window,
        and where rows do not fill vectors."""
        row, lanes = self.counts[-1], lanes_of(self.op.dtype())
        if not isinstance(row, Const):
            return True
        turns = prod(n * s for n, s in zip(self.taps, self.where.strides, strict=True))
        return turns * -(-int(row.value) // lanes) * lanes > WASTE * prod(self.kernel) * int(row.value)

    def of_convolutions(self) -> Tensor:
        """Each phase as a convolution."""
        x, w, group = self.x, self.w, integer(self.op, "group")
        depth, share = x.shape[1] // group, w.shape[1]
        before: list[Expr] = [Const((n - 1) * d) for n, d in zip(self.taps, self.steps, strict=True)]
        after = [maximum(simplify(n - size, {}), 0) for n, size in zip(self.counts, x.shape[2:], strict=True)]
        whole = padded(x, const(0, x.dtype), before, after)

        def element(n: Expr, o: Expr, *at: Expr) -> t.ReduceStage:
            channel, turns = t.reduce_axis(depth), [t.reduce_axis(k) for k in self.taps]
            c = channel.var if group == 1 else o // share * depth + channel.var
            met, taken, there = self._met(at, turns)
            weight: Expr = w[(c, o if group == 1 else o % share, *taken)]
            weight = select(conjunction(*there), weight, const(0, w.dtype)) if there else weight
            value = whole[(n, c, *(i + b for i, b in zip(met, before, strict=True)))]
            return t.sum(self._product(value, weight), channel, *turns)

        return compute(self.shape, element, name="phases", requirements=self.fits)

    def of_columns(self) -> Tensor:
        """Each phase as sums of products that are there already."""
        x, w = self.x, self.w

        def column(n: Expr, o: Expr, *at: Expr) -> t.ReduceStage:
            channel = t.reduce_axis(x.shape[1])
            value, weight = x[(n, channel.var, *at[self.rank :])], w[(channel.var, o, *at[: self.rank])]
            return t.sum(self._product(value, weight), channel)

        shape = (*self.shape[:2], *map(Const, self.kernel), *x.shape[2:])
        columns = compute(shape, column, name="columns", requirements=self.fits)

        def element(n: Expr, o: Expr, *at: Expr) -> t.ReduceStage:
            turns = [t.reduce_axis(k) for k in self.taps]
            met, taken, there = self._met(at, turns)
            there += [c for i, size in zip(met, x.shape[2:], strict=True) for c in (i >= 0, i < size)]
            value = columns[(n, o, *taken, *met)]
            return t.sum(select(conjunction(*there), value, const(0, self.inner)), *turns)

        return compute(self.shape, element, name="phases")

    def _met(self, at: Sequence[Expr], turns: Sequence[IterVar]) -> tuple[list[Expr], list[Expr], list[Expr]]:
        """For phases and places, the element of the image that is met in a turn, that of the window, and where there is
        one: not all phases have as many."""
        strides = self.where.strides
        met = [i - k.var * d for i, k, d in zip(at[self.rank :], turns, self.steps, strict=True)]
        taken = [p + k.var * s for p, k, s in zip(at[: self.rank], turns, strides, strict=True)]
        return met, taken, [k < n for k, n, s in zip(taken, self.kernel, strides, strict=True) if n % s]

    def _product(self, value: Expr, weight: Expr) -> Expr:
        return cast(widened(value), self.inner) * cast(widened(weight), self.inner)


def _scattered(op: Operation, where: Windows) -> Tensor:
    """A transposed convolution whose window is spread out and moved in steps: at each place all of it is tried."""
    x, w, shape, group = op.input(0), op.input(1), op.shape(), integer(op, "group")
    rank, inner = x.rank - 2, wide(op.dtype())
    depth, share = x.shape[1] // group, w.shape[1]

    def element(n: Expr, o: Expr, *at: Expr) -> t.ReduceStage:
        channel = t.reduce_axis(depth)
        steps = [t.reduce_axis(k) for k in where.kernel]
        inside, places = [], []
        for axis in range(rank):
            reached = at[axis] + where.before[axis] - steps[axis].var * where.dilations[axis]
            stride = where.strides[axis]
            inside += [reached >= 0, reached < x.shape[2 + axis] * stride]
            inside += [equal(reached % stride, 0)] if stride > 1 else []
            places.append(reached // stride)
        c = channel.var if group == 1 else o // share * depth + channel.var
        value = cast(widened(x[(n, c, *places)]), inner)
        weight = cast(widened(w[(c, o if group == 1 else o % share, *(s.var for s in steps))]), inner)
        return t.sum(select(conjunction(*inside), value * weight, const(0, inner)), channel, *steps)

    fits = matching(op, x.shape[1:2], w.shape[:1])
    return with_bias(op, compute(shape, element, name=label(op), requirements=fits), 2)


def _transposed(op: Operation, size: Sequence[Expr], kernel: Sequence[Expr], output: Sequence[Expr]) -> Windows:
    """The windows of a transposed convolution: pads are what is cut off."""
    rank = len(size)
    strides, dilations = integers(op, "strides", [1] * rank), integers(op, "dilations", [1] * rank)
    more, auto = integers(op, "output_padding", [0] * rank), op.attr("auto_pad")
    pads = integers(op, "pads", [0] * (2 * rank))
    before: list[Expr] = [Const(p) for p in pads[:rank]]
    if auto in ("SAME_UPPER", "SAME_LOWER") or op.attrs.get("output_shape"):
        grown = [
            (n - 1) * s + p + (k - 1) * d + 1
            for n, k, s, d, p in zip(size, kernel, strides, dilations, more, strict=True)
        ]
        cut = [whole - out for whole, out in zip(grown, output, strict=True)]
        before = [total // 2 if auto == "SAME_UPPER" else total - total // 2 for total in cut]
    none = (Const(0),) * rank
    return Windows(tuple(kernel), strides, dilations, tuple(before), none)


TABLE: LoweringTable = {"Conv": _conv, "ConvTranspose": _conv_transpose}
