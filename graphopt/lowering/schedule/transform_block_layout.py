"""Iteration space transformation: a block gets other axes, and a loop for each."""

from __future__ import annotations

from dataclasses import replace

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import (
    AnyBlock,
    extents_around,
    find_block,
    find_loop,
    free_name,
    names_in,
    primitive,
    replaced,
)
from graphopt.lowering.analysis.dependence import at, owner
from graphopt.lowering.analysis.regions import refreshed, simplified
from graphopt.lowering.index.arithmetic import prove, ranges_over, simplify
from graphopt.lowering.loops.expressions import Const, Expr, Var, conjunction, equal, substitute, variables
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import Axis, AxisKind, Block, Nest, substitute_in
from graphopt.lowering.schedule.pad_einsum import plain_loops
from graphopt.lowering.schedule.transform_layout import IndexMap, image, mapped


@primitive
def transform_block_layout(nest: Nest, block: AnyBlock, mapping: IndexMap) -> tuple[Nest, None]:
    """Give a block other axes: the map gives the new ones at a point of the old.

    It joins, splits and reorders axes one to one, spatial ones and reduced ones apart; places that it leaves over are
    guarded by a predicate (``where``). The loops around the block are its axes, and a serial one for each new axis
    takes their place.
    Before::

        for i0, i1 in grid(4, 8):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] * 2.0

    After ``s.transform_block_layout("B", lambda i, j: (i * 8 + j,))``::

        for ax0 in serial(32):
            with block("B"):
                vax0 = axis.remap("S", [ax0])
                B[vax0 // 8, vax0 % 8] = A[vax0 // 8, vax0 % 8] * 2.0
    """
    # As TVM's transform_block_layout: the inverse of the map gives the old axes by the new, in body and init.
    site = find_block(nest, block)
    stmt = site.stmt
    names, results = mapped(mapping)
    if len(names) != len(stmt.axes) or not names:
        raise ScheduleError(f"{stmt.name} has {len(stmt.axes)} axes, and the map takes {len(names)}")
    if stmt.of_kind("ordered"):
        raise ScheduleError(f"{stmt.name} has ordered axes, which have to stay in their order")
    chain = plain_loops(site)
    for loop in chain:
        if loop.kind != "serial":
            raise ScheduleError(f"{loop.var.name} is {loop.kind}; do this before")
    extents = {a.var: a.extent for a in stmt.axes}
    own = dict(zip(map(Var, names), extents, strict=True))
    outputs = [substitute(r, own) for r in results]
    shape = image(extents, outputs, pad=True)
    used = names_in(nest)
    loops = [Var(free_name(used, f"ax{k}")) for k in range(len(outputs))]
    axes = [
        Axis(Var(free_name(used, f"vax{k}")), extent, _kind(stmt, output))
        for k, (output, extent) in enumerate(zip(outputs, shape, strict=True))
    ]
    inverse = _inverse(stmt, extents, outputs)
    around = extents_around(site.above[: site.above.index(chain[0])])
    running = {**around, **dict(zip(loops, shape, strict=True))}
    by_loop = {v: simplify(substitute(e, _places(loops)), running) for v, e in inverse.items()}
    limits = [by_loop[a.var] < a.extent for a in stmt.axes]
    limits += [equal(substitute(o, by_loop), loop) for o, loop in zip(outputs, loops, strict=True)]
    inside = {v: substitute(e, _places([a.var for a in axes])) for v, e in inverse.items()}
    changed = replace(
        stmt,
        axes=tuple(axes),
        values=tuple(loops),
        body=substitute_in(stmt.body, inside),
        init=None if stmt.init is None else substitute_in(stmt.init, inside),
        predicate=conjunction(*dict.fromkeys(simplify(c, running) for c in limits if not prove(c, running))),
    )
    nested = wrapped([LoopSpec(loop, extent) for loop, extent in zip(loops, shape, strict=True)], changed)
    after = replaced(nest, find_loop(nest, chain[0].var.name), simplified(nested, around, [stmt.name]))
    return refreshed(after, [stmt.name]), None


def _places(vars: list[Var]) -> dict[Var, Expr]:
    """What stands for each result of the map."""
    return {at(k): v for k, v in enumerate(vars)}


def _kind(block: Block, output: Expr) -> AxisKind:
    """The kind of a new axis: that of the axes in it."""
    kinds: set[AxisKind] = {a.kind for a in block.axes if a.var in variables(output)}
    if len(kinds) > 1:
        raise ScheduleError(f"the map joins spatial axes of {block.name} with reduced ones, which stay apart")
    return kinds.pop() if kinds else "spatial"


def _inverse(block: Block, extents: dict[Var, Expr], outputs: list[Expr]) -> dict[Var, Expr]:
    """The axes as functions of the results of the map, ``at(0), at(1), ...``."""
    facts = ranges_over(extents)
    found: dict[Var, Expr] = {}
    for var, extent in extents.items():
        value = Const(0) if extent == Const(1) else owner(var, outputs, extents, facts)
        if value is None:
            raise ScheduleError(f"no inverse of the map was found that gives {var.name} of {block.name}")
        found[var] = value
    return found
