"""Sizes of tensors, Python's arithmetic with them, and tensors made of numbers and sizes."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphopt.frontends.torch.operators.elementwise import floor_quotient
from graphopt.frontends.torch.table import Emitter, Table
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


def _indices_of_triangle(function: Any) -> Emitter:
    def emit(g: OpWriter, rows: int, columns: int, offset: int = 0, **_: Any) -> Value:
        return g.constant(function(rows, columns, offset, dtype=getattr(torch, g.result_dtype())))

    return emit


TABLE.entry(aten.tril_indices)(_indices_of_triangle(torch.tril_indices))
TABLE.entry(aten.triu_indices)(_indices_of_triangle(torch.triu_indices))


@TABLE.entry(operator.getitem)
def _item_of(g: OpWriter, several: Any, index: int) -> Any:
    """One of several results."""
    return several[index]


@TABLE.entry(aten.sym_size.int)
def _size(g: OpWriter, x: Value, axis: int) -> Number:
    return g.size(x, axis)


@TABLE.entry(aten.sym_numel)
def _count(g: OpWriter, x: Value) -> Number:
    return g.product(g.sizes(x))


@TABLE.entry(aten.item, aten._local_scalar_dense)
def _element(g: OpWriter, x: Value) -> Value:
    return g.scalar(x)


@TABLE.entry(
    aten._assert_scalar,
    aten._assert_async,
    aten._assert_tensor_metadata,
    aten.sym_constrain_range,
    aten.sym_constrain_range_for_size,
)
def _nothing(g: OpWriter, *_: Any, **__: Any) -> None:
    """What torch has made sure of."""


def _of_numbers(function: Any, op: str, **attrs: Any) -> Emitter:
    """Python's own function where all is known; else an op on integers, or on floats where there is one."""

    def emit(g: OpWriter, *numbers: ValueLike) -> Any:
        if not any(isinstance(n, Value) for n in numbers):
            return function(*numbers)
        dtype = _wider(g, numbers)
        return g.op(op, *(g.cast(n, dtype) for n in numbers), **attrs)

    return emit


def _wider(g: OpWriter, numbers: tuple[ValueLike, ...]) -> str:
    is_float = any("float" in g.dtype(n) if isinstance(n, Value) else isinstance(n, float) for n in numbers)
    return "float64" if is_float else "int64"


for _function, _op in {
    operator.add: "Add",
    operator.sub: "Sub",
    operator.mul: "Mul",
    operator.mod: "Mod",
    operator.neg: "Neg",
    operator.eq: "Equal",
    operator.lt: "Less",
    operator.gt: "Greater",
    operator.le: "LessOrEqual",
    operator.ge: "GreaterOrEqual",
    torch.sym_max: "Max",
    torch.sym_min: "Min",
}.items():
    TABLE.entry(_function)(_of_numbers(_function, _op))


@TABLE.entry(operator.floordiv)
def _floor_divide(g: OpWriter, a: ValueLike, b: ValueLike) -> Any:
    if not isinstance(a, Value) and not isinstance(b, Value):
        return operator.floordiv(a, b)
    dtype = _wider(g, (a, b))
    if isinstance(a, Value) and isinstance(b, int) and b > 0 and g.is_size(a):  # rounded down or to 0 is the same
        return g.op("Div", g.cast(a, dtype), g.cast(b, dtype))
    return floor_quotient(g, g.cast(a, dtype), g.cast(b, dtype), dtype)


@TABLE.entry(operator.truediv)
def _divide(g: OpWriter, a: ValueLike, b: ValueLike) -> Any:
    if not isinstance(a, Value) and not isinstance(b, Value):
        return operator.truediv(a, b)
    return g.op("Div", g.cast(a, "float64"), g.cast(b, "float64"))


@TABLE.entry(operator.pow)
def _power(g: OpWriter, a: ValueLike, b: ValueLike) -> Any:
    if not isinstance(a, Value) and not isinstance(b, Value):
        return operator.pow(a, b)
    dtype = _wider(g, (a, b))
    return g.op("Pow", g.cast(a, dtype), g.cast(b, dtype))


@TABLE.entry(torch.sym_float)
def _as_float(g: OpWriter, a: ValueLike) -> Any:
    return g.cast(a, "float64") if isinstance(a, Value) else float(a)  # type: ignore[arg-type]


@TABLE.entry(torch.sym_int, math.trunc)
def _as_integer(g: OpWriter, a: ValueLike) -> Any:
    return g.cast(a, "int64") if isinstance(a, Value) else int(a)  # type: ignore[arg-type]


@TABLE.entry(math.floor)
def _floor(g: OpWriter, a: ValueLike) -> Any:
    return g.cast(g.op("Floor", a), "int64") if isinstance(a, Value) else math.floor(a)  # type: ignore[arg-type]


@TABLE.entry(math.ceil)
def _ceil(g: OpWriter, a: ValueLike) -> Any:
    return g.cast(g.op("Ceil", a), "int64") if isinstance(a, Value) else math.ceil(a)  # type: ignore[arg-type]


@TABLE.entry(torch.sym_not)
def _negation(g: OpWriter, a: ValueLike) -> Any:
    return g.op("Not", a) if isinstance(a, Value) else not a
