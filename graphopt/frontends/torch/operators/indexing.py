"""Indexing, sorting and searching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphopt.frontends.torch.operators.elementwise import floor_quotient
from graphopt.frontends.torch.operators.reductions import reduced
from graphopt.frontends.torch.operators.views import TO_THE_END
from graphopt.frontends.torch.table import Table
from graphopt.frontends.torch.writer import Number, OpWriter, ValueLike
from graphopt.ir.graph import Value
from graphopt.ir.onnx_io.tensors import numpy_dtype

TABLE = Table()
aten = torch.ops.aten


@TABLE.entry(aten.embedding)
def _embedding(g: OpWriter, weight: Value, indices: Value, *_: Any, **__: Any) -> Value:
    return g.op("Gather", weight, indices, axis=0)


@TABLE.entry(aten._embedding_bag, aten._embedding_bag_forward_only)
def _embedding_bag(
    g: OpWriter,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    factors: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Value, None, None, None]:
    """Sums, means (mode 1) or maxima (mode 2) of rows, bag by bag: each index is in the last bag that begins before
    it. Its further results serve training alone."""
    if padding_idx >= 0:
        raise g.refused("bags with an index that does not count")
    rows = g.op("Gather", weight, indices, axis=0)
    if factors is not None:
        rows = g.op("Mul", rows, g.unsqueeze(factors, 1))
    order = g.unsqueeze(g.indices(g.size(indices, 0)), 1)
    begun = g.cast(g.op("LessOrEqual", g.cast(offsets, "int64"), order), "int64")
    bags = g.op("Sub", g.op("ReduceSum", begun, np.array([1], np.int64), keepdims=1), 1)
    sizes = [g.size(offsets, 0), g.size(weight, 1)]
    zeros = g.expand(g.constant(g.zeros(weight)), sizes)
    ones = g.expand(g.constant(g.ones(weight)), g.sizes(rows))
    counts = g.op("ScatterND", zeros, bags, ones, reduction="add")
    if mode == 2:
        least = g.expand(g.constant(-np.inf * g.ones(weight)), sizes)
        largest = g.op("ScatterND", least, bags, rows, reduction="max")
        result = g.op("Where", g.op("Greater", counts, 0), largest, zeros)
    else:
        sums = g.op("ScatterND", zeros, bags, rows, reduction="add")
        result = sums if mode == 0 else g.op("Div", sums, g.op("Max", counts, g.ones(weight)))
    return g.slice(result, 0, 0, -1) if include_last_offset else result, None, None, None


@TABLE.entry(aten.index_select)
def _index_select(g: OpWriter, x: Value, axis: int, indices: Value) -> Value:
    chosen = g.op("Gather", _vector(g, x), _vector(g, indices), axis=g.axis(x, axis))
    return chosen if g.rank(x) else g.scalar(chosen)


@TABLE.entry(aten.gather)
def _gather(g: OpWriter, x: Value, axis: int, indices: Value, sparse_grad: bool = False) -> Value:
    if 0 in g.shape(indices):  # which may be of any rank
        return g.expand(g.constant(g.zeros(x)), g.sizes(indices))
    chosen = g.op("GatherElements", _vector(g, x), _vector(g, indices), axis=g.axis(x, axis))
    return chosen if g.rank(indices) else g.scalar(chosen)


def _vector(g: OpWriter, x: Value) -> Value:
    """The value, with an axis of size 1 where it has none: torch indexes such values as if they had it."""
    return x if g.rank(x) else g.unsqueeze(x, 0)


@TABLE.entry(aten.take)
def _take(g: OpWriter, x: Value, indices: Value) -> Value:
    return g.op("Gather", g.reshape(x, [-1]), indices, axis=0)


@TABLE.entry(aten.put)
def _put_flat(g: OpWriter, x: Value, indices: Value, source: Value, accumulate: bool = False) -> Value:
    flat, at, have = (g.reshape(v, [-1]) for v in (x, indices, source))
    return g.reshape(_scattered(g, flat, at, have, 0, "add" if accumulate else "none"), g.sizes(x))


@TABLE.entry(aten.index.Tensor)
def _index(g: OpWriter, x: Value, indices: Sequence[Value | None]) -> Value:
    """Advanced indexing as numpy defines it: the axes that are indexed together give those of the indices."""
    axes, given = _places(g, x, indices)
    if len(axes) == 1:
        return g.op("Gather", x, given[0], axis=axes[0])
    at = _together(g, given)
    gathered = g.op("GatherND", g.transpose(x, _first(g, x, axes)), at)
    rank, lead = g.rank(at) - 1, _lead(axes)
    return g.transpose(gathered, [*range(rank, rank + lead), *range(rank), *range(rank + lead, g.rank(gathered))])


@TABLE.entry(aten.index_put, aten._unsafe_index_put)
def _index_put(
    g: OpWriter, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    if len(indices) == 1 and indices[0] is not None and g.dtype(indices[0]) == "bool" and not accumulate:
        mask = indices[0]
        if g.rank(values) == 0 or g.shape(values) == (1,):
            mask = g.unsqueeze(mask, *range(g.rank(mask), g.rank(x))) if g.rank(mask) < g.rank(x) else mask
            return g.op("Where", mask, g.scalar(values), x)
    axes, given = _places(g, x, indices)
    order, at = _first(g, x, axes), _together(g, given)
    rank, lead = g.rank(at) - 1, _lead(axes)
    rest = [g.size(x, axis) for axis in order[len(axes) :]]
    have = g.expand(values, [*rest[:lead], *g.sizes(at)[:-1], *rest[lead:]])
    have = g.transpose(have, [*range(lead, lead + rank), *range(lead), *range(lead + rank, g.rank(have))])
    return _put(g, x, order, at, have, "add" if accumulate else "none")


def _places(g: OpWriter, x: Value, indices: Sequence[Value | None]) -> tuple[list[int], list[Value]]:
    """The axes that are indexed, and the indices of each; a mask becomes the indices of its true elements."""
    axes: list[int] = []
    grids: list[Value] = []
    axis = 0
    for given in indices:
        if given is None:
            axis += 1
            continue
        if g.dtype(given) in ("bool", "uint8"):
            where = g.op("NonZero", g.cast(given, "bool"))
            each = [g.op("Gather", where, np.asarray(k, np.int64), axis=0) for k in range(g.rank(given))]
        else:
            each = [g.cast(given, "int64")]
        axes += range(axis, axis + len(each))
        grids += each
        axis += len(each)
    return axes, grids


def _first(g: OpWriter, x: Value, axes: Sequence[int]) -> list[int]:
    """An order of all axes in which these are the first."""
    return [*axes, *(axis for axis in range(g.rank(x)) if axis not in axes)]


def _lead(axes: Sequence[int]) -> int:
    """How many axes stand before those of the indices, which come where they index; first, if that is no one place."""
    return axes[0] if list(axes) == list(range(axes[0], axes[-1] + 1)) else 0


def _put(g: OpWriter, x: Value, order: Sequence[int], at: Value, source: Value, reduction: str = "none") -> Value:
    """The value with elements written at places of its axes in this order."""
    scattered = g.op("ScatterND", g.transpose(x, order), at, g.cast(source, g.dtype(x)), reduction=reduction)
    return g.transpose(scattered, [order.index(axis) for axis in range(len(order))])


def _together(g: OpWriter, indices: Sequence[Value]) -> Value:
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


@TABLE.entry(aten.scatter.src, aten.scatter.reduce)
def _scatter(g: OpWriter, x: Value, axis: int, indices: Value, source: Value, *, reduce: str | None = None) -> Value:
    ways = {None: "none", "add": "add", "multiply": "mul"}
    return _scattered(g, x, indices, source, axis, ways[reduce])


@TABLE.entry(aten.scatter.value, aten.scatter.value_reduce)
def _scatter_value(
    g: OpWriter, x: Value, axis: int, indices: Value, value: ValueLike, *, reduce: str | None = None
) -> Value:
    source = g.expand(g.value(g.cast(value, g.dtype(x))), g.sizes(indices))
    return _scatter(g, x, axis, indices, source, reduce=reduce)


@TABLE.entry(aten.scatter_add)
def _scatter_add(g: OpWriter, x: Value, axis: int, indices: Value, source: Value) -> Value:
    return _scattered(g, x, indices, source, axis, "add")


@TABLE.entry(aten.scatter_reduce)
def _scatter_reduce(
    g: OpWriter, x: Value, axis: int, indices: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """Where the value itself does not count, what is written to is first put to what changes no result."""
    ways = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "add"}
    way, dtype = ways[reduce], g.dtype(x)
    if dtype == "bool":
        x, source = g.cast(x, "int32"), g.cast(source, "int32")
        as_integers = _scatter_reduce(g, x, axis, indices, source, reduce, include_self=include_self)
        return g.cast(as_integers, dtype)
    begin = x
    if not include_self:
        neutral = {"add": 0, "mul": 1, "max": _limits(dtype)[0], "min": _limits(dtype)[1]}[way]
        begin = _scatter_value(g, x, axis, indices, neutral)
    result = _scattered(g, begin, indices, source, axis, way)
    if reduce != "mean":
        return result
    ones = g.expand(g.constant(g.ones(x)), g.sizes(source))
    count = g.expand(g.constant(g.ones(x) if include_self else g.zeros(x)), g.sizes(x))
    count = _scattered(g, count, indices, ones, axis, "add")
    mean = (
        g.op("Div", result, g.op("Max", count, 1))
        if "float" in dtype
        else floor_quotient(g, result, g.op("Max", count, 1), dtype)
    )
    return mean if include_self else g.op("Where", g.op("Equal", count, 0), x, mean)


def _limits(dtype: str) -> tuple[Any, Any]:
    """The least and the greatest element of a dtype."""
    if "float" in dtype:
        return -np.inf, np.inf
    info = np.iinfo(dtype)
    return info.min, info.max


@TABLE.entry(aten.index_fill)
def _index_fill(g: OpWriter, x: Value, axis: int, indices: Value, value: ValueLike) -> Value:
    whole, at = _vector(g, x), _vector(g, indices)
    order = _first(g, whole, [g.axis(x, axis)])
    sizes = [*g.sizes(at), *(g.size(whole, k) for k in order[1:])]
    source = g.expand(g.value(g.cast(value, g.dtype(x))), sizes)
    written = _put(g, whole, order, g.unsqueeze(at, 1), source)
    return written if g.rank(x) else g.scalar(written)


@TABLE.entry(aten.index_reduce)
def _index_reduce(
    g: OpWriter, x: Value, axis: int, indices: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    axis, rank = g.axis(x, axis), max(g.rank(source), 1)
    source = _vector(g, source)
    along = g.reshape(indices, [1] * axis + [-1] + [1] * (rank - axis - 1))
    each = g.expand(along, g.sizes(source))
    return _scatter_reduce(g, x, axis, each, source, reduce, include_self=include_self)


def _scattered(g: OpWriter, x: Value, indices: Value, source: Value, axis: int, reduction: str) -> Value:
    """Of a source that is larger than the indices, the corner that there are indices for."""
    if 0 in g.shape(indices):  # which may be of any rank
        return x
    if g.rank(x) == 0:
        vector = _scattered(g, _vector(g, x), _vector(g, indices), _vector(g, source), axis, reduction)
        return g.scalar(vector)
    indices, source = _vector(g, indices), _vector(g, source)
    if g.shape(source) != g.shape(indices):
        axes = np.arange(g.rank(source), dtype=np.int64)
        source = g.op("Slice", source, np.zeros_like(axes), g.integers(g.sizes(indices)), axes)
    return g.op("ScatterElements", x, indices, source, axis=g.axis(x, axis), reduction=reduction)


@TABLE.entry(aten.slice_scatter)
def _slice_scatter(
    g: OpWriter,
    x: Value,
    source: Value,
    axis: int = 0,
    start: Number | None = None,
    end: Number | None = None,
    step: int = 1,
) -> Value:
    axis = g.axis(x, axis)
    chosen = g.slice(
        g.indices(g.size(x, axis)), 0, 0 if start is None else start, TO_THE_END if end is None else end, step
    )
    order = _first(g, x, [axis])
    return _put(g, x, order, g.unsqueeze(chosen, 1), g.transpose(source, order))


@TABLE.entry(aten.select_scatter)
def _select_scatter(g: OpWriter, x: Value, source: Value, axis: int, index: Number) -> Value:
    at = g.reshape(g.value(g.cast(index, "int64")), [1, 1])
    return _put(g, x, _first(g, x, [g.axis(x, axis)]), at, g.unsqueeze(source, 0))


@TABLE.entry(aten.nonzero)
def _nonzero(g: OpWriter, x: Value) -> Value:
    places = g.transpose(g.op("NonZero", _vector(g, x)), [1, 0])
    return places if g.rank(x) else g.slice(places, 1, 0, 0)


@TABLE.entry(aten.masked_select)
def _masked_select(g: OpWriter, x: Value, mask: Value) -> Value:
    both = g.op("Shape", g.op("And", g.cast(x, "bool"), mask))
    flat, chosen = (g.reshape(g.op("Expand", v, both), [-1]) for v in (x, mask))
    return g.op("Compress", flat, chosen, axis=0)


@TABLE.entry(aten.masked_scatter)
def _masked_scatter(g: OpWriter, x: Value, mask: Value, source: Value) -> Value:
    """The k-th true element of the mask takes the k-th element of the source."""
    sizes = g.op("Shape", g.op("And", g.op("Equal", x, x), mask))
    x, wide = g.op("Expand", x, sizes), g.op("Expand", mask, sizes)
    order = g.op("Sub", g.op("CumSum", g.cast(g.reshape(wide, [-1]), "int64"), np.asarray(0, np.int64)), 1)
    least = g.op("Max", order, np.asarray(0, np.int64))
    gathered = g.op("Gather", g.reshape(source, [-1]), least, axis=0)
    return g.op("Where", wide, g.op("Reshape", gathered, g.op("Shape", x)), x)


@TABLE.entry(aten.one_hot)
def _one_hot(g: OpWriter, x: Value, classes: Number = -1) -> Value:
    if classes == -1:
        raise g.refused("the number of classes has to be said, else it depends on the elements")
    return g.op("OneHot", x, g.cast(classes, "int64"), np.array([0, 1], np.int64))


# -- order


@TABLE.entry(aten.topk)
def _top(
    g: OpWriter, x: Value, count: Number, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, ...]:
    if g.rank(x) == 0:
        return x, g.constant(np.asarray(0, np.int64))
    return g.several("TopK", 2, x, g.integers([count]), axis=g.axis(x, axis), largest=int(largest), sorted=int(sorted))


@TABLE.entry(aten.sort.default)
def _sort(g: OpWriter, x: Value, axis: int = -1, descending: bool = False) -> tuple[Value, ...]:
    axis = g.axis(x, axis)
    if g.rank(x) == 0:
        return x, g.constant(np.asarray(0, np.int64))
    return g.several("TopK", 2, x, g.integers([g.size(x, axis)]), axis=axis, largest=int(descending), sorted=1)


@TABLE.entry(aten.sort.stable)
def _stable_sort(
    g: OpWriter, x: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, ...]:
    """ONNX's TopK gives the lower index first where elements are equal, as a stable sort does."""
    return _sort(g, x, dim, descending)


@TABLE.entry(aten.argsort)
def _argsort(g: OpWriter, x: Value, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Value:
    return _sort(g, x, dim, descending)[1]


@TABLE.entry(aten.kthvalue)
def _kth(g: OpWriter, x: Value, k: Number, axis: int = -1, keepdim: bool = False) -> tuple[Value, ...]:
    """The k-th element from below, and where it is."""
    if g.rank(x) == 0:
        return x, g.constant(np.asarray(0, np.int64))
    axis = g.axis(x, axis)
    both = g.several("TopK", 2, x, g.integers([k]), axis=axis, largest=0, sorted=1)
    last = [g.slice(v, axis, -1, TO_THE_END) for v in both]
    return tuple(last if keepdim else [g.squeeze(v, axis) for v in last])


@TABLE.entry(aten.median)
def _median(g: OpWriter, x: Value, axis: int | None = None, keepdim: bool = False) -> Any:
    """Of an even number of elements, the lower one of the middle; NaN where there is any."""
    if axis is None:
        return _median(g, g.reshape(x, [-1]), 0)[0]
    if g.rank(x) == 0:
        return x, g.constant(np.asarray(0, np.int64))
    axis = g.axis(x, axis)
    size = g.known(g.size(x, axis), "the number of elements of which there is a median")
    middle, where = _kth(g, x, (size + 1) // 2, axis, keepdim)
    if "float" in g.dtype(x):
        none = g.cast(g.op("IsNaN", x), "int32")
        some = g.op("Greater", reduced(g, "ReduceMax", none, axis, keepdim), 0)
        middle = g.op("Where", some, g.cast(np.nan, g.dtype(x)), middle)
        where = g.op("Where", some, g.op("ArgMax", none, axis=axis, keepdims=int(keepdim)), where)
    return middle, where


@TABLE.entry(aten.nanmedian)
def _median_of_numbers(g: OpWriter, x: Value, axis: int | None = None, keepdim: bool = False) -> Any:
    """The median of what is not NaN."""
    if axis is None:
        return _median_of_numbers(g, g.reshape(x, [-1]), 0)[0]
    if "float" not in g.dtype(x) or g.rank(x) == 0:
        return _median(g, x, axis, keepdim)
    axis, is_none = g.axis(x, axis), g.op("IsNaN", x)
    ordered, where = _sort(g, g.op("Where", is_none, g.cast(np.inf, g.dtype(x)), x), axis)
    count = reduced(g, "ReduceSum", g.cast(g.op("Not", is_none), "int64"), axis, True)
    middle = g.op("Max", g.op("Div", g.op("Sub", count, 1), np.asarray(2, np.int64)), 0)
    both = [g.op("GatherElements", v, middle, axis=axis) for v in (ordered, where)]
    both[0] = g.op("Where", g.op("Equal", count, 0), g.cast(np.nan, g.dtype(x)), both[0])
    return tuple(both if keepdim else [g.squeeze(v, axis) for v in both])


@TABLE.entry(aten.mode)
def _most_frequent(g: OpWriter, x: Value, axis: int = -1, keepdim: bool = False) -> tuple[Value, ...]:
    """The least of what is there most often, and where it is there last."""
    if g.rank(x) == 0:
        return x, g.constant(np.asarray(0, np.int64))
    last = g.swapped(x, axis, -1)
    rank = g.rank(last)
    ordered, _ = _sort(g, last, -1)
    same = g.cast(g.op("Equal", g.unsqueeze(ordered, rank), g.unsqueeze(ordered, rank - 1)), "int64")
    most = g.op("ArgMax", reduced(g, "ReduceSum", same, -1, False), axis=rank - 1, keepdims=1)
    value = g.op("GatherElements", ordered, most, axis=rank - 1)
    is_there = g.cast(g.op("Equal", last, value), "int32")
    where = g.op("ArgMax", is_there, axis=rank - 1, keepdims=1, select_last_index=1)
    both = [g.swapped(v, axis, -1) for v in (value, where)]
    return tuple(both if keepdim else [g.squeeze(v, axis) for v in both])


# -- searching


@TABLE.entry(aten.searchsorted)
def _search_sorted(
    g: OpWriter,
    bounds: Value,
    x: ValueLike,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """Each row of the values in the row of bounds that stands at its place, or in the one that there is."""
    if sorter is not None:
        bounds = _gather(g, bounds, -1, sorter)
    x = g.value(g.cast(x, g.dtype(bounds)) if not isinstance(x, Value) else x)
    rows = bounds if g.rank(bounds) == 1 else g.unsqueeze(bounds, g.rank(bounds) - 1)
    return _bucketize(g, x, rows, out_int32, right or side == "right")


@TABLE.entry(aten.bucketize.Scalar)
def _bucket_of_number(g: OpWriter, x: Any, bounds: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    return _search_sorted(g, bounds, x, out_int32=out_int32, right=right)


@TABLE.entry(aten.histc)
def _histogram(g: OpWriter, x: Value, bins: int = 100, least: float = 0, most: float = 0) -> Value:
    """How many elements are in each of so many even parts of a range, which is that of the elements where none is
    given; the last part has its end, too."""
    x = g.reshape(x, [-1])
    dtype = g.dtype(x)
    if least == most:
        low, high = (reduced(g, op, x, 0, True) for op in ("ReduceMin", "ReduceMax"))
        is_one = g.op("Equal", low, high)
        low, high = (g.op("Where", is_one, g.op(op, v, 1), v) for op, v in (("Sub", low), ("Add", high)))
    else:
        low, high = (g.constant(np.array([v], numpy_dtype(dtype))) for v in (least, most))
    wide = dtype if "float" in dtype else "float64"
    share = g.op("Div", *(g.op("Sub", g.cast(v, wide), g.cast(low, wide)) for v in (x, high)))
    part = g.op("Min", g.op("Floor", g.op("Mul", share, float(bins))), float(bins - 1))
    is_within = g.op("And", g.op("GreaterOrEqual", x, low), g.op("LessOrEqual", x, high))
    place = g.op("Where", is_within, part, g.cast(-1.0, wide))
    same = g.op("Equal", g.unsqueeze(place, 1), g.constant(np.arange(bins, dtype=wide)))
    return reduced(g, "ReduceSum", g.cast(same, dtype), 0, False)


@TABLE.entry(aten.bucketize.Tensor)
def _bucketize(g: OpWriter, x: Value, bounds: Value, out_int32: bool = False, right: bool = False) -> Value:
    dtype = g.name_of(torch.promote_types(getattr(torch, g.dtype(x)), getattr(torch, g.dtype(bounds))))
    left = g.unsqueeze(g.cast(x, dtype), g.rank(x))
    below = g.op("LessOrEqual" if right else "Less", g.cast(bounds, dtype), left)
    counts = g.op("ReduceSum", g.cast(below, "int64"), np.array([-1], np.int64), keepdims=0)
    return g.cast(counts, g.result_dtype())
