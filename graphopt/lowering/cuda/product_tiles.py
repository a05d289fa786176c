"""Block tiling of matrix products on CUDA: a block computes a tile, each thread a part of it in registers.

The operands come to shared memory a few steps at a time, fetched by all threads together; what the next steps need is
on its way, in registers, while these are multiplied. What is done to each result afterwards is done there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphopt.lowering.analysis.canonical_nest import Chain, exchange
from graphopt.lowering.cuda.contraction import Contraction
from graphopt.lowering.cuda.operands import ProductOperand, below, operand, units
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.cuda.tile_shapes import CHUNK, PAD, Tile
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, cast, conjunction, const, minimum, substitute
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import TRUE, Buffer, For, If, Stmt, Store, seq

PointInTile = Mapping[Var, Expr]
TileEpilogue = Callable[[PointInTile, Expr, Load], Stmt]
"""What is done to a result, by where it is, the number of the block among those that share out its steps, and what it
is."""


class ProductTiles:
    """The kernel of one contraction: ``finish`` is done to each of its results."""

    def __init__(self, owner: DeviceScheduling, contraction: Contraction, tile: Tile, finish: TileEpilogue) -> None:
        self.owner, self.contraction, self.tile, self.finish = owner, contraction, tile, finish
        self.x = operand(contraction.x, contraction.rows, contraction.steps, tile.rows, tile.depth, owner.card)
        self.y = operand(contraction.y, contraction.columns, contraction.steps, tile.columns, tile.depth, owner.card)
        result = contraction.result
        threads, down, across = Const(tile.threads), Const(tile.down), Const(tile.across)
        self.sums = owner.local(result.name, [threads, down, across], result.dtype)
        self.shared = [self.shared_tile(f"{result.name}_{n}", o) for n, o in (("x", self.x), ("y", self.y))]
        self.fetched = [self.registers(f"{result.name}_{n}", o) for n, o in (("x", self.x), ("y", self.y))]

    def shared_tile(self, name: str, operand: ProductOperand) -> Buffer:
        """The steps of an operand that a block works on."""
        shape = [Const(operand.depth), Const(operand.size)]
        return self.owner.shared(name, shape, operand.value.dtype, [Const(operand.size + PAD), Const(1)])

    def registers(self, name: str, operand: ProductOperand) -> Buffer:
        """Registers for the elements of an operand that each thread fetched."""
        shape = [Const(self.tile.threads), Const(self.rounds(operand)), Const(operand.width)]
        return self.owner.local(name, shape, operand.value.dtype)

    def rounds(self, operand: ProductOperand) -> int:
        """The number of fetches for each thread."""
        return -(-operand.count // self.tile.threads)

    # ------------------------------------------------------------------ the whole

    def kernel(self) -> Stmt:
        """The loops over blocks, and what each of them does."""
        tile = self.tile
        return over_tiles(self.owner, self.contraction, tile.rows, tile.columns, tile.splits, self.tile_at)

    def tile_at(self, row: Expr, column: Expr, split: Expr, batch: PointInTile) -> Stmt:
        """One tile: its steps, a few at a time, and what is done to its results."""
        first, count = slabs(self.contraction, self.tile.depth, self.tile.splits, split)
        slab = LoopSpec(self.owner.var("k"), count)
        here = ((self.x, row), (self.y, column))
        more = If(slab.var + 1 < count, self.fetch(here, first + slab.var + 1, batch))
        around = wrapped([slab], seq(self.put(), more, self.multiply()))
        return seq(self.start(), self.fetch(here, first, batch), around, self.end(row, column, split, batch))

    def by_threads(self, body: Callable[[Expr], Stmt]) -> Stmt:
        """A phase of the block."""
        return self.owner.by_threads(self.tile.threads, body)

    def start(self) -> Stmt:
        """All sums are zero."""
        down, across = self.own_loops()
        zero = const(0, self.sums.dtype)
        return self.by_threads(lambda t: wrapped([down, across], Store(self.sums, (t, down.var, across.var), zero)))

    def own_loops(self) -> tuple[LoopSpec, LoopSpec]:
        """Over the rows and columns that a thread has."""
        var = self.owner.var
        return LoopSpec(var("i"), Const(self.tile.down), "unrolled"), LoopSpec(
            var("j"), Const(self.tile.across), "unrolled"
        )

    # ------------------------------------------------------------------ operands

    def fetch(self, here: Sequence[tuple[ProductOperand, Expr]], slab: Expr, batch: PointInTile) -> Stmt:
        """Some steps of the operands are read into registers; zeros where there are none."""
        return self.by_threads(
            lambda t: seq(*(self.fetch_one(t, o, k, at, slab, batch) for k, (o, at) in enumerate(here)))
        )

    def fetch_one(self, t: Expr, operand: ProductOperand, k: int, tile: Expr, slab: Expr, batch: PointInTile) -> Stmt:
        """A thread's loads of an operand into its registers."""
        registers, lane = self.fetched[k], self.owner.var("u")
        rounds = LoopSpec(self.owner.var("q"), registers.shape[1], "unrolled")
        unit = t + rounds.var * self.tile.threads
        target = (t, rounds.var, lane)

        def over_lanes(stmt: Stmt) -> Stmt:
            return For(lane, registers.shape[2], stmt, "unrolled")

        read = over_lanes(Store(registers, target, operand.at(unit, lane, tile, slab, batch)))
        inside = operand.inside(unit, tile, slab)
        if operand.count < self.tile.threads:
            inside = conjunction(unit < operand.count, inside)
        whole = read if inside == TRUE else If(inside, read, over_lanes(Store(registers, target, operand.zero)))
        return wrapped([rounds], whole)

    def put(self) -> Stmt:
        """Stores the fetched elements in shared memory."""

        def one(t: Expr, operand: ProductOperand, k: int) -> Stmt:
            registers, lane = self.fetched[k], LoopSpec(self.owner.var("u"), Const(operand.width), "unrolled")
            rounds = LoopSpec(self.owner.var("q"), registers.shape[1], "unrolled")
            unit = t + rounds.var * self.tile.threads
            value = Load(registers, (t, rounds.var, lane.var))
            stored = wrapped([lane], Store(self.shared[k], operand.tile_index(unit, lane.var), value))
            return wrapped([rounds], stored if operand.count >= self.tile.threads else If(unit < operand.count, stored))

        return self.by_threads(lambda t: seq(*(one(t, o, k) for k, o in enumerate((self.x, self.y)))))

    # ------------------------------------------------------------------ results

    def row_and_column(self, t: Expr, i: Expr, j: Expr) -> tuple[Expr, Expr]:
        """The row and column of the tile of a thread's own result: chunks of neighbours, as far apart as there are
        threads along the side."""
        wide = self.tile.columns // self.tile.across
        return _spread(t // wide, i, self.tile.rows, self.tile.down), _spread(
            t % wide, j, self.tile.columns, self.tile.across
        )

    def multiply(self) -> Stmt:
        """The steps that lie in shared memory."""

        def body(t: Expr) -> Stmt:
            (down, across), step = self.own_loops(), LoopSpec(self.owner.var("k"), Const(self.tile.depth))
            row, column = self.row_and_column(t, down.var, across.var)
            dtype = self.sums.dtype
            x = cast(Load(self.shared[0], (step.var, row)), dtype)
            y = cast(Load(self.shared[1], (step.var, column)), dtype)
            indices = (t, down.var, across.var)
            return wrapped([step, down, across], Store(self.sums, indices, Load(self.sums, indices) + x * y))

        return self.by_threads(body)

    def end(self, row: Expr, column: Expr, split: Expr, batch: PointInTile) -> Stmt:
        """The epilogue of each result of the tile."""
        rows, columns = self.contraction.rows, self.contraction.columns.in_units(min(CHUNK, self.tile.across))

        def body(t: Expr) -> Stmt:
            down = LoopSpec(self.owner.var("i"), Const(self.tile.down), "unrolled")
            unit = LoopSpec(self.owner.var("j"), Const(self.tile.across // columns.width), "unrolled")
            lane = LoopSpec(self.owner.var("u"), Const(columns.width), "unrolled")
            j = unit.var * columns.width
            r, c = self.row_and_column(t, down.var, j)
            at_row, at_column = row * self.tile.rows + r, units(column, c, self.tile.columns, columns)
            where = {**batch, **rows.at(at_row, Const(0)), **columns.at(at_column, lane.var)}
            value = Load(self.sums, (t, down.var, j + lane.var))
            done = wrapped([lane], self.finish(where, split, value))
            inside = (*below(at_row, rows, self.tile.rows), *below(at_column, columns, self.tile.columns))
            return wrapped([down, unit], If(conjunction(*inside), done) if inside else done)

        return self.by_threads(body)


def _spread(number: Expr, index: Expr, size: int, each: int) -> Expr:
    """The index of a thread's row or column in the tile."""
    chunk = min(CHUNK, each)
    return index // chunk * (size // each * chunk) + number * chunk + index % chunk


def over_tiles(
    owner: DeviceScheduling,
    contraction: Contraction,
    rows: int,
    columns: int,
    splits: int,
    body: Callable[[Expr, Expr, Expr, PointInTile], Stmt],
) -> Stmt:
    """The body for each tile of so many rows and columns, by a block each: for its place along the rows and the
    columns, the number among those that share out its steps, and its place along the other axes."""
    down, across = (
        (contraction.rows.extent + (rows - 1)) // rows,
        (contraction.columns.extent + (columns - 1)) // columns,
    )
    parts = Const(splits)

    def block(number: Expr) -> Stmt:
        column, rest = number % across, number // across
        row, rest = rest % down, rest // down
        split, batch = rest % parts, rest // parts
        return body(row, column, split, contraction.batch.at(batch, Const(0)))

    return owner.over_blocks(across * down * parts * contraction.batch.extent, block)


def slabs(contraction: Contraction, depth: int, splits: int, split: Expr) -> tuple[Expr, Expr]:
    """The first slab of so many steps that a block takes, and how many these are."""
    total = (contraction.steps.extent + (depth - 1)) // depth
    if splits == 1:
        return Const(0), total
    share = (total + (splits - 1)) // splits
    return split * share, minimum(share, total - split * share)


def finished_by(first: Chain, rest: Sequence[Chain]) -> TileEpilogue:
    """The epilogue of each result: the blocks that follow, or a store."""
    result = first.stores[0].buffer

    def finish(where: PointInTile, split: Expr, value: Load) -> Stmt:
        parts: list[Stmt] = []
        for chain in rest:
            mine = {c.var: where[f.var] for f, c in zip(first.spatial, chain.spatial, strict=True)}
            done = chain.with_values([mine[a.var] for a in chain.axes])
            parts.append(exchange(done, {result: (value.buffer, value.indices)}))
        if not parts:
            parts = [Store(result, tuple(substitute(i, where) for i in first.stores[0].indices), value)]
        return seq(*parts)

    return finish
