"""Byte dot products: four bytes for each lane, and operands packed for them.

Where processors have no instruction for four products at once, they are made as two pairs, which all have.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as llvm
from numba import types

from graphopt.kernels import memory, values
from graphopt.kernels.memory import Pointer
from graphopt.kernels.product_form import QUAD
from graphopt.kernels.reductions import shuffle
from graphopt.kernels.transposes import turned
from graphopt.kernels.values import VectorValue, broadcast
from graphopt.kernels.vector_type import function, literal, vector
from graphopt.kernels.vectors import pointer_to

_BYTE = llvm.IntType(8)


# ------------------------------------------------------------------ four products at once


def multiply(total: VectorValue, a: VectorValue, b: VectorValue, signed: bool, dot: bool) -> VectorValue:
    """The sums with four products added to each: of the bytes of ``a`` and ``b``, of which ``b`` has signs where it is
    ``signed``, and ``a`` where it is not."""
    plain, with_signs = (a, b) if signed else (b, a)
    if not dot:
        return _by_pairs(total, plain, with_signs)
    name = f"llvm.x86.avx512.vpdpbusd.{32 * total.lanes}"
    kind = llvm.VectorType(_BYTE, QUAD * total.lanes)
    args = [total.ir, *(total.builder.bitcast(x.ir, kind) for x in (plain, with_signs))]
    return VectorValue(total.builder, values.call(total.builder, name, total.ir.type, args), total.dtype, total.lanes)


def _by_pairs(total: VectorValue, a: VectorValue, b: VectorValue) -> VectorValue:
    """The same by two multiplications of 16 bits each."""
    kind = llvm.VectorType(llvm.IntType(16), 2 * total.lanes)

    def halves(x: VectorValue, dtype: Any) -> tuple[VectorValue, VectorValue]:
        both = VectorValue(x.builder, x.builder.bitcast(x.ir, kind), dtype, 2 * total.lanes)
        return (both << 8) >> 8, both >> 8

    for x, y in zip(halves(a, types.uint16), halves(b, types.int16), strict=True):
        products = values.cast(x, types.int32) * values.cast(y, types.int32)
        for first in (0, 1):
            order = llvm.Constant(llvm.VectorType(llvm.IntType(32), total.lanes), list(range(first, kind.count, 2)))
            part = x.builder.shuffle_vector(products.ir, products.ir, order)
            total = total + VectorValue(x.builder, part, total.dtype, total.lanes)
    return total


def _ones(x: VectorValue) -> VectorValue:
    """A one in each byte."""
    return x.number(0x01010101)


def words(p: Pointer, lanes: int) -> VectorValue:
    """The vector of int32 at an address, aligned as its elements are."""
    ir = p.builder.load(p.ir, align=p.align, typ=values.llvm_type(types.int32, lanes))
    return VectorValue(p.builder, ir, types.int32, lanes)


def _put_quads(p: Pointer, x: VectorValue) -> None:
    """Write a vector of quads at an address of bytes, aligned to nothing."""
    p.builder.store(x.ir, p.builder.bitcast(p.ir, x.ir.type.as_pointer()), align=1)


# ------------------------------------------------------------------ operands


def _lay_bytes(
    total: Any, to: Any, at: Any, a: Any, start: Any, count: Any, flip: Any, lanes: Any, signed: Any, dot: Any
) -> Any:
    """``lay_bytes(total, to, at, a, start, count, flip, lanes, signed, dot)``: writes the first ``count`` bytes from
    ``a[start]`` on, each with the bits of ``flip`` changed, and zeros, so that four times ``lanes`` bytes are written
    from ``to[at]`` on. The sums with four neighbours added to each; they have signs then where they are ``signed``."""
    width, has_signs, at_once = (literal(x, "a number") for x in (lanes, signed, dot))
    many = QUAD * width
    is_whole = isinstance(count, types.IntegerLiteral) and count.literal_value == many

    def trace(
        total: VectorValue,
        to: Pointer,
        at: VectorValue,
        a: Pointer,
        start: VectorValue,
        count: VectorValue,
        flip: VectorValue,
        *_: VectorValue,
    ) -> VectorValue:
        change = broadcast(values.cast(flip, types.uint8), many)
        if is_whole:
            x = memory.read(a.at(start), many) ^ change
        else:
            mask = memory.first_lanes(count, 8, many)
            x = memory.read_where(a.at(start), mask)
            x = values.select(mask, x ^ change, x)
        memory.write(to.at(at), x)
        return multiply(total, _ones(total), x, bool(has_signs), bool(at_once))

    return vector(types.int32, width), trace


def _add_quads(total: Any, p: Any, at: Any, lanes: Any, signed: Any, dot: Any) -> Any:
    """``add_quads(total, p, at, lanes, signed, dot)``: the sums with four neighbouring bytes from ``p[at]`` on added to
    each; these have signs where they are ``signed``."""
    width, has_signs, at_once = (literal(x, "a number") for x in (lanes, signed, dot))

    def trace(total: VectorValue, p: Pointer, at: VectorValue, *_: VectorValue) -> VectorValue:
        x = words(p.at(at), width)
        return multiply(total, _ones(x), x, bool(has_signs), bool(at_once))

    return vector(types.int32, width), trace


def _load_quads(p: Any, at: Any, lanes: Any) -> Any:
    """``load_quads(p, at, lanes)``: the vector of quads from the byte ``p[at]`` on, as int32."""
    width = literal(lanes, "lanes")
    return vector(types.int32, width), lambda p, at, _: words(p.at(at), width)


def _store_quads(to: Any, at: Any, x: Any) -> Any:
    """``store_quads(to, at, x)``: writes a vector of quads from the byte ``to[at]`` on."""

    return types.none, lambda to, at, x: _put_quads(to.at(at), x)


def _turn_quads(to: Any, apart: Any, b: Any, start: Any, row: Any, width: Any, count: Any, lanes: Any) -> Any:
    """``turn_quads(to, apart, b, start, row, width, count, lanes)``: quads of up to ``lanes`` rows side by side; that
    at ``b[start + i * row + 4 * p]`` goes to ``to[p * apart + 4 * i]``, for all ``p`` below ``lanes``.

    There are ``width`` rows, of which ``count`` bytes are read; what is missing in a row counts as zeros, and a row
    that is missing is anything.
    """
    many = literal(lanes, "lanes")

    def trace(
        to: Pointer,
        apart: VectorValue,
        b: Pointer,
        start: VectorValue,
        row: VectorValue,
        width: VectorValue,
        count: VectorValue,
        _: VectorValue,
    ) -> None:
        mask, last = memory.first_lanes(count, 8, QUAD * many), width - 1
        rows = []
        for i in range(many):
            clamped_row = values.select(last < i, last, last.number(i))
            x = memory.read_where(b.at(start + row * clamped_row), mask)
            ir = x.builder.bitcast(x.ir, values.llvm_type(types.int32, many))
            rows.append(VectorValue(x.builder, ir, types.int32, many))
        for p, x in enumerate(turned(rows, many, many)):
            _put_quads(to.at(apart * p), x)

    return types.none, trace


def _load_rows(p: Any, start: Any, apart: Any, rest: Any, count: Any, lanes: Any) -> Any:
    """``load_rows(p, start, apart, rest, count, lanes)``: lane ``i`` has the bytes ``p[start + i + d * apart]``, ``d``
    being 0 to 3. Zeros stand for lanes from ``count`` and for bytes from ``rest`` on, and nothing is read there."""
    many = literal(lanes, "lanes")

    def trace(
        p: Pointer, start: VectorValue, apart: VectorValue, rest: VectorValue, count: VectorValue, _: VectorValue
    ) -> VectorValue:
        quad = values.constant(p.builder, types.int32, many, 0)
        for d in range(QUAD):
            there = values.select(rest > d, count, count.number(0))
            x = memory.read_masked(p.at(start + apart * d), there, many)
            quad = quad | (values.cast(x, types.int32) << (8 * d))
        return quad

    return vector(types.int32, many), trace


def _load_pairs(p: Any, start: Any, low: Any, high: Any, lanes: Any) -> Any:
    """``load_pairs(p, start, low, high, lanes)``: lane ``i`` is ``p[start + 2 * i]`` from lane ``low`` up to lane
    ``high``, and 0 elsewhere, where nothing is read."""
    many = literal(lanes, "lanes")

    def trace(p: Pointer, start: VectorValue, low: VectorValue, high: VectorValue, _: VectorValue) -> VectorValue:
        ends = [memory.first_lanes(x * 2 - back, 32, 2 * many) for x, back in ((low, 0), (high, 1))]
        both = memory.read_where(p.at(start), ends[1] & ~ends[0])
        return shuffle(both, both, range(0, 2 * many, 2))

    return vector(types.int32, many), trace


def _as_quads(p: Any) -> Any:
    """``as_quads(p)``: the same place, of quads."""

    def trace(p: Pointer) -> VectorValue:
        return VectorValue(p.builder, p.cast(types.int32).ir, types.int32, 1)

    return pointer_to(types.int32), trace


lay_bytes, add_quads = function(_lay_bytes), function(_add_quads)
load_quads, store_quads = function(_load_quads), function(_store_quads)
turn_quads, load_rows = function(_turn_quads), function(_load_rows)
load_pairs, as_quads = function(_load_pairs), function(_as_quads)
