"""Half precision: float16 and bfloat16 stored as uint16 and computed as float32.

Rounding is to nearest, ties to even; what is too large becomes infinite; a NaN stays one. With float16 on a processor
without F16C, LLVM calls ``__extendhfsf2`` and ``__truncsfhf2``.
"""

from __future__ import annotations

import llvmlite.ir as llvm
from numba import types

from graphopt.kernels.values import VectorValue, bits, cast, from_bits, isnan, select


def _half(lanes: int) -> llvm.Type:
    return llvm.HalfType() if lanes == 1 else llvm.VectorType(llvm.HalfType(), lanes)


def from_half(stored: VectorValue) -> VectorValue:
    """The float32 of float16 bits; exact."""
    half = stored.builder.bitcast(stored.ir, _half(stored.lanes))
    wide = llvm.FloatType() if stored.lanes == 1 else llvm.VectorType(llvm.FloatType(), stored.lanes)
    return VectorValue(stored.builder, stored.builder.fpext(half, wide), types.float32, stored.lanes)


def to_half(x: VectorValue) -> VectorValue:
    """The bits of the nearest float16."""
    half = x.builder.fptrunc(x.ir, _half(x.lanes))
    narrow = llvm.IntType(16) if x.lanes == 1 else llvm.VectorType(llvm.IntType(16), x.lanes)
    return VectorValue(x.builder, x.builder.bitcast(half, narrow), types.uint16, x.lanes)


def from_bfloat(stored: VectorValue) -> VectorValue:
    """The float32 of bfloat16 bits; exact."""
    return from_bits(cast(stored, types.int32) << 16)


def to_bfloat(x: VectorValue) -> VectorValue:
    """The bits of the nearest bfloat16."""
    whole = cast(bits(x), types.uint32)
    rounded = (whole + 0x7FFF + ((whole >> 16) & 1)) >> 16
    # The carry would turn some NaNs into infinities or zeros.
    return cast(select(isnan(x), (whole >> 16) | 0x40, rounded), types.uint16)
