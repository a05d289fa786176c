"""Integer division, remainders and powers that never trap: division by zero gives 0."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core import cgutils

from graphopt.kernels import values
from graphopt.kernels.reductions import reduce_or
from graphopt.kernels.values import VectorValue, cast, equal, is_float, is_signed, not_equal, select, width


def quotient(a: VectorValue, b: VectorValue) -> VectorValue:
    """``a / b``; of integers rounded towards zero (C, and ONNX's Div), 0 where ``b`` is 0.

    Vectors of up to 32 bits are divided as floats, which is exact; so are those of 64 bits whose elements are exact as
    floats, as indices are, and else lane by lane.
    """
    if is_float(a.dtype):
        return a / b
    if width(a.dtype) <= 32 and a.lanes > 1:
        wide, whole = (types.float64, types.int64) if width(a.dtype) == 32 else (types.float32, types.int32)
        return select(equal(b, 0), a.number(0), cast(cast(cast(a, wide) / cast(b, wide), whole), a.dtype))
    if a.lanes > 1 and not _is_power(b):
        return _wide_quotient(a, b)
    return _lane_quotient(a, b)


def _is_power(b: VectorValue) -> bool:
    """Whether it is known to be a power of two in all lanes, which shifts divide by."""
    lanes = b.ir.constant if isinstance(b.ir, llvm.Constant) else ()
    numbers = {x.constant for x in lanes} if isinstance(lanes, list) else set()
    return len(numbers) == 1 and all(isinstance(n, int) and n > 0 and n.bit_count() == 1 for n in numbers)


def _wide_quotient(a: VectorValue, b: VectorValue) -> VectorValue:
    """Of 64 bits: an error of rounding is less than what a quotient of numbers of 53 bits is apart from the next."""
    builder = a.builder
    bits = (a ^ (a >> 63)) | (b ^ (b >> 63)) if is_signed(a.dtype) else a | b
    large = reduce_or(not_equal(bits >> 53, 0))
    branches = []
    with builder.if_else(large.ir, likely=False) as (by_lane, at_once):
        with by_lane:
            branches.append((_lane_quotient(a, b).ir, builder.block))
        with at_once:
            floats = cast(a, types.float64) / cast(b, types.float64)
            branches.append((select(equal(b, 0), a.number(0), cast(floats, a.dtype)).ir, builder.block))
    result = builder.phi(a.ir.type)
    for value, block in branches:
        result.add_incoming(value, block)
    return VectorValue(builder, result, a.dtype, a.lanes)


def _lane_quotient(a: VectorValue, b: VectorValue) -> VectorValue:
    """Lane by lane."""
    # The processor traps at division by zero, and at that of the smallest number by -1.
    trap = equal(b, 0) | equal(b, -1) if is_signed(b.dtype) else equal(b, 0)
    safe = select(trap, b.number(1), b)
    divide = a.builder.sdiv if is_signed(a.dtype) else a.builder.udiv
    result = VectorValue(a.builder, divide(a.ir, safe.ir), a.dtype, a.lanes)
    if is_signed(b.dtype):
        result = select(equal(b, -1), -a, result)
    return select(equal(b, 0), a.number(0), result)


def remainder(a: VectorValue, b: VectorValue) -> VectorValue:
    """The remainder of division towards zero, with the sign of ``a`` (C's fmod); of integers 0 where ``b`` is 0.

    Exact; of floats a call of libm's fmod or fmodf for each lane.
    """
    if is_float(a.dtype):
        return VectorValue(a.builder, a.builder.frem(a.ir, b.ir), a.dtype, a.lanes)
    return select(equal(b, 0), a.number(0), a - quotient(a, b) * b)


def floor_quotient(a: VectorValue, b: VectorValue) -> VectorValue:
    """Python's ``a // b``, rounded down; of integers 0 where ``b`` is 0, of floats the floor of ``a / b``."""
    if is_float(a.dtype):
        return values.floor(a / b)
    result = quotient(a, b)
    if not is_signed(a.dtype):
        return result
    left = a - result * b
    below = not_equal(left, 0) & ((left ^ b) < 0) & not_equal(b, 0)
    return select(below, result - 1, result)


def floor_remainder(a: VectorValue, b: VectorValue) -> VectorValue:
    """Python's ``a % b``, with the sign of ``b``; of integers 0 where ``b`` is 0."""
    left = remainder(a, b)
    if is_float(a.dtype):
        other_sign = (left < 0) ^ (b < 0)
    elif is_signed(a.dtype):
        other_sign = (left ^ b) < 0
    else:
        return left
    return select(not_equal(left, 0) & other_sign, left + b, left)


def integer_power(x: VectorValue, y: VectorValue) -> VectorValue:
    """``x**y`` of integers, wrapping around; with negative ``y`` 0, but 1 or -1 where ``x`` is that."""
    builder = x.builder
    if is_signed(y.dtype):
        vanishes = (y < 0) & not_equal(x, 1) & not_equal(x, -1)
        y = select(vanishes, y.number(0), y)
        first = select(vanishes, x.number(0), x.number(1))
    else:
        first = x.number(1)
    slots = [cgutils.alloca_once_value(builder, v.ir) for v in (first, x, y)]  # type: ignore[no-untyped-call]

    def load(slot: Any) -> VectorValue:
        return VectorValue(builder, builder.load(slot, typ=x.ir.type), x.dtype, x.lanes)

    # One bit of the exponent at a time; all that is negative has bits up to the last.
    bits = cgutils.intp_t(width(x.dtype))
    with cgutils.for_range(builder, bits) as loop:
        result, base, left = map(load, slots)
        with builder.if_then((~reduce_or(not_equal(left, 0))).ir, likely=False):
            loop.do_break()
        builder.store(select(not_equal(left & 1, 0), result * base, result).ir, slots[0])
        builder.store((base * base).ir, slots[1])
        builder.store(builder.lshr(left.ir, left.number(1).ir), slots[2])
    return load(slots[0])
