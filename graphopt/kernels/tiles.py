"""What tiles of all products have in common: sums side by side, where rows start, and what becomes of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core import cgutils

from graphopt.kernels import memory, values
from graphopt.kernels.memory import Pointer
from graphopt.kernels.values import Value

_WORD = llvm.IntType(64)
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


def by_shape(m: Value, n: Value, tall: int, width: int, compute: Callable[[int, int], None]) -> None:
    """Code for tiles of each number of rows up to ``tall``, and of one or two vectors a row, which ``compute`` writes;
    that for ``m`` rows and ``n`` columns runs."""
    builder = m.builder
    end = builder.append_basic_block("end")
    is_wide = builder.icmp_signed(">", n.ir, _WORD(width))
    switch = builder.switch(builder.add(m.ir, builder.select(is_wide, _WORD(tall), _WORD(0))), end)
    for vectors in (1, 2):
        for rows in range(1, tall + 1):
            block = builder.append_basic_block(f"tile_{rows}x{vectors}")
            switch.add_case(_WORD((vectors - 1) * tall + rows), block)
            builder.position_at_end(block)
            compute(rows, vectors)
            builder.branch(end)
    builder.position_at_end(end)


def function_in(module: Any, name: str, pointers: Sequence[Any], words: int, write: Callable[[Any], None]) -> Any:
    """The module's function of that name, which is given pointers to elements of such types, none of which another
    reaches, and then words; ``write`` writes it where there is none yet."""
    if name in module.globals:
        return module.globals[name]
    kinds = [*(values.element(p).as_pointer() for p in pointers), *[_WORD] * words]
    made = llvm.Function(module, llvm.FunctionType(llvm.VoidType(), kinds), name)
    made.linkage = "internal"
    made.attributes.add("noinline")
    for arg in made.args[: len(pointers)]:
        arg.add_attribute("noalias")
    write(made)
    return made


@contextmanager
def repeated(count: Value) -> Iterator[Value]:
    """A loop of so many rounds; its index."""
    with cgutils.for_range(count.builder, count.ir) as loop:
        yield Value(count.builder, loop.index, types.int64, 1)


def in_rounds(
    count: Value, sides: Sequence[Sequence[Pointer]], step: Callable[[Value, Sequence[Pointer]], None]
) -> None:
    """So many steps, as many in a round as there are sides: ``step`` writes one, by its number and the side of the sums
    that it adds to."""
    many = len(sides)
    rounds = Value(count.builder, count.builder.udiv(count.ir, _WORD(many)), types.int64, 1)
    with repeated(rounds) as at:
        for number, sums in enumerate(sides):
            step(at * many + number, sums)
    if many > 1:
        with repeated(count - rounds * many) as at:
            step(at + rounds * many, sides[0])


def multiplied(
    sums: Sequence[Pointer],
    rows: Iterable[Value],
    columns: Sequence[Value],
    add: Callable[[Value, Value, Value], Value],
) -> None:
    """The products of each row's vector and each column's are added to the sums, which lie row by row: ``add`` gives a
    sum with one added."""
    for i, left in enumerate(rows):
        for v, right in enumerate(columns):
            place = sums[i * len(columns) + v]
            memory.write(place, add(memory.read(place, right.lanes), left, right))


def kept(x: Value) -> Pointer:
    """A vector of sums that is under way, in a register."""
    made = Pointer(x.builder, x.builder.alloca(x.ir.type), x.dtype)
    memory.write(made, x)
    return made.cast(x.dtype)


def empty(zero: Value, count: int, sides: int) -> list[list[Pointer]]:
    """So many sums on each side, none of which has anything yet."""
    return [[kept(zero) for _ in range(count)] for _ in range(sides)]


def added_up(sides: Sequence[Sequence[Pointer]], number: int, lanes: int) -> Value:
    """One of the sums, of all its sides."""
    total = memory.read(sides[0][number], lanes)
    for side in sides[1:]:
        total = total + memory.read(side[number], lanes)
    return total


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of so many vectors, the last of which has the lanes of a mask, where it has one."""

    vectors: int
    lanes: int
    mask: Value | None

    @staticmethod
    def of(columns: Value, vectors: int, lanes: int) -> Rows:
        """Rows of so many columns of 32 bits each, which take all of the vectors."""
        return Rows(vectors, lanes, memory.first_lanes(columns - (vectors - 1) * lanes, 32, lanes))

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
        builder.cbranch(builder.icmp_unsigned("!=", adds.ir, _WORD(0)), adding, setting)
        for block in (adding, setting):
            builder.position_at_end(block)
            for number, x in enumerate(sums):
                row, vector = divmod(number, self.vectors)
                place = c.at(apart * row)
                self.write(place, vector, x + self.read(place, vector) if block is adding else x)
            builder.branch(end)
        builder.position_at_end(end)
