"""Recurrent tiles: packed gate weights, and gates of a few rows of the batch in registers.

A tile has some neighbouring elements of the hidden state and, for these, all gates that are computed together. Weights
are packed in the order in which tiles read them, one after another; where they are constant, that is done when a
program is compiled. What follows from the gates of a tile is computed as soon as the tile is summed up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import Final

from graphopt.frozen import dataclass
from graphopt.kernels.host import lanes as lanes_of
from graphopt.kernels.host import registers
from graphopt.lowering.analysis.access_analysis import known_size
from graphopt.lowering.loops.compute import Requirement, Tensor, compute, fresh, loop
from graphopt.lowering.loops.expressions import Const, Expr, cast, conjunction, const, equal, maximum, minimum, select
from graphopt.lowering.loops.nest import Buffer, BufferRegion, For, Invoke, LoopKind, Range, Stmt, Store, seq
from graphopt.lowering.operators.elements import required

CHAINS: Final = 8
"""Vectors of sums that are to be under way: a multiply-add takes four cycles, and two start in each."""

ROWS: Final = 12
"""Rows of a tile at most."""
OPEN: Final = (ROWS // 2, 2)
"""Rows of tiles where it is not known how many there are: of large ones, of which the last may have rows to spare, and
of a small one for what would leave most of a large one idle. Rows by themselves would each read all weights again."""


def along(extent: Expr, body: Callable[[Expr], Stmt], kind: LoopKind = "vectorized") -> Stmt:
    """A loop whose steps may be taken at once: ``along(n, lambda i: ...)``."""
    var = fresh()
    return For(var, extent, body(var), kind)


@dataclass(frozen=True)
class Frame:
    """Shared sizes of all gates of an op."""

    ways: int
    """Directions."""
    batch: Expr
    hidden: Expr
    gates: int
    """How many there are in all."""
    dtype: str
    """What is computed in."""
    op: str
    """The op's name."""

    @cached_property
    def lanes(self) -> int:
        """Elements of a vector."""
        return lanes_of(self.dtype)

    @cached_property
    def full(self) -> Expr:
        """The elements of a hidden state in whole vectors."""
        return (self.hidden + (self.lanes - 1)) // self.lanes * self.lanes

    def inside(self, n: Expr, value: Expr) -> Expr:
        """The value where the hidden state has an element ``n``, else 0."""
        return value if self.full == self.hidden else select(n < self.hidden, value, const(0, self.dtype))

    def fits(self, source: Tensor, parts: int) -> list[Requirement]:
        """The requirement that the first axis of ``source`` has all directions, and the second so many parts of the
        size of a hidden state; inner axes are read by their own sizes."""
        condition = conjunction(equal(source.shape[0], self.ways), equal(source.shape[1], self.hidden * parts))
        return required(condition, f"{self.op}: sizes of its inputs do not agree")

    def parts(self, source: Tensor, count: int, first: int, whole: int, name: str) -> Tensor:
        """Some of the ``whole`` parts of the rows of ``source``, each of the size of a hidden state: [direction, part,
        element]."""

        def element(d: Expr, k: Expr, n: Expr) -> Expr:
            return self.inside(n, cast(source[d, self.hidden * (k + first) + n], self.dtype))

        return compute((self.ways, count, self.full), element, self.dtype, name, self.fits(source, whole))

    def state(self, name: str) -> Buffer:
        """A buffer for a state, in whole vectors."""
        return Buffer(name, (Const(self.ways), spared(self.batch), self.full), self.dtype)


@dataclass(frozen=True)
class Gates:
    """Some neighbouring gates, which are computed together, of so many rows at a time."""

    frame: Frame
    first: int
    count: int
    rows: int

    @property
    def all(self) -> range:
        """Their numbers."""
        return range(self.first, self.first + self.count)

    @property
    def wanted(self) -> int:
        """Vectors of a row whose sums are under way at once: those of all rows take three quarters of the registers."""
        return max(min(CHAINS, registers() * 3 // 4 // self.rows), 1)

    @cached_property
    def vectors(self) -> int:
        """Vectors of each gate in a tile: with which as many as are wanted can be summed up at once."""
        frame = self.frame
        number = int(frame.full.value) // frame.lanes if isinstance(frame.full, Const) else 1
        counts = [n for n in range(1, max(self.wanted // self.count, 2) + 1) if number % n == 0]
        return max(counts, key=lambda n: (self.summed(n), -n))

    def summed(self, vectors: int) -> int:
        """Vectors that are summed up at once, of tiles with so many of each gate."""
        return next(n for n in range(self.wanted, 0, -1) if self.count * vectors % n == 0)

    @property
    def block(self) -> int:
        """Elements of the hidden state in a tile."""
        return self.vectors * self.frame.lanes

    @property
    def columns(self) -> int:
        """Elements of all gates in a tile,"""
        return self.count * self.block

    @property
    def width(self) -> int:
        """of which so many are summed up at once."""
        return self.summed(self.vectors) * self.frame.lanes

    @property
    def blocks(self) -> Expr:
        """The number of adjacent tiles."""
        return self.frame.full // self.block

    def gate_and_unit(self, q: Expr, column: Expr) -> tuple[Expr, Expr]:
        """The gate, and the element of the hidden state, that a column of a tile is."""
        return column // self.block + self.first, q * self.block + column % self.block

    def column(self, gate: int, inner: Expr) -> Expr:
        """The column of a gate's element in a tile."""
        return inner + (gate - self.first) * self.block

    def packed(self, weights: Tensor, name: str) -> Tensor:
        """The weights of these gates, [direction, tile, part of its columns, input, column]."""
        frame, parts = self.frame, self.columns // self.width

        def element(d: Expr, q: Expr, p: Expr, k: Expr, c: Expr) -> Expr:
            gate, n = self.gate_and_unit(q, p * self.width + c)
            return frame.inside(n, cast(weights[d, frame.hidden * gate + n, k], frame.dtype))

        shape = (frame.ways, self.blocks, parts, weights.shape[2], self.width)
        return compute(shape, element, frame.dtype, name, frame.fits(weights, frame.gates))

    def biases(self, given: Tensor, apart: int | None) -> Tensor:
        """The sums of both biases, [direction, tile, column]: of the gate ``apart`` only the inputs' own."""
        frame = self.frame

        def element(d: Expr, q: Expr, c: Expr) -> Expr:
            gate, n = self.gate_and_unit(q, c)
            input_bias, recurrent = (
                cast(given[d, frame.hidden * (gate + k) + n], frame.dtype) for k in (0, frame.gates)
            )
            both = (
                input_bias + recurrent
                if apart is None
                else select(equal(gate, apart), input_bias, input_bias + recurrent)
            )
            return frame.inside(n, both)

        shape = (frame.ways, self.blocks, self.columns)
        return compute(shape, element, frame.dtype, "biases", frame.fits(given, frame.gates * 2))

    # -- statements

    def sums(self, rows: int, name: str) -> Buffer:
        """The sums of a tile of so many rows."""
        return Buffer(name, (Const(rows), Const(self.columns)), self.frame.dtype, "local")

    def added(self, sums: Buffer, left: BufferRegion, weights: Tensor, d: int, q: Expr) -> Stmt:
        """Adds ``left @ weights`` to the sums."""
        rows, steps = sums.shape[0], weights.shape[3]
        name = f"product_{known_size([rows])}x{self.width}_{sums.dtype}"

        def part(p: int) -> Stmt:
            columns = Range(Const(p * self.width), Const(self.width))
            inner = (Range(Const(0), steps), Range(Const(0), Const(self.width)))
            right = BufferRegion(weights, (Range(Const(d)), Range(q), Range(Const(p)), *inner))
            return Invoke(name, (BufferRegion(sums, (Range(Const(0), rows), columns)), left, right, steps))

        return seq(*(part(p) for p in range(self.columns // self.width)))

    def filled(self, sums: Buffer, gates: Iterable[int], value: Callable[[Expr, int, Expr], Expr]) -> Stmt:
        """Stores ``value(row, gate, element of the tile)`` in the sums of some gates."""

        def one(r: Expr, gate: int, n: Expr) -> Stmt:
            return Store(sums, (r, self.column(gate, n)), value(r, gate, n))

        def row(r: Expr) -> Stmt:
            return seq(*(self.each(partial(one, r, gate)) for gate in gates))

        return along(sums.shape[0], row, "unrolled")

    def each(self, body: Callable[[Expr], Stmt]) -> Stmt:
        """For every element of the hidden state in a tile."""
        lanes = self.frame.lanes
        return along(
            Const(self.vectors), lambda v: along(Const(lanes), lambda lane: body(v * lanes + lane)), "unrolled"
        )


def rows_of(extent: Expr) -> int:
    """Rows of a tile: where that is known, as many in each as can be."""
    if not isinstance(extent, Const):
        return OPEN[0]
    total = int(extent.value)
    return max(-(-total // max(-(-total // ROWS), 1)), 1)


def spared(extent: Expr) -> Expr:
    """Rows of buffers that tiles read: with those that a tile may have to spare."""
    return extent if isinstance(extent, Const) else extent + (OPEN[0] - OPEN[1] - 1)


@dataclass(frozen=True)
class RowTile:
    """Some neighbouring rows."""

    first: Expr
    height: int
    live: Expr
    """So many of them exist; others may be computed, and are written nowhere."""

    def each(self, body: Callable[[Expr], Stmt]) -> Stmt:
        """For every row that exists, by its number among all."""
        return loop(self.live, lambda i: body(self.first + i))

    def row(self, i: Expr) -> Expr:
        """The number of a row among all, of one to spare that of the last before it."""
        row = self.first + i
        return row if isinstance(self.live, Const) else minimum(row, self.first + self.live - 1)


def pieces(extent: Expr) -> Iterator[tuple[Expr, Callable[[Expr], RowTile]]]:
    """Rows in tiles: how many tiles of a kind there are, and which."""
    if isinstance(extent, Const):
        each, total = rows_of(extent), int(extent.value)
        yield Const(total // each), lambda k: RowTile(k * each, each, Const(each))
        if rest := total % each:
            yield Const(1), lambda k: RowTile(Const(total - rest), rest, Const(rest))
        return
    large, small = OPEN
    count = spared(extent) // large
    yield count, lambda k: RowTile(k * large, large, minimum(extent - k * large, large))
    left = maximum(extent - count * large, 0)
    yield (left + (small - 1)) // small, lambda k: RowTile(count * large, small, left)


def heights(extent: Expr) -> list[int]:
    """How many rows the tiles of each kind have."""
    return [which(Const(0)).height for _, which in pieces(extent)]
