"""Access regions: the boxes of elements that statements read and write, as blocks declare them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import extents_around
from graphopt.lowering.analysis.dataflow import AccessSet, Unit, accesses_in, buffers_read, buffers_written, units
from graphopt.lowering.index.arithmetic import Extents, cover, prove, simplify
from graphopt.lowering.loops.expressions import Const, Expr, Var
from graphopt.lowering.loops.nest import (
    Block,
    Buffer,
    BufferRegion,
    Check,
    For,
    If,
    Invoke,
    Nest,
    Range,
    Stmt,
    Store,
    described,
    inner,
    mutate,
    statements,
    with_inner,
)


def box(accesses: Iterable[AccessSet], around: Extents) -> BufferRegion | None:
    """The smallest box found that contains the accesses, all of one buffer, over all loops within; None where there are
    no accesses. It may depend on the variables ``around``, and reach out of the buffer."""
    parts = dict.fromkeys(
        cover([BufferRegion(a.buffer, tuple(Range(i) for i in a.indices))], a.extents, around) for a in accesses
    )
    if len(parts) < 2:
        return next(iter(parts), None)
    return cover(tuple(parts), {}, around)


def read_box(stmts: Iterable[Stmt], buffer: Buffer, around: Extents) -> BufferRegion | None:
    """The box of a buffer that statements read."""
    return box((a for s in stmts for a in accesses_in(s) if a.buffer == buffer and not a.is_write), around)


def written_box(stmts: Iterable[Stmt], buffer: Buffer, around: Extents) -> BufferRegion | None:
    """The box of a buffer that statements write."""
    return box((a for s in stmts for a in accesses_in(s) if a.buffer == buffer and a.is_write), around)


def within(region: BufferRegion) -> BufferRegion:
    """The region clipped to its buffer, where it provably reaches out."""
    sides = []
    for side, size in zip(region.ranges, region.buffer.shape, strict=True):
        if isinstance(side.start, Const) and isinstance(side.extent, Const) and isinstance(size, Const):
            first = max(0, int(side.start.value))
            last = min(int(size.value), int(side.start.value) + int(side.extent.value))
            side = Range(Const(first), Const(max(0, last - first)))
        sides.append(side)
    return replace(region, ranges=tuple(sides))


def contains(outer: BufferRegion, part: BufferRegion, around: Extents) -> bool:
    """Whether one region provably contains another."""
    return all(
        prove(a.start <= b.start, around) and prove(b.start + b.extent <= a.start + a.extent, around)
        for a, b in zip(outer.ranges, part.ranges, strict=True)
    )


def with_regions(block: Block) -> Block:
    """The block with declared reads and writes, from its statements."""
    bodies = inner(block)
    if not any(isinstance(s, For | Block | Invoke) for b in bodies for s in statements(b)):
        return described(block)
    extents = {a.var: a.extent for a in block.axes}
    touched = dict.fromkeys((a.buffer, a.is_write) for b in bodies for a in accesses_in(b))
    written = {buffer for buffer, is_write in touched if is_write}
    reads = tuple(
        within(region)
        for buffer, is_write in touched
        if not is_write and buffer not in written and (region := read_box(bodies, buffer, extents))
    )
    writes = tuple(
        within(region) for buffer, is_write in touched if is_write and (region := written_box(bodies, buffer, extents))
    )
    return replace(block, reads=reads, writes=writes)


def refreshed(nest: Nest, names: Iterable[str]) -> Nest:
    """The nest with the declared regions of the named blocks, and of those around them, computed again."""
    wanted = frozenset(names)

    def redeclared(s: Stmt) -> Stmt | None:
        if isinstance(s, Block) and any(isinstance(x, Block) and x.name in wanted for x in statements(s)):
            return with_regions(s)
        return None

    body = mutate(nest.body, redeclared)
    return nest if body is nest.body else replace(nest, body=body)


def simplified(stmt: Stmt, around: Mapping[Var, Expr], names: Iterable[str]) -> Stmt:
    """The statement with simplified index expressions in the named blocks; ``around`` are the extents there."""
    return _simplified(stmt, dict(around), frozenset(names), inside=False)


def _simplified(stmt: Stmt, around: dict[Var, Expr], names: frozenset[str], inside: bool) -> Stmt:
    within_block = inside or (isinstance(stmt, Block) and stmt.name in names)
    extents = {**around, **extents_around([stmt])}
    before = inner(stmt)
    after = tuple(_simplified(child, extents, names, within_block) for child in before)
    if any(a is not b for a, b in zip(before, after, strict=True)):
        stmt = with_inner(stmt, after)
    if not within_block:
        return stmt
    match stmt:
        case Store():
            return Store(stmt.buffer, tuple(simplify(i, around) for i in stmt.indices), simplify(stmt.value, around))
        case Block():
            values = tuple(simplify(v, around) for v in stmt.values)
            return replace(stmt, values=values, predicate=simplify(stmt.predicate, around))
        case If():
            return replace(stmt, condition=simplify(stmt.condition, around))
        case Check():
            return replace(stmt, condition=simplify(stmt.condition, around))
    return stmt


def lives_within(nest: Nest, buffer: Buffer, loop: For, around: dict[Var, Expr]) -> None:
    """Checks that a buffer carries nothing between steps of a loop, or out of it; raises ScheduleError."""
    everywhere = [a for a in accesses_in(nest.body) if a.buffer == buffer]
    inside = [a for a in accesses_in(loop.body) if a.buffer == buffer]
    if len(everywhere) != len(inside):
        raise ScheduleError(f"{buffer.name} is used outside of {loop.var.name}")
    if not inside:
        raise ScheduleError(f"{buffer.name} is not used in {loop.var.name}")
    users = [u for u in units(loop.body) if buffer in buffers_read(u.stmt) | buffers_written(u.stmt)]
    first = users[0]
    starts = isinstance(first.stmt, Block) and (first.stmt.init is not None or buffer not in buffers_read(first.stmt))
    read = read_box([loop.body], buffer, around)
    written = written_box([_only(loop.body, first)], buffer, around)
    if read is None:
        return
    if not starts or written is None or not contains(written, read, around):
        raise ScheduleError(f"a step of {loop.var.name} may read what an earlier one left in {buffer.name}")


def _only(stmt: Stmt, unit: Unit) -> Stmt:
    """The loops within a statement around a unit, and it."""
    nested = unit.stmt
    for around in reversed(unit.above):
        if isinstance(around, For):
            nested = replace(around, body=nested)
    return nested
