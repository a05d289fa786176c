"""Thread indices, barriers, and warp shuffles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as llvm
from numba import types

from graphopt.kernels import values
from graphopt.kernels.cuda.device import elementwise
from graphopt.kernels.cuda.limits import WARP
from graphopt.kernels.cuda.target import intrinsic
from graphopt.kernels.values import VectorValue, cast, is_float, width

_WORD = llvm.IntType(32)


def _index(register: str, name: str) -> Any:
    def resolve(typing_context: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, irs: Any) -> Any:
            # Less than 2**31, which NVVM knows of the register.
            return builder.zext(
                values.call(builder, f"llvm.nvvm.read.ptx.sreg.{register}", _WORD, []), llvm.IntType(64)
            )

        return types.int64(), generate

    resolve.__name__ = name
    resolve.__doc__ = f"``{name}()``: the number of the {name[:-2]} along axis {name[-1]}, an int64."
    return intrinsic(resolve)


@intrinsic
def barrier(typing_context: Any) -> Any:
    """``barrier()``: waits until all threads of the block are here, and see what the others wrote before."""

    def generate(context: Any, builder: Any, sig: Any, irs: Any) -> Any:
        values.call(builder, "llvm.nvvm.barrier0", llvm.VoidType(), [])
        return context.get_dummy_value()

    return types.none(), generate


def _word_of_other(x: Any, builder: Any, distance: int) -> Any:
    """32 bits of the thread of the warp whose number differs in one bit."""
    result = llvm.LiteralStructType([_WORD, llvm.IntType(1)])
    butterfly = 3
    args = [llvm.Constant(_WORD, n) for n in (-1, butterfly, distance, WARP - 1)]
    got = values.call(builder, "llvm.nvvm.shfl.sync.i32", result, [*args[:2], x, *args[2:]])
    return builder.extract_value(got, 0)


def _of_other(x: VectorValue, distance: int) -> VectorValue:
    """The value that the thread of the warp has whose number differs in one bit."""
    b, size = x.builder, width(x.dtype)
    whole = b.bitcast(x.ir, llvm.IntType(size))
    parts = [b.trunc(b.lshr(whole, whole.type(32 * k)), _WORD) if size > 32 else whole for k in range(size // 32)]
    got = [_word_of_other(part, b, distance) for part in parts]
    whole = got[0]
    if size > 32:
        low, high = (b.zext(part, llvm.IntType(size)) for part in got)
        whole = b.or_(low, b.shl(high, high.type(32)))
    return VectorValue(b, b.bitcast(whole, x.ir.type), x.dtype, 1)


def _in_warp(name: str, combine: Callable[[VectorValue, VectorValue], VectorValue], what: str) -> Any:
    def trace(x: VectorValue) -> VectorValue:
        dtype = x.dtype
        if not is_float(dtype) and width(dtype) < 32:
            x = cast(x, types.int32 if values.is_signed(dtype) else types.uint32)
        distance = WARP // 2
        while distance:
            x = combine(x, _of_other(x, distance))
            distance //= 2
        return cast(x, dtype)

    trace.__name__ = name
    trace.__doc__ = f"``{name}(x)``: {what} of the 32 threads of the warp, in all of them; all have to call it."
    return elementwise(trace, "fi")


block_x, block_y, block_z = (_index(f"ctaid.{axis}", f"block_{axis}") for axis in "xyz")
thread_x, thread_y, thread_z = (_index(f"tid.{axis}", f"thread_{axis}") for axis in "xyz")
warp_add = _in_warp("warp_add", lambda a, b: a + b, "the sum")
warp_max = _in_warp("warp_max", values.maximum, "the largest (NaN where one is)")
warp_min = _in_warp("warp_min", values.minimum, "the smallest (NaN where one is)")
