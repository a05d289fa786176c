"""Copies at a loop: what each of its steps reads or writes of a buffer."""

from __future__ import annotations

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import AnyBlock, AnyLoop, BlockRef, find_block, primitive
from graphopt.lowering.analysis.dataflow import buffers_written
from graphopt.lowering.loops.nest import MemoryScope, Nest
from graphopt.lowering.schedule.copies import (
    IN_PLACE,
    Exchange,
    check_scope,
    chosen,
    copied_in,
    copied_out,
    step_of,
    used_by_others,
)


@primitive
def read_at(
    nest: Nest, loop: AnyLoop, block: AnyBlock, buffer: int | str = 0, space: MemoryScope = "local"
) -> tuple[Nest, BlockRef]:
    """Let a block read a copy in a scope, which a new block in a loop around it makes of what a step of the loop reads;
    returns that block.

    ``buffer`` is one that the block only reads, by name or position. It is ``cache_read`` and ``compute_at`` in one.
    Before::

        for i0, i1 in grid(4, 8):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] + 1.0

    After ``s.read_at("i0", "B", "A", "local")``::

        A_local = alloc((4, 8), "float32", scope="local")
        for i0 in serial(4):
            for ax0, ax1 in grid(1, 8):
                with block("A_copy"):
                    vax0 = axis.spatial(4, i0)
                    vax1 = axis.remap("S", [ax1])
                    A_local[vax0, vax1] = A[vax0, vax1]
            for i1 in serial(8):
                with block("B"):
                    v0, v1 = axis.remap("SS", [i0, i1])
                    B[v0, v1] = A_local[v0, v1] + 1.0
    """
    check_scope(space)
    site = find_block(nest, block)
    at = step_of(site, loop)
    old = chosen(site.stmt, buffer, writes=False)
    if old in buffers_written(at.stmt):
        raise ScheduleError(f"{old.name} is written beside {site.stmt.name}; name a loop within that")
    return copied_in(nest, at, Exchange.of(nest, site.stmt, old, space))


@primitive
def write_at(
    nest: Nest, loop: AnyLoop, block: AnyBlock, buffer: int | str = 0, space: MemoryScope = "local"
) -> tuple[Nest, BlockRef]:
    """Let a block write a buffer in a scope, of which a new block in a loop around it copies out what a step of the
    loop wrote; returns that block.

    ``buffer`` is one that the block writes, by name or position. It is ``cache_write`` and ``reverse_compute_at`` in
    one.
    Before::

        for i0, i1 in grid(4, 8):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] + 1.0

    After ``s.write_at("i0", "B", "B", "local")``::

        B_local = alloc((4, 8), "float32", scope="local")
        for i0 in serial(4):
            for i1 in serial(8):
                with block("B"):
                    v0, v1 = axis.remap("SS", [i0, i1])
                    B_local[v0, v1] = A[v0, v1] + 1.0
            for ax0, ax1 in grid(1, 8):
                with block("B_copy"):
                    vax0 = axis.spatial(4, i0)
                    vax1 = axis.remap("S", [ax1])
                    B[vax0, vax1] = B_local[vax0, vax1]
    """
    check_scope(space)
    site = find_block(nest, block)
    at = step_of(site, loop)
    old = chosen(site.stmt, buffer, writes=True)
    if old in used_by_others(at.stmt, site.stmt):
        raise ScheduleError(f"{old.name} is used beside {site.stmt.name}; name a loop within that")
    return copied_out(nest, at, Exchange.of(nest, site.stmt, old, space), IN_PLACE)
