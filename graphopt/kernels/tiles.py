"""What tiles of all products have in common: sums side by side, where rows start, and what becomes of results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import llvmlite.ir as llvm
from numba import types

from graphopt.kernels import memory
from graphopt.kernels.memory import Pointer
from graphopt.kernels.values import Value

APART = 3
"""Rows that are reached from one pointer: addresses may have once and twice a stride in them."""
_SIDES = 4
"""Products of each sum that are done side by side, at most."""


def sides(sums: int, chains: int) -> int:
    """How many products of each of a tile's sums are done side by side, so that as many ``chains`` of additions run at
    once as the processor has under way: several where a tile is small."""
    return max(1, min(_SIDES, chains // sums))


def start_of_rows(first: Pointer) -> Pointer:
    """Where some rows start. LLVM is not to know how far these lie from the others: it would compute the one from the
    other in each round."""
    return Pointer(first.builder, memory.opaque(Value(first.builder, first.ir, types.int64, 1)).ir, first.dtype)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of so many vectors, the last of which has the lanes of a mask, where it has one."""

    vectors: int
    lanes: int
    mask: Value | None

    def read(self, row: Pointer, vector: int) -> Value:
        """A vector of a row."""
        p = row.past(vector * self.lanes)
        if self.mask is None or vector < self.vectors - 1:
            return memory.read(p, self.lanes)
        return memory.read_where(p, self.mask)

    def write(self, row: Pointer, vector: int, x: Value) -> None:
        """Store a vector of a row."""
        p = row.past(vector * self.lanes)
        if self.mask is None or vector < self.vectors - 1:
            memory.write(p, x)
        else:
            memory.write_where(p, x, self.mask)

    def put(self, c: Pointer, apart: Value, sums: Sequence[Value], adds: Value) -> None:
        """Write the sums, row by row from ``c`` on, so far ``apart``; or, where it ``adds``, add them to what is
        there."""
        builder = c.builder
        adding, setting, end = (builder.append_basic_block(x) for x in ("adding", "setting", "end"))
        builder.cbranch(builder.icmp_unsigned("!=", adds.ir, llvm.IntType(64)(0)), adding, setting)
        for block in (adding, setting):
            builder.position_at_end(block)
            for number, x in enumerate(sums):
                row, vector = divmod(number, self.vectors)
                place = c.at(apart * row)
                self.write(place, vector, x + self.read(place, vector) if block is adding else x)
            builder.branch(end)
        builder.position_at_end(end)
