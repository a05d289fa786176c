"""Sizes of tensors, and Python's arithmetic with them."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

from graphopt.frontends.torch.operators.elementwise import floor_quotient
from graphopt.frontends.torch.table import Emitter, Table
from graphopt.frontends.torch.writer import Number, OpWriter, ValueLike
from graphopt.ir.graph import Value

TABLE = Table()
aten = torch.ops.aten


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
