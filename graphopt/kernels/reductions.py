"""Horizontal operations: extracts, shuffles, and reductions across a vector's lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import llvmlite.ir as llvm

from graphopt.kernels import values
from graphopt.kernels.values import VectorValue, element, is_float, is_signed


def shuffle(a: VectorValue, b: VectorValue, order: Sequence[int]) -> VectorValue:
    """Two or more lanes, chosen by number from those of ``a`` followed by those of ``b``."""
    mask = llvm.Constant(llvm.VectorType(llvm.IntType(32), len(order)), list(order))
    return VectorValue(a.builder, a.builder.shuffle_vector(a.ir, b.ir, mask), a.dtype, len(order))


def lane(v: VectorValue, k: VectorValue | int) -> VectorValue:
    """One lane as a scalar; of a scalar, itself."""
    if v.lanes == 1:
        return v
    at = llvm.Constant(llvm.IntType(32), k) if isinstance(k, int) else k.ir
    return VectorValue(v.builder, v.builder.extract_element(v.ir, at), v.dtype, 1)


def _fold(v: VectorValue, combine: Callable[[VectorValue, VectorValue], VectorValue]) -> VectorValue:
    """The upper half of the lanes combined with the lower, until one is left: in an order that is always the same."""
    while v.lanes > 2:
        half = v.lanes // 2
        v = combine(shuffle(v, v, range(half)), shuffle(v, v, range(half, v.lanes)))
    return combine(lane(v, 0), lane(v, 1)) if v.lanes == 2 else v


def _reduce(v: VectorValue, name: str) -> VectorValue:
    if v.lanes == 1:
        return v
    full = f"llvm.vector.reduce.{name}.{values.suffix(v.ir.type)}"
    return VectorValue(v.builder, values.call(v.builder, full, element(v.dtype), [v.ir]), v.dtype, 1)


def reduce_add(v: VectorValue) -> VectorValue:
    """The sum of the lanes: halves added to each other until one lane is left."""
    return _fold(v, VectorValue.__add__) if is_float(v.dtype) else _reduce(v, "add")


def reduce_mul(v: VectorValue) -> VectorValue:
    """The product of the lanes: halves multiplied with each other until one lane is left."""
    return _fold(v, VectorValue.__mul__) if is_float(v.dtype) else _reduce(v, "mul")


def reduce_max(v: VectorValue) -> VectorValue:
    """The largest lane; NaN where there is one."""
    if is_float(v.dtype):
        return _fold(v, values.maximum)
    return _reduce(v, "smax" if is_signed(v.dtype) else "umax")


def reduce_min(v: VectorValue) -> VectorValue:
    """The smallest lane; NaN where there is one."""
    if is_float(v.dtype):
        return _fold(v, values.minimum)
    return _reduce(v, "smin" if is_signed(v.dtype) else "umin")


def reduce_or(v: VectorValue) -> VectorValue:
    """The bits that any lane has; of a mask, whether any lane holds."""
    return _reduce(v, "or")


def reduce_and(v: VectorValue) -> VectorValue:
    """The bits that all lanes have; of a mask, whether all lanes hold."""
    return _reduce(v, "and")
