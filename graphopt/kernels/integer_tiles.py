"""Tiles of a product of bytes that stay in registers, and operands laid side by side for them, four products to a lane.

A tile is a function of its own for each number of rows and of vectors in a row; its other sizes are known only when it
runs. Where processors have no instruction for four products at once, they are made as two pairs, which all have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels import memory, values
from graphopt.kernels.integer_form import QUAD
from graphopt.kernels.memory import Pointer
from graphopt.kernels.reductions import shuffle
from graphopt.kernels.tiles import (
    APART,
    Rows,
    added_up,
    by_shape,
    empty,
    function_in,
    in_rounds,
    multiplied,
    sides,
    start_of_rows,
)
from graphopt.kernels.transposes import turned
from graphopt.kernels.values import Value, broadcast
from graphopt.kernels.vector_type import function, literal, vector
from graphopt.kernels.vectors import pointer_to

_BYTE = llvm.IntType(8)
_ELEMENTS = (types.int32, types.uint8, types.uint8, types.int32, types.int32)
"""What a tile's pointers point to: results, both operands, and the numbers of rows and columns."""
_CHAINS = 10
"""Sums that are to run side by side: four products at once take five cycles, and two start in each."""


# ------------------------------------------------------------------ four products at once


def multiply(total: Value, a: Value, b: Value, signed: bool, dot: bool) -> Value:
    """The sums with four products added to each: of the bytes of ``a`` and ``b``, of which ``b`` has signs where it is
    ``signed``, and ``a`` where it is not."""
    plain, with_signs = (a, b) if signed else (b, a)
    if not dot:
        return _by_pairs(total, plain, with_signs)
    name = f"llvm.x86.avx512.vpdpbusd.{32 * total.lanes}"
    kind = llvm.VectorType(_BYTE, QUAD * total.lanes)
    args = [total.ir, *(total.builder.bitcast(x.ir, kind) for x in (plain, with_signs))]
    return Value(total.builder, values.call(total.builder, name, total.ir.type, args), total.dtype, total.lanes)


def _by_pairs(total: Value, a: Value, b: Value) -> Value:
    """The same by two multiplications of 16 bits each."""
    kind = llvm.VectorType(llvm.IntType(16), 2 * total.lanes)

    def halves(x: Value, dtype: Any) -> tuple[Value, Value]:
        both = Value(x.builder, x.builder.bitcast(x.ir, kind), dtype, 2 * total.lanes)
        return (both << 8) >> 8, both >> 8

    for x, y in zip(halves(a, types.uint16), halves(b, types.int16), strict=True):
        products = values.cast(x, types.int32) * values.cast(y, types.int32)
        for first in (0, 1):
            order = llvm.Constant(llvm.VectorType(llvm.IntType(32), total.lanes), list(range(first, kind.count, 2)))
            part = x.builder.shuffle_vector(products.ir, products.ir, order)
            total = total + Value(x.builder, part, total.dtype, total.lanes)
    return total


def _ones(x: Value) -> Value:
    """A one in each byte."""
    return x.number(0x01010101)


def _quads(p: Pointer, lanes: int) -> Value:
    """The vector of quads at an address of bytes, aligned to nothing."""
    ir = p.builder.load(p.ir, align=1, typ=values.llvm_type(types.int32, lanes))
    return Value(p.builder, ir, types.int32, lanes)


def _put_quads(p: Pointer, x: Value) -> None:
    """Write a vector of quads at an address of bytes, aligned to nothing."""
    p.builder.store(x.ir, p.builder.bitcast(p.ir, x.ir.type.as_pointer()), align=1)


# ------------------------------------------------------------------ tiles


@dataclass(frozen=True, slots=True)
class _Shape:
    """A tile's rows, vectors in a row and lanes; whether the second operand has signs, and how it is multiplied."""

    rows: int
    vectors: int
    lanes: int
    signed: bool
    dot: bool

    @property
    def sides(self) -> int:
        """Quads of each sum that are done side by side: several where a tile is small."""
        return sides(self.rows * self.vectors, _CHAINS)


def _tile(
    c: Any, ldc: Any, a: Any, row: Any, b: Any, rows: Any, columns: Any, m: Any, n: Any, groups: Any, adds: Any,
    most: Any, lanes: Any, signed: Any, dot: Any,
) -> Any:  # fmt: skip
    """``tile(c, ldc, a, row, b, rows, columns, m, n, groups, adds, most, lanes, signed, dot)``: ``c[i, j]``, at
    ``i * ldc + j``, is ``rows[i] + columns[j]`` and the sum of ``4 * groups`` products, more where it ``adds``.

    Byte ``p`` of row ``i`` of ``a`` lies at ``i * row + p``, byte ``p`` of column ``j`` of ``b`` at
    ``p // 4 * 8 * lanes + 4 * j + p % 4``. There are ``m`` rows, at most ``most``, and ``n`` columns, at most two
    vectors.
    """
    if not all(isinstance(p, types.CPointer) and p.dtype == types.int32 for p in (c, rows, columns)):
        raise TypingError(f"a tile into {c} from {rows} and {columns}: expected pointers to int32")
    numbers = [literal(x, "a tile's number") for x in (lanes, signed, dot)]
    tall, width = literal(most, "most"), numbers[0]

    def trace(c: Pointer, ldc: Value, a: Pointer, row: Value, b: Pointer, rows: Pointer, columns: Pointer, m: Value,
              n: Value, groups: Value, adds: Value, *_: Value) -> None:  # fmt: skip
        count, width_of_row = (values.cast(x, types.int64) for x in (m, n))
        words = [values.cast(x, types.int64).ir for x in (ldc, width_of_row, groups, adds, row)]
        args = [c.ir, a.ir, b.ir, rows.ir, columns.ir, *words]

        def compute(i: int, vectors: int) -> None:
            shape = _Shape(i, vectors, width, bool(numbers[1]), bool(numbers[2]))
            c.builder.call(_function(c.builder.module, shape), args)

        by_shape(count, width_of_row, tall, width, compute)

    return types.none, trace


def _function(module: Any, shape: _Shape) -> Any:
    """The module's function that computes a tile of that shape."""
    name = f"integer_tile_{shape.rows}x{shape.vectors}"
    return function_in(module, name, _ELEMENTS, 5, lambda made: _Body(made, shape).write())


class _Body:
    """Writes the function of a tile."""

    def __init__(self, made: Any, shape: _Shape) -> None:
        self.builder, self.shape = llvm.IRBuilder(made.append_basic_block("start")), shape
        places = [Pointer(self.builder, p, kind) for p, kind in zip(made.args[:5], _ELEMENTS, strict=True)]
        self.c, self.a, self.b, self.rows, self.columns = places
        self.ldc, n, self.groups, self.adds, self.row = (Value(self.builder, x, types.int64, 1) for x in made.args[5:])
        self.line = Rows.of(n, shape.vectors, shape.lanes)
        zero = values.constant(self.builder, types.int32, shape.lanes, 0)
        self.left = [start_of_rows(self.a.at(self.row * i)) for i in range(0, shape.rows, APART)]
        self.sums = empty(zero, shape.rows * shape.vectors, shape.sides)

    def write(self) -> None:
        """The whole function."""
        in_rounds(self.groups, self.sums, self.products)
        self.finish()
        self.builder.ret_void()

    def products(self, group: Value, sums: Sequence[Pointer]) -> None:
        """A group of four products added to each of the sums."""
        shape = self.shape
        b = self.b.at(group * (2 * QUAD * shape.lanes))
        right = [_quads(b.past(QUAD * shape.lanes * v), shape.lanes) for v in range(shape.vectors)]
        multiplied(sums, self.quads(group), right, lambda total, x, y: multiply(total, x, y, shape.signed, shape.dot))

    def quads(self, group: Value) -> Iterator[Value]:
        """Four bytes of each row, in all lanes."""
        for i in range(self.shape.rows):
            place = self.left[i // APART].at(self.row * (i % APART) + group * QUAD)
            yield broadcast(_quads(place, 1), self.shape.lanes)

    def finish(self) -> None:
        """Write the sums, or add them to what is there."""
        shape = self.shape
        offsets = [self.line.read(self.columns, v) for v in range(shape.vectors)]
        totals = []
        for number in range(len(self.sums[0])):
            row, v = divmod(number, shape.vectors)
            total = added_up(self.sums, number, shape.lanes)
            own = broadcast(memory.read(self.rows.past(row), 1), shape.lanes)
            totals.append(total + (own + offsets[v]))
        self.line.put(self.c, self.ldc, totals, self.adds)


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
        total: Value, to: Pointer, at: Value, a: Pointer, start: Value, count: Value, flip: Value, *_: Value
    ) -> Value:
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

    def trace(total: Value, p: Pointer, at: Value, *_: Value) -> Value:
        x = _quads(p.at(at), width)
        return multiply(total, _ones(x), x, bool(has_signs), bool(at_once))

    return vector(types.int32, width), trace


def _load_quads(p: Any, at: Any, lanes: Any) -> Any:
    """``load_quads(p, at, lanes)``: the vector of quads from the byte ``p[at]`` on, as int32."""
    width = literal(lanes, "lanes")
    return vector(types.int32, width), lambda p, at, _: _quads(p.at(at), width)


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
        to: Pointer, apart: Value, b: Pointer, start: Value, row: Value, width: Value, count: Value, _: Value
    ) -> None:
        mask, last = memory.first_lanes(count, 8, QUAD * many), width - 1
        rows = []
        for i in range(many):
            own = values.select(last < i, last, last.number(i))
            x = memory.read_where(b.at(start + row * own), mask)
            ir = x.builder.bitcast(x.ir, values.llvm_type(types.int32, many))
            rows.append(Value(x.builder, ir, types.int32, many))
        for p, x in enumerate(turned(rows, many, many)):
            _put_quads(to.at(apart * p), x)

    return types.none, trace


def _load_rows(p: Any, start: Any, apart: Any, rest: Any, count: Any, lanes: Any) -> Any:
    """``load_rows(p, start, apart, rest, count, lanes)``: lane ``i`` has the bytes ``p[start + i + d * apart]``, ``d``
    being 0 to 3. Zeros stand for lanes from ``count`` and for bytes from ``rest`` on, and nothing is read there."""
    many = literal(lanes, "lanes")

    def trace(p: Pointer, start: Value, apart: Value, rest: Value, count: Value, _: Value) -> Value:
        found = values.constant(p.builder, types.int32, many, 0)
        for d in range(QUAD):
            there = values.select(rest > d, count, count.number(0))
            x = memory.read_masked(p.at(start + apart * d), there, many)
            found = found | (values.cast(x, types.int32) << (8 * d))
        return found

    return vector(types.int32, many), trace


def _load_pairs(p: Any, start: Any, low: Any, high: Any, lanes: Any) -> Any:
    """``load_pairs(p, start, low, high, lanes)``: lane ``i`` is ``p[start + 2 * i]`` from lane ``low`` up to lane
    ``high``, and 0 elsewhere, where nothing is read."""
    many = literal(lanes, "lanes")

    def trace(p: Pointer, start: Value, low: Value, high: Value, _: Value) -> Value:
        ends = [memory.first_lanes(x * 2 - back, 32, 2 * many) for x, back in ((low, 0), (high, 1))]
        both = memory.read_where(p.at(start), ends[1] & ~ends[0])
        return shuffle(both, both, range(0, 2 * many, 2))

    return vector(types.int32, many), trace


def _as_quads(p: Any) -> Any:
    """``as_quads(p)``: the same place, of quads."""

    def trace(p: Pointer) -> Value:
        return Value(p.builder, p.cast(types.int32).ir, types.int32, 1)

    return pointer_to(types.int32), trace


tile, lay_bytes, add_quads = function(_tile), function(_lay_bytes), function(_add_quads)
load_quads, store_quads = function(_load_quads), function(_store_quads)
turn_quads, load_rows = function(_turn_quads), function(_load_rows)
load_pairs, as_quads = function(_load_pairs), function(_as_quads)
