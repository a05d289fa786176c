"""Data movement: transpose, reshape, slice, concatenation, tile; each output element is one of an input's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphopt.ir.types import is_anonymous
from graphopt.lowering.loops.compute import Requirement, Tensor, compute
from graphopt.lowering.loops.expressions import Const, Expr, conjunction, const, equal, maximum, minimum, select
from graphopt.lowering.operators.elements import broadcast, inputs_fitting, integer, label, required, text
from graphopt.lowering.operators.indices import (
    axes_of,
    axis_of,
    counted,
    element,
    equally_many,
    length,
    matching,
    relocated,
)
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation

TIMES = 4
"""How often rows of open size may be repeated with a loop for each time, without a division for each element."""


def _moved(
    op: Operation, where: Callable[..., Sequence[Expr]], requirements: Sequence[Requirement] = (), k: int = 0
) -> Tensor:
    """The output whose element at ``i, j, ...`` is the first input's at ``where(i, j, ...)``."""
    x = op.input(0)
    return compute(op.shape(k), lambda *at: x[tuple(where(*at))], x.dtype, label(op), requirements)


def reshape(op: Operation) -> Tensor:
    """The same elements in the same order."""
    source, target = op.input(0).shape, op.shape()
    checked = equally_many(source, target, f"{op.op}: the sizes asked for do not hold as many elements as there are")
    return _moved(op, lambda *at: relocated(source, target, at), checked)


def squeeze(op: Operation) -> Tensor:
    """Without axes of size 1."""
    x = op.input(0)
    axes = axes_of(op, 1, x.rank) if op.constant(1) is not None else None
    if axes is None or len(axes) + len(op.shape()) != x.rank:
        return reshape(op)
    one = conjunction(*(equal(x.shape[a], 1) for a in axes))

    def where(*at: Expr) -> list[Expr]:
        rest = iter(at)
        return [Const(0) if k in axes else next(rest) for k in range(x.rank)]

    return _moved(op, where, required(one, "Squeeze: an axis to be removed has not the size 1"))


def transpose(op: Operation) -> Tensor:
    """Axes in another order."""
    rank = op.input(0).rank
    perm = op.attr("perm") or tuple(reversed(range(rank)))
    assert isinstance(perm, tuple)
    return _moved(op, lambda *at: [at[perm.index(k)] for k in range(rank)])


def expand(op: Operation) -> Tensor:
    """Axes of size 1 repeated."""
    x, shape = op.input(0), op.shape()
    return compute(shape, lambda *at: broadcast(x, shape, at), x.dtype, "expand", inputs_fitting(op, (0,), shape))


def tile(op: Operation) -> Tensor:
    """Axes repeated as a whole."""
    x, shape = op.input(0), op.shape()

    def where(*at: Expr) -> list[Expr]:
        return [
            Const(0) if size == Const(1) else i if size == whole else i % size
            for i, size, whole in zip(at, x.shape, shape, strict=True)
        ]

    known = op.constant(1)
    times = int(known[-1]) if known is not None and known.size else 0
    if not shape or isinstance(shape[-1], Const) or not op.is_for_host or not 1 < times <= TIMES:
        return _moved(op, where)

    def behind(number: int, *at: Expr) -> Expr:
        """What stands there, or behind it, where that is the part of such a number of the last axis."""
        start = x.shape[-1] * number
        here = x[(*where(*at)[:-1], at[-1] - start)]
        return here if number == times - 1 else select(at[-1] < start + x.shape[-1], here, behind(number + 1, *at))

    return compute(shape, lambda *at: behind(0, *at), x.dtype, label(op))


def concat(op: Operation) -> Tensor:
    """Inputs one behind another along an axis."""
    axis = axis_of(op)
    parts: list[tuple[Tensor, Expr]] = []
    start: Expr = Const(0)
    for x in (op.input(k) for k in range(len(op.inputs))):
        if x.shape[axis] != Const(0):
            parts.append((x, start))
            start = start + x.shape[axis]

    def chosen(some: list[tuple[Tensor, Expr]], at: tuple[Expr, ...]) -> Expr:
        if len(some) == 1:
            x, start = some[0]
            return x[(*at[:axis], at[axis] - start, *at[axis + 1 :])]
        half = len(some) // 2
        return select(at[axis] < some[half][1], chosen(some[:half], at), chosen(some[half:], at))

    parts = parts or [(op.input(0), Const(0))]
    shape = op.shape()
    checked = [r for x, _ in parts for r in matching(op, _but(axis, x.shape), _but(axis, shape))]
    return compute(shape, lambda *at: chosen(parts, at), op.dtype(), "concat", checked)


def _but(axis: int, shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def split(op: Operation) -> list[Tensor]:
    """Parts along an axis."""
    axis = axis_of(op)
    whole = op.input(0).shape[axis]
    starts: list[Expr] = [Const(0)]
    for k in range(len(op.outputs)):
        starts.append(starts[k] + op.shape(k)[axis])
    fits = [] if starts[-1] == whole else required(starts[-1] <= whole, "Split: the parts are larger than the whole")

    def part(start: Expr) -> Callable[..., Sequence[Expr]]:
        return lambda *at: (*at[:axis], at[axis] + start, *at[axis + 1 :])

    return [_moved(op, part(starts[k]), fits, k) for k in range(len(op.outputs))]


def slice_(op: Operation) -> Tensor:
    """Every so many elements from a start on, along some axes."""
    x, shape = op.input(0), op.shape()
    count = length(op, 1)
    axes = axes_of(op, 3, x.rank) or tuple(range(count))
    first: dict[int, tuple[Expr, Expr]] = {}
    inside: list[Expr] = []
    for k, axis in enumerate(axes):
        step = element(op, 4, k) if op.has(4) else Const(1)
        start, end, size = element(op, 1, k), element(op, 2, k), x.shape[axis]
        first[axis] = (_start(start, step, size), step)
        if not all(isinstance(e, Const) for e in (start, end, step)) or _is_given(op, axis):
            near, far = first[axis][0], first[axis][0] + (shape[axis] - 1) * step
            fits = conjunction(near >= 0, near < size, far >= 0, far < size)
            inside.append(equal(shape[axis], 0) | fits)
    checked = required(conjunction(*inside), "Slice: more elements are asked for than there are")

    def where(*at: Expr) -> list[Expr]:
        return [i * first[k][1] + first[k][0] if k in first else i for k, i in enumerate(at)]

    return _moved(op, where, checked)


def _is_given(op: Operation, axis: int) -> bool:
    """Whether a size of the output is not computed from sizes of the inputs."""
    shape = op.outputs[0].shape
    return shape is None or is_anonymous(shape[axis])


def _start(start: Expr, step: Expr, size: Expr) -> Expr:
    """The first index of a slice that is not empty: counted from the front, and moved to where elements are."""
    index = counted(start, size)
    if not isinstance(step, Const):
        return select(step < 0, minimum(index, size - 1), maximum(index, 0))
    if step.value < 0:
        return minimum(index, size - 1) if not isinstance(start, Const) or start.value >= 0 else index
    return maximum(index, 0) if not isinstance(start, Const) or start.value < 0 else index


def depth_to_space(op: Operation) -> Tensor:
    """Blocks of channels spread out over rows and columns."""
    x, block, outer_first = op.input(0), integer(op, "blocksize"), text(op, "mode") != "CRD"
    channels = op.shape()[1]

    def where(n: Expr, c: Expr, h: Expr, w: Expr) -> list[Expr]:
        offset = (h % block) * block + w % block
        return [n, offset * channels + c if outer_first else c * (block * block) + offset, h // block, w // block]

    return _moved(op, where) if x.rank == 4 else _unsupported(op)


def space_to_depth(op: Operation) -> Tensor:
    """Rows and columns gathered into blocks of channels."""
    x, block, outer_first = op.input(0), integer(op, "blocksize"), text(op, "mode") != "CRD"
    channels = x.shape[1]

    def where(n: Expr, c: Expr, h: Expr, w: Expr) -> list[Expr]:
        channel, offset = (c % channels, c // channels) if outer_first else (c // (block * block), c % (block * block))
        return [n, channel, h * block + offset // block, w * block + offset % block]

    return _moved(op, where) if x.rank == 4 else _unsupported(op)


def _unsupported(op: Operation) -> Tensor:
    raise NotLowered(f"{op.op} is of images, and not of rank {op.input(0).rank}")


def reverse_sequence(op: Operation) -> Tensor:
    """The first so many elements of each sequence from behind."""
    x, lengths = op.input(0), op.input(1)
    batch, time = axis_of(op, "batch_axis"), axis_of(op, "time_axis")
    size = x.shape[time]

    def where(*at: Expr) -> list[Expr]:
        steps = minimum(lengths[at[batch]], size)
        return [select(i < steps, steps - 1 - i, i) if k == time else i for k, i in enumerate(at)]

    return _moved(op, where, matching(op, lengths.shape, (x.shape[batch],)))


def trilu(op: Operation) -> Tensor:
    """One triangle of matrices, the rest zero."""
    x, upper = op.input(0), bool(integer(op, "upper"))
    diagonal = element(op, 1) if op.has(1) else Const(0)

    def kept(*at: Expr) -> Expr:
        row, column = at[-2], at[-1]
        inside = column >= row + diagonal if upper else column <= row + diagonal
        return select(inside, x[at], const(0, x.dtype))

    return compute(op.shape(), kept, x.dtype, "trilu")


TABLE: LoweringTable = {
    "Concat": concat,
    "DepthToSpace": depth_to_space,
    "Expand": expand,
    "Flatten": reshape,
    "Reshape": reshape,
    "ReverseSequence": reverse_sequence,
    "Slice": slice_,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": reshape,
}
