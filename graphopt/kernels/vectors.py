"""Vector functions of kernel source: loads and stores over raw pointers, and lane-wise functions.

Every function takes scalars as well as vectors, so one line of source serves both; with ``lanes`` of 1, which is always
a number written in the source, a load gives a scalar. Arguments meet in the dtype of the vectors among them; among
scalars, in the one that numbers in source do not have (``maximum(x, 0.0)`` is float32 where ``x`` is). No address is
checked.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels import division, halves, lookups, memory, reductions, values
from graphopt.kernels.memory import Pointer
from graphopt.kernels.values import VectorValue
from graphopt.kernels.values import cast as cast_value
from graphopt.kernels.vector_type import (
    Vector,
    check,
    dtype_of,
    elementwise,
    function,
    horizontal,
    lanes_of,
    literal,
    meet,
    to_mask,
    vector,
)

_BYTES = (types.int8, types.uint8)


def _pointee(kind: Any, name: str, dtype: Any = None) -> Any:
    """The dtype behind a pointer. Raises ``TypingError`` where it is none, or not to the wanted dtype."""
    if not isinstance(kind, types.CPointer) or (dtype and kind.dtype != dtype):
        raise TypingError(f"{name} of {kind}: expected a pointer{f' to {dtype}' if dtype else ''}")
    return kind.dtype


def _fits(v: Any, dtype: Any, name: str) -> None:
    """Refuses to store a vector of another dtype; a scalar is cast."""
    if isinstance(v, Vector) and v.dtype != dtype:
        raise TypingError(f"{name} of {v} as {dtype}: cast it first")


def _load(p: Any, i: Any, lanes: Any) -> Any:
    """``load(p, i, lanes)``: the elements from ``p[i]`` on."""
    dtype, count = _pointee(p, "load"), literal(lanes, "lanes")
    return vector(dtype, count), lambda p, i, _: memory.read(p.at(i), count)


def _load_masked(p: Any, i: Any, n: Any, lanes: Any) -> Any:
    """``load_masked(p, i, n, lanes)``: the first ``n`` elements from ``p[i]`` on, and zeros; the rest is not read."""
    dtype, count = _pointee(p, "load_masked"), literal(lanes, "lanes")
    return vector(dtype, count), lambda p, i, n, _: memory.read_masked(p.at(i), n, count)


def _store(p: Any, i: Any, v: Any) -> Any:
    """``store(p, i, v)``: writes the lanes of ``v`` from ``p[i]`` on; a scalar is cast to the dtype there."""
    dtype = _pointee(p, "store")
    _fits(v, dtype, "store")
    return types.none, lambda p, i, v: memory.write(p.at(i), cast_value(v, dtype))


def _store_masked(p: Any, i: Any, v: Any, n: Any) -> Any:
    """``store_masked(p, i, v, n)``: writes the first ``n`` lanes of ``v`` from ``p[i]`` on."""
    dtype = _pointee(p, "store_masked")
    _fits(v, dtype, "store_masked")
    return types.none, lambda p, i, v, n: memory.write_masked(p.at(i), cast_value(v, dtype), n)


def _gather(p: Any, index: Any) -> Any:
    """``gather(p, index)``: the element at each of a vector of indices."""
    return vector(_pointee(p, "gather"), lanes_of(index)), memory.gather


def _lookup(p: Any, code: Any) -> Any:
    """``lookup(p, code)``: the byte of a table of 256 for each of a vector of codes, int8 or uint8, counted from the
    least that there is; all of the table may be read."""
    dtype = _pointee(p, "lookup")
    if dtype not in _BYTES or dtype_of(code) not in _BYTES:
        raise TypingError(f"lookup of {p} by {code}: expected bytes")
    return vector(dtype, lanes_of(code)), lookups.look_up


def _scatter(p: Any, index: Any, v: Any) -> Any:
    """``scatter(p, index, v)``: writes each lane of ``v`` at its index; of equal indices the last lane stays."""
    dtype = _pointee(p, "scatter")
    _fits(v, dtype, "scatter")
    lanes = lanes_of(index)
    if lanes_of(v) not in (1, lanes):
        raise TypingError(f"scatter of {v} by {index}: the lanes differ")
    return types.none, lambda p, index, v: memory.scatter(p, index, meet(v, dtype, lanes))


def _load_strided(p: Any, i: Any, stride: Any, lanes: Any) -> Any:
    """``load_strided(p, i, stride, lanes)``: ``p[i]``, ``p[i + stride]``, and so on.

    A stride from -1 to 4 that is a number in the source is faster; then what lies between is read as well.
    """
    dtype, count = _pointee(p, "load_strided"), literal(lanes, "lanes")
    constant_stride = literal(stride, "stride") if isinstance(stride, types.IntegerLiteral) else None
    return vector(dtype, count), lambda p, i, stride, _: memory.read_strided(p.at(i), stride, count, constant_stride)


def _load_repeated(p: Any, i: Any, times: Any, lanes: Any) -> Any:
    """``load_repeated(p, i, times, lanes)``: ``p[i]`` so many times, ``p[i + 1]`` so many times, and so on."""
    dtype, each, count = _pointee(p, "load_repeated"), literal(times, "times"), literal(lanes, "lanes")
    if count % each or count == each:
        raise TypingError(f"load_repeated of {each} times in {count} lanes: expected a divisor")

    def trace(p: Pointer, i: VectorValue, times: VectorValue, lanes: VectorValue) -> VectorValue:
        few = memory.read(p.at(i), count // each)
        return reductions.shuffle(few, few, [k // each for k in range(count)])

    return vector(dtype, count), trace


def _load_swapped(p: Any, i: Any, lanes: Any) -> Any:
    """``load_swapped(p, i, lanes)``: ``p[i + 1]``, ``p[i]``, ``p[i + 3]``, ``p[i + 2]``, and so on."""
    dtype, count = _pointee(p, "load_swapped"), literal(lanes, "lanes")
    if count < 2:
        raise TypingError(f"load_swapped in {count} lanes: expected pairs")

    def trace(p: Pointer, i: VectorValue, lanes: VectorValue) -> VectorValue:
        plain = memory.read(p.at(i), count)
        return reductions.shuffle(plain, plain, [k ^ 1 for k in range(count)])

    return vector(dtype, count), trace


def _store_strided(p: Any, i: Any, stride: Any, v: Any) -> Any:
    """``store_strided(p, i, stride, v)``: writes the lanes to ``p[i]``, ``p[i + stride]``, and so on."""
    dtype = _pointee(p, "store_strided")
    _fits(v, dtype, "store_strided")
    return types.none, lambda p, i, stride, v: memory.write_strided(p.at(i), stride, cast_value(v, dtype))


def _load_half(p: Any, i: Any, lanes: Any) -> Any:
    """``load_half(p, i, lanes)``: float16 elements, stored as uint16, as float32."""
    _pointee(p, "load_half", types.uint16)
    count = literal(lanes, "lanes")
    return vector(types.float32, count), lambda p, i, _: halves.from_half(memory.read(p.at(i), count))


def _load_half_masked(p: Any, i: Any, n: Any, lanes: Any) -> Any:
    """``load_half_masked(p, i, n, lanes)``: the first ``n`` float16 elements as float32, and zeros."""
    _pointee(p, "load_half_masked", types.uint16)
    count = literal(lanes, "lanes")
    return vector(types.float32, count), lambda p, i, n, _: halves.from_half(memory.read_masked(p.at(i), n, count))


def _store_half(p: Any, i: Any, v: Any) -> Any:
    """``store_half(p, i, v)``: writes float32 as the nearest float16, stored as uint16."""
    _pointee(p, "store_half", types.uint16)
    _fits(v, types.float32, "store_half")
    return types.none, lambda p, i, v: memory.write(p.at(i), halves.to_half(cast_value(v, types.float32)))


def _store_half_masked(p: Any, i: Any, v: Any, n: Any) -> Any:
    """``store_half_masked(p, i, v, n)``: writes the first ``n`` lanes as float16."""
    _pointee(p, "store_half_masked", types.uint16)
    _fits(v, types.float32, "store_half_masked")
    return types.none, lambda p, i, v, n: memory.write_masked(p.at(i), halves.to_half(cast_value(v, types.float32)), n)


def _load_bfloat(p: Any, i: Any, lanes: Any) -> Any:
    """``load_bfloat(p, i, lanes)``: bfloat16 elements, stored as uint16, as float32."""
    _pointee(p, "load_bfloat", types.uint16)
    count = literal(lanes, "lanes")
    return vector(types.float32, count), lambda p, i, _: halves.from_bfloat(memory.read(p.at(i), count))


def _load_bfloat_masked(p: Any, i: Any, n: Any, lanes: Any) -> Any:
    """``load_bfloat_masked(p, i, n, lanes)``: the first ``n`` bfloat16 elements as float32, and zeros."""
    _pointee(p, "load_bfloat_masked", types.uint16)
    count = literal(lanes, "lanes")
    return vector(types.float32, count), lambda p, i, n, _: halves.from_bfloat(memory.read_masked(p.at(i), n, count))


def _store_bfloat(p: Any, i: Any, v: Any) -> Any:
    """``store_bfloat(p, i, v)``: writes float32 as the nearest bfloat16, stored as uint16."""
    _pointee(p, "store_bfloat", types.uint16)
    _fits(v, types.float32, "store_bfloat")
    return types.none, lambda p, i, v: memory.write(p.at(i), halves.to_bfloat(cast_value(v, types.float32)))


def _store_bfloat_masked(p: Any, i: Any, v: Any, n: Any) -> Any:
    """``store_bfloat_masked(p, i, v, n)``: writes the first ``n`` lanes as bfloat16."""
    _pointee(p, "store_bfloat_masked", types.uint16)
    _fits(v, types.float32, "store_bfloat_masked")
    return types.none, lambda p, i, v, n: memory.write_masked(
        p.at(i), halves.to_bfloat(cast_value(v, types.float32)), n
    )


def _splat(x: Any, lanes: Any) -> Any:
    """``splat(x, lanes)``: the scalar in every lane, of the scalar's dtype."""
    count = literal(lanes, "lanes")
    return vector(dtype_of(x), count), lambda x, _: values.broadcast(x, count)


def _iota(lanes: Any) -> Any:
    """``iota(lanes)``: 0, 1, 2 and so on as int64."""
    count = literal(lanes, "lanes")

    def trace(one: VectorValue) -> VectorValue:
        numbers = llvm.Constant(llvm.VectorType(llvm.IntType(64), count), list(range(count)))
        return VectorValue(one.builder, numbers, types.int64, count) if count > 1 else one.number(0)

    return vector(types.int64, count), trace


def _lane(v: Any, k: Any) -> Any:
    """``lane(v, k)``: one lane of a vector as a scalar; of a scalar, itself."""
    return dtype_of(v), reductions.lane


def _select(mask: Any, a: Any, b: Any) -> Any:
    """``select(mask, a, b)``: ``a`` where the mask holds, ``b`` elsewhere; both are computed."""
    if dtype_of(mask) != types.boolean:
        raise TypingError(f"select by {mask}: expected a mask")
    dtype, lanes = check("select", (a, b), "fib")
    wide = max(lanes, lanes_of(mask))
    if {lanes, lanes_of(mask)} - {1, wide}:
        raise TypingError(f"select by {mask} between {a} and {b}: the lanes differ")
    return vector(dtype, wide), lambda mask, a, b: values.select(mask, meet(a, dtype, wide), meet(b, dtype, wide))


def _cast(x: Any, dtype: Any) -> Any:
    """``cast(x, float32)``: a scalar or vector as another dtype.

    Floats become integers by truncation, and what does not fit 8 or 16 bits wraps around, as numpy does on x86; what
    does not fit 32 or 64 bits is undefined. Wider integers wrap around. To boolean: whether it is not zero.
    """
    target = _dtype(dtype)
    return vector(target, lanes_of(x)), lambda x, _: cast_value(x, target)


def _saturate(x: Any, dtype: Any) -> Any:
    """``saturate(x, int8)``: held to the range of an integer dtype and cast; floats are truncated, NaN gives 0."""
    target = _dtype(dtype)
    if not isinstance(target, types.Integer):
        raise TypingError(f"saturate to {target}: expected an integer")
    return vector(target, lanes_of(x)), lambda x, _: values.saturate(x, target)


def _dtype(kind: Any) -> Any:
    if not isinstance(kind, types.NumberClass):
        raise TypingError(f"{kind} is no dtype: expected float32, int8, boolean or the like")
    return kind.instance_type


def _pointer(address: Any, dtype: Any) -> Any:
    """``pointer(address, float32)``: the elements at an address, an int64; ``boolean`` is stored as uint8."""
    target = _dtype(dtype)
    target = types.uint8 if target == types.boolean else target

    def trace(address: VectorValue, _: None) -> VectorValue:
        ir = address.builder.inttoptr(cast_value(address, types.int64).ir, values.element(target).as_pointer())
        return VectorValue(address.builder, ir, target, 1)

    return pointer_to(target), trace


def _offset(p: Any, i: Any) -> Any:
    """``offset(p, i)``: the pointer to ``p[i]``."""
    return pointer_to(_pointee(p, "offset")), Pointer.at


def pointer_to(dtype: Any) -> Any:
    """The numba type of a raw pointer to elements."""
    return types.CPointer(dtype)  # type: ignore[no-untyped-call]


load, load_masked = function(_load), function(_load_masked)
store, store_masked = function(_store), function(_store_masked)
gather, scatter, lookup = function(_gather), function(_scatter), function(_lookup)
load_repeated = function(_load_repeated)
load_swapped = function(_load_swapped)
load_strided, store_strided = function(_load_strided), function(_store_strided)
load_half, load_half_masked = function(_load_half), function(_load_half_masked)
store_half, store_half_masked = function(_store_half), function(_store_half_masked)
load_bfloat, load_bfloat_masked = function(_load_bfloat), function(_load_bfloat_masked)
store_bfloat, store_bfloat_masked = function(_store_bfloat), function(_store_bfloat_masked)
pointer, offset = function(_pointer), function(_offset)

splat, iota, lane = function(_splat), function(_iota), function(_lane)
select, cast, saturate = function(_select), function(_cast), function(_saturate)

fma = elementwise(values.fma, "fi")
minimum = elementwise(values.minimum, "fi")
maximum = elementwise(values.maximum, "fi")
abs = elementwise(values.absolute, "fi")
sqrt = elementwise(values.sqrt)
floor = elementwise(values.floor)
ceil = elementwise(values.ceil)
trunc = elementwise(values.trunc)
round_even = elementwise(values.round_even)
copysign = elementwise(values.copysign)
isnan = elementwise(values.isnan, "f", to_mask)
isinf = elementwise(values.isinf, "f", to_mask)
bits = elementwise(values.bits, "f", lambda dtype: values.integer(dtype.bitwidth))
from_bits = elementwise(values.from_bits, "i", lambda dtype: values.floats(dtype.bitwidth))
quotient = elementwise(division.quotient, "fi")
remainder = elementwise(division.remainder, "fi")
shift_left = elementwise(values.shift_left, "i")
shift_right = elementwise(values.shift_right, "i")

reduce_add = horizontal(reductions.reduce_add)
reduce_mul = horizontal(reductions.reduce_mul)
reduce_max = horizontal(reductions.reduce_max)
reduce_min = horizontal(reductions.reduce_min)
reduce_or = horizontal(reductions.reduce_or, "ib")
reduce_and = horizontal(reductions.reduce_and, "ib")
