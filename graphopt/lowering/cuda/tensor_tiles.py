"""Warp-level matrix multiply: tensor cores on half floats, and on float32 rounded to TF32 where allowed; a block of
warps computes a tile, each warp a part of it.

The next steps of the operands are copied to one slot of shared memory while those in the other are multiplied. They lie
there as they lie in memory: what a warp loads of them is turned over on the way where it has to be. Sums are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from graphopt.frozen import dataclass
from graphopt.ir.constants import BITS
from graphopt.ir.dtypes import HALVES
from graphopt.kernels.cuda.limits import WARP
from graphopt.lowering.cuda.barriers import BARRIER
from graphopt.lowering.cuda.contraction import Contraction
from graphopt.lowering.cuda.operands import ProductOperand, below, operand, stored, units
from graphopt.lowering.cuda.product_tiles import PointInTile, TileEpilogue, over_tiles, slabs
from graphopt.lowering.cuda.threads import AHEAD, DeviceScheduling
from graphopt.lowering.cuda.tile_shapes import OPEN, TOGETHER, chosen_shape, splits_of
from graphopt.lowering.intrinsics import warp as warps
from graphopt.lowering.loops.expressions import Const, Expr, Load, conjunction
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import TRUE, Buffer, BufferRegion, For, If, Invoke, Range, Stmt, Store, seq

HIGH, WIDE = 16, 8
"""Rows and columns of what a warp multiplies at once."""
GAP: Final = 8
"""Elements between rows of a shared tile, so that rows that a warp loads at once lie in different banks; half as many
of float32, where steps lie side by side."""


def deep(dtype: str) -> int:
    """The number of steps that a warp multiplies at once."""
    return 8 * warps.together(dtype)


@dataclass(frozen=True)
class WarpTile:
    """A block of ``down`` by ``across`` warps computes a tile of which each warp has ``high`` rows and ``wide``
    columns, ``depth`` steps at a time; ``splits`` blocks share out the steps of each tile."""

    down: int
    across: int
    high: int
    wide: int
    depth: int
    splits: int = 1

    @property
    def rows(self) -> int:
        """Rows of the tile."""
        return self.down * self.high

    @property
    def columns(self) -> int:
        """Columns of the tile."""
        return self.across * self.wide

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.down * self.across


def warp_tile_for(contraction: Contraction, owner: DeviceScheduling) -> WarpTile | None:
    """The tile for a product on tensor cores, but for what is chosen of it; None where it is none, or threads of a warp
    cannot work together."""
    card = owner.card
    dtype, allowed = stored(contraction.x).dtype, (*HALVES, *(("float32",) if card.is_approximate else ()))
    if (
        not card.has_exchange
        or stored(contraction.y).dtype != dtype
        or dtype not in allowed
        or contraction.result.dtype != "float32"
    ):
        return None
    rows, columns = (OPEN if n is None else n for n in (contraction.rows.known, contraction.columns.known))
    batch = 1 if contraction.batch.known is None else max(contraction.batch.known, 1)
    steps = contraction.steps.known
    depth = 2 * deep(dtype) if steps is None or steps > deep(dtype) else deep(dtype)

    def blocks(tile: WarpTile) -> int:
        return -(-rows // tile.rows) * -(-columns // tile.columns) * batch

    tiles = [t for t in _tiles(depth) if t.warps * WARP <= card.threads and _bytes(t, dtype) <= card.shared]

    def busiest(tiles: Sequence[WarpTile]) -> WarpTile:
        full = [t for t in tiles if blocks(t) >= TOGETHER]
        # the largest tile that keeps the card busy; else that with the least that lies beyond the ends, of many blocks
        return max(full, key=lambda t: t.rows * t.columns) if full else min(tiles, key=lambda t: t.rows * t.columns)

    best = chosen_shape(owner, tiles, busiest, ("rows", "columns"))
    return replace(best, splits=splits_of(contraction, owner, blocks(best), depth))


def _tiles(depth: int) -> Iterator[WarpTile]:
    yield WarpTile(2, 4, 64, 32, depth)
    yield WarpTile(4, 2, 32, 32, depth)
    yield WarpTile(2, 2, 32, 32, depth)
    yield WarpTile(2, 1, 16, 32, depth)


def _bytes(tile: WarpTile, dtype: str) -> int:
    """About what the slots of the operands' tiles take."""
    return 2 * (BITS[dtype] // 8) * (tile.rows + tile.columns) * (tile.depth + GAP)


class TensorTiles:
    """The kernel of one contraction: ``finish`` is done to each of its results."""

    def __init__(self, owner: DeviceScheduling, contraction: Contraction, tile: WarpTile, finish: TileEpilogue) -> None:
        self.owner, self.contraction, self.tile, self.finish = owner, contraction, tile, finish
        name = contraction.result.name
        self.x = operand(contraction.x, contraction.rows, contraction.steps, tile.rows, tile.depth, owner.card)
        self.y = operand(contraction.y, contraction.columns, contraction.steps, tile.columns, tile.depth, owner.card)
        self.dtype = self.x.value.dtype
        self.deep, self.held = deep(self.dtype), 4 * warps.together(self.dtype)
        self.high, self.wide = tile.high // HIGH, tile.wide // WIDE
        self.sums = self.fragments(name, (self.high, self.wide, 4), "float32")
        self.left = self.fragments(f"{name}_x", (self.high, self.held), self.dtype)
        self.right = self.fragments(f"{name}_y", (self.wide // 2, self.held), self.dtype)
        self.shared = [self.slots(f"{name}_{n}", o) for n, o in (("x", self.x), ("y", self.y))]

    def fragments(self, name: str, shape: tuple[int, ...], dtype: str) -> Buffer:
        """Fragments of each thread of each warp."""
        return self.owner.local(name, [Const(n) for n in (self.tile.warps, WARP, *shape)], dtype)

    def slots(self, name: str, operand: ProductOperand) -> Buffer:
        """Two tiles of an operand, as it lies in memory."""
        high, wide = (operand.size, operand.depth) if operand.is_deep else (operand.depth, operand.size)
        apart = wide + (GAP // 2 if operand.is_deep and self.dtype == "float32" else GAP)
        strides = [Const(high * apart), Const(apart), Const(1)]
        return self.owner.shared(name, [Const(2), Const(high), Const(wide)], self.dtype, strides)

    def kernel(self) -> Stmt:
        """The loops over blocks, and what each of them does."""
        tile = self.tile
        return over_tiles(self.owner, self.contraction, tile.rows, tile.columns, tile.splits, self.tile_at)

    def tile_at(self, row: Expr, column: Expr, split: Expr, batch: PointInTile) -> Stmt:
        """One tile: while some steps are multiplied, the next ones are on their way."""
        first, count = slabs(self.contraction, self.tile.depth, self.tile.splits, split)
        slab = LoopSpec(self.owner.var("k"), count)
        ahead = slab.var + 1

        def fetch(number: Expr, slot: Expr) -> Stmt:
            return self.by_threads(
                lambda t: seq(
                    *(
                        self.fetch(t, self.shared[k], o, at, first + number, slot, batch)
                        for k, (o, at) in enumerate(((self.x, row), (self.y, column)))
                    )
                ),
                is_ahead=True,
            )

        more = If(ahead < count, fetch(ahead, ahead % 2))
        # where threads wait here, whether there are more steps or not, they need not wait for those as well
        around = wrapped([slab], seq(BARRIER, more, self.multiply(slab.var % 2)))
        return seq(self.start(), fetch(Const(0), Const(0)), around, self.end(row, column, split, batch))

    def by_warps(self, body: Callable[[Expr], Stmt]) -> Stmt:
        """A phase in which each warp does something together."""
        warp = self.owner.var("w")
        return For(warp, Const(self.tile.warps), body(warp), "bound", "threadIdx.y")

    def by_lanes(self, body: Callable[[Expr, Expr], Stmt], is_ahead: bool = False) -> Stmt:
        """A phase in which each thread of each warp does something by itself."""
        lane, notes = self.owner.var("l"), (AHEAD,) if is_ahead else ()
        return self.by_warps(lambda w: For(lane, Const(WARP), body(w, lane), "bound", "threadIdx.x", notes))

    def by_threads(self, body: Callable[[Expr], Stmt], is_ahead: bool = False) -> Stmt:
        """A phase in which each thread of the block does something by itself."""
        return self.by_lanes(lambda w, lane: body(w * WARP + lane), is_ahead)

    # ------------------------------------------------------------------ operands

    def fetch(
        self, t: Expr, target: Buffer, operand: ProductOperand, tile: Expr, slab: Expr, slot: Expr, batch: PointInTile
    ) -> Stmt:
        """Copies a thread's part of an operand to a slot; zeros beyond its end."""
        lane, threads = self.owner.var("u"), self.tile.warps * WARP
        rounds = LoopSpec(self.owner.var("q"), Const(-(-operand.count // threads)), "unrolled")
        unit = t + rounds.var * threads
        step, outer = operand.tile_index(unit, lane)
        indices = (slot, outer, step) if operand.is_deep else (slot, step, outer)

        def over_lanes(value: Expr) -> Stmt:
            return For(lane, Const(operand.width), Store(target, indices, value), "unrolled")

        done = over_lanes(operand.at(unit, lane, tile, slab, batch))
        inside = operand.inside(unit, tile, slab)
        if inside != TRUE:
            done = If(inside, done, over_lanes(operand.zero))
        if operand.count % threads:
            done = If(unit < operand.count, done)
        return wrapped([rounds], done)

    # ------------------------------------------------------------------ results

    def start(self) -> Stmt:
        """All sums are zero."""
        i, j, r = (LoopSpec(self.owner.var("i"), n, "unrolled") for n in self.sums.shape[2:])

        def body(w: Expr, lane: Expr) -> Stmt:
            return wrapped([i, j, r], Store(self.sums, (w, lane, i.var, j.var, r.var), Const(0.0, "float32")))

        return self.by_lanes(body)

    def multiply(self, slot: Expr) -> Stmt:
        """The steps that lie in a slot."""
        var, across = self.owner.var, self.tile.across
        k = LoopSpec(var("k"), Const(self.tile.depth // self.deep), "unrolled")

        def body(w: Expr) -> Stmt:
            i, j = (
                LoopSpec(var("i"), Const(self.high), "unrolled"),
                LoopSpec(var("j"), Const(self.wide // 2), "unrolled"),
            )
            row, column = w // across * self.tile.high + i.var * HIGH, w % across * self.tile.wide + j.var * HIGH
            first = self.load("a", self.left, (w, i.var), self.x, (slot, k.var * self.deep, row))
            second = self.load("b", self.right, (w, j.var), self.y, (slot, k.var * self.deep, column))
            p, q, h = (LoopSpec(var("i"), Const(n), "unrolled") for n in (self.high, self.wide // 2, 2))
            half = Range(h.var * (self.held // 2), Const(self.held // 2))
            call = Invoke(
                warps.PRODUCT.format(self.dtype),
                (
                    _held(self.sums, (w, p.var, q.var * 2 + h.var), Range(Const(0), Const(4))),
                    _held(self.left, (w, p.var), Range(Const(0), Const(self.held))),
                    _held(self.right, (w, q.var), half),
                ),
            )
            return wrapped([k], seq(wrapped([i], first), wrapped([j], second), wrapped([p, q, h], call)))

        return self.by_warps(body)

    def load(
        self,
        letter: str,
        target: Buffer,
        indices: tuple[Expr, ...],
        operand: ProductOperand,
        start: tuple[Expr, Expr, Expr],
    ) -> Stmt:
        """The call that loads a fragment of 16 rows or columns from a slot, from a step and a row or column on."""
        slot, step, outer = start
        is_turned = operand.is_deep == (letter == "b")
        sides = [Range(outer, Const(HIGH)), Range(step, Const(self.deep))]
        ranges = (Range(slot), *(sides if operand.is_deep else sides[::-1]))
        source = BufferRegion(self.shared[letter == "b"], ranges)
        name = f"{warps.FRAGMENT.format(letter, 't' if is_turned else 'n')}_{self.dtype}"
        return Invoke(name, (_held(target, indices, Range(Const(0), Const(self.held))), source))

    def end(self, row: Expr, column: Expr, split: Expr, batch: PointInTile) -> Stmt:
        """The epilogue of each result of the tile: a thread has pairs of neighbours."""
        var, tile = self.owner.var, self.tile
        rows, columns = self.contraction.rows, self.contraction.columns.in_units(2)

        def body(w: Expr, lane: Expr) -> Stmt:
            i, j, low = (LoopSpec(var("i"), Const(n), "unrolled") for n in (self.high, self.wide, 2))
            unit = LoopSpec(var("j"), Const(2 // columns.width), "unrolled")
            u = LoopSpec(var("u"), Const(columns.width), "unrolled")
            first_column = unit.var * columns.width
            r = w // tile.across * tile.high + i.var * HIGH + lane // 4 + low.var * 8
            c = w % tile.across * tile.wide + j.var * WIDE + lane % 4 * 2 + first_column
            at_row, at_column = row * tile.rows + r, units(column, c, tile.columns, columns)
            where = {**batch, **rows.at(at_row, Const(0)), **columns.at(at_column, u.var)}
            value = Load(self.sums, (w, lane, i.var, j.var, low.var * 2 + first_column + u.var))
            done = wrapped([u], self.finish(where, split, value))
            inside = (*below(at_row, rows, tile.rows), *below(at_column, columns, tile.columns))
            return wrapped([i, low, j, unit], If(conjunction(*inside), done) if inside else done)

        return self.by_lanes(body)


def _held(buffer: Buffer, indices: tuple[Expr, ...], last: Range) -> BufferRegion:
    """A fragment among those that a warp holds."""
    warp, *others = indices
    return BufferRegion(buffer, (Range(warp), Range(Const(0), Const(WARP)), *(Range(o) for o in others), last))
