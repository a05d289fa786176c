"""Buffer compaction: a buffer shrinks to what one step of the loops around its uses needs.

Primitives leave a buffer its whole shape wherever it is used, so that indices stay what they were. A
buffer whose elements are written and read within one step of a loop needs no more room than a step
takes; a tile of accumulators becomes small enough to live in registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import LoopSite, extents_around, find_loop, replaced
from graphopt.lowering.analysis.dataflow import AccessSet, accesses_in, reindexed
from graphopt.lowering.analysis.dependence import private_scopes
from graphopt.lowering.analysis.regions import box, lives_within, refreshed, within
from graphopt.lowering.index.arithmetic import simplify
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, Var, variables, walk
from graphopt.lowering.loops.nest import (
    Block,
    Buffer,
    BufferRegion,
    For,
    Invoke,
    Nest,
    Range,
    Stmt,
    Store,
    blocks,
    expressions,
    inner,
    mutate,
)


def compacted(nest: Nest) -> Nest:
    """The nest with each buffer that lives within steps of loops as large as one of those steps needs.

    Buffers that are not local keep what steps of parallel loops have of their own. It is the last thing to be done:
    blocks refer to the loops around them afterwards.
    """
    for buffer in _moving(nest):
        nest = _compacted(nest, buffer)
    return nest


def _moving(nest: Nest) -> list[Buffer]:
    """The buffers of which other elements are used in other steps of a loop that holds all their uses: of the others,
    each step needs all."""
    # Storage folding (Ragan-Kelley et al., Halide, 2013): one walk notes for each use the loops around it and the
    # variables in its indices, with a block's axes traced to loops. A buffer can shrink where a loop around all of its
    # uses moves one of them.
    if not nest.allocs:
        return []
    uses: dict[str, list[tuple[tuple[Var, ...], set[Var]]]] = {b.name: [] for b in nest.allocs}

    def visit(stmt: Stmt, loops: tuple[Var, ...], values: Mapping[Var, set[Var]]) -> None:
        def used(buffer: Buffer, indices: Iterable[Expr]) -> None:
            if buffer.name in uses:
                index_variables = {v for i in indices for v in variables(i)}
                uses[buffer.name].append((loops, {w for v in index_variables for w in values.get(v, {v})}))

        match stmt:
            case For():
                loops = (*loops, stmt.var)
            case Block():
                bound = zip(stmt.axes, stmt.values, strict=True)
                values = {**values, **{a.var: {w for v in variables(e) for w in values.get(v, {v})} for a, e in bound}}
            case Store():
                used(stmt.buffer, stmt.indices)
            case Invoke():
                for arg in stmt.args:
                    if isinstance(arg, BufferRegion):
                        used(arg.buffer, (r.start for r in arg.ranges))
        for expr in (*stmt.values, stmt.predicate) if isinstance(stmt, Block) else expressions(stmt):
            for part in walk(expr):
                if isinstance(part, Load):
                    used(part.buffer, part.indices)
        for child in inner(stmt):
            visit(child, loops, values)

    visit(nest.body, (), {})
    buffers = []
    for buffer in nest.allocs:
        paths = [loops for loops, _ in uses[buffer.name]]
        shared = {vs[0] for vs in takewhile(lambda vs: len(set(vs)) == 1, zip(*paths, strict=False))}
        if any(shared & moved for _, moved in uses[buffer.name]):
            buffers.append(buffer)
    return buffers


def _compacted(nest: Nest, buffer: Buffer) -> Nest:
    for site in reversed(_around_all(nest, buffer)):
        around = extents_around((*site.above, site.stmt))
        try:
            lives_within(nest, buffer, site.stmt, around)
        except ScheduleError:
            continue
        used = [a for a in accesses_in(site.stmt.body) if a.buffer == buffer]
        region_box = box(used, around)
        assert region_box is not None
        region = within(region_box)
        shape = tuple(_smaller(side, n) for side, n in zip(region.ranges, buffer.shape, strict=True))
        slots = _slots([s.var for s in (*site.above, site.stmt) if isinstance(s, For)], used)
        if slots is not None:
            shape = (slots, *shape[1:])
        if shape == buffer.shape:
            continue
        starts = [
            Const(0) if n == old else r.start for r, n, old in zip(region.ranges, shape, buffer.shape, strict=True)
        ]
        return _moved(nest, site, buffer, replace(buffer, shape=shape, strides=None), starts)
    return nest


def _around_all(nest: Nest, buffer: Buffer) -> list[LoopSite]:
    """The loops that hold every use of a buffer, from the outermost in, of which each step can have its own."""
    loops: list[LoopSite] = []
    stmt: Stmt = nest.body
    above: tuple[Stmt, ...] = ()
    while True:
        if isinstance(stmt, For):
            at_once = stmt.kind in ("parallel", "bound")
            if stmt.kind == "vectorized" or (at_once and buffer.scope not in private_scopes(stmt.thread)):
                return loops
            loops.append(LoopSite(stmt, above))
        using = [s for s in inner(stmt) if any(a.buffer == buffer for a in accesses_in(s))]
        if len(using) != 1:
            return loops
        stmt, above = using[0], (*above, stmt)


def _slots(loops: Sequence[Var], used: Sequence[AccessSet]) -> Expr | None:
    """The number of slots of a buffer that steps of a loop take in turn, so that one need not wait for the one
    before."""
    turns = {a.indices[0] if a.indices else Const(0) for a in used}
    turn, *others = turns
    if others or not isinstance(turn, Apply) or turn.fn != "mod" or turn.args[0] not in loops:
        return None
    return turn.args[1]


def _smaller(side: Range, size: Expr) -> Expr:
    """The extent of a side, where it is a number, and smaller than the buffer's."""
    if isinstance(side.extent, Const) and not (isinstance(size, Const) and int(size.value) <= int(side.extent.value)):
        return side.extent
    return size


def _moved(nest: Nest, site: LoopSite, old: Buffer, new: Buffer, starts: Sequence[Expr]) -> Nest:
    """The nest with a smaller buffer, whose first element is that at ``starts`` in each step of the loop."""

    def where(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(simplify(i - s, {}) for i, s in zip(indices, starts, strict=True))

    def called(s: Stmt) -> Stmt | None:
        if not isinstance(s, Invoke):
            return None
        return replace(
            s, args=tuple(region(a) if isinstance(a, BufferRegion) and a.buffer == old else a for a in s.args)
        )

    def region(r: BufferRegion) -> BufferRegion:
        first = where(tuple(side.start for side in r.ranges))
        return BufferRegion(new, tuple(Range(f, side.extent) for f, side in zip(first, r.ranges, strict=True)))

    changed = [b.name for b in blocks(site.stmt) if any(a.buffer == old for a in accesses_in(b))]
    body = mutate(reindexed(site.stmt.body, old, new, where), called)
    after = replaced(nest, find_loop(nest, site.stmt.var.name), replace(site.stmt, body=body))
    after = replace(after, allocs=tuple(new if b == old else b for b in after.allocs))
    return refreshed(after, changed)
