"""Register tiling: tiles of a contraction's results stay in registers while they are summed.

``tiling`` decides: how many results along each axis, how many tiles make a piece of work and in which order they are
done, how many steps are written out, and which operand is copied beside its piece. What it decides by rule a tuner
chooses otherwise, by the names that ``Scheduling.choose`` knows. ``tiled`` writes the loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import product
from math import prod
from typing import Final, TypeAlias

from graphopt.frozen import dataclass
from graphopt.kernels.host import lanes as lanes_of
from graphopt.kernels.host import vector_bytes
from graphopt.kernels.product_form import near
from graphopt.lowering.analysis.access_analysis import (
    NEAR,
    REGISTERS,
    UNKNOWN,
    at_point,
    collapsed,
    decomposed,
    known_size,
    lies_along,
    taken_apart,
    tile_start,
    total_size,
)
from graphopt.lowering.analysis.canonical_nest import Access, Chain, exchange
from graphopt.lowering.analysis.loop_partition import conditions, interior
from graphopt.lowering.cpu.reduction_bounds import clipped
from graphopt.lowering.cpu.scheduling import Scheduling
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, substitute, variables
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import (
    Axis,
    Buffer,
    If,
    LoopKind,
    Stmt,
    Store,
    map_expressions,
    seq,
)

Reading: TypeAlias = Callable[[Stmt, Mapping[Var, Expr], Load], Stmt]
"""A step with an operand read elsewhere, by where the steps of the reduction and the element of the tile are."""

IN_REGISTERS: Final = "registers"
"""The choice between register tiles (1) and what else computes a contraction (0): a function, windows, a loop."""
TIMES_ALONG: Final = "times"
"""The choices, for each axis, of how many tiles are done before those along others."""
TILES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
"""How many results along an axis a tile may have,"""
VECTORS: Final = (1, 2, 3, 4)
"""and how many vectors of them,"""
FLAT: Final = (*VECTORS, 6, 8, 12)
"""or, where there are few rows, so many."""
TIMES: Final = (1, 2, 4, 8, 16, 32)
"""How many tiles along an axis may be done before those along others."""
STEPS: Final = 8
"""How many steps of a loop of a reduction may be written out, at most."""
OPEN: Final = 2
"""Vectors of results that a tile has at most along an axis of open size, which may be short."""
WRITTEN_OUT: Final = 4
"""Pieces along an axis that are written out one after another."""
WRITTEN: Final = 64
"""Vectors of products that may be written out, at most: of more, code takes long to be made, and no less to run."""


# ------------------------------------------------------------------ decisions


@dataclass(frozen=True)
class Tiling:
    """The tiles of a contraction, by its axes; an axis that is not named has one of each."""

    vector: Axis
    widths: Mapping[Var, int]
    """Results along an axis in a tile."""
    times: Mapping[Var, int] = field(default_factory=dict)
    """Tiles along an axis in a piece."""
    steps: Mapping[Var, int] = field(default_factory=dict)
    """Steps of the reduction along an axis that are written out."""
    is_turned: bool = False
    """Whether the tiles of a piece are done along the last axis first."""
    packed: Access | None = None
    """The operand whose part that a piece reads is copied beside it."""

    def piece(self, axis: Axis) -> int:
        """Results along an axis in a piece."""
        return self.widths.get(axis.var, 1) * self.times.get(axis.var, 1)

    def narrowed(self, axes: Iterable[Axis], width: int = 1) -> Tiling:
        """The tiling with so many results along some axes."""
        widths, times = {a.var: width for a in axes}, {a.var: 1 for a in axes}
        return replace(self, widths={**self.widths, **widths}, times={**self.times, **times})


def tiling(owner: Scheduling, first: Chain, rest: Sequence[Chain]) -> Tiling | None:
    """The register tiles of a contraction and what is done to its elements; None where there are to be none."""
    vector = vector_axis(first, rest)
    if vector is None or not first.reduced:
        return None
    plan = tile_plan(first, vector)
    if not owner.choose(IN_REGISTERS, (0, 1), int(plan is not None)):
        return None
    native = lanes_of(first.stores[0].buffer.dtype)
    if plan is None:
        known = [a for a in first.spatial if (known_size([a.extent]) or 1) > 1]
        plan = {**{a.var: 1 for a in known}, vector.var: min(native, known_size([vector.extent]) or native)}
    lanes = min(native, plan[vector.var])
    widths = _widths(owner, first, vector, plan, lanes)
    times = _times(owner, first, widths)
    is_turned = bool(owner.choose("turned", (0, 1) if len(times) > 1 else (0,), 0))
    steps = _steps(owner, first, vector, WRITTEN * lanes // prod(widths.values()))
    drawn = Tiling(vector, widths, times, steps, is_turned)
    return replace(drawn, packed=_packed(owner, first, drawn))


def _widths(owner: Scheduling, first: Chain, vector: Axis, plan: Mapping[Var, int], lanes: int) -> dict[Var, int]:
    """Results along each axis of a tile: as many vectors as there are registers, beside those of the operands."""
    axes = [a for a in first.spatial if a.var in plan]
    rows = [a for a in axes if a is not vector]
    widths: dict[Var, int] = {}
    left = REGISTERS[vector_bytes()]
    for axis in (vector, *reversed(rows)):
        extent, (unit, counts) = known_size([axis.extent]), (lanes, _vectors(rows)) if axis is vector else (1, TILES)
        candidates = [n * unit for n in counts if n <= left and (extent is None or n * unit <= extent)]
        by_rule = min(plan[axis.var], left * unit)  # what was chosen before may leave it fewer registers
        width = widths[axis.var] = owner.choose(f"width {axes.index(axis)}", candidates, by_rule)
        left = max(left // -(-width // unit) - (axis is vector), 1)
    return widths


def _times(owner: Scheduling, first: Chain, widths: Mapping[Var, int]) -> dict[Var, int]:
    """Tiles along each axis of a piece, where there are several."""
    times = {}
    for number, axis in enumerate(first.spatial):
        extent, width = known_size([axis.extent]), widths.get(axis.var, 1)
        if extent != 1 and (extent is not None or axis.var in widths):  # one test of a size is enough
            candidates = [n for n in TIMES if extent is None or n * width <= extent]
            times[axis.var] = owner.choose(f"{TIMES_ALONG} {number}", candidates, 1)
    return {v: n for v, n in times.items() if n > 1}


def _steps(owner: Scheduling, first: Chain, vector: Axis, most: int) -> dict[Var, int]:
    """Steps of a reduction that are written out, together at most so many, where there are several: those of which each
    has a mask of its own, so that masks are computed before the loops around."""
    steps = {}
    tested = [variables(c) for c in conditions(first.block)]
    masked = {v for found in tested if vector.var in found for v in found}
    for number, axis in reversed(list(enumerate(first.reduced))):
        extent = known_size([axis.extent])
        if extent != 1:
            candidates = [n for n in range(1, STEPS + 1) if n <= most and extent is not None and extent % n == 0]
            default = extent if axis.var in masked and extent in candidates else 1
            steps[axis.var] = owner.choose(f"steps {number}", candidates, default)
            most //= steps[axis.var]
    return {v: n for v, n in steps.items() if n > 1}


def _packed(owner: Scheduling, first: Chain, tiles: Tiling) -> Access | None:
    """The operand whose part that a piece reads is copied beside it, or none: one that is read by axes alone, of which
    the part stays in the second cache."""
    sizes = {a.var: known_size([a.extent]) for a in first.reduced} | {a.var: tiles.piece(a) for a in first.spatial}
    whole = {a.var: a.extent for a in first.axes}
    fits = []
    for access in first.accesses:
        pairs = zip(access.indices, access.buffer.shape, strict=True)
        parts = [sizes[i] if isinstance(i, Var) and whole[i] == n else None for i, n in pairs]
        known = [n for n in parts if n is not None]
        is_read = not access.is_write and access.buffer != first.stores[0].buffer
        if is_read and known and len(known) == len(parts) and prod(known) <= near(access.buffer.dtype):
            fits.append(access)
    drawn = owner.choose("packed", range(len(fits) + 1), 0)
    return fits[drawn - 1] if drawn else None


def vector_axis(first: Chain, rest: Sequence[Chain]) -> Axis | None:
    """The innermost axis along which a contraction's results, or its epilogue's, are contiguous."""
    chain = rest[-1] if rest else first
    for axis, there in reversed(list(zip(first.spatial, chain.spatial, strict=True))):
        strides = [a.stride(there.var) for a in chain.accesses if a.is_write]
        if all(s is not None and s.number == 1 for s in strides):
            return axis
    return None


def tile_plan(first: Chain, vector: Axis) -> dict[Var, int] | None:
    """The extents of a register tile along each axis; None where tiles do not pay."""
    # Register tiling (Goto and van de Geijn, 2008): axes that the vector operand does not vary along are rows, those
    # that only the broadcast operand varies along are columns; _best chooses the sizes by loads and by work beyond the
    # ends.
    operands = [a for a in first.accesses if not a.is_write and a.buffer != first.stores[0].buffer]
    wide = [a for a in operands if a.varies(vector.var)]
    if not wide or not all((s := a.stride(vector.var)) is not None and s.number in NEAR for a in wide):
        return None
    if (steps := known_size([a.extent for a in first.reduced])) is not None and steps < 2:
        return None
    lanes, is_known = lanes_of(first.stores[0].buffer.dtype), isinstance(vector.extent, Const)
    extent = known_size([vector.extent]) or OPEN * lanes
    scalar = [a for a in operands if not a.varies(vector.var)]
    rows, columns = [], []
    for axis in first.spatial:
        if axis is vector or axis.extent == Const(1):
            continue
        if any(not a.varies(axis.var) for a in wide):
            rows.append(axis)
        elif any(not a.varies(axis.var) for a in scalar):
            columns.append(axis)
    # several vectors side by side share the scalar operand
    rows, columns = rows[::-1][:2], [a for a in columns[::-1][:1] if isinstance(a.extent, Const)]
    choices = [(k * lanes, k) for k in _vectors(rows) if k * lanes <= extent]
    choices = choices or [(extent, 1)]
    # one test of a size is enough
    rows = [a for k, a in enumerate(rows) if isinstance(a.extent, Const) or (k == 0 and is_known)]
    return _best(first, vector.var, choices, rows, columns)


def _vectors(rows: Sequence[Axis]) -> tuple[int, ...]:
    """How many vectors side by side a tile of these rows may have."""
    return FLAT if prod(known_size([a.extent]) or UNKNOWN for a in rows) <= 4 else VECTORS


def _best(
    first: Chain, vector: Var, choices: Sequence[tuple[int, int]], rows: Sequence[Axis], columns: Sequence[Axis]
) -> dict[Var, int]:
    """The tile with the least work for each result: what is computed twice at the ends counts, and what is loaded."""
    registers = REGISTERS[vector_bytes()]
    total = {a.var: int(a.extent.value) if isinstance(a.extent, Const) else UNKNOWN for a in first.spatial}
    best: tuple[float, dict[Var, int]] | None = None
    sizes = [[n for n in range(1, 15) if n <= total[a.var]] for a in rows]
    more = [[n for n in range(1, 5) if n <= total[a.var]] for a in columns]
    for (width, vectors), parts in product(choices, product(*sizes, *more)):
        down = prod(parts[: len(rows)])
        across = vectors * prod(parts[len(rows) :])
        if down * across + across + 1 > registers:  # accumulators, a vector for each column, and what is shared
            continue
        plan = {vector: width, **{a.var: n for a, n in zip([*rows, *columns], parts, strict=True)}}
        waste = prod(-(-total[v] // n) * n / total[v] for v, n in plan.items())
        load = (down + across) / (down * across)
        cost = waste * (max(1.0, 1.1 * load) + 0.15 * load + 0.4 * (down * across < 8))
        cost += 0.01 * (across - vectors)  # vectors side by side are of the same lines, and of the same pages
        if best is None or cost < best[0] - 1e-9:
            best = cost, plan
    assert best is not None
    return best[1]


def shared_operands(first: Chain) -> dict[Var, int]:
    """The unroll factor of each axis by which operands are reused."""
    operands = [a for a in first.accesses if not a.is_write and a.buffer != first.stores[0].buffer]
    if len(operands) != 2:
        return {}
    factors: dict[Var, int] = {}
    for access in operands:
        axes = [a for a in first.spatial if not access.varies(a.var) and a.var not in factors]
        counts = [(a.var, n) for a in axes if (n := known_size([a.extent])) is not None and n > 1]
        factors.update((var, min(4, n)) for var, n in counts[-1:])
    return factors


def is_long(group: Sequence[Axis]) -> bool:
    """Whether a loop over the collapsed axes fills several vectors."""
    extent = known_size([a.extent for a in group])
    return extent is None or extent >= 64


# ------------------------------------------------------------------ loops


def dots(owner: Scheduling, first: Chain, rest: Sequence[Chain]) -> Stmt | None:
    """A contraction of operands that lie side by side along what is reduced: a few results at a time, each in
    vectors of its own, share what they read."""
    plan, groups = shared_operands(first), collapsed(first, list(first.reduced))
    if not plan or not is_long(groups[-1]) or not lies_along(first, groups[-1][-1]):
        return None
    outer = [
        LoopSpec(owner.var("o" if n > 1 else "i"), (a.extent + (n - 1)) // n)
        for a in first.spatial
        for n in [plan.get(a.var, 1)]
    ]
    result = first.stores[0].buffer
    sums = owner.local(result.name, [Const(n) for n in plan.values()], result.dtype)
    if rest:
        owner.gone.add(result)

    def body(at: Mapping[Var, Expr]) -> Stmt:
        start = {
            a.var: tile_start(at[o.var], a.extent, plan.get(a.var, 1))
            for a, o in zip(first.spatial, outer, strict=True)
        }
        reduce_loops = [LoopSpec(owner.var("r"), total_size([a.extent for a in group])) for group in groups]
        reduce_loops[-1] = replace(reduce_loops[-1], kind="vectorized")
        reduced: dict[Var, Expr] = {}
        for group, loop in zip(groups, reduce_loops, strict=True):
            reduced.update(taken_apart(loop.var, group))

        def each(chain: Chain, part: Callable[[Mapping[Var, Expr]], Stmt]) -> Stmt:
            steps = {v: LoopSpec(owner.var("q"), Const(n), "unrolled") for v, n in plan.items()}
            pairs = zip(first.spatial, chain.spatial, strict=True)
            where = {c.var: start[f.var] + steps[f.var].var if f.var in plan else start[f.var] for f, c in pairs}
            element = (sums, tuple(step.var for step in steps.values()))
            return wrapped(list(steps.values()), exchange(part(where), {result: element}))

        zeros = {a.var: Const(0) for a in first.reduced}
        begin = each(first, lambda where: decomposed(first, {**where, **zeros})[0])
        steps = each(first, lambda where: decomposed(first, {**where, **reduced})[1])
        ends = [each(c, partial(at_point, c)) for c in rest]
        if not rest:
            copies = {v: LoopSpec(owner.var("q"), Const(n), "unrolled") for v, n in plan.items()}
            elements = {v: e + copies[v].var if v in plan else e for v, e in start.items()}
            where = tuple(substitute(i, elements) for i in first.stores[0].indices)
            kept = Load(sums, tuple(c.var for c in copies.values()))
            ends = [wrapped(list(copies.values()), Store(result, where, kept))]
        return seq(begin, wrapped(reduce_loops, steps), *ends)

    size = total_size([*(Const(n) for n in plan.values()), *(a.extent for a in first.reduced)])
    return owner.shared_out(outer, size, body)


def tiled(owner: Scheduling, first: Chain, rest: Sequence[Chain], tiles: Tiling) -> Stmt:
    """The loops over pieces, and in them the tiles. A last piece that would reach beyond the end is moved back; where
    an axis may be shorter than its piece, which only its size tells, it is done step by step."""
    sizes, outer = {a.var: tiles.piece(a) for a in first.spatial}, list[LoopSpec]()
    for axis in first.spatial:
        size = sizes[axis.var]
        count = (axis.extent + (size - 1)) // size
        kind: LoopKind = "unrolled" if axis is tiles.vector and _has_ends(first, axis, count) else "serial"
        outer.append(LoopSpec(owner.var("o" if size > 1 else "i"), count, kind))
    inside = None if tiles.times else _inside(owner, first, rest, tiles)
    if inside is not None:
        return inside
    unknown = [a for a in first.spatial if sizes[a.var] > 1 and not isinstance(a.extent, Const)]
    whole = _Piece(owner, first, rest, tiles)
    lanes = lanes_of(first.stores[0].buffer.dtype)
    narrow = {
        axis: {n: _Piece(owner, first, rest, tiles.narrowed(unknown, n)) for n in widths if n < sizes[axis.var]}
        for axis in unknown
        for widths in [(1, max(lanes // 4, 1), lanes) if axis is tiles.vector else (1,)]
    }
    if rest:
        owner.gone.add(first.stores[0].buffer)

    def body(at: Mapping[Var, Expr]) -> Stmt:
        start = {
            a.var: tile_start(at[o.var], a.extent, tiles.piece(a)) for a, o in zip(first.spatial, outer, strict=True)
        }
        main = whole.at(start)
        for axis, pieces in narrow.items():
            shorter: Stmt = seq()
            for width, piece in pieces.items():
                step = LoopSpec(owner.var("i"), (axis.extent + (width - 1)) // width)
                place = tile_start(step.var, axis.extent, width)
                tiles_along = wrapped([step], piece.at({**start, axis.var: place}))
                shorter = tiles_along if width == 1 else If(axis.extent >= width, tiles_along, shorter)
            main = If(axis.extent >= sizes[axis.var], main, shorter)
        return main

    steps = total_size([*map(Const, sizes.values()), *(a.extent for a in first.reduced)])
    return owner.shared_out(outer, steps, body)


def _has_ends(first: Chain, axis: Axis, count: Expr) -> bool:
    """Whether a few pieces make up an axis at whose ends conditions fail: written out one by one, each has masks that
    are known, most of which are whole."""
    many = known_size([count])
    return many is not None and 1 < many <= WRITTEN_OUT and interior(first, axis) is not None


def _starts(
    at: Mapping[Var, Expr], axes: Sequence[Axis], outer: Sequence[LoopSpec], sizes: Mapping[Var, int]
) -> dict[Var, Expr]:
    """Where a piece starts along each axis; the last ends where the axis does."""
    return {a.var: tile_start(at[o.var], a.extent, sizes.get(a.var, 1)) for a, o in zip(axes, outer, strict=True)}


def _inside(owner: Scheduling, first: Chain, rest: Sequence[Chain], tiles: Tiling) -> Stmt | None:
    """The tiles of a contraction with conditions at the ends of its vectorized axis: whole vectors between the
    ends, and the few results at the ends one by one. None where there are no such conditions, or masks serve."""
    axis, width = tiles.vector, tiles.piece(tiles.vector)
    strides = [s.number for a in first.accesses if (s := a.stride(axis.var)) is not None]
    if all(n is not None and n < 2 for n in strides):  # neighbours are as well read under a mask
        return None
    ranges = interior(first, axis)
    if ranges is None or ranges[0][1] - ranges[0][0] < width or not isinstance(axis.extent, Const):
        return None
    (begin, end), block = ranges
    along = [a for a in first.spatial if a is not axis]
    sizes = {a.var: tiles.piece(a) for a in along}
    if any(sizes[a.var] > 1 and not isinstance(a.extent, Const) for a in along):
        return None
    outer = [LoopSpec(owner.var("i"), (a.extent + (n - 1)) // n) for a in along for n in [sizes[a.var]]]
    middle = _Piece(owner, replace(first, block=block), rest, tiles)
    ends = [(0, begin), (end, int(axis.extent.value))]
    if rest:
        owner.gone.add(first.stores[0].buffer)

    def body(at: Mapping[Var, Expr]) -> Stmt:
        start = _starts(at, along, outer, sizes)
        step = LoopSpec(owner.var("o"), Const(-(-(end - begin) // width)))
        place = tile_start(step.var, Const(end - begin), width) + begin
        parts = [wrapped([step], middle.at({**start, axis.var: place}))]
        for low, high in ends:
            if low < high:
                step = LoopSpec(owner.var("i"), Const(high - low))
                single = _Piece(owner, first, rest, tiles.narrowed([axis]))
                parts.append(wrapped([step], single.at({**start, axis.var: step.var + low})))
        return seq(*parts)

    steps = total_size([axis.extent, *map(Const, sizes.values()), *(a.extent for a in first.reduced)])
    return owner.shared_out(outer, steps, body)


class _Piece:
    """A piece of a contraction: its tiles, one after the other, each of which is kept in registers."""

    def __init__(self, owner: Scheduling, first: Chain, rest: Sequence[Chain], tiles: Tiling) -> None:
        self.owner, self.first, self.rest, self.tiles = owner, first, rest, tiles
        self.result = first.stores[0].buffer
        self.vector = tiles.vector.var
        native, width = lanes_of(self.result.dtype), tiles.widths[self.vector]
        self.lanes = min(native, width)
        order = [a for a in first.spatial if tiles.widths.get(a.var, 1) > 1 and a.var != self.vector]
        self.sizes = {a.var: tiles.widths[a.var] for a in order}
        # axes along which the broadcast operand is constant come last, so that it is live only in its own steps
        shared = [a for a in first.accesses if not a.is_write and not a.varies(self.vector)]
        self.order = sorted(order, key=lambda axis: not any(a.varies(axis.var) for a in shared))
        self.pieces = -(-width // self.lanes)
        # each piece fills whole vectors, so that those of neighbours do not overlap
        shape = [*(Const(n) for n in self.sizes.values()), Const(self.pieces), Const(native)]
        self.buffer = owner.local(self.result.name, shape, self.result.dtype)
        # steps that no result of a tile needs are left out, instead of being tested one by one
        varied = {self.vector, *self.sizes}
        self.clip = clipped(first, lambda b: b.axis not in tiles.steps and varied.isdisjoint(variables(b.rest.expr())))

    def at(self, start: Mapping[Var, Expr]) -> Stmt:
        """The piece from a point on: what is copied for it, and its tiles."""
        loops = {v: LoopSpec(self.owner.var("m"), Const(n)) for v, n in self.tiles.times.items() if n > 1}
        numbers = {v: loop.var for v, loop in loops.items()}
        places = {v: e + numbers[v] * self.tiles.widths.get(v, 1) if v in numbers else e for v, e in start.items()}
        around = [*loops.values()]
        if self.tiles.is_turned:
            around.reverse()
        access = self.tiles.packed
        if access is None:
            return wrapped(around, self.tile(places))
        copied, copy = self.copied(access, start)
        return seq(copied, wrapped(around, self.tile(places, self.from_copy(access, copy, numbers))))

    def copied(self, access: Access, start: Mapping[Var, Expr]) -> tuple[Stmt, Buffer]:
        """The part of an operand that the piece reads, copied: in panels as wide as a tile, where it has vectors."""
        sizes = {a.var: a.extent for a in self.first.reduced}
        sizes |= {a.var: Const(self.tiles.piece(a)) for a in self.first.spatial}
        kept = {i: LoopSpec(self.owner.var("q"), sizes[i]) for i in access.indices if isinstance(i, Var)}
        values: dict[Var, Expr] = {v: start[v] + loop.var if v in start else loop.var for v, loop in kept.items()}
        loops = [*kept.values()]
        if self.vector in kept:
            del kept[self.vector]
            width, count = self.tiles.widths[self.vector], self.tiles.times.get(self.vector, 1)
            panel = LoopSpec(self.owner.var("m"), Const(count))
            lane = LoopSpec(self.owner.var("c"), Const(width))
            values[self.vector] = start[self.vector] + panel.var * width + lane.var
            loops = [panel, *kept.values(), lane]
        copy = self.owner.local(access.buffer.name, [loop.extent for loop in loops], access.buffer.dtype)
        element = Load(access.buffer, tuple(substitute(i, values) for i in access.indices))
        store = Store(copy, tuple(loop.var for loop in loops), element)
        return wrapped([*loops[:-1], replace(loops[-1], kind="vectorized")], store), copy

    def from_copy(self, access: Access, copy: Buffer, numbers: Mapping[Var, Var]) -> Reading:
        """How a step reads a copied operand: from its place in the piece."""

        def read(stmt: Stmt, steps: Mapping[Var, Expr], element: Load) -> Stmt:
            *places, vector, lane = element.indices
            within = {**dict(zip(self.sizes, places, strict=True)), **steps}
            for v, number in numbers.items():
                within[v] = within.get(v, Const(0)) + number * self.tiles.widths.get(v, 1)
            at = [within.get(i, Const(0)) for i in access.indices if isinstance(i, Var) and i != self.vector]
            if self.vector in access.indices:
                at = [numbers.get(self.vector, Const(0)), *at, vector * self.lanes + lane]
            original = Load(access.buffer, access.indices)
            return map_expressions(stmt, lambda e: Load(copy, tuple(at)) if e == original else None)

        return read

    def tile(self, start: Mapping[Var, Expr], read: Reading | None = None) -> Stmt:
        """A tile from a point on: started, reduced, and what is done to its elements."""
        first, var = self.first, self.owner.var
        counts = self.tiles.steps
        inner = first if self.clip is None else Chain(first.loops, self.clip.block)
        written = {v: LoopSpec(var("s"), Const(n), "unrolled") for v, n in counts.items()}
        loops, steps = list[LoopSpec](), dict[Var, Expr]()
        for axis in first.reduced:
            r, n = var("r"), counts.get(axis.var, 1)
            low, end = (Const(0), axis.extent) if self.clip is None else self.clip.steps(axis, start)
            loops.append(LoopSpec(r, (end - low) // n))
            steps[axis.var] = r * n + written[axis.var].var if n > 1 else low + r

        def update(at: Mapping[Var, Expr], element: Load) -> Stmt:
            step: Stmt = decomposed(inner, at)[1]
            return self.in_tile(step if read is None else read(step, steps, element), element)

        def stored(at: Mapping[Var, Expr], element: Load) -> Stmt:
            return Store(self.result, tuple(substitute(i, at) for i in first.stores[0].indices), element)

        zeros = {a.var: Const(0) for a in first.reduced}
        begin = self.over(start, first, zeros, lambda at, e: self.in_tile(decomposed(first, at)[0], e))
        sums = self.over(start, first, steps, update)
        ends = [self.over(start, c, {}, partial(self.followed, c)) for c in self.rest]
        ends = ends or [self.over(start, first, {}, stored)]
        return seq(begin, wrapped([*loops, *written.values()], sums), *ends)

    def followed(self, chain: Chain, at: Mapping[Var, Expr], element: Load) -> Stmt:
        """What is done to an element."""
        return self.in_tile(at_point(chain, at), element)

    def in_tile(self, stmt: Stmt, element: Load) -> Stmt:
        """The statement with the result's element in the tile."""
        return exchange(stmt, {self.result: (element.buffer, element.indices)})

    def over(
        self,
        start: Mapping[Var, Expr],
        chain: Chain,
        values: Mapping[Var, Expr],
        part: Callable[[Mapping[Var, Expr], Load], Stmt],
    ) -> Stmt:
        """One pass over the tile, in loops of its own."""
        var = self.owner.var
        steps = {v: var("q") for v in self.sizes}
        piece, lane = var("p"), var("c")
        places = {v: start[v] + steps[v] for v in self.sizes}
        places[self.vector] = start[self.vector] + piece * self.lanes + lane
        mine = dict(zip((a.var for a in self.first.spatial), (a.var for a in chain.spatial), strict=True))
        loops = [LoopSpec(steps[a.var], Const(self.sizes[a.var]), "unrolled") for a in self.order]
        loops += [LoopSpec(piece, Const(self.pieces), "unrolled"), LoopSpec(lane, Const(self.lanes), "vectorized")]
        where = {mine[v]: places.get(v, start[v]) for v in mine} | dict(values)
        return wrapped(loops, part(where, Load(self.buffer, (*steps.values(), piece, lane))))
