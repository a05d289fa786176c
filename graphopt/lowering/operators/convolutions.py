"""Convolution and transposed convolution in one to three dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.lowering.index.arithmetic import simplify
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.compute import Tensor, compute
from graphopt.lowering.loops.expressions import Const, Expr, cast, conjunction, const, equal, maximum, select
from graphopt.lowering.operators.elements import integer, label, wide, widened
from graphopt.lowering.operators.indices import matching
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation
from graphopt.lowering.operators.products import rounded
from graphopt.lowering.operators.windows import Windows, image, integers, padded, windows


def _conv(op: Operation) -> Tensor:
    x, w = op.input(0), op.input(1)
    total = convolution(op, x, w)
    return with_bias(op, total, 2)


def convolution(op: Operation, x: Tensor, w: Tensor) -> Tensor:
    """The sum over each window, without a bias, in the wide form of the dtype."""
    shape, group, inner = op.shape(), integer(op, "group"), wide(x.dtype)
    x, where = image(x, windows(op, x.shape[2:], w.shape[2:], shape[2:]), shape[2:], const(0, x.dtype))
    share = w.shape[0] // group

    def element(n: Expr, o: Expr, *at: Expr) -> t.ReduceStage:
        depth = t.reduce_axis(w.shape[1])
        steps = [t.reduce_axis(k) for k in where.kernel]
        offset = [s.var for s in steps]
        channel = depth.var if group == 1 else o // share * w.shape[1] + depth.var
        value = x[(n, channel, *where.at(at, offset))]
        weight = w[(o, depth.var, *offset)]
        return t.sum(cast(widened(value), inner) * cast(widened(weight), inner), depth, *steps)

    if Const(0) in w.shape[1:]:
        raise NotLowered(f"{op.op} over an empty window")
    fits = matching(op, (x.shape[1], w.shape[0]), (w.shape[1] * group, shape[1]))
    return compute(shape, element, name=label(op), requirements=fits)


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
    """A transposed convolution as several convolutions: of the results whose places leave the same rest when they are
    divided by the strides, each has the same share of the window.

    A place, counted from before what is cut off, is ``stride * i + p``. Element ``p + stride * t`` of the window meets
    the element ``i - t`` of the image there.
    """
    x, w, shape, group = op.input(0), op.input(1), op.shape(), integer(op, "group")
    rank, inner, strides = x.rank - 2, wide(op.dtype()), where.strides
    depth, share = x.shape[1] // group, w.shape[1]
    taps = [-(-int(k.value) // s) for k, s in zip(where.kernel, strides, strict=True) if isinstance(k, Const)]
    steps = [d if s == 1 else 1 for s, d in zip(strides, where.dilations, strict=True)]
    counts = [simplify((n + b + (s - 1)) // s, {}) for n, b, s in zip(shape[2:], where.before, strides, strict=True)]
    before: list[Expr] = [Const((n - 1) * d) for n, d in zip(taps, steps, strict=True)]
    after = [maximum(simplify(n - size, {}), 0) for n, size in zip(counts, x.shape[2:], strict=True)]
    whole = padded(x, const(0, x.dtype), before, after)

    def element(n: Expr, o: Expr, *at: Expr) -> t.ReduceStage:
        phases, places = at[:rank], at[rank:]
        channel, turns = t.reduce_axis(depth), [t.reduce_axis(k) for k in taps]
        c = channel.var if group == 1 else o // share * depth + channel.var
        met = [i - k.var * d + b for i, k, d, b in zip(places, turns, steps, before, strict=True)]
        kernel_indices = [p + k.var * s for p, k, s in zip(phases, turns, strides, strict=True)]
        weight: Expr = w[(c, o if group == 1 else o % share, *kernel_indices)]
        beyond = [k < n for k, n, s in zip(kernel_indices, where.kernel, strides, strict=True) if n % s != Const(0)]
        if beyond:
            weight = select(conjunction(*beyond), weight, const(0, w.dtype))
        return t.sum(cast(widened(whole[(n, c, *met)]), inner) * cast(widened(weight), inner), channel, *turns)

    spread = (*shape[:2], *(Const(s) for s in strides), *counts)
    parts = compute(spread, element, name="phases", requirements=matching(op, x.shape[1:2], w.shape[:1]))

    def result(n: Expr, o: Expr, *at: Expr) -> Expr:
        places = [i + b for i, b in zip(at, where.before, strict=True)]
        phases = [i % s for i, s in zip(places, strides, strict=True)]
        return parts[(n, o, *phases, *(i // s for i, s in zip(places, strides, strict=True)))]

    return compute(shape, result, name=label(op))


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
