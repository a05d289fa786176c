"""Reindexing: a copy of a buffer on the axes of the block that reads or writes it."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import (
    AnyBlock,
    BlockRef,
    BlockSite,
    LoopSite,
    extents_around,
    find_block,
    free_name,
    names_in,
    primitive,
)
from graphopt.lowering.analysis.dataflow import accesses_in, buffers_written, reindexed
from graphopt.lowering.analysis.iteration_domains import are_disjoint, check_extents
from graphopt.lowering.loops.expressions import Expr, loads_in, substitute, variables
from graphopt.lowering.loops.nest import (
    Axis,
    Block,
    Buffer,
    BufferRegion,
    For,
    Invoke,
    Nest,
    Range,
    Stmt,
    Store,
    inner,
    loads,
    statements,
)
from graphopt.lowering.schedule.copies import Exchange, chosen, copied_in, copied_out, outermost, used_by_others

INSTEAD = "only what a block writes as a whole has a copy on its axes"


@primitive
def reindex(nest: Nest, block: AnyBlock, buffer: str | tuple[str, int]) -> tuple[Nest, BlockRef]:
    """Let a block read or write a copy of a buffer that is indexed by the block's own axes; a new block fills it, or
    copies it out, and is returned.

    The buffer is given by name, or as ``("read", 0)`` or ``("write", 0)``: the first that the block only reads, or that
    it writes. The block uses it at one place; the copy has the axes that this depends on.
    Before::

        for i0, i1 in grid(4, 8):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v1, v0] * 2.0

    After ``s.reindex("B", ("read", 0))``::

        A_reindex = alloc((4, 8), "float32")
        for ax0, ax1 in grid(4, 8):
            with block("A_copy"):
                vax0, vax1 = axis.remap("SS", [ax0, ax1])
                A_reindex[vax0, vax1] = A[vax1, vax0]
        for i0, i1 in grid(4, 8):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A_reindex[v0, v1] * 2.0
    """
    # As TVM's reindex: the indices of the only access become those of a copy, A_reindex[axes] = A[indices(axes)].
    site = find_block(nest, block)
    stmt = site.stmt
    old, is_written = _named(stmt, buffer)
    indices = _indices(stmt, old)
    axes = [a for a in stmt.axes if any(a.var in variables(i) for i in indices)]
    point = tuple(a.var for a in axes)
    check_extents(stmt, axes, nest.sizes)
    name = free_name(names_in(nest), f"{old.name}_reindex")
    new = Buffer(name, tuple(a.extent for a in axes), old.dtype, old.scope)
    changed = reindexed(stmt, old, new, lambda _: point)
    assert isinstance(changed, Block)

    def where(here: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(substitute(i, dict(zip(point, here, strict=True))) for i in indices)

    exchange = Exchange(stmt, changed, old, new, where)
    found_by = {e.buffer for i in indices for e in loads_in(i)}
    at = outermost(site, lambda s: not _unsettled(s, site, old, found_by, is_written))
    _visible(nest, at, stmt, indices)
    if not is_written:
        return copied_in(nest, at, exchange)
    _apart(stmt, axes, indices, at)
    return copied_out(nest, at, exchange, INSTEAD)


def _named(block: Block, buffer: str | tuple[str, int]) -> tuple[Buffer, bool]:
    """The buffer, and whether the block writes it."""
    if isinstance(buffer, str):
        written = any(a.is_write and a.buffer.name == buffer for a in accesses_in(block))
        return chosen(block, buffer, writes=written), written
    side, position = buffer
    if side not in ("read", "write"):
        raise ScheduleError(f"a buffer is a name, or ('read', 0) or ('write', 0), and not {tuple(buffer)!r}")
    return chosen(block, int(position), writes=side == "write"), side == "write"


def _indices(block: Block, buffer: Buffer) -> tuple[Expr, ...]:
    """The indices of the one place at which a block uses a buffer; raises ScheduleError where there are several."""
    parts = [s for child in inner(block) for s in statements(child)]
    places = {e.indices for child in inner(block) for e in loads(child) if e.buffer == buffer}
    places |= {s.indices for s in parts if isinstance(s, Store) and s.buffer == buffer}
    around = any(e.buffer == buffer for x in (*block.values, block.predicate) for e in loads_in(x))
    whole = any(
        isinstance(a, BufferRegion) and a.buffer == buffer for s in parts if isinstance(s, Invoke) for a in s.args
    )
    if len(places) != 1 or around or whole:
        raise ScheduleError(f"{block.name} uses {buffer.name} at several places; a copy is indexed by one")
    return places.pop()


def _unsettled(stmt: Stmt, site: BlockSite, old: Buffer, found_by: set[Buffer], is_written: bool) -> bool:
    """Whether a statement changes what is to be copied beside it, or where that is."""
    written = buffers_written(stmt)
    return bool(found_by & written) or old in (used_by_others(stmt, site.stmt) if is_written else written)


def _visible(nest: Nest, at: LoopSite | BlockSite, block: Block, indices: Sequence[Expr]) -> None:
    """Raises ScheduleError where indices are about loops that are not around a place."""
    known = {a.var for a in block.axes} | set(nest.sizes) | extents_around(at.above).keys()
    hidden = sorted(v.name for i in indices for v in variables(i) if v not in known)
    if hidden:
        raise ScheduleError(f"{block.name} uses the loop {hidden[0]} in an index, which is none of its axes")


def _apart(block: Block, axes: Sequence[Axis], indices: Sequence[Expr], at: LoopSite | BlockSite) -> None:
    """Raises ScheduleError where several points of the axes write one element."""
    running = {a.var: a.extent for a in axes}
    loops = [For(a.var, a.extent, block.body) for a in axes]
    if not are_disjoint([Range(i) for i in indices], loops, running, extents_around(at.above)):
        raise ScheduleError(f"several points of {block.name} may write one element; a copy has one for each")
