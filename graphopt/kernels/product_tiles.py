"""Tiles of a product of matrices that stay in registers, and operands laid side by side for them.

A tile is a function of its own in a kernel's module, for each number of rows and of vectors in a row; all its sizes
and strides are known only when it runs, so that one kernel serves every product. After Goto and van de Geijn, "Anatomy
of High-Performance Matrix Multiplication" (2008), with the vectors along the columns.
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
from graphopt.kernels.transposes import turned
from graphopt.kernels.values import Value
from graphopt.kernels.vector_type import function, literal

_WORD = llvm.IntType(64)
_CHAINS = 8
"""Sums that are to run side by side: a multiply-add takes four cycles, and two start in each."""
_ROUND = 2
"""Products of each sum in a round, at least, where addresses are numbers: what counts the rounds is to cost little."""
_APART = 3
"""Rows that are reached from one pointer: addresses may have once and twice a stride in them."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """A tile's rows, vectors in a row, lanes in a vector; whether its last vector may be of fewer lanes; how far apart
    the rows' next elements lie, where the rows lie side by side, else 0."""

    rows: int
    vectors: int
    lanes: int
    masked: bool
    step: int

    @property
    def name(self) -> str:
        ways = ("_masked" if self.masked else "") + ("_laid" if self.step else "")
        return f"tile_{self.rows}x{self.vectors}x{self.lanes}{ways}"

    @property
    def sides(self) -> int:
        """Products of each sum that are done side by side: several where a tile is small."""
        return max(1, min(4, _CHAINS // (self.rows * self.vectors)))

    @property
    def round(self) -> int:
        """Products of each sum in a round of the loop."""
        return max(self.sides, _ROUND) if self.step else self.sides


def _tile(
    c: Any, ldc: Any, a: Any, row: Any, step: Any, b: Any, ldb: Any, m: Any, n: Any, k: Any, adds: Any, ahead: Any,
    pace: Any, most: Any, lanes: Any,
) -> Any:  # fmt: skip
    """``tile(c, ldc, a, row, step, b, ldb, m, n, k, adds, ahead, pace, most, lanes)``: ``c = a @ b``, where it ``adds``
    ``c += a @ b``.

    ``m``, at most ``most``, are its rows; ``n``, at most two vectors of ``lanes``, its columns; ``k`` the products of
    each sum. ``a[i, p]`` lies at ``i * row + p * step``, ``b[p, j]`` at ``p * ldb + j``, ``c[i, j]`` at
    ``i * ldc + j``. With each product, memory is fetched that will be needed soon: from ``ahead`` on, every ``pace``
    elements.
    """
    if not all(isinstance(p, types.CPointer) and p.dtype == c.dtype for p in (a, b, c)):
        raise TypingError(f"a tile of {a} and {b} into {c}: expected pointers to one dtype")
    width, rows = literal(lanes, "lanes"), literal(most, "most")
    is_laid = isinstance(row, types.IntegerLiteral) and isinstance(step, types.IntegerLiteral)
    apart = literal(step, "step") if is_laid else 0

    def trace(c: Pointer, ldc: Value, a: Pointer, row: Value, step: Value, b: Pointer, ldb: Value, m: Value, n: Value,
              k: Value, adds: Value, ahead: Pointer, pace: Value, *_: Value) -> None:  # fmt: skip
        words = [values.cast(x, types.int64).ir for x in (ldc, row, step, ldb, n, k, adds, pace, m)]
        chosen = _chosen(c.builder.module, c.dtype, rows, width, apart)
        c.builder.call(chosen, [c.ir, a.ir, b.ir, ahead.ir, *words])

    return types.none, trace


def _chosen(module: Any, dtype: Any, rows: int, width: int, step: int) -> Any:
    """The module's function that computes a tile of any shape: one of its own, or loops around it are written out for
    each of the shapes."""
    made = _function(module, f"tile_{rows}x{width}_{dtype}{'_laid' if step else ''}", dtype, 9)
    if made.blocks:
        return made
    builder = llvm.IRBuilder(made.append_basic_block("start"))
    masked = [_Shape(i, v, width, True, step) for v in (1, 2) for i in range(1, rows + 1)]
    whole = [_Shape(i, 2, width, False, step) for i in range(1, rows + 1)] if _masks_cost(dtype, width) and step else []
    shapes = [*masked, *whole]
    n = made.args[8]
    kind = builder.select(builder.icmp_signed("<=", n, _WORD(width)), _WORD(0), _WORD(rows))
    if whole:
        kind = builder.select(builder.icmp_signed("==", n, _WORD(2 * width)), _WORD(2 * rows), kind)
    end = made.append_basic_block("end")
    switch = builder.switch(builder.add(kind, made.args[-1]), end)
    for number, shape in enumerate(shapes, 1):
        block = made.append_basic_block(shape.name)
        switch.add_case(_WORD(number), block)
        builder.position_at_end(block)
        body = _function(module, f"{shape.name}_{dtype}", dtype, 8)
        _Body(body, dtype, shape).write()
        builder.call(body, made.args[:-1])
        builder.branch(end)
    builder.position_at_end(end)
    builder.ret_void()
    return made


def _masks_cost(dtype: Any, width: int) -> bool:
    """Whether it is slower to read vectors under a mask: not with registers of their own for masks."""
    return values.width(dtype) * width < 512


def _function(module: Any, name: str, dtype: Any, words: int) -> Any:
    """The module's function of that name, of four pointers and some words; new ones are empty."""
    if name in module.globals:
        return module.globals[name]
    pointer = values.element(dtype).as_pointer()
    made = llvm.Function(module, llvm.FunctionType(llvm.VoidType(), [pointer] * 4 + [_WORD] * words), name)
    made.linkage = "internal"
    made.attributes.add("noinline")
    for arg in made.args[:3]:
        arg.add_attribute("noalias")
    return made


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
    """Writes the function of a tile."""

    def __init__(self, made: Any, dtype: Any, shape: _Shape) -> None:
        self.builder = llvm.IRBuilder(made.append_basic_block("start"))
        self.dtype, self.shape = dtype, shape
        self.c, self.a, self.b, self.ahead = (Pointer(self.builder, p, dtype) for p in made.args[:4])
        self.ldc, self.row, self.step, self.ldb, n, self.k, self.adds, self.pace = (
            Value(self.builder, x, types.int64, 1) for x in made.args[4:]
        )
        if shape.step:
            self.row, self.step = self.row.number(1), self.step.number(shape.step)
        last = n - (shape.vectors - 1) * shape.lanes
        self.mask = memory.first_lanes(last, values.width(dtype), shape.lanes) if shape.masked else None

    def write(self) -> None:
        """The whole function."""
        shape, builder = self.shape, self.builder
        zero = values.constant(builder, self.dtype, shape.lanes, 0.0)
        sums = _Sums(
            [[zero] * (shape.rows * shape.vectors) for _ in range(shape.sides)],
            [self.group(i) for i in range(0, shape.rows, _APART)],
            self.b,
            self.ahead,
        )
        rounds = Value(builder, builder.udiv(self.k.ir, _WORD(shape.round)), types.int64, 1)
        sums = self.loop(rounds, sums, shape.round)
        while len(sums.sides) > 1:
            half = len(sums.sides) // 2
            pairs = zip(sums.sides[:half], sums.sides[half:], strict=True)
            sums.sides = [[x + y for x, y in zip(a, b, strict=True)] for a, b in pairs]
        if shape.round > 1:
            sums = self.loop(self.k - rounds * shape.round, sums, 1)
        self.finish(sums.sides[0])
        builder.ret_void()

    def group(self, first: int) -> Pointer:
        """Where some rows start. LLVM is not to know how far these lie from the others: it would compute the one from
        the other in each round."""
        place = self.a.at(self.row * first)
        if self.shape.step:
            return place
        kind = llvm.FunctionType(place.ir.type, [place.ir.type])
        return Pointer(self.builder, self.builder.asm(kind, "", "=r,0", [place.ir], side_effect=False), self.dtype)

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
            following.ahead = following.ahead.at(self.pace)
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
        right = [self.read(columns, v) for v in range(shape.vectors)]
        for i in range(shape.rows):
            one = memory.read(rows[i // _APART].at(self.row * (i % _APART)), 1)
            left = values.broadcast(one, shape.lanes)
            found += [values.fma(left, right[v], side[i * shape.vectors + v]) for v in range(shape.vectors)]
        return found

    def read(self, p: Pointer, vector: int) -> Value:
        """A vector of a row."""
        p = p.past(vector * self.shape.lanes)
        if self.mask is None or vector < self.shape.vectors - 1:
            return memory.read(p, self.shape.lanes)
        return memory.read_where(p, self.mask)

    def write_row(self, p: Pointer, vector: int, x: Value) -> None:
        """Store a vector of a row."""
        p = p.past(vector * self.shape.lanes)
        if self.mask is None or vector < self.shape.vectors - 1:
            memory.write(p, x)
        else:
            memory.write_where(p, x, self.mask)

    def finish(self, sums: Sequence[Value]) -> None:
        """Write the sums, or add them to what is there."""
        builder, shape = self.builder, self.shape
        adding, setting, end = (builder.append_basic_block(x) for x in ("adding", "setting", "end"))
        builder.cbranch(builder.icmp_unsigned("!=", self.adds.ir, _WORD(0)), adding, setting)
        for block in (adding, setting):
            builder.position_at_end(block)
            for number, x in enumerate(sums):
                row, vector = divmod(number, shape.vectors)
                place = self.c.at(self.ldc * row)
                self.write_row(place, vector, x + self.read(place, vector) if block is adding else x)
            builder.branch(end)
        builder.position_at_end(end)


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
