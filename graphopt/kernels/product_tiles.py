"""Register tiles of matrix products (microkernels), and packing of their operands.

A tile is a function of its own, for each number of rows and of vectors in a row; all its sizes and strides are known
only when it runs, so that one kernel serves every product. Vectors lie along the columns. A step does one group of
products of each sum: it reads a vector of groups for each vector of columns, and a group for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.frozen import dataclass
from graphopt.kernels import amx, memory, values
from graphopt.kernels.halves import from_half
from graphopt.kernels.memory import Pointer
from graphopt.kernels.product_form import KINDS, PAIR, QUAD, THIN, Kind, beside
from graphopt.kernels.quads import multiply, words
from graphopt.kernels.transposes import turned
from graphopt.kernels.values import VectorValue, broadcast, from_bits
from graphopt.kernels.vector_type import function, literal, procedure

_WORD = llvm.IntType(64)
_APART = 3
"""Rows that are reached from one pointer: addresses may have once and twice a stride in them."""
_SIDES = 4
"""Groups of each sum that are done side by side, at most."""
_CHAINS = {1: 8, PAIR: 8, QUAD: 10}
"""Sums that are to run side by side, by the products of a group: a multiply-add takes four cycles, four products of
bytes at once five, and two start in each."""
_ROUND, _ROUND_AT_EDGES = 4, 2
"""Groups of each sum in a round, at least: what counts the rounds, and moves addresses on, is to cost little."""
DTYPES = {name: (getattr(types, kind.left), getattr(types, kind.right)) for name, kind in KINDS.items()}
"""The dtypes of the operands of each kind, as tiles read them."""


def sides(sums: int, chains: int) -> int:
    """The number of interleaved groups for each of a tile's sums, so that as many ``chains`` of additions run at once
    as the processor has under way: several where a tile is small."""
    return max(1, min(_SIDES, chains // sums))


@dataclass(frozen=True, slots=True)
class _Shape:
    """A tile's kind, rows, vectors in a row, lanes in a vector; whether its last vector may be of fewer lanes; how far
    apart rows, and a row's elements, lie in the first operand, and steps in the second, where that is known, else 0;
    and over how many panels of the second operand its vectors are spread."""

    kind: Kind
    rows: int
    vectors: int
    lanes: int
    masked: bool
    row: int
    step: int
    ldb: int
    panels: int = 1

    @property
    def name(self) -> str:
        masked = "_masked" if self.masked else ""
        return f"tile_{self.rows}x{self.vectors}x{self.lanes}_{self.row}_{self.step}_{self.ldb}{masked}"

    @property
    def in_panel(self) -> int:
        """Vectors of a panel."""
        return self.vectors // self.panels

    @property
    def sides(self) -> int:
        """Groups of each sum that are done side by side: several where a tile is small."""
        return sides(self.rows * self.vectors, _CHAINS[self.kind.group])

    @property
    def round(self) -> int:
        """Groups of each sum in a round of the loop."""
        least = 1 if self.kind.group == QUAD else _ROUND_AT_EDGES if self.masked else _ROUND
        return max(self.sides, least)


_POINTERS = ("c", "a", "b", "ahead", "row_terms", "column_terms")
_WORDS = ("ldc", "row", "step", "ldb", "n", "k", "adds", "pace", "between", "tiles", "apart", "m")
"""Pointers that a tile may be given, and sizes and distances behind them."""
_DISTANCES = ("row", "step", "ldb")
"""Those that may be known when the tile is compiled, and are not passed then."""


def _pointers(kind: Kind) -> Mapping[str, Any]:
    """The dtypes of what a tile's pointers point to: of bytes there are terms, and nothing is fetched ahead."""
    sums, left, right = (getattr(types, dtype) for dtype in (kind.sums, kind.left, kind.right))
    dtypes = dict(zip(_POINTERS, (sums, left, right, right, sums, sums), strict=True))
    without = ("ahead",) if kind.group == QUAD else ("row_terms", "column_terms")
    return {p: dtype for p, dtype in dtypes.items() if p not in without}


def _words(kind: Kind, constants: Sequence[int]) -> list[str]:
    """The sizes and distances that a tile is given."""
    without = [d for d, number in zip(_DISTANCES, constants, strict=True) if number]
    return [w for w in _WORDS if w not in without and not (w in ("pace", "between") and kind.group == QUAD)]


def _tile(name: str, kind: Kind) -> Any:
    """The function ``tile(c, ldc, a, row, step, b, ldb, m, n, k, adds, ahead, pace, between, tiles, apart, most,
    lanes)`` of a kind of products: ``c = a @ b``, where it ``adds`` ``c += a @ b``, for ``tiles`` below each other.

    ``m``, at most ``most``, are the rows of each; ``n``, at most two vectors of ``lanes``, the columns; ``k`` the
    products of each sum. ``a[i, p]`` lies at ``i * row + p * step``, where the next tile's rows begin ``apart`` from
    those of the one before; what the columns' first vector reads in a step ``ldb`` behind that of the step before;
    ``c[i, j]`` at ``i * ldc + j``. Meanwhile memory is fetched that will be needed soon: from ``ahead`` on, ``pace``
    elements with each step. Of few rows ``n`` may be all columns of ``beside(m, most)`` panels instead, which lie
    ``between`` elements apart; nothing is fetched then. ``row`` or ``step`` is a number in the source, and the other,
    or ``ldb``, may be. Of bytes there are behind that ``row_terms`` and ``column_terms``, which are added to each
    element by its row and column.
    """
    pointers = _pointers(kind)
    terms = [p for p in pointers if p.endswith("_terms")]
    parameters = ["c", "ldc", "a", "row", "step", "b", "ldb", "m", "n", "k", "adds", "ahead", "pace"]
    parameters += ["between", "tiles", "apart"]

    def define(given: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], None]:
        if any(getattr(given[p], "dtype", None) != dtype for p, dtype in pointers.items()):
            raise TypingError(f"a tile of {given['a']} and {given['b']} into {given['c']}: expected pointers to {kind}")
        width, rows = literal(given["lanes"], "lanes"), literal(given["most"], "most")
        distances = [given[x] for x in _DISTANCES]
        constants = [literal(x, "distance") if isinstance(x, types.IntegerLiteral) else 0 for x in distances]
        return partial(call, "graphopt_tile_{}_{}x{}_{}_{}_{}".format(name, rows, width, *constants), constants)

    def call(callee: str, constants: Sequence[int], given: Mapping[str, Any]) -> None:
        sizes = [values.cast(given[x], types.int64).ir for x in _words(kind, constants)]
        values.call(given["c"].builder, callee, llvm.VoidType(), [*(given[p].ir for p in pointers), *sizes])

    return procedure("tile", (*parameters, "most", "lanes", *terms), define)


PATTERN = rf"graphopt_tile_({'|'.join(KINDS)})_(\d+)x(\d+)_(\d+)_(\d+)_(\d+)"
"""Names of shared code: the kind, the rows of a tile at most, the lanes of its vectors, and the distances of a
``_Shape``. Each is compiled by itself, so that several processors have something to do."""


def tiles(kind: str, rows: int, width: int, *constants: int) -> llvm.Module:
    """The module with the function that computes tiles of any shape: it calls one for each of the shapes."""
    name, spec = f"graphopt_tile_{kind}_{rows}x{width}_{'_'.join(map(str, constants))}", KINDS[kind]
    module = llvm.Module(name)
    llvm_function, arguments = _function(module, name if not spec.has_matrices else f"{name}_vectors", spec, constants)
    builder = llvm.IRBuilder(llvm_function.append_basic_block("start"))
    counts = range(1, rows + 1)
    shapes = [_Shape(spec, i, v, width, True, *constants) for v in (1, 2) for i in counts]
    n = arguments["n"]
    chosen = builder.select(builder.icmp_signed("<=", n, _WORD(width)), _WORD(0), _WORD(rows))
    if spec.group == 1 and not spec.is_mixed:  # masks take part of what multiplies; the other kinds read whole panels
        shapes += [_Shape(spec, i, 2, width, False, *constants) for i in counts]
        chosen = builder.select(builder.icmp_signed("==", n, _WORD(2 * width)), _WORD(2 * rows), chosen)
    end = llvm_function.append_basic_block("end")
    if spec.group < QUAD:
        several = [(i, beside(i, rows)) for i in counts if i <= THIN and beside(i, rows) > 1]
        first, (row, step, ldb) = len(shapes), constants
        shapes += [_Shape(spec, i, 2 * panels, width, False, row, step, ldb, panels) for i, panels in several]
        chosen = builder.select(builder.icmp_signed(">", n, _WORD(2 * width)), _WORD(first), chosen)
    switch = builder.switch(builder.add(chosen, arguments["m"]), end)
    for number, shape in enumerate(shapes, 1):
        block = llvm_function.append_basic_block(shape.name)
        switch.add_case(_WORD(number), block)
        builder.position_at_end(block)
        body, inside = _function(module, shape.name, spec, constants)
        body.attributes.add("noinline")
        for arg in body.args[:3]:
            arg.add_attribute("noalias")
        _Body(body, shape, inside).write()
        builder.call(body, llvm_function.args, tail=True)
        builder.ret_void()
    builder.position_at_end(end)
    builder.ret_void()
    if spec.has_matrices:
        llvm_function.linkage = "internal"
        _with_matrices(module, name, spec, rows, width, constants, llvm_function)
    return module


def _with_matrices(
    module: Any, name: str, kind: Kind, rows: int, width: int, constants: Sequence[int], vectors: Any
) -> None:
    """The function that leaves tiles to registers of matrices where these are filled, and the rows that remain to
    ``vectors``."""
    llvm_function, given = _function(module, name, kind, constants)
    given = {"row": _WORD(constants[0]), **given}
    builder = llvm.IRBuilder(llvm_function.append_basic_block("start"))
    whole = builder.mul(given["m"], given["tiles"])
    is_deep = builder.icmp_unsigned("==", builder.urem(given["k"], _WORD(amx.DEEP)), _WORD(0))
    fills = builder.and_(is_deep, builder.icmp_signed(">=", whole, _WORD(amx.ROWS)))
    fills = builder.and_(fills, builder.icmp_signed("==", given["n"], _WORD(2 * width)))
    matrices, plain = (builder.append_basic_block(x) for x in ("matrices", "plain"))
    builder.cbranch(fills, matrices, plain)
    builder.position_at_end(plain)
    builder.call(vectors, llvm_function.args, tail=True)
    builder.ret_void()
    builder.position_at_end(matrices)
    done = amx.AmxProduct(builder, given, kind.is_signed).write(whole)
    start = builder.block
    head, body, end = (builder.append_basic_block(x) for x in ("rest", "some", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    at = builder.phi(_WORD)
    at.add_incoming(done, start)
    builder.cbranch(builder.icmp_signed("<", at, whole), body, end)
    builder.position_at_end(body)
    left = builder.sub(whole, at)
    some = builder.select(builder.icmp_signed("<", left, _WORD(rows)), left, _WORD(rows))
    own = dict(given)
    for pointer, apart in (("c", given["ldc"]), ("a", given["row"]), ("row_terms", _WORD(1))):
        own[pointer] = builder.gep(given[pointer], [builder.mul(at, apart)])
    own |= {"m": some, "tiles": _WORD(1)}
    builder.call(vectors, [own[x] for x in (*_pointers(kind), *_words(kind, constants))])
    at.add_incoming(builder.add(at, some), builder.block)
    builder.branch(head)
    builder.position_at_end(end)
    builder.ret_void()


def _function(module: Any, name: str, kind: Kind, constants: Sequence[int]) -> tuple[Any, Mapping[str, Any]]:
    """A new function of the module, of pointers and words; its arguments by name."""
    pointers, words = _pointers(kind), _words(kind, constants)
    types_ = [*(values.element(dtype).as_pointer() for dtype in pointers.values()), *[_WORD] * len(words)]
    llvm_function = llvm.Function(module, llvm.FunctionType(llvm.VoidType(), types_), name)
    return llvm_function, dict(zip((*pointers, *words), llvm_function.args, strict=True))


@dataclass(slots=True)
class _Sums:
    """Sums that are under way, as many of each element as there are sides; and where the next products lie."""

    sides: list[list[VectorValue]]
    rows: list[Pointer]
    panels: list[Pointer]
    ahead: Pointer

    @property
    def values(self) -> list[Any]:
        return [p.ir for p in (*self.rows, *self.panels, self.ahead)] + [x.ir for side in self.sides for x in side]


class _Body:
    """Writes the function of tiles of one shape."""

    def __init__(self, llvm_function: Any, shape: _Shape, arguments: Mapping[str, Any]) -> None:
        self.builder, self.shape, self.kind = (
            llvm.IRBuilder(llvm_function.append_basic_block("start")),
            shape,
            shape.kind,
        )
        given: dict[str, Any] = {
            p: Pointer(self.builder, arguments[p], dtype) for p, dtype in _pointers(self.kind).items()
        }
        self.c, self.a, self.b = (given[p] for p in ("c", "a", "b"))
        self.dtype = self.c.dtype
        self.ahead = given.get("ahead", self.b)
        self.terms = [given[p] for p in _POINTERS[4:] if p in given]
        numbers = dict(zip(_DISTANCES, (shape.row, shape.step, shape.ldb), strict=True))
        self.ldc, self.row, self.step, self.ldb, n, self.k, self.adds, self.pace, between, self.tiles, self.apart = (
            VectorValue(self.builder, arguments.get(w, _WORD(numbers.get(w, 0))), types.int64, 1) for w in _WORDS[:-1]
        )
        self.panels = [self.b, *(self.b.at(between * q) for q in range(1, shape.panels))]
        last = n - (shape.vectors - 1) * shape.lanes
        mask = memory.first_lanes(last, values.width(self.dtype), shape.lanes) if shape.masked else None
        self.line = _Rows(shape.vectors, shape.lanes, mask)

    def write(self) -> None:
        """The whole function."""
        builder, start, rows = self.builder, self.builder.block, self.shape.rows
        head, body, end = (builder.append_basic_block(x) for x in ("tiles", "tile", "done"))
        builder.branch(head)
        builder.position_at_end(head)
        index = builder.phi(_WORD)
        first = self.c, self.a, self.ahead, *self.terms[:1]
        self.c, self.a, self.ahead, *down = here = [Pointer(builder, builder.phi(p.ir.type), p.dtype) for p in first]
        self.terms[:1] = down
        builder.cbranch(builder.icmp_signed("<", index, self.tiles.ir), body, end)
        builder.position_at_end(body)
        ahead = self.one()
        following = self.c.at(self.ldc * rows), self.a.at(self.apart), ahead, *(p.past(rows) for p in down)
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
        shape, builder, group = self.shape, self.builder, self.kind.group
        zero = values.constant(builder, self.dtype, shape.lanes, 0)
        sums = _Sums(
            [[zero] * (shape.rows * shape.vectors) for _ in range(shape.sides)],
            [self.group(i) for i in range(0, shape.rows, _APART)],
            self.panels,
            self.ahead,
        )
        steps = self.k
        if group > 1:
            steps = VectorValue(builder, builder.udiv(self.k.ir, _WORD(group)), types.int64, 1)
        rounds = VectorValue(builder, builder.udiv(steps.ir, _WORD(shape.round)), types.int64, 1)
        sums = self.loop(rounds, sums, shape.round, group)
        while len(sums.sides) > 1:
            half = len(sums.sides) // 2
            pairs = zip(sums.sides[:half], sums.sides[half : 2 * half], strict=True)
            added = [[x + y for x, y in zip(a, b, strict=True)] for a, b in pairs]
            sums.sides = [*added, *sums.sides[2 * half :]]
        if shape.round > 1:
            sums = self.loop(steps - rounds * shape.round, sums, 1, group)
        if group == PAIR:  # products that make up no group
            sums = self.loop(self.k - steps * group, sums, 1, 1)
        self.line.put(self.c, self.ldc, self.finished(sums.sides[0]), self.adds)
        return sums.ahead

    def group(self, first: int) -> Pointer:
        """The start of some rows. Unless LLVM knows how far apart they lie, it is not to know it of these and others:
        it would compute the one from the other in each round."""
        start: Pointer = self.a.at(self.row * first)
        if self.shape.row:
            return start
        return Pointer(self.builder, memory.opaque(VectorValue(self.builder, start.ir, types.int64, 1)).ir, start.dtype)

    def loop(self, rounds: VectorValue, sums: _Sums, steps: int, products: int) -> _Sums:
        """So many rounds of so many steps, in each of which the first products of a group are added to the sums."""
        builder, start, group = self.builder, self.builder.block, self.kind.group
        head, body, end = (builder.append_basic_block(x) for x in ("head", "body", "end"))
        builder.branch(head)
        builder.position_at_end(head)
        index = builder.phi(_WORD)
        phis = [builder.phi(x.type) for x in sums.values]
        here = self.like(sums, phis)
        builder.cbranch(builder.icmp_unsigned("<", index, rounds.ir), body, end)
        builder.position_at_end(body)
        following = self.like(sums, phis)
        for number in range(steps):
            side = number % len(here.sides)
            following.sides[side] = self.products(following.rows, following.panels, following.sides[side], products)
            following.rows = [p.at(self.step * group if group > 1 else self.step) for p in following.rows]
            following.panels = [p.at(self.ldb) for p in following.panels]
        if group < QUAD and self.shape.panels == 1:
            lines = steps if self.shape.rows <= THIN else 1  # a step of few rows takes no longer than to fetch a line
            for number in range(lines):
                memory.prefetch(following.ahead.at(self.pace * number) if number else following.ahead)
            following.ahead = following.ahead.at(self.pace * steps)
        ending = builder.add(index, _WORD(1))
        builder.branch(head)
        for phi, first, then in zip((index, *phis), (_WORD(0), *sums.values), (ending, *following.values), strict=True):
            phi.add_incoming(first, start)
            phi.add_incoming(then, builder.block)
        builder.position_at_end(end)
        return here

    def like(self, sums: _Sums, irs: Sequence[Any]) -> _Sums:
        """Sums of the same form, of other values of LLVM."""
        count, each = len(sums.rows), self.shape.rows * self.shape.vectors
        before = [*sums.rows, *sums.panels, sums.ahead]
        down = len(sums.panels) + count
        pointers = [Pointer(self.builder, ir, p.dtype) for ir, p in zip(irs, before, strict=False)]
        wide = [VectorValue(self.builder, x, self.dtype, self.shape.lanes) for x in irs[down + 1 :]]
        parts = [wide[k : k + each] for k in range(0, len(wide), each)]
        return _Sums(parts, pointers[:count], pointers[count:down], pointers[down])

    # -- what kinds of products differ in

    def products(
        self, rows: Sequence[Pointer], panels: Sequence[Pointer], side: Sequence[VectorValue], count: int
    ) -> list[VectorValue]:
        """The sums with the first products of a group added to each: of bytes all at once, else one after another."""
        shape, is_byte = self.shape, self.kind.group == QUAD
        for p, right in enumerate(self.columns(panels)[:count]):
            totals = []
            for i in range(shape.rows):
                element = rows[i // _APART].at(self.row * (i % _APART))
                element = element.at(self.step * p) if p else element
                left = broadcast(words(element, 1) if is_byte else memory.read(element, 1), shape.lanes)
                totals += [self.added(side[i * shape.vectors + v], left, right[v]) for v in range(shape.vectors)]
            side = totals
        return [*side]

    def columns(self, panels: Sequence[Pointer]) -> list[list[VectorValue]]:
        """The vectors of columns, for each of the products that are done one after another."""
        shape, group, vectors = self.shape, self.kind.group, range(self.shape.in_panel)
        if group == 1:
            if self.kind.is_mixed:
                parts = [panel.past(shape.lanes * v) for panel in panels for v in vectors]
                return [[from_half(memory.read(part, shape.lanes)) for part in parts]]
            return [[self.line.read(panel, v) for panel in panels for v in vectors]]
        laid = [words(panel.past(group * shape.lanes * v), shape.lanes) for panel in panels for v in vectors]
        return [laid] if group == QUAD else [[from_bits(w << 16) for w in laid], [from_bits(w & -65536) for w in laid]]

    def added(self, total: VectorValue, left: VectorValue, right: VectorValue) -> VectorValue:
        """A sum with products added."""
        if self.kind.group == QUAD:
            return multiply(total, left, right, self.kind.is_signed, self.kind.is_dot)
        return values.fma(left, right, total)

    def finished(self, sums: Sequence[VectorValue]) -> Sequence[VectorValue]:
        """The sums with the terms of their rows and columns."""
        if not self.terms:
            return sums
        (down, across), vectors = self.terms, self.shape.vectors
        columns = [self.line.read(across, v) for v in range(vectors)]
        rows = [broadcast(memory.read(down.past(i), 1), self.shape.lanes) for i in range(self.shape.rows)]
        return [x + (rows[k // vectors] + columns[k % vectors]) for k, x in enumerate(sums)]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of so many vectors, the last of which has the lanes of a mask, where it has one."""

    vectors: int
    lanes: int
    mask: VectorValue | None

    def read(self, row: Pointer, vector: int) -> VectorValue:
        """A vector of a row."""
        p = row.past(vector * self.lanes)
        if self.mask is None or vector < self.vectors - 1:
            return memory.read(p, self.lanes)
        return memory.read_where(p, self.mask)

    def write(self, row: Pointer, vector: int, x: VectorValue) -> None:
        """Store a vector of a row."""
        p = row.past(vector * self.lanes)
        if self.mask is None or vector < self.vectors - 1:
            memory.write(p, x)
        else:
            memory.write_where(p, x, self.mask)

    def put(self, c: Pointer, apart: VectorValue, sums: Sequence[VectorValue], adds: VectorValue) -> None:
        """Write the sums, row by row from ``c`` on, so far ``apart``; or, where it ``adds``, add them to what is
        there."""
        builder = c.builder
        adding, setting, end = (builder.append_basic_block(x) for x in ("adding", "setting", "end"))
        builder.cbranch(builder.icmp_unsigned("!=", adds.ir, _WORD(0)), adding, setting)
        for block in (adding, setting):
            builder.position_at_end(block)
            for number, x in enumerate(sums):
                row, vector = divmod(number, self.vectors)
                target = c.at(apart * row)
                self.write(target, vector, x + self.read(target, vector) if block is adding else x)
            builder.branch(end)
        builder.position_at_end(end)


def _lay_turned(to: Any, width: Any, a: Any, row: Any, m: Any, k: Any, lanes: Any) -> Any:
    """``lay_turned(to, width, a, row, m, k, lanes)``: ``to[p * width + i] = a[i * row + p]`` for ``m`` rows, at most
    ``width``, and ``k`` steps, at most ``lanes``.

    ``width`` and ``lanes`` are numbers in the source. The rest of the ``lanes`` times ``width`` elements of ``to``, and
    what a vector holds behind them, is anything after that.
    """
    columns, count = literal(width, "width"), literal(lanes, "lanes")

    def trace(
        to: Pointer, _: VectorValue, a: Pointer, row: VectorValue, m: VectorValue, k: VectorValue, lanes: VectorValue
    ) -> None:
        last = m - 1
        rows: list[VectorValue] = []
        for i in range(-(-columns // count) * count):
            clamped_row = values.select(last < i, last, last.number(i)) if i else last.number(0)
            rows.append(memory.read_masked(a.at(row * clamped_row), k, count) if i < columns else rows[0])
        parts = [turned(rows[at : at + count], count, count) for at in range(0, len(rows), count)]
        for p in range(count):
            for number, part in enumerate(parts):
                memory.write(to.past(p * columns + number * count), part[p])

    return types.none, trace


TILES = {name: _tile(name, kind) for name, kind in KINDS.items()}
"""The function that kernel source calls as ``tile``, by the kind of products."""
lay_turned = function(_lay_turned)
