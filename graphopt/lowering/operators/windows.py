"""Sliding windows: their positions in an image, and the padded image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from graphopt.frozen import dataclass
from graphopt.kernels.host import lanes as lanes_of
from graphopt.lowering.loops.compute import IterVar, ReduceStage, Tensor, compute, reduce_axis
from graphopt.lowering.loops.expressions import Const, Expr, conjunction, maximum, select
from graphopt.lowering.operators.elements import label
from graphopt.lowering.operators.operation import Operation

Reduction: TypeAlias = Callable[[Expr, Sequence[Expr], Sequence[IterVar]], ReduceStage]
"""What is made of a window, by an element of it, the same element of each tensor of windows, and the steps."""

TURNED: Final = ("float32", "int32")
"""Dtypes of which tiles are turned over in registers in less time than rows of them take that fill no vector."""


@dataclass(frozen=True)
class Windows:
    """For each axis of an image: the window's extent, its step, the distance of its elements, and the pads."""

    kernel: tuple[Expr, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[Expr, ...]
    after: tuple[Expr, ...]
    reaches_beyond: bool = False
    """Whether the last windows may reach beyond the image and its padding (``ceil_mode``)."""

    def at(self, position: Sequence[Expr], offset: Sequence[Expr]) -> tuple[Expr, ...]:
        """Image coordinates of a window's element, counted from the image's start: beyond it lies padding."""
        return tuple(
            p * s + k * d - b
            for p, k, s, d, b in zip(position, offset, self.strides, self.dilations, self.before, strict=True)
        )

    @property
    def is_padded(self) -> bool:
        """Whether windows hold more than the image."""
        return self.reaches_beyond or any(p != Const(0) for p in (*self.before, *self.after))


def integers(op: Operation, name: str, default: Sequence[int]) -> tuple[int, ...]:
    """An attribute that is a list of integers."""
    value = op.attr(name)
    return tuple(int(v) for v in value) if isinstance(value, tuple) and value else tuple(default)  # type: ignore[arg-type]


def windows(op: Operation, image: Sequence[Expr], kernel: Sequence[Expr], output: Sequence[Expr]) -> Windows:
    """The windows of a convolution or pool over an image, ``auto_pad`` worked out."""
    rank = len(image)
    strides, dilations = integers(op, "strides", [1] * rank), integers(op, "dilations", [1] * rank)
    auto = op.attr("auto_pad")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        before, after = [], []
        for size, k, s, d, out in zip(image, kernel, strides, dilations, output, strict=True):
            total = maximum((out - 1) * s + (k - 1) * d + 1 - size, 0)
            less, more = total // 2, total - total // 2
            before.append(less if auto == "SAME_UPPER" else more)
            after.append(more if auto == "SAME_UPPER" else less)
    else:
        pads = [0] * (2 * rank) if auto == "VALID" else integers(op, "pads", [0] * (2 * rank))
        before, after = [Const(p) for p in pads[:rank]], [Const(p) for p in pads[rank:]]
    return Windows(tuple(kernel), strides, dilations, tuple(before), tuple(after), bool(op.attr("ceil_mode")))


def padded(
    x: Tensor, fill: Expr, before: Sequence[Expr], after: Sequence[Expr], first: int = 2, is_stored: bool = False
) -> Tensor:
    """The tensor with so many elements more at both ends of its axes from ``first`` on."""
    pads = zip(x.shape[first : first + len(before)], before, after, strict=True)
    grown = [b + size + a for size, b, a in pads]
    shape = (*x.shape[:first], *grown, *x.shape[first + len(before) :])

    def element(*at: Expr) -> Expr:
        where = list(at)
        inside = []
        for k, (b, a) in enumerate(zip(before, after, strict=True), first):
            where[k] = at[k] - b
            inside += [where[k] >= 0] if b != Const(0) else []
            inside += [where[k] < x.shape[k]] if a != Const(0) else []
        return select(conjunction(*inside), x[tuple(where)], fill)

    return compute(shape, element, x.dtype, "padded", is_stored=is_stored)


def image(
    x: Tensor, w: Windows, output: Sequence[Expr], fill: Expr, first: int = 2, *, is_stored: bool = False
) -> tuple[Tensor, Windows]:
    """The image with its padding, as far as windows reach beyond it, and the windows without any."""
    if not w.is_padded:
        return x, w
    after = []
    for size, b, k, s, d, out in zip(x.shape[first:], w.before, w.kernel, w.strides, w.dilations, output, strict=False):
        reach = (out - 1) * s + (k - 1) * d + 1 - size - b  # windows may end before the padding does, or beyond it
        after.append(maximum(reach, 0))
    none = (Const(0),) * len(w.kernel)
    return padded(x, fill, w.before, after, first, is_stored), Windows(w.kernel, w.strides, w.dilations, none, none)


# -- windows over each channel


def over_channels(
    op: Operation, x: Tensor, w: Windows, fill: Expr, reduction: Reduction, weights: Sequence[Tensor] = ()
) -> Tensor:
    """Each channel's windows reduced, with the window that each of the ``weights``, ``[C, *kernel]``, has for it.

    Where rows of results are too short to fill a vector, a vector is of as many channels: the image is laid out in
    blocks of them, and so are the weights, and the results are laid out as they are to be.
    """
    shape, name = op.shape(), label(op)
    lanes = channels_at_once(op, x, w)
    if lanes:
        x, weights = _in_blocks(x, lanes), [_in_blocks(t, lanes, 0) for t in weights]
    x, where = image(x, w, shape[2:], fill)
    rank = len(where.kernel)

    def element(n: Expr, c: Expr, *at: Expr) -> ReduceStage:
        steps = [reduce_axis(k) for k in where.kernel]
        offset, lane = [s.var for s in steps], at[rank:]
        value = x[(n, c, *where.at(at[:rank], offset), *lane)]
        return reduction(value, [t[(c, *offset, *lane)] for t in weights], steps)

    if not lanes:
        return compute(shape, element, name=name)
    reduced = compute((shape[0], x.shape[1], *shape[2:], Const(lanes)), element, name=name)
    return compute(shape, lambda n, c, *at: reduced[(n, c // lanes, *at, c % lanes)], reduced.dtype, "plain")


def channels_at_once(op: Operation, x: Tensor, w: Windows) -> int:
    """How many channels make a vector of results; 0 where a vector is of neighbours in a row."""
    row, channels, lanes = op.shape()[-1], x.shape[1], lanes_of(x.dtype)
    if not (op.is_for_host and x.rank == 4 and x.dtype in TURNED):
        return 0
    if not (isinstance(row, Const) and isinstance(channels, Const) and all(isinstance(k, Const) for k in w.kernel)):
        return 0
    fills = channels.value > 0 and channels.value % lanes == 0
    return lanes if fills and 0 < row.value < lanes else 0


def _in_blocks(x: Tensor, lanes: int, axis: int = 1) -> Tensor:
    """The tensor with so many channels, which lie along an axis, as its last axis."""
    shape = (*x.shape[:axis], x.shape[axis] // lanes, *x.shape[axis + 1 :], Const(lanes))

    def element(*at: Expr) -> Expr:
        return x[(*at[:axis], at[axis] * lanes + at[-1], *at[axis + 1 : -1])]

    return compute(shape, element, x.dtype, "blocks", is_stored=True)
