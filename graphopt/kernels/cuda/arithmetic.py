"""Scalar arithmetic of CUDA kernels, with the names and results of the CPU's.

The formulas are the CPU's own, written over values; where they need a function of LLVM that NVVM does not have, one of
libdevice gives the same.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core.errors import TypingError

from graphopt.kernels import division, halves, values
from graphopt.kernels.cuda.device import elementwise, function
from graphopt.kernels.cuda.libdevice import called, of_floats
from graphopt.kernels.values import VectorValue, is_float
from graphopt.kernels.vector_type import check, dtype_of, meet, to_mask


def _cast(x: Any, dtype: Any) -> Any:
    """``cast(x, float32)``: the scalar as another dtype, as C casts it (``vectors.cast``)."""
    target = _dtype(dtype)
    return target, lambda x, _: values.cast(x, target)


def _saturate(x: Any, dtype: Any) -> Any:
    """``saturate(x, int8)``: held to the range of an integer dtype and cast; floats are truncated, NaN gives 0."""
    target = _dtype(dtype)
    if not isinstance(target, types.Integer):
        raise TypingError(f"saturate to {target}: expected an integer")
    return target, lambda x, _: values.saturate(x, target)


def _select(mask: Any, a: Any, b: Any) -> Any:
    """``select(mask, a, b)``: ``a`` where the mask holds, else ``b``; both are computed."""
    if dtype_of(mask) != types.boolean:
        raise TypingError(f"select by {mask}: expected a boolean")
    dtype, _ = check("select", (a, b), "fib")
    return dtype, lambda mask, a, b: values.select(mask, meet(a, dtype, 1), meet(b, dtype, 1))


def _dtype(kind: Any) -> Any:
    if not isinstance(kind, types.NumberClass):
        raise TypingError(f"{kind} is no dtype: expected float32, int8, boolean or the like")
    return kind.instance_type


def _round_even(x: VectorValue) -> VectorValue:
    """The nearest whole number, the even one of two (ONNX's Round)."""
    return called("rint", x)


def _copysign(x: VectorValue, sign: VectorValue) -> VectorValue:
    """The magnitude of ``x`` with the sign of ``sign``."""
    return called("copysign", x, sign)


def _isinf(x: VectorValue) -> VectorValue:
    """Whether it is infinite, of either sign."""
    return values.equal(called("fabs", x), float("inf"))


def _product(a: VectorValue, b: VectorValue) -> VectorValue:
    """The product of floats, rounded by itself: it is contracted with no sum."""
    symbol = "__nv_fmul_rn" if values.width(a.dtype) == 32 else "__nv_dmul_rn"
    return VectorValue(a.builder, values.call(a.builder, symbol, a.ir.type, [a.ir, b.ir]), a.dtype, 1)


def _remainder(a: VectorValue, b: VectorValue) -> VectorValue:
    """The remainder of division towards zero, with the sign of ``a`` (C's fmod); of integers 0 where ``b`` is 0.
    Exact."""
    return called("fmod", a, b) if is_float(a.dtype) else division.remainder(a, b)


def _from_half(x: Any) -> Any:
    """``from_half(x)``: a float16, kept as uint16, as float32."""
    return types.float32, halves.from_half


def _from_bfloat(x: Any) -> Any:
    """``from_bfloat(x)``: a bfloat16, kept as uint16, as float32."""
    return types.float32, halves.from_bfloat


def _to_half(x: Any) -> Any:
    """``to_half(x)``: the float16 nearest to a float32, kept as uint16."""
    return types.uint16, lambda x: halves.to_half(values.cast(x, types.float32))


def _to_bfloat(x: Any) -> Any:
    """``to_bfloat(x)``: the bfloat16 nearest to a float32, kept as uint16."""
    return types.uint16, lambda x: halves.to_bfloat(values.cast(x, types.float32))


def _sign(x: VectorValue) -> VectorValue:
    """-1, 0 or 1; zeros and NaN as they are."""
    positive = values.select(x > 0, x.number(1), x)
    return values.select(x < 0, x.number(-1), positive) if is_float(x.dtype) or values.is_signed(x.dtype) else positive


cast, saturate, select = function(_cast), function(_saturate), function(_select)
fma = elementwise(values.fma, "fi")
product = elementwise(_product)
minimum = elementwise(values.minimum, "fi")
maximum = elementwise(values.maximum, "fi")
sqrt = elementwise(values.sqrt)
floor, ceil, trunc = (elementwise(of_floats(name)) for name in ("floor", "ceil", "trunc"))
round_even = elementwise(_round_even)
copysign = elementwise(_copysign)
isnan = elementwise(values.isnan, "f", to_mask)
isinf = elementwise(_isinf, "f", to_mask)
bits = elementwise(values.bits, "f", lambda dtype: values.integer(dtype.bitwidth))
from_bits = elementwise(values.from_bits, "i", lambda dtype: values.floats(dtype.bitwidth))
quotient = elementwise(division.quotient, "fi")
remainder = elementwise(_remainder, "fi")
shift_left = elementwise(values.shift_left, "i")
shift_right = elementwise(values.shift_right, "i")
from_half, to_half = function(_from_half), function(_to_half)
from_bfloat, to_bfloat = function(_from_bfloat), function(_to_bfloat)
sign = elementwise(_sign, "fi")
