"""Values of LLVM code under construction: scalars, and vectors.

Python's operators on a ``VectorValue`` append instructions, so a formula written once over values serves scalars and
vectors of every width, and costs no compilation of its own: it becomes part of the kernel that uses it. Plain numbers
in a formula are constants of the dtype of the value that they meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core import cgutils

from graphopt.frozen import dataclass
from graphopt.runtime import cpu

Immediate = int | float


def element(dtype: Any) -> Any:
    """The LLVM type of one lane of a numba dtype: a mask's lane is one bit."""
    if isinstance(dtype, types.Boolean):
        return llvm.IntType(1)
    if is_float(dtype):
        return {32: llvm.FloatType(), 64: llvm.DoubleType()}[dtype.bitwidth]
    return llvm.IntType(dtype.bitwidth)


def llvm_type(dtype: Any, lanes: int) -> Any:
    """The LLVM type of a value: a vector, or for one lane the element itself."""
    return element(dtype) if lanes == 1 else llvm.VectorType(element(dtype), lanes)


def width(dtype: Any) -> int:
    """Bits of one lane."""
    return 1 if isinstance(dtype, types.Boolean) else int(dtype.bitwidth)


def is_float(dtype: Any) -> bool:
    """Whether the dtype is float32 or float64."""
    return isinstance(dtype, types.Float)


def is_signed(dtype: Any) -> bool:
    """Whether the dtype is a signed integer."""
    return dtype in types.signed_domain


def integer(bits: int) -> Any:
    """The signed integer dtype of so many bits."""
    return types.Integer.from_bitwidth(bits, True)


def floats(bits: int) -> Any:
    """The float dtype of 32 or 64 bits."""
    return types.float32 if bits == 32 else types.float64


@dataclass(frozen=True, slots=True, eq=False)
class VectorValue:
    """An LLVM value, its numba dtype, its number of lanes, and the builder that appends what is done with it."""

    builder: Any
    ir: Any
    dtype: Any
    lanes: int

    def number(self, number: Immediate) -> VectorValue:
        """The constant, as this value's dtype and lanes."""
        return constant(self.builder, self.dtype, self.lanes, number)

    def _with(self, ir: Any, dtype: Any = None) -> VectorValue:
        return VectorValue(self.builder, ir, dtype or self.dtype, self.lanes)

    def _other(self, other: VectorValue | Immediate) -> Any:
        if not isinstance(other, VectorValue):
            return self.number(other).ir
        if other.dtype != self.dtype:
            raise TypeError(f"{self.dtype} meets {other.dtype}")
        return other.ir

    def _binary(self, other: VectorValue | Immediate, of_floats: str, of_ints: str) -> VectorValue:
        name = of_floats if is_float(self.dtype) else of_ints
        return self._with(getattr(self.builder, name)(self.ir, self._other(other)))

    def __add__(self, other: VectorValue | Immediate) -> VectorValue:
        return self._binary(other, "fadd", "add")

    def __radd__(self, other: Immediate) -> VectorValue:
        return self + other

    def __sub__(self, other: VectorValue | Immediate) -> VectorValue:
        return self._binary(other, "fsub", "sub")

    def __rsub__(self, other: Immediate) -> VectorValue:
        return self.number(other) - self

    def __mul__(self, other: VectorValue | Immediate) -> VectorValue:
        return self._binary(other, "fmul", "mul")

    def __rmul__(self, other: Immediate) -> VectorValue:
        return self * other

    def __truediv__(self, other: VectorValue | Immediate) -> VectorValue:
        return self._binary(other, "fdiv", "sdiv")

    def __rtruediv__(self, other: Immediate) -> VectorValue:
        return self.number(other) / self

    def __neg__(self) -> VectorValue:
        return self._with(self.builder.fneg(self.ir)) if is_float(self.dtype) else 0 - self

    def __and__(self, other: VectorValue | Immediate) -> VectorValue:
        return self._with(self.builder.and_(self.ir, self._other(other)))

    def __or__(self, other: VectorValue | Immediate) -> VectorValue:
        return self._with(self.builder.or_(self.ir, self._other(other)))

    def __xor__(self, other: VectorValue | Immediate) -> VectorValue:
        return self._with(self.builder.xor(self.ir, self._other(other)))

    def __invert__(self) -> VectorValue:
        return self ^ (1 if isinstance(self.dtype, types.Boolean) else -1)

    def __lshift__(self, count: VectorValue | Immediate) -> VectorValue:
        return self._shift("shl", count)

    def __rshift__(self, count: VectorValue | Immediate) -> VectorValue:
        return self._shift("ashr" if is_signed(self.dtype) else "lshr", count)

    def _shift(self, how: str, count: VectorValue | Immediate) -> VectorValue:
        if isinstance(count, VectorValue):
            # LLVM leaves shifts by the width or more undefined; such a count shifts everything out, as in numpy.
            fits = as_unsigned(count) < width(self.dtype)
            last = width(self.dtype) - 1
            if how == "ashr":
                return self._with(self.builder.ashr(self.ir, select(fits, count, count.number(last)).ir))
            shifted = self._with(getattr(self.builder, how)(self.ir, select(fits, count, count.number(0)).ir))
            return select(fits, shifted, self.number(0))
        return self._with(getattr(self.builder, how)(self.ir, self._other(count)))

    def _compare(self, sign: str, other: VectorValue | Immediate) -> VectorValue:
        a, b = self.ir, self._other(other)
        if is_float(self.dtype):
            ir = self.builder.fcmp_unordered("!=", a, b) if sign == "!=" else self.builder.fcmp_ordered(sign, a, b)
        elif is_signed(self.dtype):
            ir = self.builder.icmp_signed(sign, a, b)
        else:
            ir = self.builder.icmp_unsigned(sign, a, b)
        return self._with(ir, types.boolean)

    def __lt__(self, other: VectorValue | Immediate) -> VectorValue:
        return self._compare("<", other)

    def __le__(self, other: VectorValue | Immediate) -> VectorValue:
        return self._compare("<=", other)

    def __gt__(self, other: VectorValue | Immediate) -> VectorValue:
        return self._compare(">", other)

    def __ge__(self, other: VectorValue | Immediate) -> VectorValue:
        return self._compare(">=", other)


def constant(builder: Any, dtype: Any, lanes: int, number: Immediate) -> VectorValue:
    """The same number in every lane; a float32 is the nearest one."""
    exact = float(number) if is_float(dtype) else int(number)
    one = llvm.Constant(element(dtype), exact)
    ir = one if lanes == 1 else llvm.Constant(llvm.VectorType(element(dtype), lanes), [one] * lanes)
    return VectorValue(builder, ir, dtype, lanes)


def broadcast(x: VectorValue, lanes: int) -> VectorValue:
    """A scalar in every lane; a vector as it is."""
    if x.lanes == lanes:
        return x
    if isinstance(x.ir, llvm.Constant):
        return VectorValue(x.builder, llvm.Constant(llvm.VectorType(x.ir.type, lanes), [x.ir] * lanes), x.dtype, lanes)
    vector = llvm.VectorType(element(x.dtype), lanes)
    nothing = llvm.Constant(vector, llvm.Undefined)
    first = x.builder.insert_element(nothing, x.ir, llvm.Constant(llvm.IntType(32), 0))
    zeros = llvm.Constant(llvm.VectorType(llvm.IntType(32), lanes), [0] * lanes)
    return VectorValue(x.builder, x.builder.shuffle_vector(first, nothing, zeros), x.dtype, lanes)


def suffix(ir_type: Any) -> str:
    """The suffix of a type in names of LLVM's intrinsics: ``v16f32``."""
    if isinstance(ir_type, llvm.VectorType):
        return f"v{ir_type.count}{suffix(ir_type.element)}"
    if isinstance(ir_type, llvm.PointerType):
        return "p0"
    return ir_type.intrinsic_name  # type: ignore[no-any-return]


def call(builder: Any, name: str, result: Any, args: list[Any]) -> Any:
    """Calls a function of the module by name, declaring it at first use."""
    signature = llvm.FunctionType(result, [arg.type for arg in args])
    function = cgutils.get_or_insert_function(builder.module, signature, name)  # type: ignore[no-untyped-call]
    return builder.call(function, args)


def intrinsic(name: str, *args: VectorValue) -> VectorValue:
    """LLVM's intrinsic ``llvm.<name>.<type>`` over values of one type, which is the result's too."""
    x = args[0]
    full = f"llvm.{name}.{suffix(x.ir.type)}"
    return VectorValue(x.builder, call(x.builder, full, x.ir.type, [arg.ir for arg in args]), x.dtype, x.lanes)


def equal(a: VectorValue, b: VectorValue | Immediate) -> VectorValue:
    """The mask of lanes that are equal; NaN equals nothing, and zeros of both signs are equal."""
    return a._compare("==", b)


def not_equal(a: VectorValue, b: VectorValue | Immediate) -> VectorValue:
    """The mask of lanes that are not equal."""
    return a._compare("!=", b)


def as_unsigned(x: VectorValue) -> VectorValue:
    """The same bits, taken as an unsigned integer."""
    return VectorValue(x.builder, x.ir, types.Integer.from_bitwidth(width(x.dtype), False), x.lanes)


def fma(a: VectorValue, b: VectorValue, c: VectorValue) -> VectorValue:
    """``a * b + c`` rounded once; of integers, the plain product and sum."""
    return intrinsic("fma", a, b, c) if is_float(a.dtype) else a * b + c


def select(mask: VectorValue, a: VectorValue, b: VectorValue) -> VectorValue:
    """``a`` where the mask holds, ``b`` elsewhere; both are computed."""
    return VectorValue(a.builder, a.builder.select(mask.ir, a.ir, b.ir), a.dtype, a.lanes)


def isnan(x: VectorValue) -> VectorValue:
    """The mask of lanes that are NaN."""
    return VectorValue(x.builder, x.builder.fcmp_unordered("uno", x.ir, x.ir), types.boolean, x.lanes)


def isinf(x: VectorValue) -> VectorValue:
    """The mask of lanes that are infinite, of either sign."""
    return equal(absolute(x), float("inf"))


def shift_left(x: VectorValue, count: VectorValue) -> VectorValue:
    """``x << count``; 0 for a count that is negative, or as large as the width."""
    return x << count


def shift_right(x: VectorValue, count: VectorValue) -> VectorValue:
    """``x >> count``; what all bits shifted out leave for a count that is negative, or as large as the width."""
    return x >> count


def minimum(a: VectorValue, b: VectorValue) -> VectorValue:
    """The smaller; NaN where either is. One instruction where ``b`` is a constant, so write the constant second."""
    if is_float(a.dtype):
        return _unless_nan(b, _chosen("min", b, a) if _is_scalar_of_x86(a) else select(b < a, b, a))
    return select(b < a, b, a)


def maximum(a: VectorValue, b: VectorValue) -> VectorValue:
    """The larger; NaN where either is. One instruction where ``b`` is a constant, so write the constant second."""
    if is_float(a.dtype):
        return _unless_nan(b, _chosen("max", b, a) if _is_scalar_of_x86(a) else select(b > a, b, a))
    return select(b > a, b, a)


def _is_scalar_of_x86(a: VectorValue) -> bool:
    """Whether it is one number, in code for a processor of this kind: without AVX kernels are the same for others."""
    return a.lanes == 1 and str(a.builder.module.triple).startswith("x86_64") and "avx" in cpu.features()


def _chosen(name: str, a: VectorValue, b: VectorValue) -> VectorValue:
    """x86's choice of two scalars: ``a`` where it is smaller, or larger, than ``b``, and else ``b``.

    It uses each of the two once. A choice by a comparison uses both twice, and passes of LLVM 22.1 go down each use
    anew: the maximum of 35 elements, one after the other, was never compiled.
    """
    bits = width(a.dtype)
    register, first = llvm.VectorType(a.ir.type, 128 // bits), llvm.Constant(llvm.IntType(32), 0)
    full = f"llvm.x86.sse.{name}.ss" if bits == 32 else f"llvm.x86.sse2.{name}.sd"
    operands = [a.builder.insert_element(llvm.Constant(register, llvm.Undefined), v.ir, first) for v in (a, b)]
    return a._with(a.builder.extract_element(call(a.builder, full, register, operands), first))


def _unless_nan(b: VectorValue, otherwise: VectorValue) -> VectorValue:
    """A NaN where ``b`` is one; of two choices of ``b`` LLVM would make one, by a condition that no instruction has."""
    return select(isnan(b), b + b, otherwise)


def absolute(x: VectorValue) -> VectorValue:
    """The absolute value; the smallest signed integer stays what it is."""
    if is_float(x.dtype):
        return intrinsic("fabs", x)
    return select(x < 0, -x, x) if is_signed(x.dtype) else x


def sqrt(x: VectorValue) -> VectorValue:
    """The square root, correctly rounded; NaN below zero."""
    return intrinsic("sqrt", x)


def floor(x: VectorValue) -> VectorValue:
    """The largest whole number that is not above ``x``."""
    return intrinsic("floor", x)


def ceil(x: VectorValue) -> VectorValue:
    """The smallest whole number that is not below ``x``."""
    return intrinsic("ceil", x)


def trunc(x: VectorValue) -> VectorValue:
    """The whole number next to ``x`` towards zero."""
    return intrinsic("trunc", x)


def round_even(x: VectorValue) -> VectorValue:
    """The nearest whole number, the even one of two (ONNX's Round)."""
    return intrinsic("roundeven", x)


def copysign(x: VectorValue, sign: VectorValue) -> VectorValue:
    """The magnitude of ``x`` with the sign of ``sign``."""
    return intrinsic("copysign", x, sign)


def bits(x: VectorValue) -> VectorValue:
    """The bits of a float as a signed integer of the same width."""
    dtype = integer(width(x.dtype))
    return VectorValue(x.builder, x.builder.bitcast(x.ir, llvm_type(dtype, x.lanes)), dtype, x.lanes)


def from_bits(x: VectorValue) -> VectorValue:
    """The float of which a 32- or 64-bit integer is the bits."""
    dtype = floats(width(x.dtype))
    return VectorValue(x.builder, x.builder.bitcast(x.ir, llvm_type(dtype, x.lanes)), dtype, x.lanes)


def cast(x: VectorValue, dtype: Any) -> VectorValue:
    """``x`` as another dtype.

    Floats become integers by truncation (C), and what does not fit 8 or 16 bits wraps around, as numpy does on x86;
    what does not fit 32 or 64 bits is undefined. Wider integers become narrower by wrapping around. To a mask: whether
    it is not zero.
    """
    builder, source = x.builder, x.dtype
    if source == dtype:
        return x
    target = llvm_type(dtype, x.lanes)
    if isinstance(dtype, types.Boolean):
        return not_equal(x, 0)
    if is_float(dtype):
        if is_float(source):
            convert = builder.fpext if width(dtype) > width(source) else builder.fptrunc
        else:
            convert = builder.sitofp if is_signed(source) else builder.uitofp
        return VectorValue(builder, convert(x.ir, target), dtype, x.lanes)
    if is_float(source):
        if width(dtype) < 32:
            return cast(cast(x, types.int32), dtype)
        if dtype == types.uint32:
            return cast(cast(x, types.int64), dtype)
        convert = builder.fptosi if is_signed(dtype) else builder.fptoui
        return VectorValue(builder, convert(x.ir, target), dtype, x.lanes)
    if width(dtype) == width(source):
        return VectorValue(builder, x.ir, dtype, x.lanes)
    widen = builder.sext if is_signed(source) else builder.zext
    convert = builder.trunc if width(dtype) < width(source) else widen
    return VectorValue(builder, convert(x.ir, target), dtype, x.lanes)


def saturate(x: VectorValue, dtype: Any) -> VectorValue:
    """``x`` held to the range of an integer dtype and cast to it, truncated where it is a float; NaN gives 0."""
    if is_float(x.dtype) and width(dtype) <= 16:  # both ends are floats: what lies beyond them, NaN too, is replaced
        x = select(isnan(x), x.number(0.0), x) if dtype.minval < 0 else x
        x = select(x > dtype.minval, x, x.number(dtype.minval))
        return cast(select(x < dtype.maxval, x, x.number(dtype.maxval)), dtype)
    if is_float(x.dtype):
        x = select(isnan(x), x.number(0.0), x)
        x = select(x < dtype.minval, x.number(dtype.minval), x)
        # The largest integer may be no float: the next is, a power of two.
        beyond = x >= float(dtype.maxval + 1)
        whole = cast(select(beyond, x.number(0.0), x), dtype)
        return select(beyond, whole.number(dtype.maxval), whole)
    if x.dtype.minval < dtype.minval:
        x = select(x < dtype.minval, x.number(dtype.minval), x)
    if x.dtype.maxval > dtype.maxval:
        x = select(x > dtype.maxval, x.number(dtype.maxval), x)
    return cast(x, dtype)


LoopBody = Callable[[VectorValue, Sequence[VectorValue]], Sequence[VectorValue]]
"""Called with the index of a step and the carried values; returns those of the next."""


def loop(extent: VectorValue, carried: Sequence[VectorValue], body: LoopBody) -> Sequence[VectorValue]:
    """The carried values after so many steps, each of which makes the next from the last."""
    builder = extent.builder
    before = builder.block
    head, inside, after = (builder.append_basic_block() for _ in range(3))
    builder.branch(head)
    builder.position_at_end(head)
    at = builder.phi(extent.ir.type)
    at.add_incoming(extent.number(0).ir, before)
    phis = [builder.phi(v.ir.type) for v in carried]
    for phi, value in zip(phis, carried, strict=True):
        phi.add_incoming(value.ir, before)
    index = VectorValue(builder, at, extent.dtype, 1)
    builder.cbranch((index < extent).ir, inside, after)
    builder.position_at_end(inside)
    results = body(index, [VectorValue(builder, p, v.dtype, v.lanes) for p, v in zip(phis, carried, strict=True)])
    following = (index + 1).ir
    at.add_incoming(following, builder.block)
    for phi, value in zip(phis, results, strict=True):
        phi.add_incoming(value.ir, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return [VectorValue(builder, p, v.dtype, v.lanes) for p, v in zip(phis, carried, strict=True)]
