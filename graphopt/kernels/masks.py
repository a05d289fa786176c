"""Masks, stack memory and 16-bit floats in kernel source."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels import halves, memory, values
from graphopt.kernels.memory import Pointer
from graphopt.kernels.reductions import shuffle
from graphopt.kernels.values import VectorValue, broadcast
from graphopt.kernels.values import cast as cast_value
from graphopt.kernels.vector_type import dtype_of, elementwise, function, lanes_of, literal, meet, vector
from graphopt.kernels.vectors import pointer_to


def _element(p: Any, name: str) -> Any:
    if not isinstance(p, types.CPointer):
        raise TypingError(f"{name} of {p}: expected a pointer")
    return p.dtype


def _mask(mask: Any, lanes: int, name: str) -> None:
    if dtype_of(mask) != types.boolean or lanes_of(mask) != lanes:
        raise TypingError(f"{name} where {mask}: expected a mask of {lanes} lanes")


def _zeros(kind: Any) -> Any:
    return llvm.Constant(kind, [llvm.Constant(kind.element, 0)] * kind.count)


def _align(p: Pointer) -> Any:
    return llvm.Constant(llvm.IntType(32), p.align)


def _load_where(p: Any, i: Any, lanes: Any, mask: Any) -> Any:
    """``load_where(p, i, lanes, mask)``: the elements from ``p[i]`` on; zeros where the mask does not hold, and nothing
    is read there."""
    dtype, count = _element(p, "load_where"), literal(lanes, "lanes")
    _mask(mask, count, "load_where")

    def trace(p: Pointer, i: VectorValue, _: VectorValue, mask: VectorValue) -> VectorValue:
        at, kind = p.at(i), values.llvm_type(dtype, count)
        name = f"llvm.masked.load.{values.suffix(kind)}.p0"
        return VectorValue(
            p.builder, values.call(p.builder, name, kind, [at.ir, _align(p), mask.ir, _zeros(kind)]), dtype, count
        )

    return vector(dtype, count), trace


def _load_strided_where(p: Any, i: Any, stride: Any, lanes: Any, mask: Any) -> Any:
    """``load_strided_where(p, i, stride, lanes, mask)``: ``p[i]``, ``p[i + stride]``, and so on, for a stride that is a
    number in the source, not 0; zeros where the mask does not hold, and nothing is read there.

    Vectors side by side are read, of which the elements between are masked as well, and then joined: a gather takes as
    long as a dozen loads on processors of which microcode guards its data.
    """
    dtype, count, apart = _element(p, "load_strided_where"), literal(lanes, "lanes"), literal(stride, "stride")
    _mask(mask, count, "load_strided_where")

    def trace(p: Pointer, i: VectorValue, stride: VectorValue, lanes: VectorValue, mask: VectorValue) -> VectorValue:
        first = p.at(i)
        kind = values.llvm_type(dtype, count)
        name = f"llvm.masked.load.{values.suffix(kind)}.p0"
        none, result = VectorValue(p.builder, _zeros(mask.ir.type), types.boolean, count), None
        for start in range(0, (count - 1) * abs(apart) + 1, count):
            places = [(start + k) if apart > 0 else -(start + count - 1 - k) for k in range(count)]
            at = {index: k for k, index in enumerate(places)}
            spread = shuffle(
                mask, none, [n // apart if n % apart == 0 and n // apart < count else count for n in places]
            )
            read = values.call(p.builder, name, kind, [first.past(places[0]).ir, _align(p), spread.ir, _zeros(kind)])
            part = VectorValue(p.builder, read, dtype, count)
            order = [count + at[k * apart] if k * apart in at else k for k in range(count)]
            result = shuffle(part if result is None else result, part, order)
        assert result is not None
        return result

    return vector(dtype, count), trace


def _store_where(p: Any, i: Any, v: Any, mask: Any) -> Any:
    """``store_where(p, i, v, mask)``: writes the lanes for which the mask holds, the first to ``p[i]``."""
    dtype, count = _element(p, "store_where"), lanes_of(mask)
    _mask(mask, count, "store_where")

    def trace(p: Pointer, i: VectorValue, v: VectorValue, mask: VectorValue) -> None:
        x = meet(v, dtype, count)
        name = f"llvm.masked.store.{values.suffix(x.ir.type)}.p0"
        values.call(p.builder, name, llvm.VoidType(), [x.ir, p.at(i).ir, _align(p), mask.ir])

    return types.none, trace


def _gather_where(p: Any, index: Any, mask: Any) -> Any:
    """``gather_where(p, index, mask)``: the element at each index; zeros where the mask does not hold, and nothing is
    read there."""
    dtype, count = _element(p, "gather_where"), lanes_of(mask)
    _mask(mask, count, "gather_where")

    def trace(p: Pointer, index: VectorValue, mask: VectorValue) -> VectorValue:
        kind = values.llvm_type(dtype, count)
        at = p.at(broadcast(index, count)).ir
        name = f"llvm.masked.gather.{values.suffix(kind)}.v{count}p0"
        return VectorValue(
            p.builder, values.call(p.builder, name, kind, [at, _align(p), mask.ir, _zeros(kind)]), dtype, count
        )

    return vector(dtype, count), trace


def _scatter_where(p: Any, index: Any, v: Any, mask: Any) -> Any:
    """``scatter_where(p, index, v, mask)``: writes each lane for which the mask holds at its index."""
    dtype, count = _element(p, "scatter_where"), lanes_of(mask)
    _mask(mask, count, "scatter_where")

    def trace(p: Pointer, index: VectorValue, v: VectorValue, mask: VectorValue) -> None:
        x = meet(v, dtype, count)
        name = f"llvm.masked.scatter.{values.suffix(x.ir.type)}.v{count}p0"
        at = p.at(broadcast(index, count)).ir
        values.call(p.builder, name, llvm.VoidType(), [x.ir, at, _align(p), mask.ir])

    return types.none, trace


def _first_lanes(n: Any, lanes: Any) -> Any:
    """``first_lanes(n, lanes)``: the mask that holds for the first ``n`` lanes."""
    count = literal(lanes, "lanes")
    return vector(types.boolean, count), lambda n, _: memory.first_lanes(n, 32, count)


def _stack(n: Any, dtype: Any) -> Any:
    """``stack(n, float32)``: memory for so many elements, as long as the kernel runs; aligned to whole vectors."""
    size, kind = literal(n, "n"), dtype.instance_type

    def trace(n: VectorValue, _: None) -> VectorValue:
        entry = llvm.IRBuilder(n.builder.function.entry_basic_block)
        entry.position_at_start(n.builder.function.entry_basic_block)
        array = entry.alloca(llvm.ArrayType(values.element(kind), size))  # numba's own way writes zeros to all of it
        array.align = 64
        return VectorValue(n.builder, n.builder.bitcast(array, values.element(kind).as_pointer()), kind, 1)

    return pointer_to(kind), trace


def _sign(x: VectorValue) -> VectorValue:
    """-1, 0 or 1; zeros and NaN as they are."""
    return values.select(x > 0, x.number(1), values.select(x < 0, x.number(-1), x) if _is_signed(x) else x)


def _is_signed(x: VectorValue) -> bool:
    return values.is_float(x.dtype) or values.is_signed(x.dtype)


def _from_half(x: Any) -> Any:
    """``from_half(x)``: a float16, kept as uint16, as float32."""
    return vector(types.float32, lanes_of(x)), halves.from_half


def _from_bfloat(x: Any) -> Any:
    """``from_bfloat(x)``: a bfloat16, kept as uint16, as float32."""
    return vector(types.float32, lanes_of(x)), halves.from_bfloat


def _to_half(x: Any) -> Any:
    """``to_half(x)``: the float16 nearest to a float32, kept as uint16."""
    return vector(types.uint16, lanes_of(x)), lambda x: halves.to_half(cast_value(x, types.float32))


def _to_bfloat(x: Any) -> Any:
    """``to_bfloat(x)``: the bfloat16 nearest to a float32, kept as uint16."""
    return vector(types.uint16, lanes_of(x)), lambda x: halves.to_bfloat(cast_value(x, types.float32))


load_where, store_where = function(_load_where), function(_store_where)
load_strided_where = function(_load_strided_where)
gather_where, scatter_where = function(_gather_where), function(_scatter_where)
first_lanes, stack = function(_first_lanes), function(_stack)
from_half, to_half = function(_from_half), function(_to_half)
from_bfloat, to_bfloat = function(_from_bfloat), function(_to_bfloat)
sign = elementwise(_sign, "fi")
