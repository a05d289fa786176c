"""Views: the same elements in another shape, order or place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphopt.frontends.torch.table import Table
from graphopt.frontends.torch.writer import Number, OpWriter, ValueLike
from graphopt.ir.graph import Value

TABLE = Table()
aten = torch.ops.aten

TO_THE_END = (1 << 63) - 1


@TABLE.entry(
    aten.clone,
    aten.alias,
    aten.detach,
    aten.detach_,
    aten.contiguous,
    aten.lift_fresh,
    aten.lift_fresh_copy,
    aten.positive,
)
def _same(g: OpWriter, x: Value, *_: Any, **__: Any) -> Value:
    return x


@TABLE.entry(aten.dropout, aten.feature_dropout, aten.alpha_dropout, aten.feature_alpha_dropout)
def _dropout(g: OpWriter, x: Value, p: float, train: bool) -> Value:
    return _native_dropout(g, x, p, train)[0]


@TABLE.entry(aten.native_dropout)
def _native_dropout(g: OpWriter, x: Value, p: float, train: bool | None) -> tuple[Value, None]:
    """Its second result serves training alone."""
    if train and p > 0:
        raise g.refused("dropout in training mode: call model.eval() first")
    return x, None


@TABLE.entry(aten._to_copy, aten.to, aten.type_as)
def _convert(g: OpWriter, x: Value, *_: Any, **__: Any) -> Value:
    return g.cast(x, g.result_dtype())


@TABLE.entry(aten.copy)
def _copy(g: OpWriter, x: Value, source: Value, non_blocking: bool = False) -> Value:
    return g.expand(g.cast(source, g.dtype(x)), g.sizes(x))


@TABLE.entry(aten.view.default, aten._unsafe_view, aten.reshape, aten.view_copy.default)
def _view(g: OpWriter, x: Value, size: Sequence[Number]) -> Value:
    return g.reshape(x, size)


@TABLE.entry(aten.flatten)
def _flatten(g: OpWriter, x: Value, first: int = 0, last: int = -1) -> Value:
    if g.rank(x) == 0:
        return g.reshape(x, [1])
    sizes, first, last = g.sizes(x), g.axis(x, first), g.axis(x, last)
    return g.reshape(x, [*sizes[:first], g.product(sizes[first : last + 1]), *sizes[last + 1 :]])


@TABLE.entry(aten.unflatten)
def _unflatten(g: OpWriter, x: Value, axis: int, parts: Sequence[Number]) -> Value:
    sizes, axis = g.sizes(x), g.axis(x, axis)
    return g.reshape(x, [*sizes[:axis], *parts, *sizes[axis + 1 :]])


@TABLE.entry(aten.permute)
def _permute(g: OpWriter, x: Value, order: Sequence[int]) -> Value:
    return g.transpose(x, order)


@TABLE.entry(aten.transpose.int)
def _transpose(g: OpWriter, x: Value, one: int, other: int) -> Value:
    return g.swapped(x, one, other)


@TABLE.entry(aten.t, aten.numpy_T)
def _turned(g: OpWriter, x: Value) -> Value:
    return g.transpose(x, range(g.rank(x))[::-1])


@TABLE.entry(aten.expand)
def _expand(g: OpWriter, x: Value, size: Sequence[Number], implicit: bool = False) -> Value:
    current = g.sizes(x)
    size = [g.number(n) for n in size]
    added = len(size) - len(current)
    return g.expand(x, [current[k - added] if n == -1 else n for k, n in enumerate(size)])


@TABLE.entry(aten.expand_as, aten.broadcast_to)
def _expand_as(g: OpWriter, x: Value, other: Any) -> Value:
    return g.expand(x, g.sizes(other) if isinstance(other, Value) else other)


@TABLE.entry(aten.unsqueeze)
def _unsqueeze(g: OpWriter, x: Value, axis: int) -> Value:
    return g.unsqueeze(x, axis)


@TABLE.entry(aten.squeeze)
def _squeeze(g: OpWriter, x: Value, axes: int | Sequence[int] | None = None) -> Value:
    shape = g.shape(x)
    among = [] if isinstance(axes, Sequence) and not axes else g.axes(x, axes)
    gone = [a for a in among if shape[a] == 1]
    return g.squeeze(x, *gone) if gone else x


@TABLE.entry(aten.slice.Tensor)
def _slice(
    g: OpWriter, x: Value, axis: int = 0, start: Number | None = None, end: Number | None = None, step: int = 1
) -> Value:
    start = 0 if start is None else g.number(start)
    end = TO_THE_END if end is None else g.number(end)
    size = g.shape(x)[axis]
    is_all = not isinstance(start, Value) and not isinstance(end, Value) and start == 0 and step == 1
    if is_all and (end == TO_THE_END or (isinstance(size, int) and end >= size)):  # type: ignore[operator]
        return x
    return g.slice(x, axis, start, end, step)


@TABLE.entry(aten.narrow)
def _narrow(g: OpWriter, x: Value, axis: int, start: Number, length: Number) -> Value:
    return g.slice(x, axis, start, g.sum([start, length]))


@TABLE.entry(aten.select.int)
def _select(g: OpWriter, x: Value, axis: int, index: Number) -> Value:
    return g.op("Gather", x, g.cast(g.number(index), "int64"), axis=g.axis(x, axis))


@TABLE.entry(aten.split.Tensor)
def _split(g: OpWriter, x: Value, size: Number, axis: int = 0) -> tuple[Value, ...]:
    count = len(g.result())
    whole = g.shape(x)[axis]
    step = g.number(size)
    if isinstance(whole, int) and isinstance(step, int):
        sizes = [step] * (count - 1) + [whole - step * (count - 1)]
        return g.several("Split", count, x, np.array(sizes, np.int64), axis=g.axis(x, axis))
    if isinstance(step, Value):
        raise g.refused("a split into parts whose size depends on the inputs")
    ends = [step * (k + 1) for k in range(count - 1)] + [TO_THE_END]
    return tuple(g.slice(x, axis, step * k, end) for k, end in enumerate(ends))


@TABLE.entry(aten.split_with_sizes, aten.split.sizes)
def _split_with_sizes(g: OpWriter, x: Value, sizes: Sequence[Number], axis: int = 0) -> tuple[Value, ...]:
    return g.several("Split", len(sizes), x, g.integers(sizes), axis=g.axis(x, axis))


@TABLE.entry(aten.chunk)
def _chunk(g: OpWriter, x: Value, chunks: int, axis: int = 0) -> tuple[Value, ...]:
    whole, count = g.shape(x)[axis], len(g.result())
    if not isinstance(whole, int):
        raise g.refused("chunks of an axis whose size is not known")
    return _split(g, x, -(-whole // chunks), axis) if count else ()


@TABLE.entry(aten.unbind)
def _unbind(g: OpWriter, x: Value, axis: int = 0) -> tuple[Value, ...]:
    return tuple(g.op("Gather", x, np.asarray(k, np.int64), axis=g.axis(x, axis)) for k in range(len(g.result())))


@TABLE.entry(aten.cat, aten.concat)
def _concatenate(g: OpWriter, parts: Sequence[Value], axis: int = 0) -> Value:
    """Without those of the shape [0], which torch allows beside any rank."""
    dtype, rank = g.result_dtype(), g.result().dim()
    kept = [g.cast(p, dtype) for p in parts if not (rank > 1 and g.shape(p) == (0,))]
    return kept[0] if len(kept) == 1 else g.op("Concat", *kept, axis=axis % rank)


@TABLE.entry(aten.stack)
def _stack(g: OpWriter, parts: Sequence[Value], axis: int = 0) -> Value:
    dtype, rank = g.result_dtype(), g.result().dim()
    raised = [g.unsqueeze(g.cast(p, dtype), axis % rank) for p in parts]
    return g.op("Concat", *raised, axis=axis % rank)


@TABLE.entry(aten.flip)
def _flip(g: OpWriter, x: Value, axes: Sequence[int]) -> Value:
    flipped_axes = g.axes(x, axes) if axes else []
    if not flipped_axes:
        return x
    starts, ends = np.full(len(flipped_axes), -1, np.int64), np.full(len(flipped_axes), -TO_THE_END, np.int64)
    return g.op("Slice", x, starts, ends, np.array(flipped_axes, np.int64), np.full(len(flipped_axes), -1, np.int64))


@TABLE.entry(aten.roll)
def _roll(g: OpWriter, x: Value, shifts: Sequence[int], axes: Sequence[int] = ()) -> Value:
    if not axes:
        flat = _rolled(g, g.reshape(x, [-1]), g.known(shifts[0], "how far to roll"), 0)
        return g.reshape(flat, g.sizes(x))
    for shift, axis in zip(shifts, axes, strict=True):
        x = _rolled(g, x, g.known(shift, "how far to roll"), g.axis(x, axis))
    return x


def _rolled(g: OpWriter, x: Value, shift: int, axis: int) -> Value:
    whole = g.size(x, axis)
    if isinstance(whole, Value):
        return g.op("Gather", x, g.op("Mod", g.op("Sub", g.indices(whole), shift), whole), axis=axis)
    start = -shift % whole if whole else 0
    if start == 0:
        return x
    return g.op("Concat", g.slice(x, axis, start, TO_THE_END), g.slice(x, axis, 0, start), axis=axis)


@TABLE.entry(aten.repeat)
def _repeat(g: OpWriter, x: Value, times: Sequence[Number]) -> Value:
    more = len(times) - g.rank(x)
    return g.op("Tile", g.unsqueeze(x, *range(more)) if more else x, g.integers(times))


@TABLE.entry(aten.repeat_interleave.self_int)
def _repeat_interleave(g: OpWriter, x: Value, times: Number, axis: int | None = None, output_size: Any = None) -> Value:
    x, axis = (g.reshape(x, [-1]), 0) if axis is None else (x, g.axis(x, axis))
    sizes = g.sizes(x)
    raised = g.expand(g.unsqueeze(x, axis + 1), [*sizes[: axis + 1], times, *sizes[axis + 1 :]])
    return g.reshape(raised, [*sizes[:axis], g.product([sizes[axis], times]), *sizes[axis + 1 :]])


@TABLE.entry(aten.unfold)
def _unfold(g: OpWriter, x: Value, axis: int, size: int, step: int) -> Value:
    """Windows along an axis, each of them along a new last axis."""
    if g.rank(x) == 0:
        return g.unsqueeze(x, 0) if size else g.slice(g.unsqueeze(x, 0), 0, 0, 0)
    axis, whole = g.axis(x, axis), g.known(g.size(x, axis), "the size of an axis that is unfolded")
    starts = np.arange(0, whole - size + 1, step)
    windows = g.op("Gather", x, (starts[:, None] + np.arange(size)).astype(np.int64), axis=axis)
    return g.transpose(windows, [k for k in range(g.rank(windows)) if k != axis + 1] + [axis + 1])


@TABLE.entry(aten.tril)
def _lower_triangle(g: OpWriter, x: Value, diagonal: int = 0) -> Value:
    return _triangle(g, x, diagonal, upper=0)


@TABLE.entry(aten.triu)
def _upper_triangle(g: OpWriter, x: Value, diagonal: int = 0) -> Value:
    return _triangle(g, x, diagonal, upper=1)


def _triangle(g: OpWriter, x: Value, diagonal: int, upper: int) -> Value:
    dtype = g.dtype(x)
    plain = g.cast(x, "int32") if dtype == "bool" else x
    triangle = g.op("Trilu", plain, g.cast(diagonal, "int64"), upper=upper)
    return g.cast(triangle, dtype)


@TABLE.entry(aten.diagonal)
def _diagonal(g: OpWriter, x: Value, offset: int = 0, one: int = 0, other: int = 1) -> Value:
    flat, places, _ = _with_diagonal(g, x, offset, one, other)
    return g.op("Gather", flat, places, axis=g.rank(flat) - 1)


@TABLE.entry(aten.diagonal_scatter)
def _diagonal_scatter(g: OpWriter, x: Value, source: Value, offset: int = 0, one: int = 0, other: int = 1) -> Value:
    flat, places, order = _with_diagonal(g, x, offset, one, other)
    if not len(places):
        return x
    at = g.expand(g.constant(places), [*g.sizes(flat)[:-1], len(places)])
    written = g.op("ScatterElements", flat, at, g.cast(source, g.dtype(x)), axis=g.rank(flat) - 1)
    sizes = g.sizes(x)
    back = g.reshape(written, [sizes[axis] for axis in order])
    return g.transpose(back, [order.index(axis) for axis in range(len(order))])


def _with_diagonal(
    g: OpWriter, x: Value, offset: int, one: int, other: int
) -> tuple[Value, np.ndarray[Any, Any], list[int]]:
    """The value with its matrices in rows, one after the other, along the last axis, the places of a diagonal in them,
    and the order in which that has the axes."""
    one, other = g.axis(x, one), g.axis(x, other)
    rows = g.known(g.size(x, one), "the size of a matrix whose diagonal is taken")
    columns = g.known(g.size(x, other), "the size of a matrix whose diagonal is taken")
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    at = np.arange(count)
    order = [k for k in range(g.rank(x)) if k not in (one, other)] + [one, other]
    last = g.transpose(x, order)
    flat = g.reshape(last, [*g.sizes(last)[:-2], rows * columns])
    places = (at + max(-offset, 0)) * columns + at + max(offset, 0)
    return flat, places.astype(np.int64), order


@TABLE.entry(aten.as_strided, aten.as_strided_copy)
def _as_strided(
    g: OpWriter, x: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Value:
    flat, places, _ = _in_memory(g, x, size, stride, storage_offset)
    return g.op("Gather", flat, places, axis=0)


@TABLE.entry(aten.as_strided_scatter)
def _as_strided_scatter(
    g: OpWriter,
    x: Value,
    source: Value,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Value:
    flat, places, order = _in_memory(g, x, size, stride, storage_offset)
    written = g.op("ScatterElements", flat, places.reshape(-1), g.reshape(source, [-1]), axis=0)
    sizes = g.sizes(x)
    back = g.reshape(written, [sizes[axis] for axis in order])
    return g.transpose(back, [order.index(axis) for axis in range(len(order))])


def _in_memory(
    g: OpWriter, x: Value, size: Sequence[int], stride: Sequence[int], offset: int | None
) -> tuple[Value, np.ndarray[Any, Any], list[int]]:
    """The elements in the order that they have in torch's memory, the places in it that a view with these strides has,
    and the order of the axes there."""
    example = g.given(0)
    order = sorted(range(g.rank(x)), key=lambda axis: (-example.stride(axis), axis))
    if not example.permute(order).is_contiguous() or example.storage_offset():
        raise g.refused("a view by strides of a tensor that is itself a part of another")
    flat = g.reshape(g.transpose(x, order), [-1])
    places = np.full([g.known(n, "a size of a view by strides") for n in size], offset or 0, np.int64)
    for axis, step in enumerate(stride):
        along = np.arange(places.shape[axis]) * g.known(step, "a stride of a view")
        places += along.reshape([-1, *[1] * (places.ndim - axis - 1)])
    return flat, places, order


@TABLE.entry(aten.pixel_shuffle)
def _pixel_shuffle(g: OpWriter, x: Value, factor: int) -> Value:
    *_, channels, height, width = sizes = g.sizes(x)
    lead, rank = sizes[:-3], g.rank(x)
    inner = g.known(channels, "the number of channels") // factor**2
    split = g.reshape(x, [*lead, inner, factor, factor, height, width])
    order = [*range(rank - 3), *(rank - 3 + k for k in (0, 3, 1, 4, 2))]
    return g.reshape(g.transpose(split, order), [*lead, inner, g.product([height, factor]), g.product([width, factor])])


# -- margins


@TABLE.entry(aten.constant_pad_nd)
def _pad(g: OpWriter, x: Value, margins: Sequence[Number], value: ValueLike = 0) -> Value:
    return _padded(g, x, margins, "constant", g.cast(value, g.dtype(x)))


@TABLE.entry(aten.reflection_pad1d, aten.reflection_pad2d, aten.reflection_pad3d)
def _reflection_pad(g: OpWriter, x: Value, margins: Sequence[Number]) -> Value:
    return _padded(g, x, margins, "reflect", None)


@TABLE.entry(aten.replication_pad1d, aten.replication_pad2d, aten.replication_pad3d)
def _replication_pad(g: OpWriter, x: Value, margins: Sequence[Number]) -> Value:
    return _padded(g, x, margins, "edge", None)


@TABLE.entry(aten.pad)
def _any_pad(g: OpWriter, x: Value, margins: Sequence[Number], mode: str = "constant", value: Any = None) -> Value:
    if mode == "circular":
        return _wrapped(g, x, margins)
    ways = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
    return _padded(g, x, margins, ways[mode], g.cast(value or 0, g.dtype(x)) if mode == "constant" else None)


def _wrapped(g: OpWriter, x: Value, margins: Sequence[Number]) -> Value:
    """The other end before and behind each axis; written out, since ONNX Runtime wraps no tensor without elements."""
    known = [g.known(n, "a margin that wraps around") for n in margins]
    for k, (before, after) in enumerate(zip(known[::2], known[1::2], strict=True)):
        axis = g.rank(x) - 1 - k
        middle = g.slice(x, axis, max(-before, 0), min(after, 0) or TO_THE_END) if min(before, after) < 0 else x
        ends = [g.slice(middle, axis, -before, TO_THE_END)] if before > 0 else []
        starts = [g.slice(middle, axis, 0, after)] if after > 0 else []
        parts = [*ends, middle, *starts]
        x = g.op("Concat", *parts, axis=axis) if len(parts) > 1 else middle
    return x


def _padded(g: OpWriter, x: Value, margins: Sequence[Number], mode: str, value: ValueLike) -> Value:
    """Torch's margins come in pairs from the last axis on; negative ones cut off."""
    margins = [g.number(m) for m in margins]
    pairs = [(margins[k], margins[k + 1]) for k in range(0, len(margins), 2)][::-1]
    for k, (axis, (first, last)) in enumerate(list(enumerate(pairs, g.rank(x) - len(pairs)))):
        if mode == "edge" and _cut(first) + _cut(last):  # all may be cut off, and what is next to it be at the edge
            size = g.known(g.size(x, axis), "the size of an axis of which a margin cuts off")
            places = np.arange(-g.known(first, "a margin"), size + g.known(last, "a margin"))
            x = g.op("Gather", x, np.clip(places, 0, size - 1).astype(np.int64), axis=axis)
            pairs[k] = (0, 0)
    for axis, (first, last) in enumerate(pairs, g.rank(x) - len(pairs)):
        start, end = _cut(first), _cut(last)
        x = g.slice(x, axis, start, -end if end else TO_THE_END) if start or end else x
    axes = np.arange(g.rank(x) - len(pairs), g.rank(x))
    ends = g.integers([0 if _cut(m) else m for k in (0, 1) for m in (pair[k] for pair in pairs)])
    return g.op("Pad", x, ends, value, axes.astype(np.int64), mode=mode)


def _cut(margin: Number) -> int:
    """How much a margin cuts off."""
    return -margin if isinstance(margin, int) and margin < 0 else 0
