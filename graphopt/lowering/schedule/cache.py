"""Buffer transformations: cached copies, scopes, alignment, double buffering."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import (
    AnyBlock,
    AnyLoop,
    BlockRef,
    extents_around,
    find_block,
    find_loop,
    free_name,
    names_in,
    primitive,
    replaced,
)
from graphopt.lowering.analysis.dataflow import (
    buffers_read,
    buffers_written,
    kept_inside,
    reindexed,
    units,
)
from graphopt.lowering.analysis.regions import lives_within, refreshed
from graphopt.lowering.index.arithmetic import simplify
from graphopt.lowering.loops.expressions import Const, Expr, Var
from graphopt.lowering.loops.nest import (
    Axis,
    Block,
    Buffer,
    MemoryScope,
    Nest,
    blocks,
    rename_buffers,
)
from graphopt.lowering.schedule.copies import (
    IN_PLACE,
    Exchange,
    check_scope,
    chosen,
    copied_in,
    copied_in_and_out,
    copied_out,
    outermost,
    used_by_others,
)


@primitive
def cache_write(
    nest: Nest, block: AnyBlock, space: MemoryScope = "local", buffer: int | str = 0
) -> tuple[Nest, BlockRef]:
    """Let a block write a buffer in a scope, which a new block copies out behind it; returns that block.

    ``buffer`` is one that the block writes, by name or position. Just what the block writes is copied; where that is
    not known, or it goes on from what was there, ``cache_inplace`` does it.
    Before::

        for i0 in serial(8):
            with block("B"):
                v0 = axis.remap("S", [i0])
                B[v0] = A[v0] + 1.0

    After ``s.cache_write("B", "local")``::

        B_local = alloc((8,), "float32", scope="local")
        for i0 in serial(8):
            with block("B"):
                v0 = axis.remap("S", [i0])
                B_local[v0] = A[v0] + 1.0
        for ax0 in serial(8):
            with block("B_copy"):
                vax0 = axis.remap("S", [ax0])
                B[vax0] = B_local[vax0]
    """
    check_scope(space)
    site = find_block(nest, block)
    old = chosen(site.stmt, buffer, writes=True)
    at = outermost(site, lambda s: old not in used_by_others(s, site.stmt))
    return copied_out(nest, at, Exchange.of(nest, site.stmt, old, space), IN_PLACE)


@primitive
def cache_read(
    nest: Nest, block: AnyBlock, buffer: int | str = 0, space: MemoryScope = "local"
) -> tuple[Nest, BlockRef]:
    """Let a block read a copy in a scope, made by a new block before it, which is returned.

    ``buffer`` is one that the block only reads, by name or position. Other blocks go on reading the original.
    Before::

        for i0 in serial(8):
            with block("B"):
                v0 = axis.remap("S", [i0])
                B[v0] = A[v0] + 1.0

    After ``s.cache_read("B", "A", "local")``::

        A_local = alloc((8,), "float32", scope="local")
        for ax0 in serial(8):
            with block("A_copy"):
                vax0 = axis.remap("S", [ax0])
                A_local[vax0] = A[vax0]
        for i0 in serial(8):
            with block("B"):
                v0 = axis.remap("S", [i0])
                B[v0] = A_local[v0] + 1.0
    """
    check_scope(space)
    site = find_block(nest, block)
    old = chosen(site.stmt, buffer, writes=False)
    at = outermost(site, lambda s: old not in buffers_written(s))
    return copied_in(nest, at, Exchange.of(nest, site.stmt, old, space))


@primitive
def cache_inplace(
    nest: Nest, block: AnyBlock, buffer: int | str = 0, space: MemoryScope = "local"
) -> tuple[Nest, tuple[BlockRef, BlockRef]]:
    """Let a block work on a copy in a scope, which one new block fills before it and another copies out behind it;
    returns the two.

    ``buffer`` is one that the block writes, by name or position. It may go on from what is there, or write only some
    of the elements.
    Before::

        for i0 in serial(8):
            with block("B"):
                v0 = axis.remap("S", [i0])
                B[v0] = B[v0] + A[v0]

    After ``s.cache_inplace("B", "B", "local")``::

        B_local = alloc((8,), "float32", scope="local")
        for ax0 in serial(8):
            with block("B_copy"):
                vax0 = axis.remap("S", [ax0])
                B_local[vax0] = B[vax0]
        for i0 in serial(8):
            with block("B"):
                v0 = axis.remap("S", [i0])
                B_local[v0] = B_local[v0] + A[v0]
        for ax0_1 in serial(8):
            with block("B_copy_1"):
                vax0_1 = axis.remap("S", [ax0_1])
                B[vax0_1] = B_local[vax0_1]
    """
    check_scope(space)
    site = find_block(nest, block)
    old = chosen(site.stmt, buffer, writes=True)
    at = outermost(site, lambda s: old not in used_by_others(s, site.stmt))
    return copied_in_and_out(nest, at, Exchange.of(nest, site.stmt, old, space))


@primitive
def set_scope(nest: Nest, block: AnyBlock, space: MemoryScope, buffer: int | str = 0) -> tuple[Nest, None]:
    """Set the scope of a buffer that the block writes and that lives only while the nest runs.

    Before::

        B = alloc((8,), "float32")
        for i0 in serial(8):
            with block("B"):
                v0 = axis.remap("S", [i0])
                B[v0] = A[v0] + 1.0
        for i1 in serial(8):
            with block("C"):
                v1 = axis.remap("S", [i1])
                C[v1] = B[v1] * 2.0

    After ``s.set_scope("B", "local")``::

        B = alloc((8,), "float32", scope="local")
        for i0 in serial(8):
            with block("B"):
                v0 = axis.remap("S", [i0])
                B[v0] = A[v0] + 1.0
        for i1 in serial(8):
            with block("C"):
                v1 = axis.remap("S", [i1])
                C[v1] = B[v1] * 2.0
    """
    check_scope(space)
    old = owned(nest, block, buffer, "and lives where its caller put it; use cache_write")
    return exchanged(nest, old, replace(old, scope=space)), None


@primitive
def storage_align(
    nest: Nest, block: AnyBlock, axis: int, factor: int, offset: int = 0, buffer: int | str = 0
) -> tuple[Nest, None]:
    """Align an axis of what the block writes: its stride is a multiple of ``factor`` elements, plus ``offset``.

    The buffer lives only while the nest runs.
    Before::

        B = alloc((8, 12), "float32")
        for i0, i1 in grid(8, 12):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] + 1.0
        for i2, i3 in grid(8, 12):
            with block("C"):
                v2, v3 = axis.remap("SS", [i2, i3])
                C[v2, v3] = B[v2, v3] * 2.0

    After ``s.storage_align("B", 0, 16)``::

        B = alloc((8, 12), "float32", strides=(16, 1))
        for i0, i1 in grid(8, 12):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] + 1.0
        for i2, i3 in grid(8, 12):
            with block("C"):
                v2, v3 = axis.remap("SS", [i2, i3])
                C[v2, v3] = B[v2, v3] * 2.0
    """
    old = owned(nest, block, buffer, "and lies where its caller put it; use cache_write")
    rank = len(old.shape)
    if not -rank <= axis < rank:
        raise ScheduleError(f"{old.name} has {rank} axes, and {axis} is not one of them")
    if factor < 1 or not 0 <= offset < factor:
        raise ScheduleError(f"a step of a multiple of {factor} plus {offset} is no alignment; 0 <= offset < factor")
    strides: list[Expr] = []
    step: Expr = Const(1)
    for k in reversed(range(rank)):
        if k == axis % rank:
            step = simplify(step + (offset - step) % factor, {})
        strides.insert(0, step)
        step = simplify(step * old.shape[k], {})
    return exchanged(nest, old, replace(old, strides=tuple(strides))), None


@primitive
def double_buffer(nest: Nest, block: AnyBlock, loop: AnyLoop, buffer: int | str = 0) -> tuple[Nest, None]:
    """Give what the block writes two slots, which the steps of the loop alternate between.

    Reads of one step then do not delay writes of the next. The buffer lives only within a step of the loop.
    Before::

        B = alloc((8,), "float32")
        for i0 in serial(4):
            for i1 in serial(8):
                with block("B"):
                    v0, v1 = axis.remap("SS", [i0, i1])
                    B[v1] = A[v0, v1] + 1.0
            for i2 in serial(8):
                with block("C"):
                    v2, v3 = axis.remap("SS", [i0, i2])
                    C[v2, v3] = B[v3] * 2.0

    After ``s.double_buffer("B", "i0")``::

        B = alloc((2, 8), "float32")
        for i0 in serial(4):
            for i1 in serial(8):
                with block("B"):
                    v0, v1 = axis.remap("SS", [i0, i1])
                    vslot = axis.spatial(2, i0 % 2)
                    B[vslot, v1] = A[v0, v1] + 1.0
            for i2 in serial(8):
                with block("C"):
                    v2, v3 = axis.remap("SS", [i0, i2])
                    vslot_1 = axis.spatial(2, i0 % 2)
                    C[v2, v3] = B[vslot_1, v3] * 2.0
    """
    old = owned(nest, block, buffer, "and has the room that its caller gave it; use cache_write")
    site = find_loop(nest, loop)
    lives_within(nest, old, site.stmt, extents_around((*site.above, site.stmt)))
    strides = None if old.strides is None else (old.strides[0] * old.shape[0], *old.strides)
    new = replace(old, shape=(Const(2), *old.shape), strides=strides)
    names = names_in(nest)
    slot = site.stmt.var % 2

    changed = []
    rewritten = nest
    for unit in units(site.stmt.body):
        if old not in buffers_read(unit.stmt) | buffers_written(unit.stmt):
            continue
        if not isinstance(unit.stmt, Block) or len(list(blocks(unit.stmt))) > 1:
            raise ScheduleError(f"{unit.name} uses {old.name}, and is no single block")
        var = Var(free_name(names, "vslot"))
        user = reindexed(unit.stmt, old, new, partial(_in_slot, var))
        assert isinstance(user, Block)
        user = replace(user, axes=(*user.axes, Axis(var, Const(2))), values=(*user.values, slot))
        rewritten = replaced(rewritten, find_block(rewritten, user.name), user)
        changed.append(user.name)
    rewritten = replace(rewritten, allocs=tuple(new if b == old else b for b in rewritten.allocs))
    return refreshed(rewritten, changed), None


# ------------------------------------------------------------------ what they share


def exchanged(nest: Nest, old: Buffer, new: Buffer) -> Nest:
    """The nest with a local buffer replaced by another."""
    body = rename_buffers(nest.body, {old: new})
    return replace(nest, body=body, allocs=tuple(new if b == old else b for b in nest.allocs))


def owned(nest: Nest, block: AnyBlock, buffer: int | str, why: str) -> Buffer:
    """A buffer that the block writes and that lives only while the nest runs."""
    found = chosen(find_block(nest, block).stmt, buffer, writes=True)
    kept_inside(nest, found, f", {why}")
    return found


def _in_slot(slot: Expr, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return (slot, *indices)
