"""Tiles of a product of float32 by pairs of weights in bfloat16, which become float32 as they are read.

A tile is a function of its own for each number of rows and of vectors in a row; its other sizes are known only when it
runs. Its sums stay in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError

from graphopt.kernels import memory, values
from graphopt.kernels.bfloat_form import PAIR
from graphopt.kernels.memory import Pointer
from graphopt.kernels.values import Value, broadcast, from_bits
from graphopt.kernels.vector_type import function, literal

_WORD = llvm.IntType(64)
_CHAINS = 8
"""Sums that are to run side by side: a multiply-add takes four cycles, and two start in each."""
_APART = 3
"""Rows that are reached from one pointer: addresses may have once and twice a stride in them."""
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
        return max(1, min(4, _CHAINS // (self.rows * self.vectors)))


def _tile(c: Any, ldc: Any, a: Any, row: Any, b: Any, m: Any, n: Any, k: Any, adds: Any, most: Any, lanes: Any) -> Any:
    """``tile(c, ldc, a, row, b, m, n, k, adds, most, lanes)``: ``c[i, j]``, at ``i * ldc + j``, is the sum of ``k``
    products, more where it ``adds``.

    ``a[i, p]`` lies at ``i * row + p``, and ``b[p, j]`` at ``p // 2 * 4 * lanes + 2 * j + p % 2``. There are ``m``
    rows, at most ``most``, and ``n`` columns, at most two vectors.
    """
    if not all(isinstance(p, types.CPointer) for p in (a, b, c)) or (a.dtype, b.dtype, c.dtype) != (
        types.float32,
        types.uint16,
        types.float32,
    ):
        raise TypingError(f"a tile of {a} and {b} into {c}: expected pointers to float32, and to uint16 for weights")
    tall, width = literal(most, "most"), literal(lanes, "lanes")

    def trace(
        c: Pointer, ldc: Value, a: Pointer, row: Value, b: Pointer, m: Value, n: Value, k: Value, adds: Value, *_: Value
    ) -> None:
        builder, module = c.builder, c.builder.module
        words = [values.cast(x, types.int64).ir for x in (ldc, row, n, k, adds)]
        end = builder.append_basic_block("end")
        is_wide = builder.icmp_signed(">", words[2], _WORD(width))
        number = builder.add(values.cast(m, types.int64).ir, builder.select(is_wide, _WORD(tall), _WORD(0)))
        switch = builder.switch(number, end)
        for vectors in (1, 2):
            for i in range(1, tall + 1):
                block = builder.append_basic_block(f"tile_{i}x{vectors}")
                switch.add_case(_WORD((vectors - 1) * tall + i), block)
                builder.position_at_end(block)
                builder.call(_function(module, _Shape(i, vectors, width)), [c.ir, a.ir, b.ir, *words])
                builder.branch(end)
        builder.position_at_end(end)

    return types.none, trace


def _function(module: Any, shape: _Shape) -> Any:
    """The module's function that computes a tile of that shape."""
    name = f"bfloat_tile_{shape.rows}x{shape.vectors}"
    if name in module.globals:
        return module.globals[name]
    real, half = llvm.FloatType().as_pointer(), llvm.IntType(16).as_pointer()
    made = llvm.Function(module, llvm.FunctionType(llvm.VoidType(), [real, real, half] + [_WORD] * 5), name)
    made.linkage = "internal"
    made.attributes.add("noinline")
    for arg in made.args[:3]:
        arg.add_attribute("noalias")
    _Body(made, shape).write()
    return made


class _Body:
    """Writes the function of a tile."""

    def __init__(self, made: Any, shape: _Shape) -> None:
        self.builder, self.shape = llvm.IRBuilder(made.append_basic_block("start")), shape
        kinds = (types.float32, types.float32, types.uint16)
        self.c, self.a, self.b = (Pointer(self.builder, p, t) for p, t in zip(made.args[:3], kinds, strict=True))
        self.ldc, self.row, n, self.k, self.adds = (Value(self.builder, x, types.int64, 1) for x in made.args[3:])
        self.mask = memory.first_lanes(n - (shape.vectors - 1) * shape.lanes, 32, shape.lanes)
        self.left = [self.group(i) for i in range(0, shape.rows, _APART)]
        zero = values.constant(self.builder, types.float32, shape.lanes, 0.0)
        each = shape.rows * shape.vectors
        self.sums = [[self.kept(zero) for _ in range(each)] for _ in range(shape.sides)]

    def kept(self, x: Value) -> Pointer:
        """A vector of sums that is under way, in a register."""
        made = Pointer(self.builder, self.builder.alloca(x.ir.type), types.float32)
        memory.write(made, x)
        return made.cast(types.float32)

    def group(self, first: int) -> Pointer:
        """Where some rows start. LLVM is not to know how far these lie from the others: it would compute the one from
        the other in each round."""
        place = self.a.at(self.row * first)
        kind = llvm.FunctionType(place.ir.type, [place.ir.type])
        return Pointer(self.builder, self.builder.asm(kind, "", "=r,0", [place.ir], side_effect=False), types.float32)

    def write(self) -> None:
        """The whole function."""
        shape, builder = self.shape, self.builder
        pairs = Value(builder, builder.lshr(self.k.ir, _WORD(1)), types.int64, 1)
        rounds = Value(builder, builder.udiv(pairs.ir, _WORD(shape.sides)), types.int64, 1)
        with self.loop(rounds) as at:
            for side, sums in enumerate(self.sums):
                self.products(at * shape.sides + side, sums, PAIR)
        if shape.sides > 1:
            with self.loop(pairs - rounds * shape.sides) as at:
                self.products(at + rounds * shape.sides, self.sums[0], PAIR)
        with self.loop(self.k - pairs * PAIR) as at:
            self.products(at + pairs, self.sums[0], 1)
        self.finish()
        builder.ret_void()

    @contextmanager
    def loop(self, count: Value) -> Iterator[Value]:
        """A loop of so many rounds; its index."""
        with cgutils.for_range(self.builder, count.ir) as loop:
            yield Value(self.builder, loop.index, types.int64, 1)

    def products(self, pair: Value, sums: Sequence[Pointer], count: int) -> None:
        """The first ``count`` products of a pair added to each of the sums."""
        shape = self.shape
        place = self.b.at(pair * (2 * PAIR * shape.lanes))
        for v in range(shape.vectors):
            memory.prefetch(place.past(PAIR * shape.lanes * (v + _AHEAD)), 1)
        words = [self.words(place.past(PAIR * shape.lanes * v)) for v in range(shape.vectors)]
        for p in range(count):
            right = [from_bits(w & -65536 if p else w << 16) for w in words]
            for i in range(shape.rows):
                here = self.left[i // _APART].at(self.row * (i % _APART) + pair * PAIR + p)
                left = broadcast(memory.read(here, 1), shape.lanes)
                for v in range(shape.vectors):
                    kept = sums[i * shape.vectors + v]
                    memory.write(kept, values.fma(left, right[v], memory.read(kept, shape.lanes)))

    def words(self, p: Pointer) -> Value:
        """A vector of pairs, the first of a pair in the low half of a lane."""
        ir = p.builder.load(p.ir, align=PAIR, typ=values.llvm_type(types.int32, self.shape.lanes))
        return Value(p.builder, ir, types.int32, self.shape.lanes)

    def finish(self) -> None:
        """Write the sums, or add them to what is there."""
        shape, builder = self.shape, self.builder
        adding, setting, end = (builder.append_basic_block(x) for x in ("adding", "setting", "end"))
        totals = []
        for number, first in enumerate(self.sums[0]):
            total = memory.read(first, shape.lanes)
            for side in self.sums[1:]:
                total = total + memory.read(side[number], shape.lanes)
            totals.append(total)
        builder.cbranch(builder.icmp_unsigned("!=", self.adds.ir, _WORD(0)), adding, setting)
        for block in (adding, setting):
            builder.position_at_end(block)
            for number, total in enumerate(totals):
                row, v = divmod(number, shape.vectors)
                place, is_last = self.c.at(self.ldc * row).past(v * shape.lanes), v == shape.vectors - 1
                if block is adding:
                    before = memory.read_where(place, self.mask) if is_last else memory.read(place, shape.lanes)
                    total = total + before
                if is_last:
                    memory.write_where(place, total, self.mask)
                else:
                    memory.write(place, total)
            builder.branch(end)
        builder.position_at_end(end)


tile = function(_tile)
