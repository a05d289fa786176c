"""Creation of tensors from numbers and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphopt.frontends.torch.table import Table
from graphopt.frontends.torch.writer import Number, OpWriter, ValueLike
from graphopt.ir.graph import Value
from graphopt.ir.onnx_io.tensors import numpy_dtype

TABLE = Table()
aten = torch.ops.aten


def filled(g: OpWriter, size: Sequence[Number], element: ValueLike, dtype: str) -> Value:
    """A value of this size with one element throughout."""
    value = g.cast(element, dtype)
    numbers = [g.number(n) for n in size]
    if isinstance(value, Value):
        return g.expand(value, numbers)
    if any(isinstance(n, Value) for n in numbers):
        return g.op("Expand", g.constant(value), g.integers(numbers))
    return g.filled(value, tuple(int(n) for n in numbers))  # type: ignore[arg-type]


@TABLE.entry(aten.full)
def _full(g: OpWriter, size: Sequence[Number], element: ValueLike, **_: Any) -> Value:
    return filled(g, size, element, g.result_dtype())


@TABLE.entry(aten.new_full)
def _new_full(g: OpWriter, x: Value, size: Sequence[Number], element: ValueLike, **_: Any) -> Value:
    return filled(g, size, element, g.result_dtype())


@TABLE.entry(aten.zeros, aten.empty.memory_format)
def _zeros(g: OpWriter, size: Sequence[Number], **_: Any) -> Value:
    return filled(g, size, 0, g.result_dtype())


@TABLE.entry(aten.empty_permuted)
def _empty_permuted(g: OpWriter, size: Sequence[Number], order: Sequence[int], **_: Any) -> Value:
    return filled(g, size, 0, g.result_dtype())


@TABLE.entry(aten.ones)
def _ones(g: OpWriter, size: Sequence[Number], **_: Any) -> Value:
    return filled(g, size, 1, g.result_dtype())


@TABLE.entry(aten.new_zeros, aten.new_empty, aten.new_empty_strided)
def _new_zeros(g: OpWriter, x: Value, size: Sequence[Number], *_: Any, **__: Any) -> Value:
    return filled(g, size, 0, g.result_dtype())


@TABLE.entry(aten.new_ones)
def _new_ones(g: OpWriter, x: Value, size: Sequence[Number], **_: Any) -> Value:
    return filled(g, size, 1, g.result_dtype())


@TABLE.entry(aten.full_like)
def _full_like(g: OpWriter, x: Value, element: ValueLike, **_: Any) -> Value:
    return filled(g, g.sizes(x), element, g.result_dtype())


@TABLE.entry(aten.zeros_like, aten.empty_like)
def _zeros_like(g: OpWriter, x: Value, **_: Any) -> Value:
    return filled(g, g.sizes(x), 0, g.result_dtype())


@TABLE.entry(aten.ones_like)
def _ones_like(g: OpWriter, x: Value, **_: Any) -> Value:
    return filled(g, g.sizes(x), 1, g.result_dtype())


@TABLE.entry(aten.fill)
def _fill(g: OpWriter, x: Value, element: ValueLike) -> Value:
    return filled(g, g.sizes(x), element, g.dtype(x))


@TABLE.entry(aten.scalar_tensor)
def _scalar_tensor(g: OpWriter, element: ValueLike, **_: Any) -> Value:
    return g.value(g.cast(element, g.result_dtype()))


@TABLE.entry(aten.arange.default)
def _arange(g: OpWriter, end: ValueLike, **_: Any) -> Value:
    return _arange_from(g, 0, end)


@TABLE.entry(aten.arange.start, aten.arange.start_step)
def _arange_from(g: OpWriter, start: ValueLike, end: ValueLike, step: ValueLike = 1, **_: Any) -> Value:
    dtype = g.result_dtype()
    bounds = [g.number(v) if isinstance(v, Value) else v for v in (start, end, step)]
    if not any(isinstance(v, Value) for v in bounds):
        return g.constant(torch.arange(*bounds, dtype=getattr(torch, dtype)))
    wide = dtype if dtype in ("int16", "int32", "int64", "float32", "float64") else "int64"
    return g.cast(g.op("Range", *(g.cast(v, wide) for v in bounds)), dtype)


@TABLE.entry(aten.eye.default, aten.eye.m)
def _eye(g: OpWriter, rows: Number, columns: Number | None = None, **_: Any) -> Value:
    n = g.known(rows, "the size of a unit matrix")
    m = n if columns is None else g.known(columns, "the size of a unit matrix")
    return g.constant(np.eye(n, m, dtype=numpy_dtype(g.result_dtype())))
