"""Shared-memory transposes on CUDA, fused with element-wise work: one tile at a time.

What lies side by side along another axis than the results do is read along that axis, so that neighbouring threads read
neighbours, and write neighbours too. Rows of the tile are one element longer than they have to be: so those of a column
lie in different banks. One of the rules of ``schedules``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from graphopt.kernels.cuda.limits import WARP
from graphopt.lowering.analysis.access_analysis import collapsed, known_size, point_of, taken_apart, total_size
from graphopt.lowering.analysis.canonical_nest import Chain
from graphopt.lowering.cpu.transpose_tiles import TransposedLoads, turning, with_lanes_apart
from graphopt.lowering.cuda.rows import is_plain
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, conjunction, substitute
from graphopt.lowering.loops.nest import TRUE, Axis, For, If, Stmt, Store, described, map_expressions, seq

LEAST = WARP // 2
"""Rows and columns below which neighbours are too few to be read together."""


def turned_over(owner: DeviceScheduling, chains: Sequence[Chain]) -> Stmt | None:
    """The kernel of the first block, where it computes element by element and reads what has to be turned over; None
    where it does not."""
    if chains[0].block.init is not None or not is_plain(chains[0]):
        return None
    for chain, exists in ((chains[0], TRUE), with_lanes_apart(chains[0], ())):
        groups = collapsed(chain, chain.axes)
        turned = turning(chain, groups) if groups else None
        if turned is not None and not any(_is_short(groups[k]) for k in (turned.rows_at, -1)):
            return _Tiles(owner, chain, groups, turned, exists).kernel()
    return None


def _is_short(group: Sequence[Axis]) -> bool:
    extent = known_size([a.extent for a in group])
    return extent is not None and extent < LEAST


class _Tiles:
    """Writes the kernel. Rows of a tile are along the axes that are read side by side, columns along those that are
    written so; a result is there where ``exists`` says so."""

    def __init__(
        self,
        owner: DeviceScheduling,
        chain: Chain,
        groups: Sequence[Sequence[Axis]],
        turned: TransposedLoads,
        exists: Expr,
    ) -> None:
        self.owner, self.chain, self.groups, self.turned, self.exists = owner, chain, groups, turned, exists
        self.extents = [total_size([a.extent for a in group]) for group in groups]
        self.rows, self.columns = (_side(self.extents[k]) for k in (turned.rows_at, -1))
        shape, strides = (Const(self.columns), Const(self.rows)), (Const(self.rows + 1), Const(1))
        self.tiles = {e: owner.shared(e.buffer.name, shape, e.dtype, strides) for e in turned.loads}

    def kernel(self) -> Stmt:
        """A block of threads for each tile."""
        sizes = {len(self.groups) - 1: self.columns, self.turned.rows_at: self.rows}
        counts = [(n + (sizes.get(k, 1) - 1)) // sizes.get(k, 1) for k, n in enumerate(self.extents)]

        def tile(number: Expr) -> Stmt:
            first = [at * sizes.get(k, 1) for k, at in enumerate(point_of(number, counts))]
            reading = self.over_tile(self.rows, lambda row, column: self.read(first, row, column))
            return seq(reading, self.over_tile(self.columns, lambda column, row: self.written(first, row, column)))

        return self.owner.over_blocks(total_size(counts), tile)

    def over_tile(self, width: int, body: Callable[[Expr, Expr], Stmt]) -> Stmt:
        """The body for each element of a tile, by its place along the side that neighbouring threads have, which is
        ``width`` long, and along the other one."""
        size = self.rows * self.columns
        threads = min(self.owner.card.threads, size)
        turn = self.owner.var("q")

        def several(thread: Expr) -> Stmt:
            part = body(thread % width, turn * (threads // width) + thread // width)
            return For(turn, Const(size // threads), part, "unrolled")

        return self.owner.by_threads(threads, several)

    def point(self, first: Sequence[Expr], row: Expr, column: Expr) -> tuple[dict[Var, Expr], Expr]:
        """Values of the block's axes at an element of the tile, and whether that element exists."""
        here, rows_at = list(first), self.turned.rows_at
        here[rows_at], here[-1] = here[rows_at] + row, here[-1] + column
        values: dict[Var, Expr] = {}
        for start, group in zip(here, self.groups, strict=True):
            values.update(taken_apart(start, group))
        open_ = [k for k, n in ((rows_at, self.rows), (-1, self.columns)) if not _divides(n, self.extents[k])]
        return values, conjunction(*(here[k] < self.extents[k] for k in open_))

    def read(self, first: Sequence[Expr], row: Expr, column: Expr) -> Stmt:
        """Reads one element of each tile."""
        values, inside = self.point(first, row, column)
        stores = []
        for load, tile in self.tiles.items():
            guard = conjunction(inside, substitute(self.turned.loads[load], values))
            store: Stmt = Store(tile, (column, row), substitute(load, values))
            stores.append(store if guard == TRUE else If(guard, store))
        return seq(*stores)

    def written(self, first: Sequence[Expr], row: Expr, column: Expr) -> Stmt:
        """Computes one result of a tile."""
        values, inside = self.point(first, row, column)
        tiles: dict[Expr, Expr] = {load: Load(tile, (column, row)) for load, tile in self.tiles.items()}
        block = self.chain.with_values([values[a.var] for a in self.chain.axes])
        block = described(replace(block, body=map_expressions(block.body, tiles.get)))
        guard = conjunction(inside, substitute(self.exists, values))
        return block if guard == TRUE else If(guard, block)


def _side(extent: Expr) -> int:
    """The length of a tile's side: no longer than it takes."""
    return min(WARP, 1 << (int(extent.value) - 1).bit_length()) if isinstance(extent, Const) else WARP


def _divides(side: int, extent: Expr) -> bool:
    return isinstance(extent, Const) and int(extent.value) % side == 0
