"""Blockization: one block over the tiles of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.lowering.analysis.block_refs import (
    AnyLoop,
    BlockRef,
    LoopSite,
    extents_around,
    find_loop,
    free_name,
    names_in,
    primitive,
    replaced,
)
from graphopt.lowering.analysis.regions import refreshed, simplified
from graphopt.lowering.index.arithmetic import affine, prove, simplify
from graphopt.lowering.loops.expressions import Const, Expr, Var, conjunction, conjuncts, equal, substitute, variables
from graphopt.lowering.loops.loop_nests import peeled
from graphopt.lowering.loops.nest import (
    Axis,
    Block,
    For,
    Nest,
    Stmt,
    blocks,
    substitute_in,
)


@primitive
def blockize(nest: Nest, loop: AnyLoop) -> tuple[Nest, BlockRef]:
    """Make a loop and its body one block over tiles; returns the new block.

    Each axis is a multiple of its tile size, by the loops outside, plus a position in the tile, by those inside.
    A reduction is initialized in the new block, tile by tile.
    Before::

        for i0, i1 in grid(2, 4):
            with block("B"):
                v0 = axis.spatial(8, i0 * 4 + i1)
                B[v0] = A[v0] + 1.0

    After ``s.blockize("i1")``::

        for i0 in serial(2):
            with block("B_o"):
                v0_o = axis.remap("S", [i0])
                reads(A[v0_o * 4:v0_o * 4 + 4])
                writes(B[v0_o * 4:v0_o * 4 + 4])
                for i1 in serial(4):
                    with block("B"):
                        v0_i = axis.remap("S", [i1])
                        B[v0_o * 4 + v0_i] = A[v0_o * 4 + v0_i] + 1.0
    """
    # As TVM's blockize: each axis splits into one of the tiles and one within a tile; conditions go to the block whose
    # axes they name; the init of a reduction over tiles runs before them.
    site = find_loop(nest, loop)
    inside, block = chain_of(site)
    around = extents_around(site.above)
    used_names = names_in(nest)
    tiles = [_tile(a, v, inside, around, used_names) for a, v in zip(block.axes, block.values, strict=True)]
    outer_axes = [(t.outer, t.base) for t in tiles if t.outer is not None]
    inner_axes = [(t.inner, t.rest) for t in tiles if t.inner is not None]
    points = {t.axis.var: t.point for t in tiles}
    outer_conditions, inner_conditions = _shared_out(block, tiles, around, inside)
    inner = replace(
        block,
        axes=tuple(a for a, _ in inner_axes),
        values=tuple(v for _, v in inner_axes),
        body=substitute_in(block.body, points),
        init=None if block.init is None else substitute_in(block.init, points),
        predicate=conjunction(*inner_conditions),
    )
    names = [block.name]
    start: Stmt | None = None
    if block.init is not None and any(a.kind == "reduce" for a, _ in outer_axes):
        start = _start(nest, inner, inside, used_names)
        names += [b.name for b in blocks(start)]
        inner = replace(inner, init=None)
    body: Stmt = inner
    for loop_ in reversed(inside):
        body = replace(loop_, body=body)
    outer = Block(
        free_name({b.name for b in blocks(nest.body)}, f"{block.name}_o"),
        tuple(a for a, _ in outer_axes),
        tuple(v for _, v in outer_axes),
        body,
        start,
        conjunction(*outer_conditions),
    )
    blockized = simplified(outer, around, names)
    return refreshed(replaced(nest, site, blockized), [*names, outer.name]), BlockRef(outer.name)


def chain_of(site: LoopSite) -> tuple[tuple[For, ...], Block]:
    """The perfectly nested loops from one on, and the innermost block."""
    inside, stmt = peeled(site.stmt)
    if not isinstance(stmt, Block):
        raise ScheduleError(f"{inside[-1].var.name} holds more than one block and its loops")
    return inside, stmt


@dataclass(frozen=True, slots=True)
class _TiledAxis:
    """An axis, told apart into one for the tiles (``base`` by the loops outside) and one within a tile (``rest``)."""

    axis: Axis
    outer: Axis | None
    base: Expr
    inner: Axis | None
    rest: Expr
    point: Expr
    """The axis by the other two."""


def _tile(axis: Axis, value: Expr, inside: Sequence[For], around: Mapping[Var, Expr], names: set[str]) -> _TiledAxis:
    extents = {s.var: s.extent for s in inside}
    everything = {**around, **extents}
    linear = affine(value, extents, everything)
    if linear is None or not all(isinstance(c, Const) and int(c.value) >= 0 for c in linear.coefficients.values()):
        raise ScheduleError(f"{axis.var.name} is no sum of a part by the loops outside and a part by those inside")
    size: Expr = Const(1)
    rest: Expr = Const(0)
    for var, factor in linear.coefficients.items():
        size = size + factor * (extents[var] - 1)
        rest = rest + factor * var
    size, rest, base = simplify(size, everything), simplify(rest, everything), simplify(linear.offset, everything)
    if size == Const(1):
        whole = replace(axis, var=Var(free_name(names, f"{axis.var.name}_o")))
        return _TiledAxis(axis, whole, base, None, rest, whole.var)
    if base == Const(0):
        part = replace(axis, var=Var(free_name(names, f"{axis.var.name}_i")))
        return _TiledAxis(axis, None, base, part, rest, part.var)
    tile = simplify(base // size, everything)
    if not prove(equal(tile * size, base), everything):
        raise ScheduleError(f"{axis.var.name}: tiles of {_shown(size)} do not begin at multiples of that")
    count = simplify((axis.extent + (size - 1)) // size, everything)
    outer = Axis(Var(free_name(names, f"{axis.var.name}_o")), count, axis.kind)
    inner = Axis(Var(free_name(names, f"{axis.var.name}_i")), size, axis.kind)
    return _TiledAxis(axis, outer, tile, inner, rest, outer.var * size + inner.var)


def _shown(size: Expr) -> str:
    return str(size.value) if isinstance(size, Const) else "that many"


def _shared_out(
    block: Block, tiles: Sequence[_TiledAxis], around: Mapping[Var, Expr], inside: Sequence[For]
) -> tuple[list[Expr], list[Expr]]:
    """A block's conditions: those on the loops outside, and those on a place within a tile, by axes and loops there."""
    extents = {s.var: s.extent for s in inside}
    everything = {**around, **extents}
    outer: list[Expr] = []
    inner: list[Expr] = []
    for condition in conjuncts(block.predicate):
        if not variables(condition) & extents.keys():
            outer.append(condition)
            continue
        for tile, value in zip(tiles, block.values, strict=True):
            bounded = set(conjuncts(simplify(value < tile.axis.extent, everything)))
            if condition in bounded:
                position = tile.rest if tile.outer is None or tile.inner is None else tile.point
                position = substitute(position, {} if tile.inner is None else {tile.inner.var: tile.rest})
                inner.append(position < tile.axis.extent)
                break
        else:
            raise ScheduleError(
                f"{block.name} runs only where a condition holds that is not about the ends of its axes"
            )
    return outer, inner


def _start(nest: Nest, inner: Block, inside: Sequence[For], names: set[str]) -> Stmt:
    """Loops over a tile with what runs before its reduction, in a block of its own."""
    # The init alone: the spatial loops of the tile, renamed, around the init on axes of its own.
    assert inner.init is not None
    spatial = [(a, v) for a, v in zip(inner.axes, inner.values, strict=True) if a.kind == "spatial"]
    moved = {x for _, v in spatial for x in variables(v)}
    reduced = {x for a, v in zip(inner.axes, inner.values, strict=True) if a.kind != "spatial" for x in variables(v)}
    if moved & reduced:
        raise ScheduleError(
            f"{min(v.name for v in moved & reduced)} is at once a spatial loop and one of the reduction"
        )
    loops = {s.var: Var(free_name(names, f"{s.var.name}_init")) for s in inside if s.var in moved}
    axes = {a.var: Var(free_name(names, f"{_without_suffix(a.var.name)}_init")) for a, _ in spatial}
    stmt: Stmt = Block(
        free_name({b.name for b in blocks(nest.body)}, f"{inner.name}_init"),
        tuple(replace(a, var=axes[a.var]) for a, _ in spatial),
        tuple(substitute(v, loops) for _, v in spatial),
        substitute_in(inner.init, axes),
        predicate=conjunction(
            *(substitute(c, loops) for c in conjuncts(inner.predicate) if not variables(c) & reduced)
        ),
    )
    for loop in reversed(inside):
        if loop.var in moved:
            stmt = replace(loop, var=loops[loop.var], body=stmt, notes=())
    return stmt


def _without_suffix(name: str) -> str:
    return name.removesuffix("_i")
