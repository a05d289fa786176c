"""Horizontal operations: single lanes, their order, and what all lanes of a vector give together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import llvmlite.ir as llvm

from graphopt.kernels import values
from graphopt.kernels.values import Value, element, is_float, is_signed


def shuffle(a: Value, b: Value, order: Sequence[int]) -> Value:
    """Two or more lanes, chosen by number from those of ``a`` followed by those of ``b``."""
    mask = llvm.Constant(llvm.VectorType(llvm.IntType(32), len(order)), list(order))
    return Value(a.builder, a.builder.shuffle_vector(a.ir, b.ir, mask), a.dtype, len(order))


def lane(v: Value, k: Value | int) -> Value:
    """One lane as a scalar; of a scalar, itself."""
    if v.lanes == 1:
        return v
    at = llvm.Constant(llvm.IntType(32), k) if isinstance(k, int) else k.ir
    return Value(v.builder, v.builder.extract_element(v.ir, at), v.dtype, 1)


def _fold(v: Value, combine: Callable[[Value, Value], Value]) -> Value:
    """The upper half of the lanes combined with the lower, until one is left: in an order that is always the same."""
    while v.lanes > 2:
        half = v.lanes // 2
        v = combine(shuffle(v, v, range(half)), shuffle(v, v, range(half, v.lanes)))
    return combine(lane(v, 0), lane(v, 1)) if v.lanes == 2 else v


def _reduce(v: Value, name: str) -> Value:
    if v.lanes == 1:
        return v
    full = f"llvm.vector.reduce.{name}.{values.suffix(v.ir.type)}"
    return Value(v.builder, values.call(v.builder, full, element(v.dtype), [v.ir]), v.dtype, 1)


def reduce_add(v: Value) -> Value:
    """The sum of the lanes: halves added to each other until one lane is left."""
    return _fold(v, Value.__add__) if is_float(v.dtype) else _reduce(v, "add")


def reduce_mul(v: Value) -> Value:
    """The product of the lanes: halves multiplied with each other until one lane is left."""
    return _fold(v, Value.__mul__) if is_float(v.dtype) else _reduce(v, "mul")


def reduce_max(v: Value) -> Value:
    """The largest lane; NaN where there is one."""
    if is_float(v.dtype):
        return _fold(v, values.maximum)
    return _reduce(v, "smax" if is_signed(v.dtype) else "umax")


def reduce_min(v: Value) -> Value:
    """The smallest lane; NaN where there is one."""
    if is_float(v.dtype):
        return _fold(v, values.minimum)
    return _reduce(v, "smin" if is_signed(v.dtype) else "umin")


def reduce_or(v: Value) -> Value:
    """The bits that any lane has; of a mask, whether any lane holds."""
    return _reduce(v, "or")


def reduce_and(v: Value) -> Value:
    """The bits that all lanes have; of a mask, whether all lanes hold."""
    return _reduce(v, "and")
