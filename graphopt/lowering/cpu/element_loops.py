"""Element-wise loops: vectorized along memory, in granules, or in transposed tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphopt.lowering.analysis.access_analysis import (
    collapsed,
    known_size,
    taken_apart,
    tile_start,
    total_size,
    with_vectors_last,
)
from graphopt.lowering.analysis.canonical_nest import Chain
from graphopt.lowering.analysis.loop_partition import affine_segments, chosen_segments
from graphopt.lowering.cpu.scheduling import CHUNK, CHUNKS, Scheduling
from graphopt.lowering.cpu.transpose_tiles import TransposedLoads, turning, with_lanes_apart
from graphopt.lowering.cpu.uniform_lanes import in_granules
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, conjunction, maximum, minimum, substitute
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import (
    TRUE,
    Axis,
    BufferRegion,
    For,
    If,
    Invoke,
    LoopKind,
    Range,
    Stmt,
    Store,
    described,
    map_expressions,
    seq,
)

UNROLLED = 64
"""Elements of an axis that is unrolled where its lanes are in pieces, four vectors of the longest kind; of more, there
are loops, for there would be much code."""


def transposed(owner: Scheduling, chain: Chain) -> Stmt | None:
    """Element by element in tiles that are transposed in registers; None where that does not pay."""
    groups = with_vectors_last(chain, collapsed(chain, chain.axes))
    return _turned_over(owner, chain, groups, {}, True) if groups else None


def element_loops(
    owner: Scheduling, chain: Chain, bound: Mapping[Var, Expr], shared: bool = False, turns: bool = True
) -> Stmt:
    """Element by element: neighbouring axes that lie in memory as one are one loop, the innermost is vectorized. In
    transposed tiles only where it ``turns``."""
    free = [a for a in chain.axes if a.var not in bound]
    groups = with_vectors_last(chain, collapsed(chain, free))
    loops = [LoopSpec(owner.var("i"), total_size([a.extent for a in group])) for group in groups]
    if not loops:
        return chain.with_values([bound[a.var] for a in chain.axes])

    def block(at: Mapping[Var, Expr], part: Chain) -> Stmt:
        values = dict(bound)
        for loop, group in zip(loops, groups, strict=True):
            values.update(taken_apart(at[loop.var], group))
        return part.with_values([values[a.var] for a in chain.axes])

    if turns and (turned := _turned_over(owner, chain, groups, bound, shared)) is not None:
        return turned
    if len(groups[-1]) == 1 and (granules := in_granules(chain)) is not None:
        is_split, size = len(granules.axes) > len(chain.axes), known_size([chain.axes[-1].extent])
        is_short = is_split and size is not None and size <= UNROLLED
        return (_granules if is_short else element_loops)(owner, granules, bound, shared)
    last = loops[-1]
    parts = [(chain, last.extent)]
    if len(groups[-1]) == 1:
        split = affine_segments if isinstance(last.extent, Const) else chosen_segments
        parts = split(chain, groups[-1][0])

    def run(at: Mapping[Var, Expr], part: Chain, first: Expr, length: Expr) -> Stmt:
        return For(last.var, length, block({**at, last.var: first + last.var}, part), "vectorized")

    def chunks(part: Chain, length: Expr) -> Stmt:
        """One part of a single row."""
        if isinstance(length, Const) and length.value <= 4 * CHUNK:
            return run({}, part, Const(0), length)
        size = owner.choose("chunk", CHUNKS, CHUNK)
        outer = LoopSpec(owner.var("o"), (length + (size - 1)) // size)

        def chunk(at: Mapping[Var, Expr]) -> Stmt:
            start = at[outer.var] * size
            return run({}, part, start, minimum(size, length - start))

        return owner.shared_out([outer], Const(size), chunk)

    def row(at: Mapping[Var, Expr]) -> Stmt:
        return seq(*(run(at, part, Const(0), length) for part, length in parts))

    if shared and len(loops) == 1:
        return seq(*(chunks(part, length) for part, length in parts))
    if shared:
        return owner.shared_out(loops[:-1], last.extent, row)
    return wrapped(loops[:-1], row({a.var: a.var for a in loops[:-1]}))


def _granules(owner: Scheduling, chain: Chain, bound: Mapping[Var, Expr], shared: bool) -> Stmt:
    """Element by element, the last two axes being pieces of a vector and the lanes of a piece."""
    free = [a for a in chain.axes if a.var not in bound]
    pieces, lanes = (LoopSpec(owner.var("q"), a.extent) for a in free[-2:])
    groups = collapsed(chain, free[:-2])
    loops = [LoopSpec(owner.var("i"), total_size([a.extent for a in group])) for group in groups]

    def block(at: Mapping[Var, Expr]) -> Stmt:
        values = {**bound, free[-2].var: pieces.var, free[-1].var: lanes.var}
        for loop, group in zip(loops, groups, strict=True):
            values.update(taken_apart(at[loop.var], group))
        inner = chain.with_values([values[a.var] for a in chain.axes])
        return wrapped([replace(pieces, kind="unrolled"), replace(lanes, kind="vectorized")], inner)

    if shared:
        return owner.shared_out(loops, pieces.extent * lanes.extent, block)
    return wrapped(loops, block({a.var: a.var for a in loops}))


def _turned_over(
    owner: Scheduling, chain: Chain, groups: list[list[Axis]], bound: Mapping[Var, Expr], shared: bool
) -> Stmt | None:
    """Element by element in tiles that are turned over, where that pays."""
    if (turned := turning(chain, groups)) is not None:
        return _turned(owner, chain, groups, turned, bound, shared, TRUE)
    split, exists = with_lanes_apart(chain, bound.keys())
    if split is chain:
        return None
    groups = with_vectors_last(split, collapsed(split, [a for a in split.axes if a.var not in bound]))
    turned = turning(split, groups)
    return None if turned is None else _turned(owner, split, groups, turned, bound, shared, exists)


def _turned(
    owner: Scheduling,
    chain: Chain,
    groups: Sequence[Sequence[Axis]],
    turned: TransposedLoads,
    bound: Mapping[Var, Expr],
    shared: bool,
    exists: Expr,
) -> Stmt:
    """Element by element in tiles: what lies side by side along another axis than the results do is read along that
    axis, and turned over on the stack. A result is there where ``exists`` says so."""
    sizes = {len(groups) - 1: turned.columns, turned.rows_at: turned.rows}
    extents = [total_size([a.extent for a in group]) for group in groups]
    loops = [
        LoopSpec(owner.var("o" if k in sizes else "i"), (n + (sizes.get(k, 1) - 1)) // sizes.get(k, 1))
        for k, n in enumerate(extents)
    ]
    shape = (Const(turned.rows), Const(turned.columns))
    kept = {load: owner.local(load.buffer.name, shape, load.dtype) for load in turned.loads}
    raw = {load: owner.local(load.buffer.name, shape[::-1], load.dtype) for load in turned.loads}
    open_ = [k for k in sizes if known_size([extents[k]]) is None]

    def tile(first: Sequence[Expr], rows: Expr, columns: Expr, kind: LoopKind) -> Stmt:
        """So many rows and columns of a tile."""

        def values_at(row: Expr, column: Expr) -> dict[Var, Expr]:
            values, here = dict(bound), list(first)
            here[turned.rows_at] = here[turned.rows_at] + row
            here[-1] = here[-1] + column
            for start, group in zip(here, groups, strict=True):
                values.update(taken_apart(start, group))
            return values

        parts: list[Stmt] = []
        for load in kept:
            column, row = LoopSpec(owner.var("q"), columns, kind), LoopSpec(owner.var("c"), rows, "vectorized")
            where = values_at(row.var, column.var)
            read = wrapped([row], Store(raw[load], (column.var, row.var), substitute(load, where)))
            guard = substitute(turned.loads[load], where)
            parts.append(wrapped([column], read if guard == TRUE else If(guard, read)))
            sides = [BufferRegion(b, tuple(Range(Const(0), n) for n in b.shape)) for b in (kept[load], raw[load])]
            name = f"transpose_{turned.rows}x{turned.columns}_{load.dtype}"
            parts.append(Invoke(name, (*sides, *shape)))
        row, column = LoopSpec(owner.var("q"), rows, kind), LoopSpec(owner.var("c"), columns, "vectorized")
        tiles: dict[Expr, Expr] = {load: Load(tile, (row.var, column.var)) for load, tile in kept.items()}
        where = values_at(row.var, column.var)
        block = chain.with_values([where[a.var] for a in chain.axes])
        block = described(replace(block, body=map_expressions(block.body, tiles.get)))
        inner, there = wrapped([column], block), substitute(exists, where)
        return seq(*parts, wrapped([row], inner if there == TRUE else If(there, inner)))

    def body(at: Mapping[Var, Expr]) -> Stmt:
        starts = [tile_start(at[loop.var], extents[k], sizes.get(k, 1)) for k, loop in enumerate(loops)]
        whole = tile(starts, *shape, "unrolled")
        if not open_:
            return whole
        # where an axis is shorter than its tile, the rest of the tile is anything
        columns, rows = (minimum(extents[k], n) if k in open_ else Const(n) for k, n in sizes.items())
        starts = [maximum(start, 0) if k in open_ else start for k, start in enumerate(starts)]
        return If(conjunction(*(extents[k] >= sizes[k] for k in open_)), whole, tile(starts, rows, columns, "serial"))

    if shared:
        return owner.shared_out(loops, Const(turned.rows * turned.columns), body)
    return wrapped(loops, body({loop.var: loop.var for loop in loops}))
