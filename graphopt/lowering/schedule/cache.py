"""Buffer transformations: cached copies, scopes, alignment, double buffering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import get_args

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import (
    AnyBlock,
    AnyLoop,
    BlockRef,
    BlockSite,
    LoopSite,
    extents_around,
    find_block,
    find_loop,
    free_name,
    names_in,
    primitive,
    replaced,
)
from graphopt.lowering.analysis.dataflow import (
    accesses_in,
    buffers_read,
    buffers_written,
    kept_inside,
    reindexed,
    scope,
    units,
)
from graphopt.lowering.analysis.regions import box, lives_within, refreshed, within, written_box
from graphopt.lowering.index.arithmetic import prove, simplify
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, conjunction
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import (
    Axis,
    Block,
    Buffer,
    BufferRegion,
    For,
    MemoryScope,
    Nest,
    Stmt,
    Store,
    blocks,
    mutate,
    rename_buffers,
    seq,
    statements,
)


@primitive
def cache_write(
    nest: Nest, block: AnyBlock, space: MemoryScope = "local", buffer: int | str = 0
) -> tuple[Nest, BlockRef]:
    """Let a block write a buffer in a scope, which a new block copies out behind it; returns that block.

    ``buffer`` is one that the block writes, by name or position.
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
    site = find_block(nest, block)
    stmt = site.stmt
    old = _chosen(stmt, buffer, writes=True)
    _scoped(space)
    for other in blocks(nest.body):
        if other is not stmt and not _related(other, stmt) and old in buffers_written(other):
            raise ScheduleError(f"{old.name} is written by {other.name} as well; use cache_write earlier")
    if old in buffers_read(stmt) and stmt.init is None:
        raise ScheduleError(f"{stmt.name} goes on from what {old.name} held before, which a new buffer does not have")
    new = _copy_of(nest, old, space)
    at = _outermost(site, lambda s: old not in _used_by_others(s, stmt))
    around = extents_around(at.above)
    region = written_box([at.stmt], old, around)
    assert region is not None
    copy, name = _copying(nest, within(region), new, around)
    return _with_copy(nest, at, stmt, (old, new), copy, behind=True), BlockRef(name)


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
    site = find_block(nest, block)
    stmt = site.stmt
    old = _chosen(stmt, buffer, writes=False)
    _scoped(space)
    new = _copy_of(nest, old, space)
    at = _outermost(site, lambda s: old not in buffers_written(s))
    around = extents_around(at.above)
    between = extents_around(site.above[len(at.above) :])
    region = box((a for a in accesses_in(stmt, {}, between) if a.buffer == old and not a.is_write), around)
    assert region is not None
    copy, name = _copying(nest, BufferRegion(new, within(region).ranges), old, around)
    return _with_copy(nest, at, stmt, (old, new), copy, behind=False), BlockRef(name)


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
    _scoped(space)
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


def _scoped(space: str) -> None:
    if space not in get_args(MemoryScope):
        raise ScheduleError(f"there is no scope {space}; there are {', '.join(get_args(MemoryScope))}")


def _chosen(block: Block, buffer: int | str, *, writes: bool) -> Buffer:
    """The buffer that is named, or at that place among those that a block writes (or only reads)."""
    written = [a.buffer for a in accesses_in(block) if a.is_write]
    read = [a.buffer for a in accesses_in(block) if not a.is_write and a.buffer not in written]
    buffers = list(dict.fromkeys(written if writes else read))
    names = [b.name for b in buffers]
    if isinstance(buffer, str):
        if buffer in names:
            return buffers[names.index(buffer)]
    elif 0 <= buffer < len(buffers):
        return buffers[buffer]
    verb = "writes" if writes else "reads, and does not write,"
    raise ScheduleError(f"{block.name} {verb} {', '.join(names) or 'nothing'}: {buffer} is none of these")


def owned(nest: Nest, block: AnyBlock, buffer: int | str, why: str) -> Buffer:
    """A buffer that the block writes and that lives only while the nest runs."""
    chosen = _chosen(find_block(nest, block).stmt, buffer, writes=True)
    kept_inside(nest, chosen, f", {why}")
    return chosen


def _copy_of(nest: Nest, buffer: Buffer, space: MemoryScope) -> Buffer:
    return Buffer(free_name(names_in(nest), f"{buffer.name}_{space}"), buffer.shape, buffer.dtype, space)


def _related(a: Block, b: Block) -> bool:
    """Whether one of the blocks stands within the other."""
    return any(s is b for s in statements(a)) or any(s is a for s in statements(b))


def _outermost(site: BlockSite, fits: Callable[[Stmt], bool]) -> LoopSite | BlockSite:
    """The outermost loop around a block in its scope that fits, or else the block itself."""
    for k in range(len(scope(site.above)), len(site.above)):
        stmt = site.above[k]
        if isinstance(stmt, For) and fits(stmt):
            return LoopSite(stmt, site.above[:k])
    return site


def _used_by_others(stmt: Stmt, block: Block) -> frozenset[Buffer]:
    """The buffers that a statement reads or writes outside of a block in it."""
    others = [u.stmt for u in units(stmt) if u.stmt is not block]
    return frozenset(b for s in others for b in buffers_read(s) | buffers_written(s))


def _copying(nest: Nest, region: BufferRegion, other: Buffer, around: dict[Var, Expr]) -> tuple[Stmt, str]:
    """Loops and a block that write a region of a buffer from the same elements of another; and the block's name."""
    names = names_in(nest)
    target = region.buffer
    name = free_name({b.name for b in blocks(nest.body)}, f"{_plain(target, other)}_copy")
    loops: list[tuple[Var, Expr]] = []
    axes, values, limits = [], [], []
    for k, (side, size) in enumerate(zip(region.ranges, target.shape, strict=True)):
        loops.append((Var(free_name(names, f"ax{k}")), side.extent))
        inside = {**around, **dict(loops)}
        value = simplify(side.start + loops[-1][0], inside)
        limits += [c for c in (value >= 0, value < size) if not prove(c, inside)]
        axes.append(Axis(Var(free_name(names, f"vax{k}")), size))
        values.append(value)
    where = tuple(a.var for a in axes)
    predicate = conjunction(*(simplify(c, {**around, **dict(loops)}) for c in limits))
    body = Store(target, where, Load(other, where))
    block = Block(name, tuple(axes), tuple(values), body, predicate=predicate)
    return wrapped([LoopSpec(var, extent) for var, extent in loops], block), name


def _plain(a: Buffer, b: Buffer) -> str:
    """The name of the buffer that was there first: the copy's name begins with it."""
    return min(a.name, b.name, key=len)


def _with_copy(
    nest: Nest, at: LoopSite | BlockSite, block: Block, exchange: tuple[Buffer, Buffer], copy: Stmt, *, behind: bool
) -> Nest:
    """The nest in which a block uses another buffer, with a copy beside the statement that holds the block."""
    old, new = exchange
    changed = mutate(at.stmt, lambda s: rename_buffers(s, {old: new}) if s is block else None)
    rewritten = replaced(nest, at, seq(changed, copy) if behind else seq(copy, changed))
    rewritten = replace(rewritten, allocs=(*rewritten.allocs, new))
    names = [b.name for b in blocks(copy)]
    return refreshed(rewritten, [block.name, *names])


def _in_slot(slot: Expr, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return (slot, *indices)
