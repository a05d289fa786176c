"""Decomposition of padding: a block that fills, and one that copies the middle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.lowering.analysis.block_refs import (
    AnyBlock,
    AnyLoop,
    BlockRef,
    BlockSite,
    branch_conditions,
    extents_around,
    find_block,
    find_loop,
    free_name,
    loops_split_at,
    names_in,
    primitive,
    replaced,
)
from graphopt.lowering.analysis.dataflow import buffers_read, buffers_written, units
from graphopt.lowering.analysis.dependence import owner
from graphopt.lowering.analysis.loop_partition import clipped, steps_within
from graphopt.lowering.analysis.regions import refreshed, simplified
from graphopt.lowering.index.arithmetic import ranges_over, simplify
from graphopt.lowering.loops.expressions import (
    Apply,
    Expr,
    Var,
    apply,
    conjunction,
    conjuncts,
    loads_in,
    substitute,
    variables,
)
from graphopt.lowering.loops.nest import Block, For, Nest, Stmt, Store, blocks, seq
from graphopt.lowering.schedule.loop_transforms import in_copies, rebind


@primitive
def decompose_padding(nest: Nest, block: AnyBlock, loop: AnyLoop) -> tuple[Nest, BlockRef]:
    """Fill what a padding block writes before a loop around it; the block copies the middle. Returns the new block.

    A padding block writes ``select(condition, value, padding)``, of which the padding reads no elements. Loops that are
    alone around the block are shortened to the middle; what else the condition says becomes a predicate.
    Before::

        B = alloc((10,), "float32")
        for i0 in serial(10):
            with block("B"):
                v0 = axis.remap("S", [i0])
                B[v0] = select(v0 >= 1 and v0 < 9, A[v0 - 1], 0.0)
        for i1 in serial(8):
            with block("C"):
                v1 = axis.remap("S", [i1])
                C[v1] = B[v1] + B[v1 + 2]

    After ``s.decompose_padding("B", "i0")``::

        B = alloc((10,), "float32")
        for i0_fill in serial(10):
            with block("B_fill"):
                v0_fill = axis.remap("S", [i0_fill])
                B[v0_fill] = 0.0
        for i0 in serial(8):
            with block("B"):
                v0 = axis.spatial(10, i0 + 1)
                B[v0] = A[v0 - 1]
        for i1 in serial(8):
            with block("C"):
                v1 = axis.remap("S", [i1])
                C[v1] = B[v1] + B[v1 + 2]
    """
    # As TVM's decompose_padding. The fill is the block itself over all of its points with the padding as its value.
    site = find_block(nest, block)
    stmt = site.stmt
    pad = _Padding.of(stmt)
    _, below = loops_split_at(site, loop)
    _used_by_it_alone(site, below[0], pad)
    _told_by_elements(site, below, pad)
    names = names_in(nest)
    path = (*site.above[site.above.index(below[0]) :], stmt)
    fill = _fill(stmt, pad, conjunction(stmt.predicate, *branch_conditions(path)), names)
    fill = replace(fill, name=free_name({b.name for b in blocks(nest.body)}, f"{stmt.name}_fill"))
    loops = {s.var: Var(free_name(names, f"{s.var.name}_fill")) for s in below}
    filling = in_copies(fill, below, loops)
    after = _copying(nest, site, below, pad)
    target = find_loop(after, below[0].var.name)
    filling = simplified(filling, extents_around(target.above), [fill.name])
    return refreshed(replaced(after, target, seq(filling, target.stmt)), [stmt.name, fill.name]), BlockRef(fill.name)


@dataclass(frozen=True, slots=True)
class _Padding:
    """A store of a value where a condition holds, and of a padding elsewhere."""

    store: Store
    condition: Expr
    value: Expr
    padding: Expr

    @staticmethod
    def of(block: Block) -> _Padding:
        """The padding that a block is; raises ScheduleError."""
        store = block.body
        if not isinstance(store, Store) or block.init is not None or any(a.kind != "spatial" for a in block.axes):
            raise ScheduleError(f"{block.name} is no single store over spatial axes, which a padding is")
        match store.value:
            case Apply(fn="select", args=(condition, value, padding)) if not loads_in(padding):
                pass
            case Apply(fn="select", args=(condition, padding, value)) if not loads_in(padding):
                condition = apply("not", condition)
            case _:
                raise ScheduleError(
                    f"{block.name} pads nothing: it writes no select(condition, value, padding) "
                    "of which one side reads no elements"
                )
        while isinstance(value, Apply) and value.fn == "select" and value.args[2] == padding:
            condition, value = conjunction(condition, value.args[0]), value.args[1]
        if loads_in(condition) or any(e.buffer == store.buffer for e in loads_in(value)):
            raise ScheduleError(f"{block.name} pads where elements say so, or with what it wrote before")
        return _Padding(store, condition, value, padding)


def _used_by_it_alone(site: BlockSite, loop: For, pad: _Padding) -> None:
    buffer = pad.store.buffer
    for unit in units(loop):
        if unit.stmt is not site.stmt and buffer in buffers_read(unit.stmt) | buffers_written(unit.stmt):
            raise ScheduleError(f"{unit.name} uses {buffer.name} within {loop.var.name}; name a loop within that")


def _told_by_elements(site: BlockSite, below: Sequence[For], pad: _Padding) -> None:
    """Raises ScheduleError where an element may be filled in one step of the loops, and copied in another."""
    moving = {s.var for s in below}
    axes = {a.var: a.extent for a in site.stmt.axes}
    facts = ranges_over({**extents_around(site.above), **axes})
    for axis, value in zip(site.stmt.axes, site.stmt.values, strict=True):
        is_asked = axis.var in variables(pad.condition) and variables(value) & moving
        if is_asked and owner(axis.var, pad.store.indices, axes, facts) is None:
            raise ScheduleError(
                f"{site.stmt.name} writes elements of {pad.store.buffer.name} for several {axis.var.name}, "
                f"which its condition is about; name a loop within those that {axis.var.name} depends on"
            )
    if moving & variables(pad.condition):
        raise ScheduleError(f"the condition of {site.stmt.name} names loops around it, and not its axes")


def _fill(stmt: Block, pad: _Padding, predicate: Expr, names: set[str]) -> Block:
    """The block with the padding as its value, on axes of its own."""
    axes = {a.var: Var(free_name(names, f"{a.var.name}_fill")) for a in stmt.axes}
    body = Store(pad.store.buffer, tuple(substitute(i, axes) for i in pad.store.indices), substitute(pad.padding, axes))
    return replace(
        stmt, axes=tuple(replace(a, var=axes[a.var]) for a in stmt.axes), body=body, predicate=predicate, notes=()
    )


def _copying(nest: Nest, site: BlockSite, below: Sequence[For], pad: _Padding) -> Nest:
    """The nest in which the block writes where the condition holds alone."""
    stmt = site.stmt
    values = dict(zip((a.var for a in stmt.axes), stmt.values, strict=True))
    around = extents_around(site.above)
    ranges: dict[Var, list[tuple[Expr, Expr]]] = {}
    left: list[Expr] = []
    for condition in conjuncts(simplify(substitute(pad.condition, values), around)):
        loop = next((s for s in reversed(site.loops) if s.var in variables(condition)), None)
        is_free = loop in site.chain and loop in below and loop is not None and loop.kind != "bound"
        steps = steps_within(condition, loop, {}, around) if is_free and loop is not None else None
        if steps is None or loop is None:
            left.append(condition)
        else:
            ranges.setdefault(loop.var, []).append(steps)
    body: Stmt = replace(stmt, body=replace(pad.store, value=pad.value), predicate=conjunction(stmt.predicate, *left))
    for depth in reversed(range(len(site.above))):
        around_it = site.above[depth]
        if around_it not in site.chain or not isinstance(around_it, For):
            break
        loop = around_it
        if loop.var in ranges:
            outside = extents_around(site.above[:depth])
            first, end = clipped(loop, ranges[loop.var], outside)
            extent = simplify(end - first, outside)
            inside = {**outside, loop.var: extent}
            body = rebind(body, {loop.var: simplify(loop.var + first, inside)}, inside)
            loop = replace(loop, extent=extent)
        body = replace(loop, body=body)
    top = find_loop(nest, site.chain[0].var.name) if site.chain else site
    return replaced(nest, top, body)
