"""Products of matrices on CUDA: a block of threads computes a tile, of which each thread keeps a part in registers.

The operands come to shared memory a few steps at a time, fetched by all threads together; what the next steps need is
on its way, in registers, while these are multiplied. What is done to each result afterwards is done there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from graphopt.ir.constants import BITS
from graphopt.lowering.chains import Chain, exchange
from graphopt.lowering.cuda.contraction import Contraction, Group, lies_along
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.cuda.tile_shapes import CHUNK, PAD, Tile
from graphopt.lowering.expressions import Apply, Const, Expr, Load, Var, cast, conjunction, minimum, substitute
from graphopt.lowering.loop_nests import Loop, wrapped
from graphopt.lowering.loops import TRUE, Buffer, For, If, Stmt, Store, seq

Where = Mapping[Var, Expr]
Finish = Callable[[Where, Expr, Load], Stmt]
"""What is done to a result, by where it is, the number of the block among those that share out its steps, and what it
is."""


@dataclass(frozen=True)
class Operand:
    """A factor of a product, and how threads fetch it: ``outer`` are its rows or columns, of which a tile has ``size``.

    Neighbouring threads fetch neighbours along the steps (``is_deep``) or along the outer axis, ``width`` of them each.
    """

    value: Expr
    outer: Group
    steps: Group
    size: int
    depth: int
    is_deep: bool

    @property
    def width(self) -> int:
        """How many neighbours a thread fetches at once."""
        return self.steps.width if self.is_deep else self.outer.width

    @property
    def count(self) -> int:
        """Units of a tile."""
        return self.size * self.depth // self.width

    def place(self, unit: Expr, lane: Expr) -> tuple[Expr, Expr]:
        """Of an element of a unit of the tile: which step, and which row or column."""
        if self.is_deep:
            along = self.depth // self.width
            return unit % along * self.width + lane, unit // along
        along = self.size // self.width
        return unit // along, unit % along * self.width + lane


def operand(value: Expr, outer: Group, steps: Group, size: int, depth: int, access: int) -> Operand:
    """A factor with the widest way to fetch it that its place in memory allows."""
    value = _stored(value)
    most = access * 8 // BITS[value.dtype]
    is_deep = bool(steps.axes) and lies_along(value, steps.axes[-1]) and not lies_along(value, outer.axes[-1])
    along = steps if is_deep else outer
    is_wide = bool(along.axes) and lies_along(value, along.axes[-1])
    wide = along.in_units(min(most, depth if is_deep else size)) if is_wide else along
    return Operand(value, outer if is_deep else wide, wide if is_deep else steps, size, depth, is_deep)


def _stored(value: Expr) -> Expr:
    """What is kept of a factor until it is multiplied: what it was before it was made wider."""
    while isinstance(value, Apply) and value.fn == "cast" and BITS[value.args[0].dtype] < BITS[value.dtype]:
        value = value.args[0]
    return value


class ProductTiles:
    """The kernel of one contraction: ``finish`` is done to each of its results."""

    def __init__(self, owner: DeviceScheduling, found: Contraction, tile: Tile, finish: Finish) -> None:
        self.owner, self.found, self.tile, self.finish = owner, found, tile, finish
        access, depth = owner.card.access, tile.depth
        self.x = operand(found.x, found.rows, found.steps, tile.rows, depth, access)
        self.y = operand(found.y, found.columns, found.steps, tile.columns, depth, access)
        made = found.made
        threads, down, across = Const(tile.threads), Const(tile.down), Const(tile.across)
        self.sums = owner.local(made.name, [threads, down, across], made.dtype)
        self.shared = [self.shared_tile(f"{made.name}_{n}", o) for n, o in (("x", self.x), ("y", self.y))]
        self.fetched = [self.registers(f"{made.name}_{n}", o) for n, o in (("x", self.x), ("y", self.y))]

    def shared_tile(self, name: str, operand: Operand) -> Buffer:
        """The steps of an operand that a block works on."""
        shape = [Const(operand.depth), Const(operand.size)]
        return self.owner.shared(name, shape, operand.value.dtype, [Const(operand.size + PAD), Const(1)])

    def registers(self, name: str, operand: Operand) -> Buffer:
        """What each thread has fetched of an operand."""
        shape = [Const(self.tile.threads), Const(self.rounds(operand)), Const(operand.width)]
        return self.owner.local(name, shape, operand.value.dtype)

    def rounds(self, operand: Operand) -> int:
        """How often each thread fetches."""
        return -(-operand.count // self.tile.threads)

    # ------------------------------------------------------------------ the whole

    def kernel(self) -> Stmt:
        """The loops over blocks, and what each of them does."""
        found, tile = self.found, self.tile
        down = (found.rows.extent + (tile.rows - 1)) // tile.rows
        across = (found.columns.extent + (tile.columns - 1)) // tile.columns
        parts = Const(tile.splits)

        def block(number: Expr) -> Stmt:
            column, rest = number % across, number // across
            row, rest = rest % down, rest // down
            split, batch = rest % parts, rest // parts
            return self.tile_at(row, column, split, found.batch.at(batch, Const(0)))

        return self.owner.over_blocks(across * down * parts * found.batch.extent, block)

    def tile_at(self, row: Expr, column: Expr, split: Expr, batch: Where) -> Stmt:
        """One tile: its steps, a few at a time, and what is done to its results."""
        depth = self.tile.depth
        slabs = (self.found.steps.extent + (depth - 1)) // depth
        first: Expr = Const(0)
        count = slabs
        if self.tile.splits > 1:
            share = (slabs + (self.tile.splits - 1)) // self.tile.splits
            first, count = split * share, minimum(share, slabs - split * share)
        slab = Loop(self.owner.var("k"), count)
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
        dtype = self.sums.dtype
        zero = Const(0.0 if "float" in dtype else 0, dtype)
        return self.by_threads(lambda t: wrapped([down, across], Store(self.sums, (t, down.var, across.var), zero)))

    def own_loops(self) -> tuple[Loop, Loop]:
        """Over the rows and columns that a thread has."""
        var = self.owner.var
        return Loop(var("i"), Const(self.tile.down), "unrolled"), Loop(var("j"), Const(self.tile.across), "unrolled")

    # ------------------------------------------------------------------ operands

    def fetch(self, here: Sequence[tuple[Operand, Expr]], slab: Expr, batch: Where) -> Stmt:
        """Some steps of the operands are read into registers; zeros where there are none."""
        return self.by_threads(
            lambda t: seq(*(self.fetch_one(t, o, k, at, slab, batch) for k, (o, at) in enumerate(here)))
        )

    def fetch_one(self, t: Expr, operand: Operand, k: int, tile: Expr, slab: Expr, batch: Where) -> Stmt:
        """What a thread reads of an operand."""
        registers, lane = self.fetched[k], self.owner.var("u")
        rounds = Loop(self.owner.var("q"), registers.shape[1], "unrolled")
        unit = t + rounds.var * self.tile.threads
        step, place = operand.place(unit, Const(0))
        steps, outer = operand.steps, operand.outer
        step_unit = (slab * operand.depth + step) if steps.width == 1 else _units(slab, step, operand.depth, steps)
        outer_unit = tile * operand.size + place if outer.width == 1 else _units(tile, place, operand.size, outer)
        values = {**batch, **steps.at(step_unit, lane), **outer.at(outer_unit, lane)}
        target = (t, rounds.var, lane)
        zero = Const(0.0 if "float" in registers.dtype else 0, registers.dtype)

        def over_lanes(stmt: Stmt) -> Stmt:
            return For(lane, registers.shape[2], stmt, "unrolled")

        read = over_lanes(Store(registers, target, substitute(operand.value, values)))
        inside = conjunction(
            *_below(step_unit, steps, operand.depth),
            *_below(outer_unit, outer, operand.size),
        )
        if operand.count < self.tile.threads:
            inside = conjunction(unit < operand.count, inside)
        whole = read if inside == TRUE else If(inside, read, over_lanes(Store(registers, target, zero)))
        return wrapped([rounds], whole)

    def put(self) -> Stmt:
        """What was fetched is laid where all threads of the block reach it."""

        def one(t: Expr, operand: Operand, k: int) -> Stmt:
            registers, lane = self.fetched[k], Loop(self.owner.var("u"), Const(operand.width), "unrolled")
            rounds = Loop(self.owner.var("q"), registers.shape[1], "unrolled")
            unit = t + rounds.var * self.tile.threads
            value = Load(registers, (t, rounds.var, lane.var))
            stored = wrapped([lane], Store(self.shared[k], operand.place(unit, lane.var), value))
            return wrapped([rounds], stored if operand.count >= self.tile.threads else If(unit < operand.count, stored))

        return self.by_threads(lambda t: seq(*(one(t, o, k) for k, o in enumerate((self.x, self.y)))))

    # ------------------------------------------------------------------ results

    def place(self, t: Expr, i: Expr, j: Expr) -> tuple[Expr, Expr]:
        """The row and column of the tile of a thread's own result: chunks of neighbours, as far apart as there are
        threads along the side."""
        wide = self.tile.columns // self.tile.across
        return _spread(t // wide, i, self.tile.rows, self.tile.down), _spread(
            t % wide, j, self.tile.columns, self.tile.across
        )

    def multiply(self) -> Stmt:
        """The steps that lie in shared memory."""

        def body(t: Expr) -> Stmt:
            (down, across), step = self.own_loops(), Loop(self.owner.var("k"), Const(self.tile.depth))
            row, column = self.place(t, down.var, across.var)
            dtype = self.sums.dtype
            x = cast(Load(self.shared[0], (step.var, row)), dtype)
            y = cast(Load(self.shared[1], (step.var, column)), dtype)
            own = (t, down.var, across.var)
            return wrapped([step, down, across], Store(self.sums, own, Load(self.sums, own) + x * y))

        return self.by_threads(body)

    def end(self, row: Expr, column: Expr, split: Expr, batch: Where) -> Stmt:
        """What is done to each result of the tile."""
        rows, columns = self.found.rows, self.found.columns.in_units(min(CHUNK, self.tile.across))

        def body(t: Expr) -> Stmt:
            down = Loop(self.owner.var("i"), Const(self.tile.down), "unrolled")
            units = Loop(self.owner.var("j"), Const(self.tile.across // columns.width), "unrolled")
            lane = Loop(self.owner.var("u"), Const(columns.width), "unrolled")
            j = units.var * columns.width
            r, c = self.place(t, down.var, j)
            at_row, at_column = row * self.tile.rows + r, _units(column, c, self.tile.columns, columns)
            where = {**batch, **rows.at(at_row, Const(0)), **columns.at(at_column, lane.var)}
            value = Load(self.sums, (t, down.var, j + lane.var))
            done = wrapped([lane], self.finish(where, split, value))
            inside = (*_below(at_row, rows, self.tile.rows), *_below(at_column, columns, self.tile.columns))
            return wrapped([down, units], If(conjunction(*inside), done) if inside else done)

        return self.by_threads(body)


def _spread(number: Expr, own: Expr, size: int, each: int) -> Expr:
    """Where a thread's own row or column is."""
    chunk = min(CHUNK, each)
    return own // chunk * (size // each * chunk) + number * chunk + own % chunk


def _units(tile: Expr, place: Expr, size: int, group: Group) -> Expr:
    """The unit of a place in a tile, which is a multiple of the width."""
    return tile * (size // group.width) + place // group.width


def _below(unit: Expr, group: Group, size: int) -> tuple[Expr, ...]:
    """The condition that there is such a unit, where tiles of a size may reach beyond the end."""
    known = group.known
    return () if known is not None and known % size == 0 else (unit < group.units,)


def finished_by(first: Chain, rest: Sequence[Chain]) -> Finish:
    """What is done to each result: by the blocks that follow, or it is stored."""
    made = first.stores[0].buffer

    def finish(where: Where, split: Expr, value: Load) -> Stmt:
        parts: list[Stmt] = []
        for chain in rest:
            mine = {c.var: where[f.var] for f, c in zip(first.spatial, chain.spatial, strict=True)}
            done = chain.with_values([mine[a.var] for a in chain.axes])
            parts.append(exchange(done, {made: (value.buffer, value.indices)}))
        if not parts:
            parts = [Store(made, tuple(substitute(i, where) for i in first.stores[0].indices), value)]
        return seq(*parts)

    return finish
