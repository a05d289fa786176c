"""Reductions along axes: sums, means, extremes and norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeAlias

import numpy as np
import torch

from graphopt.frontends.torch.table import Emitter, Table
from graphopt.frontends.torch.writer import OpWriter
from graphopt.ir.graph import Value

TABLE = Table()
aten = torch.ops.aten

Axes: TypeAlias = "int | Sequence[int] | None"


def reduced(g: OpWriter, op: str, x: Value, axes: Axes, keep: bool) -> Value:
    """The value reduced along axes; of rank 0 there is nothing to reduce."""
    reduced_axes = g.axes(x, axes)
    return g.op(op, x, np.array(reduced_axes, np.int64), keepdims=int(keep)) if reduced_axes else x


def _reduction(op: str) -> Emitter:
    def emit(g: OpWriter, x: Value, axes: Axes = None, keepdim: bool = False, dtype: Any = None) -> Value:
        return reduced(g, op, g.cast(x, g.result_dtype()), axes, keepdim)

    return emit


for _target, _op in {
    aten.sum: "ReduceSum",
    aten.mean: "ReduceMean",
    aten.amax: "ReduceMax",
    aten.amin: "ReduceMin",
    aten.logsumexp: "ReduceLogSumExp",
    aten.prod: "ReduceProd",
}.items():
    TABLE.entry(_target)(_reduction(_op))


def _logical(op: str) -> Emitter:
    """Of no elements at all none is true, and all are: so does the least and the greatest integer say."""

    def emit(g: OpWriter, x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
        truth = g.cast(g.cast(x, "bool"), "int32")
        return g.op("Greater", reduced(g, op, truth, axes, keepdim), 0)

    return emit


TABLE.entry(aten.any)(_logical("ReduceMax"))
TABLE.entry(aten.all)(_logical("ReduceMin"))


def _extreme(op: str, index: str) -> Emitter:
    def emit(g: OpWriter, x: Value, axis: Any = None, keepdim: bool = False) -> Any:
        if axis is None:
            return reduced(g, op, x, None, False)
        if isinstance(axis, Value):  # of two tensors
            dtype = g.result_dtype()
            return g.op(op.removeprefix("Reduce"), g.cast(x, dtype), g.cast(axis, dtype))
        if g.rank(x) == 0:
            return x, g.constant(np.asarray(0, np.int64))
        where = g.op(index, x, axis=g.axis(x, axis), keepdims=int(keepdim))
        return reduced(g, op, x, axis, keepdim), where

    return emit


TABLE.entry(aten.max)(_extreme("ReduceMax", "ArgMax"))
TABLE.entry(aten.min)(_extreme("ReduceMin", "ArgMin"))


def _place(op: str) -> Emitter:
    def emit(g: OpWriter, x: Value, axis: int | None = None, keepdim: bool = False) -> Value:
        if g.dtype(x) == "bool":
            x = g.cast(x, "int32")
        if axis is None:
            flat = g.op(op, g.reshape(x, [-1]), axis=0, keepdims=0)
            return g.reshape(flat, [1] * g.rank(x)) if keepdim else flat
        if g.rank(x) == 0:
            return g.constant(np.asarray(0, np.int64))
        return g.op(op, x, axis=g.axis(x, axis), keepdims=int(keepdim))

    return emit


TABLE.entry(aten.argmax)(_place("ArgMax"))
TABLE.entry(aten.argmin)(_place("ArgMin"))


@TABLE.entry(aten.var_mean.correction)
def _variance_and_mean(
    g: OpWriter, x: Value, axes: Axes = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Value, Value]:
    mean = reduced(g, "ReduceMean", x, axes, True)
    away = g.op("Sub", x, mean)
    squares = g.op("Mul", away, away)
    correction = 1 if correction is None else correction
    if correction == 0:
        variance = reduced(g, "ReduceMean", squares, axes, keepdim)
    else:
        count = g.cast(g.product([g.size(x, a) for a in g.axes(x, axes)]), g.dtype(x))
        less = g.op("Max", g.op("Sub", g.value(count), correction), 0)
        variance = g.op("Div", reduced(g, "ReduceSum", squares, axes, keepdim), less)
    return variance, mean if keepdim else reduced(g, "ReduceMean", x, axes, False)


@TABLE.entry(aten.var.correction)
def _variance(
    g: OpWriter, x: Value, axes: Axes = None, *, correction: float | None = None, keepdim: bool = False
) -> Value:
    return _variance_and_mean(g, x, axes, correction=correction, keepdim=keepdim)[0]


@TABLE.entry(aten.std.correction)
def _deviation(
    g: OpWriter, x: Value, axes: Axes = None, *, correction: float | None = None, keepdim: bool = False
) -> Value:
    return g.op("Sqrt", _variance(g, x, axes, correction=correction, keepdim=keepdim))


@TABLE.entry(aten.linalg_vector_norm)
def _vector_norm(
    g: OpWriter, x: Value, order: float = 2, axes: Axes = None, keepdim: bool = False, *, dtype: Any = None
) -> Value:
    return _norm_of(g, g.cast(x, g.result_dtype()), order, axes, keepdim)


@TABLE.entry(aten.norm.ScalarOpt_dim, aten.norm.Scalar)
def _norm(g: OpWriter, x: Value, order: float | None = 2, axes: Axes = None, keepdim: bool = False) -> Value:
    return _norm_of(g, x, 2 if order is None else order, axes, keepdim)


def _norm_of(g: OpWriter, x: Value, order: float, axes: Axes, keepdim: bool) -> Value:
    if order == 0:
        return reduced(g, "ReduceSum", g.cast(g.cast(x, "bool"), g.dtype(x)), axes, keepdim)
    if g.rank(x) == 0:
        return g.op("Abs", x)
    if order in (1, 2):
        return reduced(g, f"ReduceL{order:.0f}", x, axes, keepdim)
    if order in (inf, -inf):
        return reduced(g, "ReduceMax" if order > 0 else "ReduceMin", g.op("Abs", x), axes, keepdim)
    total = reduced(g, "ReduceSum", g.op("Pow", g.op("Abs", x), order), axes, keepdim)
    return g.op("Pow", total, 1 / order)


@TABLE.entry(aten.cumsum)
def _running_sum(g: OpWriter, x: Value, axis: int, dtype: Any = None) -> Value:
    x = g.cast(x, g.result_dtype())
    return g.op("CumSum", x, np.asarray(g.axis(x, axis), np.int64)) if g.rank(x) else x


@TABLE.entry(aten.softmax.int, aten._softmax)
def _softmax(g: OpWriter, x: Value, axis: int, *_: Any, **__: Any) -> Value:
    return _along(g, "Softmax", x, axis)


def _along(g: OpWriter, op: str, x: Value, axis: int) -> Value:
    """An op along an axis, which a value of rank 0 is given and loses again."""
    x = g.cast(x, g.result_dtype())
    return g.op(op, x, axis=g.axis(x, axis)) if g.rank(x) else g.scalar(g.op(op, g.unsqueeze(x, 0), axis=0))


@TABLE.entry(aten._safe_softmax)
def _safe_softmax(g: OpWriter, x: Value, axis: int, dtype: Any = None) -> Value:
    """0 where all that the softmax is of is -inf."""
    result = _softmax(g, x, axis)
    most = reduced(g, "ReduceMax", x, axis, True)
    return g.op("Where", g.op("Equal", most, -inf), g.cast(0, g.dtype(result)), result)


@TABLE.entry(aten.log_softmax.int, aten._log_softmax)
def _log_softmax(g: OpWriter, x: Value, axis: int, *_: Any, **__: Any) -> Value:
    return _along(g, "LogSoftmax", x, axis)


# -- running results


def _scanned(g: OpWriter, parts: Sequence[Value], axis: int, join: Callable[..., Sequence[Value]]) -> Sequence[Value]:
    """Along an axis, what is joined of all elements up to each: of 2 at first, then of 4, and so on.

    ``join`` takes the parts of what comes first and those of what follows it.
    """
    size = g.known(g.size(parts[0], axis), "the size of an axis along which results run")
    step = 1
    while step < size:
        first, last = ([g.slice(p, axis, *ends) for p in parts] for ends in ((0, size - step), (step, size)))
        joined = join(first, last)
        parts = [g.op("Concat", g.slice(p, axis, 0, step), q, axis=axis) for p, q in zip(parts, joined, strict=True)]
        step *= 2
    return parts


@TABLE.entry(aten.cumprod)
def _running_product(g: OpWriter, x: Value, axis: int, dtype: Any = None) -> Value:
    x = g.cast(x, g.result_dtype())
    return _scanned(g, [x], g.axis(x, axis), lambda a, b: [g.op("Mul", a[0], b[0])])[0] if g.rank(x) else x


@TABLE.entry(aten.logcumsumexp)
def _running_log_of_sum(g: OpWriter, x: Value, axis: int) -> Value:
    """log(exp(a) + exp(b)) as the larger and what the smaller adds to it."""

    def join(a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
        most, least = g.op("Max", a[0], b[0]), g.op("Min", a[0], b[0])
        added = g.op("Softplus", g.op("Sub", least, most))
        return [g.op("Where", g.op("IsInf", most), most, g.op("Add", most, added))]

    return _scanned(g, [x], g.axis(x, axis), join)[0] if g.rank(x) else x


def _running_extreme(is_later: str) -> Emitter:
    """Of equal elements the last one counts, and NaN before all numbers."""

    def emit(g: OpWriter, x: Value, axis: int) -> Sequence[Value]:
        if g.rank(x) == 0:
            return x, g.constant(np.asarray(0, np.int64))
        axis = g.axis(x, axis)
        plain = g.cast(x, "int32") if g.dtype(x) == "bool" else x

        def join(a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
            later = g.op(is_later, b[0], a[0])
            if "float" in g.dtype(x):
                later = g.op("Or", later, g.op("IsNaN", b[0]))
            return [g.op("Where", later, new, old) for new, old in zip(b, a, strict=True)]

        places = g.unsqueeze(g.indices(g.size(x, axis)), *range(1, g.rank(x) - axis))
        extremes, where = _scanned(g, [plain, g.expand(places, g.sizes(x))], axis, join)
        return g.cast(extremes, g.dtype(x)), where

    return emit


TABLE.entry(aten.cummax)(_running_extreme("GreaterOrEqual"))
TABLE.entry(aten.cummin)(_running_extreme("LessOrEqual"))


# -- distances


@TABLE.entry(aten._cdist_forward, aten.cdist)
def _distances(g: OpWriter, a: Value, b: Value, order: float = 2, mode: int | None = None) -> Value:
    """Between the rows of one matrix and those of another."""
    apart = g.op("Sub", g.unsqueeze(a, g.rank(a) - 1), g.unsqueeze(b, g.rank(b) - 2))
    return _norm_of(g, apart, order, -1, False)


@TABLE.entry(aten._euclidean_dist)
def _plain_distances(g: OpWriter, a: Value, b: Value) -> Value:
    return _distances(g, a, b)


@TABLE.entry(aten._pdist_forward, aten.pdist)
def _distances_within(g: OpWriter, x: Value, order: float = 2) -> Value:
    """Between each two rows of a matrix."""
    count = g.known(g.size(x, 0), "the number of rows between which distances are taken")
    one, other = (g.op("Gather", x, np.asarray(k, np.int64), axis=0) for k in np.triu_indices(count, 1))
    return _norm_of(g, g.op("Sub", one, other), order, -1, False)
