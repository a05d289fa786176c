"""Elements by index, sorting and searching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphopt.frontends.torch.operators.views import TO_THE_END
from graphopt.frontends.torch.table import Table
from graphopt.frontends.torch.writer import Number, Operand, Writer
from graphopt.ir.graph import Value

TABLE = Table()
aten = torch.ops.aten


@TABLE.entry(aten.embedding)
def _embedding(g: Writer, weight: Value, indices: Value, *_: Any, **__: Any) -> Value:
    return g.op("Gather", weight, indices, axis=0)


@TABLE.entry(aten.index_select)
def _index_select(g: Writer, x: Value, axis: int, indices: Value) -> Value:
    return g.op("Gather", x, indices, axis=g.axis(x, axis))


@TABLE.entry(aten.gather)
def _gather(g: Writer, x: Value, axis: int, indices: Value, sparse_grad: bool = False) -> Value:
    return g.op("GatherElements", x, indices, axis=g.axis(x, axis))


@TABLE.entry(aten.index.Tensor)
def _index(g: Writer, x: Value, indices: Sequence[Value | None]) -> Value:
    """Advanced indexing as numpy defines it: the axes that are indexed together give those of the indices."""
    given = _places(g, x, indices)
    axes = [axis for axis, _ in given]
    if len(axes) == 1:
        return g.op("Gather", x, given[0][1], axis=axes[0])
    rest = [axis for axis in range(g.rank(x)) if axis not in axes]
    last = _together(g, [found for _, found in given])
    found = g.op("GatherND", g.transpose(x, [*axes, *rest]), last)
    rank = g.rank(last) - 1
    if axes != list(range(axes[0], axes[-1] + 1)):
        return found
    order = [*range(rank, rank + axes[0]), *range(rank), *range(rank + axes[0], g.rank(found))]
    return g.transpose(found, order)


def _places(g: Writer, x: Value, indices: Sequence[Value | None]) -> list[tuple[int, Value]]:
    """The axes that are indexed, each with its indices; a mask becomes the indices of its true elements."""
    found: list[tuple[int, Value]] = []
    axis = 0
    for given in indices:
        if given is None:
            axis += 1
        elif g.dtype(given) in ("bool", "uint8"):
            where = g.op("NonZero", g.cast(given, "bool"))
            for k in range(g.rank(given)):
                found.append((axis + k, g.op("Gather", where, np.asarray(k, np.int64), axis=0)))
            axis += g.rank(given)
        else:
            found.append((axis, g.value(g.cast(given, "int64"))))
            axis += 1
    return found


def _together(g: Writer, indices: Sequence[Value]) -> Value:
    """Indices broadcast to one shape, with those of one element along a new last axis."""
    rank = max(map(g.rank, indices))
    raised = [i if g.rank(i) == rank else g.unsqueeze(i, *range(rank - g.rank(i))) for i in indices]
    if len({g.shape(i) for i in raised}) > 1:
        total = raised[0]
        for other in raised[1:]:
            total = g.op("Add", total, other)
        shape = g.op("Shape", total)
        raised = [g.op("Expand", i, shape) for i in raised]
    return g.op("Concat", *(g.unsqueeze(i, rank) for i in raised), axis=rank)


@TABLE.entry(aten.index_put, aten._unsafe_index_put)
def _index_put(g: Writer, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    if len(indices) == 1 and indices[0] is not None and g.dtype(indices[0]) == "bool" and not accumulate:
        mask = indices[0]
        if g.rank(values) == 0 or g.shape(values) == (1,):
            mask = g.unsqueeze(mask, *range(g.rank(mask), g.rank(x))) if g.rank(mask) < g.rank(x) else mask
            return g.op("Where", mask, g.scalar(values), x)
    given = _places(g, x, indices)
    axes = [axis for axis, _ in given]
    rest = [axis for axis in range(g.rank(x)) if axis not in axes]
    if axes != sorted(axes) or (rest and axes != list(range(axes[0], axes[-1] + 1))):
        raise g.refused("writing at indices of axes that are not next to each other")
    order = [*axes, *rest]
    last = _together(g, [found for _, found in given])
    rank = g.rank(last) - 1
    turned = g.transpose(x, order)
    sizes = [*g.sizes(last)[:-1], *g.sizes(turned)[len(axes) :]]
    if rest and axes[0] > 0:  # the values' axes stand where the indexed ones do
        have = g.expand(values, [*g.sizes(x)[: axes[0]], *sizes[:rank], *g.sizes(x)[axes[-1] + 1 :]])
        lead = axes[0]
        moved = [*range(lead, lead + rank), *range(lead), *range(lead + rank, g.rank(have))]
        have = g.transpose(have, moved)
    else:
        have = g.expand(values, sizes)
    have = g.value(g.cast(have, g.dtype(x)))
    found = g.op("ScatterND", turned, last, have, reduction="add" if accumulate else "none")
    back = [order.index(axis) for axis in range(len(order))]
    return g.transpose(found, back)


@TABLE.entry(aten.scatter.src)
def _scatter(g: Writer, x: Value, axis: int, indices: Value, source: Value, reduce: str | None = None) -> Value:
    if g.shape(source) != g.shape(indices):
        source = _corner(g, source, indices)
    ways = {None: "none", "add": "add", "multiply": "mul"}
    return g.op("ScatterElements", x, indices, source, axis=g.axis(x, axis), reduction=ways[reduce])


@TABLE.entry(aten.scatter.value)
def _scatter_value(g: Writer, x: Value, axis: int, indices: Value, value: Operand, reduce: str | None = None) -> Value:
    source = g.expand(g.value(g.cast(value, g.dtype(x))), g.sizes(indices))
    return _scatter(g, x, axis, indices, source, reduce)


@TABLE.entry(aten.scatter_add)
def _scatter_add(g: Writer, x: Value, axis: int, indices: Value, source: Value) -> Value:
    return _scatter(g, x, axis, indices, source, "add")


@TABLE.entry(aten.scatter_reduce)
def _scatter_reduce(
    g: Writer, x: Value, axis: int, indices: Value, source: Value, reduce: str, include_self: bool = True
) -> Value:
    ways = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
    if reduce not in ways or not include_self:
        raise g.refused(f"scatter_reduce with reduce={reduce!r} and include_self={include_self}")
    source = source if g.shape(source) == g.shape(indices) else _corner(g, source, indices)
    return g.op("ScatterElements", x, indices, source, axis=g.axis(x, axis), reduction=ways[reduce])


def _corner(g: Writer, source: Value, indices: Value) -> Value:
    """The part of a source that there are indices for."""
    axes = np.arange(g.rank(source), dtype=np.int64)
    return g.op("Slice", source, np.zeros_like(axes), g.integers(g.sizes(indices)), axes)


@TABLE.entry(aten.slice_scatter)
def _slice_scatter(
    g: Writer,
    x: Value,
    source: Value,
    axis: int = 0,
    start: Number | None = None,
    end: Number | None = None,
    step: int = 1,
) -> Value:
    axis = g.axis(x, axis)
    whole = g.size(x, axis)
    every = g.op("Range", np.asarray(0, np.int64), g.cast(whole, "int64"), np.asarray(1, np.int64))
    chosen = g.slice(every, 0, 0 if start is None else start, TO_THE_END if end is None else end, step)
    last = [k for k in range(g.rank(x)) if k != axis]
    order = [axis, *last]
    source = g.value(g.cast(source, g.dtype(x)))
    put = g.op("ScatterND", g.transpose(x, order), g.unsqueeze(chosen, 1), g.transpose(source, order))
    return g.transpose(put, [order.index(k) for k in range(len(order))])


@TABLE.entry(aten.select_scatter)
def _select_scatter(g: Writer, x: Value, source: Value, axis: int, index: Number) -> Value:
    axis = g.axis(x, axis)
    last = [k for k in range(g.rank(x)) if k != axis]
    order = [axis, *last]
    at = g.reshape(g.value(g.cast(index, "int64")), [1, 1])
    put = g.op("ScatterND", g.transpose(x, order), at, g.unsqueeze(source, 0))
    return g.transpose(put, [order.index(k) for k in range(len(order))])


@TABLE.entry(aten.nonzero)
def _nonzero(g: Writer, x: Value) -> Value:
    return g.transpose(g.op("NonZero", x), [1, 0])


@TABLE.entry(aten.masked_select)
def _masked_select(g: Writer, x: Value, mask: Value) -> Value:
    both = g.op("Shape", g.op("And", g.cast(x, "bool"), mask))
    flat, chosen = (g.reshape(g.op("Expand", v, both), [-1]) for v in (x, mask))
    return g.op("Compress", flat, chosen, axis=0)


@TABLE.entry(aten.masked_scatter)
def _masked_scatter(g: Writer, x: Value, mask: Value, source: Value) -> Value:
    """The k-th true element of the mask takes the k-th element of the source."""
    wide = g.op("Expand", mask, g.op("Shape", x))
    order = g.op("Sub", g.op("CumSum", g.cast(g.reshape(wide, [-1]), "int64"), np.asarray(0, np.int64)), 1)
    least = g.op("Max", order, np.asarray(0, np.int64))
    taken = g.op("Gather", g.reshape(source, [-1]), least, axis=0)
    return g.op("Where", wide, g.op("Reshape", taken, g.op("Shape", x)), x)


@TABLE.entry(aten.one_hot)
def _one_hot(g: Writer, x: Value, classes: Number = -1) -> Value:
    return g.op("OneHot", x, g.cast(classes, "int64"), np.array([0, 1], np.int64))


# -- order


@TABLE.entry(aten.topk)
def _top(
    g: Writer, x: Value, count: Number, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, ...]:
    return g.several("TopK", 2, x, g.integers([count]), axis=g.axis(x, axis), largest=int(largest), sorted=int(sorted))


@TABLE.entry(aten.sort.default)
def _sort(g: Writer, x: Value, axis: int = -1, descending: bool = False) -> tuple[Value, ...]:
    axis = g.axis(x, axis)
    if g.rank(x) == 0:
        return x, g.constant(np.asarray(0, np.int64))
    return g.several("TopK", 2, x, g.integers([g.size(x, axis)]), axis=axis, largest=int(descending), sorted=1)


@TABLE.entry(aten.sort.stable)
def _stable_sort(
    g: Writer, x: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, ...]:
    """ONNX's TopK gives the lower index first where elements are equal, as a stable sort does."""
    return _sort(g, x, dim, descending)


@TABLE.entry(aten.argsort)
def _argsort(g: Writer, x: Value, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Value:
    return _sort(g, x, dim, descending)[1]


@TABLE.entry(aten.bucketize.Tensor)
def _bucketize(g: Writer, x: Value, bounds: Value, out_int32: bool = False, right: bool = False) -> Value:
    dtype = g.name_of(torch.promote_types(getattr(torch, g.dtype(x)), getattr(torch, g.dtype(bounds))))
    left = g.unsqueeze(g.value(g.cast(x, dtype)), g.rank(x))
    below = g.op("LessOrEqual" if right else "Less", g.cast(bounds, dtype), left)
    found = g.op("ReduceSum", g.cast(below, "int64"), np.array([-1], np.int64), keepdims=0)
    return g.value(g.cast(found, g.result_dtype()))
