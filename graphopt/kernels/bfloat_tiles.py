"""Tiles of a product of float32 by pairs of weights in bfloat16, which become float32 as they are read.

A tile is a function of its own for each number of rows and of vectors in a row; its other sizes are known only when it
runs. Its sums stay in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels import memory, values
from graphopt.kernels.bfloat_form import PAIR
from graphopt.kernels.memory import Pointer
from graphopt.kernels.tiles import (
    APART,
    Rows,
    added_up,
    by_shape,
    empty,
    function_in,
    in_rounds,
    multiplied,
    repeated,
    sides,
    start_of_rows,
)
from graphopt.kernels.values import Value, broadcast, from_bits
from graphopt.kernels.vector_type import function, literal

_WORD = llvm.IntType(64)
_CHAINS = 8
"""Sums that are to run side by side: a multiply-add takes four cycles, and two start in each."""
_ELEMENTS = (types.float32, types.float32, types.uint16)
"""What a tile's pointers point to: results and both operands."""
_AHEAD = 16
"""Lines of a cache that weights are fetched ahead of where they are read, since each is read once."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """A tile's rows, vectors in a row, and lanes."""

    rows: int
    vectors: int
    lanes: int

    @property
    def sides(self) -> int:
        """Pairs of each sum that are done side by side: several where a tile is small."""
        return sides(self.rows * self.vectors, _CHAINS)


def _tile(c: Any, ldc: Any, a: Any, row: Any, b: Any, m: Any, n: Any, k: Any, adds: Any, most: Any, lanes: Any) -> Any:
    """``tile(c, ldc, a, row, b, m, n, k, adds, most, lanes)``: ``c[i, j]``, at ``i * ldc + j``, is the sum of ``k``
    products, more where it ``adds``.

    ``a[i, p]`` lies at ``i * row + p``, and ``b[p, j]`` at ``p // 2 * 4 * lanes + 2 * j + p % 2``. There are ``m``
    rows, at most ``most``, and ``n`` columns, at most two vectors.
    """
    if tuple(getattr(p, "dtype", None) for p in (c, a, b)) != _ELEMENTS:
        raise TypingError(f"a tile of {a} and {b} into {c}: expected pointers to float32, and to uint16 for weights")
    tall, width = literal(most, "most"), literal(lanes, "lanes")

    def trace(
        c: Pointer, ldc: Value, a: Pointer, row: Value, b: Pointer, m: Value, n: Value, k: Value, adds: Value, *_: Value
    ) -> None:
        count, width_of_row = (values.cast(x, types.int64) for x in (m, n))
        words = [values.cast(x, types.int64).ir for x in (ldc, row, width_of_row, k, adds)]

        def compute(i: int, vectors: int) -> None:
            made = _function(c.builder.module, _Shape(i, vectors, width))
            c.builder.call(made, [c.ir, a.ir, b.ir, *words])

        by_shape(count, width_of_row, tall, width, compute)

    return types.none, trace


def _function(module: Any, shape: _Shape) -> Any:
    """The module's function that computes a tile of that shape."""
    name = f"bfloat_tile_{shape.rows}x{shape.vectors}"
    return function_in(module, name, _ELEMENTS, 5, lambda made: _Body(made, shape).write())


class _Body:
    """Writes the function of a tile."""

    def __init__(self, made: Any, shape: _Shape) -> None:
        self.builder, self.shape = llvm.IRBuilder(made.append_basic_block("start")), shape
        self.c, self.a, self.b = (Pointer(self.builder, p, t) for p, t in zip(made.args[:3], _ELEMENTS, strict=True))
        self.ldc, self.row, n, self.k, self.adds = (Value(self.builder, x, types.int64, 1) for x in made.args[3:])
        self.line = Rows.of(n, shape.vectors, shape.lanes)
        self.left = [start_of_rows(self.a.at(self.row * i)) for i in range(0, shape.rows, APART)]
        zero = values.constant(self.builder, types.float32, shape.lanes, 0.0)
        self.sums = empty(zero, shape.rows * shape.vectors, shape.sides)

    def write(self) -> None:
        """The whole function."""
        shape, builder = self.shape, self.builder
        pairs = Value(builder, builder.lshr(self.k.ir, _WORD(1)), types.int64, 1)
        in_rounds(pairs, self.sums, lambda pair, sums: self.products(pair, sums, PAIR))
        with repeated(self.k - pairs * PAIR) as at:
            self.products(at + pairs, self.sums[0], 1)
        totals = [added_up(self.sums, number, shape.lanes) for number in range(len(self.sums[0]))]
        self.line.put(self.c, self.ldc, totals, self.adds)
        builder.ret_void()

    def products(self, pair: Value, sums: Sequence[Pointer], count: int) -> None:
        """The first ``count`` products of a pair added to each of the sums."""
        shape = self.shape
        place = self.b.at(pair * (2 * PAIR * shape.lanes))
        for v in range(shape.vectors):
            memory.prefetch(place.past(PAIR * shape.lanes * (v + _AHEAD)), 1)
        words = [self.words(place.past(PAIR * shape.lanes * v)) for v in range(shape.vectors)]
        for p in range(count):
            right = [from_bits(w & -65536 if p else w << 16) for w in words]
            multiplied(sums, self.elements(pair, p), right, lambda total, x, y: values.fma(x, y, total))

    def elements(self, pair: Value, place: int) -> Iterator[Value]:
        """An element of a pair of each row, in all lanes."""
        for i in range(self.shape.rows):
            here = self.left[i // APART].at(self.row * (i % APART) + pair * PAIR + place)
            yield broadcast(memory.read(here, 1), self.shape.lanes)

    def words(self, p: Pointer) -> Value:
        """A vector of pairs, the first of a pair in the low half of a lane."""
        ir = p.builder.load(p.ir, align=p.align, typ=values.llvm_type(types.int32, self.shape.lanes))
        return Value(p.builder, ir, types.int32, self.shape.lanes)


tile = function(_tile)
