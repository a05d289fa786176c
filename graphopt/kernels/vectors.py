"""What kernel source says about vectors: loads and stores over raw pointers, and functions lane by lane.

Every function takes scalars as well as vectors, so one line of source serves both; with ``lanes`` of 1, which is always
a number written in the source, a load gives a scalar. An address is never checked.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels import values
from graphopt.kernels.values import Value
from graphopt.kernels.vector_type import (
    Vector,
    check,
    dtype_of,
    elementwise,
    lanes_of,
    literal,
    meet,
    named,
    plain,
    value,
    vector,
)


def _pointee(kind: Any, name: str) -> Any:
    if not isinstance(kind, types.CPointer):
        raise TypingError(f"{name} of {kind}: expected a pointer")
    return kind.dtype


def pointer_to(dtype: Any) -> Any:
    """The numba type of a raw pointer to elements."""
    return types.CPointer(dtype)  # type: ignore[no-untyped-call]


def address(builder: Any, pointer: Any, index: Any, dtype: Any) -> Any:
    """The address of an element; the index is a scalar integer."""
    wide = values.cast(index, types.int64)
    return builder.gep(pointer, [wide.ir], inbounds=True, source_etype=values.element(dtype))


def read(builder: Any, at: Any, dtype: Any, lanes: int) -> Value:
    """The elements at an address."""
    ir = builder.load(at, align=values.width(dtype) // 8, typ=values.llvm_type(dtype, lanes))
    return Value(builder, ir, dtype, lanes)


def write(at: Any, x: Value) -> None:
    """Stores a value at an address."""
    x.builder.store(x.ir, x.builder.bitcast(at, x.ir.type.as_pointer()), align=values.width(x.dtype) // 8)


def first_lanes(builder: Any, count: Value, bits: int, lanes: int) -> Value:
    """The mask of the lanes below ``count``, compared in integers of so many bits."""
    count = values.cast(count, types.int64)
    count = values.select(count < 0, count.number(0), count)
    count = values.select(count > lanes, count.number(lanes), count)
    dtype = types.Integer.from_bitwidth(bits, False)
    ramp = llvm.Constant(llvm.VectorType(llvm.IntType(bits), lanes), list(range(lanes)))
    return Value(builder, ramp, dtype, lanes) < values.broadcast(values.cast(count, dtype), lanes)


def read_masked(at: Any, dtype: Any, lanes: int, count: Value) -> Value:
    """The first ``count`` elements at an address, and zeros."""
    builder = count.builder
    whole = llvm.VectorType(values.element(dtype), lanes)
    mask = first_lanes(builder, count, values.width(dtype), lanes)
    zeros = llvm.Constant(whole, [llvm.Constant(values.element(dtype), 0)] * lanes)
    align = llvm.Constant(llvm.IntType(32), values.width(dtype) // 8)
    ir = values.call(builder, f"llvm.masked.load.{values.suffix(whole)}.p0", whole, [at, align, mask.ir, zeros])
    if lanes == 1:
        ir = builder.extract_element(ir, llvm.Constant(llvm.IntType(32), 0))
    return Value(builder, ir, dtype, lanes)


def write_masked(at: Any, x: Value, count: Value) -> None:
    """Stores the first ``count`` lanes of a value at an address."""
    builder = x.builder
    whole = llvm.VectorType(values.element(x.dtype), x.lanes)
    ir = x.ir
    if x.lanes == 1:
        ir = builder.insert_element(llvm.Constant(whole, llvm.Undefined), ir, llvm.Constant(llvm.IntType(32), 0))
    mask = first_lanes(builder, count, values.width(x.dtype), x.lanes)
    align = llvm.Constant(llvm.IntType(32), values.width(x.dtype) // 8)
    name = f"llvm.masked.store.{values.suffix(whole)}.p0"
    values.call(builder, name, llvm.VoidType(), [ir, at, align, mask.ir])


def _load(typing_context: Any, p: Any, i: Any, lanes: Any) -> Any:
    """``load(p, i, lanes)``: the elements from ``p[i]`` on; any alignment will do."""
    dtype, count = _pointee(p, "load"), literal(lanes, "lanes")

    def generate(context: Any, builder: Any, sig: Any, irs: Any) -> Any:
        at = address(builder, irs[0], value(builder, irs[1], sig.args[1]), dtype)
        return read(builder, at, dtype, count).ir

    return vector(dtype, count)(p, plain(i), lanes), generate


def _load_masked(typing_context: Any, p: Any, i: Any, n: Any, lanes: Any) -> Any:
    """``load_masked(p, i, n, lanes)``: the first ``n`` elements from ``p[i]`` on, and zeros, not read."""
    dtype, count = _pointee(p, "load_masked"), literal(lanes, "lanes")

    def generate(context: Any, builder: Any, sig: Any, irs: Any) -> Any:
        at = address(builder, irs[0], value(builder, irs[1], sig.args[1]), dtype)
        return read_masked(at, dtype, count, value(builder, irs[2], sig.args[2])).ir

    return vector(dtype, count)(p, plain(i), plain(n), lanes), generate


def _store(typing_context: Any, p: Any, i: Any, v: Any) -> Any:
    """``store(p, i, v)``: writes the lanes of ``v`` from ``p[i]`` on; a scalar of another dtype is cast first."""
    dtype = _pointee(p, "store")
    if isinstance(v, Vector) and v.dtype != dtype:
        raise TypingError(f"store of {v} through {p}: cast it first")

    def generate(context: Any, builder: Any, sig: Any, irs: Any) -> Any:
        at = address(builder, irs[0], value(builder, irs[1], sig.args[1]), dtype)
        write(at, values.cast(value(builder, irs[2], sig.args[2]), dtype))
        return context.get_dummy_value()

    return types.none(p, plain(i), plain(v)), generate


def _store_masked(typing_context: Any, p: Any, i: Any, v: Any, n: Any) -> Any:
    """``store_masked(p, i, v, n)``: writes the first ``n`` lanes of ``v`` from ``p[i]`` on."""
    dtype = _pointee(p, "store_masked")
    if isinstance(v, Vector) and v.dtype != dtype:
        raise TypingError(f"store_masked of {v} through {p}: cast it first")

    def generate(context: Any, builder: Any, sig: Any, irs: Any) -> Any:
        at = address(builder, irs[0], value(builder, irs[1], sig.args[1]), dtype)
        x = values.cast(value(builder, irs[2], sig.args[2]), dtype)
        write_masked(at, x, value(builder, irs[3], sig.args[3]))
        return context.get_dummy_value()

    return types.none(p, plain(i), plain(v), plain(n)), generate


def _splat(typing_context: Any, x: Any, lanes: Any) -> Any:
    """``splat(x, lanes)``: the scalar in every lane, of the scalar's dtype."""
    dtype, count = dtype_of(x), literal(lanes, "lanes")

    def generate(context: Any, builder: Any, sig: Any, irs: Any) -> Any:
        return values.broadcast(value(builder, irs[0], sig.args[0]), count).ir

    return vector(dtype, count)(plain(x), lanes), generate


def _select(typing_context: Any, mask: Any, a: Any, b: Any) -> Any:
    """``select(mask, a, b)``: ``a`` where the mask holds, ``b`` elsewhere; both are computed."""
    if kind := dtype_of(mask) != types.boolean:
        raise TypingError(f"select by {kind}: expected a mask")
    dtype, lanes = check("select", (a, b), "fib")
    lanes = max(lanes, lanes_of(mask))
    if lanes_of(mask) not in (1, lanes):
        raise TypingError(f"select by {mask} between {a} and {b}: the lanes differ")

    def generate(context: Any, builder: Any, sig: Any, irs: Any) -> Any:
        a, b = (meet(value(builder, ir, kind), dtype, lanes) for ir, kind in zip(irs[1:], sig.args[1:], strict=True))
        return values.select(value(builder, irs[0], sig.args[0]), a, b).ir

    return vector(dtype, lanes)(*map(plain, (mask, a, b))), generate


def _cast(typing_context: Any, x: Any, dtype: Any) -> Any:
    """``cast(x, float32)``: a scalar or vector as another dtype; see ``values.cast``."""
    target = dtype.instance_type

    def generate(context: Any, builder: Any, sig: Any, irs: Any) -> Any:
        return values.cast(value(builder, irs[0], sig.args[0]), target).ir

    return vector(target, lanes_of(x))(plain(x), dtype), generate


def _pointer(typing_context: Any, at: Any, dtype: Any) -> Any:
    """``pointer(address, float32)``: the pointer to elements at an address; ``boolean`` is stored as uint8."""
    pointee = types.uint8 if dtype.instance_type == types.boolean else dtype.instance_type

    def generate(context: Any, builder: Any, sig: Any, irs: Any) -> Any:
        return builder.inttoptr(irs[0], context.get_value_type(sig.return_type))

    return pointer_to(pointee)(types.int64, dtype), generate


load = named(_load, _load)
load_masked = named(_load_masked, _load_masked)
store = named(_store, _store)
store_masked = named(_store_masked, _store_masked)
splat = named(_splat, _splat)
select = named(_select, _select)
cast = named(_cast, _cast)
pointer = named(_pointer, _pointer)
fma = elementwise(values.fma, "fi")
minimum = elementwise(values.minimum, "fi")
maximum = elementwise(values.maximum, "fi")
