"""C library calls: mathematical functions without a polynomial here, lane by lane."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as llvm
from numba.core import cgutils

from graphopt.kernels import values
from graphopt.kernels.values import VectorValue, element, width


def each(name: str, *args: VectorValue) -> VectorValue:
    """The C function of each lane; ``name`` is that for float64, the one for float32 ends in ``f``."""
    x = args[0]
    symbol = name + "f" * (width(x.dtype) == 32)
    builder, one = x.builder, element(x.dtype)
    if x.lanes == 1:
        return VectorValue(builder, values.call(builder, symbol, one, [arg.ir for arg in args]), x.dtype, 1)
    slot = cgutils.alloca_once_value(builder, x.ir)  # type: ignore[no-untyped-call]
    lanes = llvm.Constant(llvm.IntType(64), x.lanes)
    with cgutils.for_range(builder, lanes) as loop:
        parts = [builder.extract_element(arg.ir, loop.index) for arg in args]
        got: Any = values.call(builder, symbol, one, parts)
        so_far = builder.load(slot, typ=x.ir.type)
        builder.store(builder.insert_element(so_far, got, loop.index), slot)
    return VectorValue(builder, builder.load(slot, typ=x.ir.type), x.dtype, x.lanes)
