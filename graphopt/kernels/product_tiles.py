"""Tiles of a product of matrices that stay in registers, and operands laid side by side for them.

A tile is a function of its own, for each number of rows and of vectors in a row; all its sizes and strides are known
only when it runs, so that one kernel serves every product. After Goto and van de Geijn, "Anatomy of High-Performance
Matrix Multiplication" (2008), with the vectors along the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels import memory, values
from graphopt.kernels.memory import Pointer
from graphopt.kernels.tiles import APART, Rows, sides, start_of_rows
from graphopt.kernels.transposes import turned
from graphopt.kernels.values import Value
from graphopt.kernels.vector_type import function, literal

_WORD = llvm.IntType(64)
_WORDS = 11
"""Sizes and distances behind a tile's four pointers."""
_CHAINS = 8
"""Sums that are to run side by side: a multiply-add takes four cycles, and two start in each."""
_ROUND, _ROUND_AT_EDGES = 4, 2
"""Products of each sum in a round, at least: what counts the rounds, and moves addresses on, is to cost little."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """A tile's rows, vectors in a row, lanes in a vector; whether its last vector may be of fewer lanes; how far apart
    rows, and a row's elements, lie in the first operand, and rows in the second, where that is known, else 0."""

    rows: int
    vectors: int
    lanes: int
    masked: bool
    row: int
    step: int
    ldb: int

    @property
    def name(self) -> str:
        masked = "_masked" if self.masked else ""
        return f"tile_{self.rows}x{self.vectors}x{self.lanes}_{self.row}_{self.step}_{self.ldb}{masked}"

    @property
    def sides(self) -> int:
        """Products of each sum that are done side by side: several where a tile is small."""
        return sides(self.rows * self.vectors, _CHAINS)

    @property
    def round(self) -> int:
        """Products of each sum in a round of the loop."""
        return max(self.sides, _ROUND_AT_EDGES if self.masked else _ROUND)


def _tile(
    c: Any, ldc: Any, a: Any, row: Any, step: Any, b: Any, ldb: Any, m: Any, n: Any, k: Any, adds: Any, ahead: Any,
    pace: Any, tiles: Any, apart: Any, most: Any, lanes: Any,
) -> Any:  # fmt: skip
    """``tile(c, ldc, a, row, step, b, ldb, m, n, k, adds, ahead, pace, tiles, apart, most, lanes)``: ``c = a @ b``,
    where it ``adds`` ``c += a @ b``, for some ``tiles`` below each other.

    ``m``, at most ``most``, are the rows of each; ``n``, at most two vectors of ``lanes``, the columns; ``k`` the
    products of each sum. ``a[i, p]`` lies at ``i * row + p * step``, where the next tile's rows begin ``apart`` from
    those of the one before; ``b[p, j]`` at ``p * ldb + j``, ``c[i, j]`` at ``i * ldc + j``. Meanwhile memory is
    fetched that will be needed soon: from ``ahead`` on, ``pace`` elements with each product. ``row`` or ``step`` is a
    number in the source, and the other, or ``ldb``, may be.
    """
    if not all(isinstance(p, types.CPointer) and p.dtype == c.dtype for p in (a, b, c)):
        raise TypingError(f"a tile of {a} and {b} into {c}: expected pointers to one dtype")
    width, rows = literal(lanes, "lanes"), literal(most, "most")
    known = [literal(x, "distance") if isinstance(x, types.IntegerLiteral) else 0 for x in (row, step, ldb)]

    def trace(
        c: Pointer, ldc: Value, a: Pointer, row: Value, step: Value, b: Pointer, ldb: Value, m: Value, n: Value,
        k: Value, adds: Value, ahead: Pointer, pace: Value, tiles: Value, apart: Value, *_: Value,
    ) -> None:  # fmt: skip
        words = [values.cast(x, types.int64).ir for x in (ldc, row, step, ldb, n, k, adds, pace, tiles, apart, m)]
        name = "graphopt_tile_{}_{}x{}_{}_{}_{}".format(c.dtype, rows, width, *known)
        values.call(c.builder, name, llvm.VoidType(), [c.ir, a.ir, b.ir, ahead.ir, *words])

    return types.none, trace


PATTERN = r"graphopt_tile_(float32|float64)_(\d+)x(\d+)_(\d+)_(\d+)_(\d+)"
"""Names of shared code: the dtype, the rows of a tile at most, the lanes of its vectors, and the distances of a
``_Shape``. Each is compiled by itself, so that several processors have something to do."""


def tiles(dtype: str, rows: int, width: int, *known: int) -> llvm.Module:
    """The module with the function that computes tiles of any shape: it calls one for each of the shapes."""
    name, kind = f"graphopt_tile_{dtype}_{rows}x{width}_{'_'.join(map(str, known))}", getattr(types, dtype)
    module = llvm.Module(name)
    made = _function(module, name, kind)
    builder = llvm.IRBuilder(made.append_basic_block("start"))
    counts = range(1, rows + 1)
    shapes = [_Shape(i, v, width, True, *known) for v in (1, 2) for i in counts]
    shapes += [_Shape(i, 2, width, False, *known) for i in counts]  # masks take part of what multiplies
    n = made.args[8]
    chosen = builder.select(builder.icmp_signed("<=", n, _WORD(width)), _WORD(0), _WORD(rows))
    chosen = builder.select(builder.icmp_signed("==", n, _WORD(2 * width)), _WORD(2 * rows), chosen)
    end = made.append_basic_block("end")
    switch = builder.switch(builder.add(chosen, made.args[-1]), end)
    for number, shape in enumerate(shapes, 1):
        block = made.append_basic_block(shape.name)
        switch.add_case(_WORD(number), block)
        builder.position_at_end(block)
        body = _function(module, shape.name, kind)
        body.attributes.add("noinline")
        for arg in body.args[:3]:
            arg.add_attribute("noalias")
        _Body(body, kind, shape).write()
        builder.call(body, made.args, tail=True)
        builder.ret_void()
    builder.position_at_end(end)
    builder.ret_void()
    return module


def _function(module: Any, name: str, dtype: Any) -> Any:
    """A new function of the module, of four pointers and words."""
    pointer = values.element(dtype).as_pointer()
    return llvm.Function(module, llvm.FunctionType(llvm.VoidType(), [pointer] * 4 + [_WORD] * _WORDS), name)


@dataclass(slots=True)
class _Sums:
    """Sums that are under way, as many of each element as there are sides; and where the next products lie."""

    sides: list[list[Value]]
    rows: list[Pointer]
    columns: Pointer
    ahead: Pointer

    @property
    def values(self) -> list[Any]:
        return [p.ir for p in (*self.rows, self.columns, self.ahead)] + [x.ir for side in self.sides for x in side]


class _Body:
    """Writes the function of tiles of one shape."""

    def __init__(self, made: Any, dtype: Any, shape: _Shape) -> None:
        self.builder = llvm.IRBuilder(made.append_basic_block("start"))
        self.dtype, self.shape = dtype, shape
        self.c, self.a, self.b, self.ahead = (Pointer(self.builder, p, dtype) for p in made.args[:4])
        self.ldc, self.row, self.step, self.ldb, n, self.k, self.adds, self.pace, self.tiles, self.apart = (
            Value(self.builder, x, types.int64, 1) for x in made.args[4:-1]
        )
        self.row = self.row.number(shape.row) if shape.row else self.row
        self.step = self.step.number(shape.step) if shape.step else self.step
        self.ldb = self.ldb.number(shape.ldb) if shape.ldb else self.ldb
        last = n - (shape.vectors - 1) * shape.lanes
        mask = memory.first_lanes(last, values.width(dtype), shape.lanes) if shape.masked else None
        self.line = Rows(shape.vectors, shape.lanes, mask)

    def write(self) -> None:
        """The whole function."""
        builder, start = self.builder, self.builder.block
        head, body, end = (builder.append_basic_block(x) for x in ("tiles", "tile", "done"))
        builder.branch(head)
        builder.position_at_end(head)
        index = builder.phi(_WORD)
        first = self.c, self.a, self.ahead
        self.c, self.a, self.ahead = here = [Pointer(builder, builder.phi(p.ir.type), self.dtype) for p in first]
        builder.cbranch(builder.icmp_signed("<", index, self.tiles.ir), body, end)
        builder.position_at_end(body)
        ahead = self.one()
        following = self.c.at(self.ldc * self.shape.rows), self.a.at(self.apart), ahead
        ending = builder.add(index, _WORD(1))
        builder.branch(head)
        index.add_incoming(_WORD(0), start)
        index.add_incoming(ending, builder.block)
        for phi, before, after in zip(here, first, following, strict=True):
            phi.ir.add_incoming(before.ir, start)
            phi.ir.add_incoming(after.ir, builder.block)
        builder.position_at_end(end)
        builder.ret_void()

    def one(self) -> Pointer:
        """One tile; gives what is to be fetched behind it."""
        shape, builder = self.shape, self.builder
        zero = values.constant(builder, self.dtype, shape.lanes, 0.0)
        sums = _Sums(
            [[zero] * (shape.rows * shape.vectors) for _ in range(shape.sides)],
            [self.group(i) for i in range(0, shape.rows, APART)],
            self.b,
            self.ahead,
        )
        rounds = Value(builder, builder.udiv(self.k.ir, _WORD(shape.round)), types.int64, 1)
        sums = self.loop(rounds, sums, shape.round)
        while len(sums.sides) > 1:
            half = len(sums.sides) // 2
            pairs = zip(sums.sides[:half], sums.sides[half:], strict=True)
            sums.sides = [[x + y for x, y in zip(a, b, strict=True)] for a, b in pairs]
        sums = self.loop(self.k - rounds * shape.round, sums, 1)
        self.line.put(self.c, self.ldc, sums.sides[0], self.adds)
        return sums.ahead

    def group(self, first: int) -> Pointer:
        """Where some rows start."""
        place = self.a.at(self.row * first)
        return place if self.shape.row else start_of_rows(place)

    def loop(self, rounds: Value, sums: _Sums, products: int) -> _Sums:
        """So many rounds, in each of which so many products are added to the sums."""
        builder, start = self.builder, self.builder.block
        head, body, end = (builder.append_basic_block(x) for x in ("head", "body", "end"))
        builder.branch(head)
        builder.position_at_end(head)
        index = builder.phi(_WORD)
        phis = [builder.phi(x.type) for x in sums.values]
        here = self.like(sums, phis)
        builder.cbranch(builder.icmp_unsigned("<", index, rounds.ir), body, end)
        builder.position_at_end(body)
        following = self.like(sums, phis)
        for number in range(products):
            side = number % len(here.sides)
            following.sides[side] = self.products(following.rows, following.columns, following.sides[side])
            following.rows = [p.at(self.step) for p in following.rows]
            following.columns = following.columns.at(self.ldb)
        memory.prefetch(following.ahead)
        following.ahead = following.ahead.at(self.pace * products)
        ending = builder.add(index, _WORD(1))
        builder.branch(head)
        for phi, first, then in zip((index, *phis), (_WORD(0), *sums.values), (ending, *following.values), strict=True):
            phi.add_incoming(first, start)
            phi.add_incoming(then, builder.block)
        builder.position_at_end(end)
        return here

    def like(self, sums: _Sums, irs: Sequence[Any]) -> _Sums:
        """Sums of the same form, of other values of LLVM."""
        count, each = len(sums.rows) + 2, self.shape.rows * self.shape.vectors
        pointers = [Pointer(self.builder, p, self.dtype) for p in irs[:count]]
        wide = [Value(self.builder, x, self.dtype, self.shape.lanes) for x in irs[count:]]
        return _Sums([wide[k : k + each] for k in range(0, len(wide), each)], pointers[:-2], *pointers[-2:])

    def products(self, rows: Sequence[Pointer], columns: Pointer, side: Sequence[Value]) -> list[Value]:
        """The sums with one product added to each."""
        shape, found = self.shape, []
        right = [self.line.read(columns, v) for v in range(shape.vectors)]
        for i in range(shape.rows):
            one = memory.read(rows[i // APART].at(self.row * (i % APART)), 1)
            left = values.broadcast(one, shape.lanes)
            found += [values.fma(left, right[v], side[i * shape.vectors + v]) for v in range(shape.vectors)]
        return found


def _lay_turned(to: Any, width: Any, a: Any, row: Any, m: Any, k: Any, lanes: Any) -> Any:
    """``lay_turned(to, width, a, row, m, k, lanes)``: ``to[p * width + i] = a[i * row + p]`` for ``m`` rows, at most
    ``width``, and ``k`` steps, at most ``lanes``.

    ``width`` and ``lanes`` are numbers in the source. The rest of the ``lanes`` times ``width`` elements of ``to``, and
    what a vector holds behind them, is anything after that.
    """
    columns, count = literal(width, "width"), literal(lanes, "lanes")

    def trace(to: Pointer, _: Value, a: Pointer, row: Value, m: Value, k: Value, lanes: Value) -> None:
        last = m - 1
        rows: list[Value] = []
        for i in range(-(-columns // count) * count):
            place = values.select(last < i, last, last.number(i)) if i else last.number(0)
            rows.append(memory.read_masked(a.at(row * place), k, count) if i < columns else rows[0])
        parts = [turned(rows[at : at + count], count, count) for at in range(0, len(rows), count)]
        for p in range(count):
            for number, part in enumerate(parts):
                memory.write(to.past(p * columns + number * count), part[p])

    return types.none, trace


tile, lay_turned = function(_tile), function(_lay_turned)
