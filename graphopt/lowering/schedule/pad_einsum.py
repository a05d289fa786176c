"""Padding of contractions (einsums) to multiples of given sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import (
    AnyBlock,
    BlockRef,
    BlockSite,
    find_block,
    find_loop,
    free_name,
    names_in,
    primitive,
    replaced,
)
from graphopt.lowering.analysis.dataflow import reindexed
from graphopt.lowering.analysis.regions import refreshed
from graphopt.lowering.index.arithmetic import simplify
from graphopt.lowering.loops.expressions import Apply, Expr, Load, Var, conjunction, const, select, variables
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import TRUE, Axis, Block, Buffer, For, Nest, Stmt, Store, blocks, mutate, seq
from graphopt.lowering.schedule.reduction import Update, update_of


@primitive
def pad_einsum(nest: Nest, block: AnyBlock, padding: Sequence[int]) -> tuple[Nest, tuple[BlockRef, ...]]:
    """Pad the axes of a sum of products to multiples of the given numbers, one for each axis of the block.

    New blocks pad the operands with zeros and cut the result to size; returns them. Axes are the loops of the block,
    and indices are plain.
    Before::

        for i0, i1 in grid(6, 10):
            with block("C"):
                v0, v1 = axis.remap("SR", [i0, i1])
                with init():
                    C[v0] = 0.0
                C[v0] = C[v0] + A[v0, v1] * B[v1]

    After ``s.pad_einsum("C", [4, 4])``::

        A_pad = alloc((8, 12), "float32")
        B_pad = alloc((12,), "float32")
        C_pad = alloc((8,), "float32")
        for ax0, ax1 in grid(8, 12):
            with block("A_pad"):
                vax0, vax1 = axis.remap("SS", [ax0, ax1])
                A_pad[vax0, vax1] = select(vax0 < 6 and vax1 < 10, A[vax0, vax1], 0.0)
        for ax0_1 in serial(12):
            with block("B_pad"):
                vax0_1 = axis.remap("S", [ax0_1])
                B_pad[vax0_1] = select(vax0_1 < 10, B[vax0_1], 0.0)
        for i0, i1 in grid(8, 12):
            with block("C"):
                v0, v1 = axis.remap("SR", [i0, i1])
                with init():
                    C_pad[v0] = 0.0
                C_pad[v0] = C_pad[v0] + A_pad[v0, v1] * B_pad[v1]
        for ax0_2 in serial(6):
            with block("C_cut"):
                vax0_2 = axis.remap("S", [ax0_2])
                C[vax0_2] = C_pad[vax0_2]
    """
    # As TVM's pad_einsum: operands are copied into zero-padded buffers, the block runs on these, and the part of the
    # result that counts is copied out. Zeros are neutral, for each term is a product of elements.
    site = find_block(nest, block)
    stmt = site.stmt
    if len(padding) != len(stmt.axes) or any(p < 1 for p in padding):
        raise ScheduleError(f"{stmt.name} has {len(stmt.axes)} axes; give a positive number for each")
    sizes = {a.var: simplify((a.extent + (p - 1)) // p * p, {}) for a, p in zip(stmt.axes, padding, strict=True)}
    longer = {a.var for a in stmt.axes if sizes[a.var] != a.extent}
    chain = plain_loops(site)
    update = _einsum(stmt, longer)
    if not longer:
        return nest, ()
    names = names_in(nest)
    padded: dict[Buffer, Buffer] = {}
    for load in dict.fromkeys((*_factors(update.term), Load(update.store.buffer, update.store.indices))):
        if variables(load) & longer:
            shape = tuple(
                sizes[i] if isinstance(i, Var) else n for i, n in zip(load.indices, load.buffer.shape, strict=True)
            )
            padded[load.buffer] = replace(
                load.buffer, name=free_name(names, f"{load.buffer.name}_pad"), shape=shape, strides=None, scope="global"
            )
    parts: list[Stmt] = []
    for old, new in padded.items():
        if old != update.store.buffer:
            parts.append(_padding(old, new, names))
    inner = stmt
    for old, new in padded.items():
        changed = reindexed(inner, old, new, lambda indices: indices)
        assert isinstance(changed, Block)
        inner = changed
    inner = replace(inner, axes=tuple(replace(a, extent=sizes[a.var]) for a in inner.axes))
    body: Stmt = inner
    loops = {v: sizes[a.var] for a, v in zip(stmt.axes, stmt.values, strict=True)}
    for loop in reversed(chain):
        body = replace(loop, extent=loops[loop.var], body=body)
    parts.append(body)
    target = update.store.buffer
    if target in padded:
        parts.append(_copy(f"{target.name}_cut", target, lambda where: Load(padded[target], where), names))
    block_names = {b.name for b in blocks(nest.body)}
    renamed = {b.name: free_name(block_names, b.name) for s in parts for b in blocks(s) if b.name != stmt.name}
    parts = [_renamed(s, renamed) for s in parts]
    top = find_loop(nest, chain[0].var.name)
    after = replaced(nest, top, seq(*parts))
    after = replace(after, allocs=(*after.allocs, *padded.values()))
    return refreshed(after, [stmt.name, *renamed.values()]), tuple(BlockRef(n) for n in renamed.values())


def plain_loops(site: BlockSite) -> tuple[For, ...]:
    """The loops around a block, which are its axes and hold nothing else."""
    stmt = site.stmt
    extents = {s.var: s.extent for s in site.loops}
    for axis, value in zip(stmt.axes, stmt.values, strict=True):
        if not isinstance(value, Var) or extents.get(value) != axis.extent or stmt.values.count(value) > 1:
            raise ScheduleError(
                f"{stmt.name}: its axis {axis.var.name} is not one of its loops; do this before they are split"
            )
    if stmt.predicate != TRUE:
        raise ScheduleError(f"{stmt.name} runs only where a condition holds")
    if {loop.var for loop in site.chain} != set(stmt.values):
        raise ScheduleError(f"the loops around {stmt.name} hold other statements, or are not its axes")
    return site.chain


def _einsum(block: Block, longer: set[Var]) -> Update:
    """The update of a sum of products of elements at plain axes."""
    update = update_of(block)
    factors = _factors(update.term)
    if update.fn != "add" or not factors or block.init is None:
        raise ScheduleError(f"{block.name} is no sum of products of elements, from its start on")
    used = dict.fromkeys((*factors, Load(update.store.buffer, update.store.indices)))
    if len({load.buffer for load in used}) < len(used):
        raise ScheduleError(f"{block.name} uses a buffer at several places; pad it by hand")
    for load in used:
        plain = [i for i in load.indices if isinstance(i, Var)]
        if len(plain) < len(load.indices) or len(set(plain)) < len(plain):
            raise ScheduleError(f"{block.name} uses {load.buffer.name} at more than its plain axes, each once")
    for axis in block.of_kind("reduce"):
        if axis.var in longer and any(axis.var not in load.indices for load in factors):
            raise ScheduleError(
                f"{block.name}: not every factor moves along {axis.var.name}, so zeros in some of them may make no zero"
            )
    return update


def _factors(term: Expr) -> tuple[Load, ...]:
    """The elements that a product multiplies, converted or not; none where it is something else."""
    if isinstance(term, Load):
        return (term,)
    if isinstance(term, Apply) and term.fn == "cast":
        return _factors(term.args[0])
    if isinstance(term, Apply) and term.fn == "mul":
        a, b = map(_factors, term.args)
        return (*a, *b) if a and b else ()
    return ()


def _padding(old: Buffer, new: Buffer, names: set[str]) -> Stmt:
    """A block that fills a larger buffer with another's elements and zeros."""

    def value(where: tuple[Var, ...]) -> Expr:
        limits = [index < n for index, n, m in zip(where, old.shape, new.shape, strict=True) if n != m]
        return select(conjunction(*limits), Load(old, where), const(0, old.dtype))

    return _copy(new.name, new, value, names)


def _copy(name: str, target: Buffer, value: Callable[[tuple[Var, ...]], Expr], names: set[str]) -> Stmt:
    """Loops and a block that give each element of a buffer a value."""
    loops = [Var(free_name(names, f"ax{k}")) for k in range(len(target.shape))]
    where = tuple(Var(free_name(names, f"vax{k}")) for k in range(len(target.shape)))
    axes = tuple(Axis(v, n) for v, n in zip(where, target.shape, strict=True))
    block = Block(name, axes, tuple(loops), Store(target, where, value(where)))
    return wrapped([LoopSpec(var, extent) for var, extent in zip(loops, target.shape, strict=True)], block)


def _renamed(stmt: Stmt, names: Mapping[str, str]) -> Stmt:
    return mutate(stmt, lambda s: replace(s, name=names[s.name]) if isinstance(s, Block) and s.name in names else None)
