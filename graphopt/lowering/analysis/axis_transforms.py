"""Axis transformations of contractions: split channels into groups, collapse contiguous axes.

A convolution in groups says ``c // width`` of its output channels; along all of one group's channels it reads
the same image, which shows once the groups are an axis. A convolution of single points says rows and columns,
which are one long axis to it, along which vectors are full.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from graphopt.lowering.analysis.access_analysis import collapsed, taken_apart, total_size
from graphopt.lowering.analysis.canonical_nest import Chain
from graphopt.lowering.index.arithmetic import polynomial, simplify
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, Var, walk
from graphopt.lowering.loops.loop_nests import loops_of
from graphopt.lowering.loops.nest import (
    Axis,
    Block,
    For,
    Seq,
    Stmt,
    Store,
    described,
    expressions,
    map_expressions,
    mutate,
    statements,
    substitute_in,
)


def with_axes_redrawn(first: Chain, rest: Sequence[Chain]) -> tuple[Chain, tuple[Chain, ...]]:
    """A contraction and its epilogue, on transformed spatial axes."""
    return _merged(*_split(first, tuple(rest)))


def following(chain: Chain, first: Chain) -> Chain:
    """The element-wise block on the axes of the first, where it reads the first's result at quotients and remainders of
    its own axes (as in DepthToSpace); otherwise unchanged."""
    buffer = first.stores[0].buffer
    read = [a.indices for a in chain.accesses if a.buffer == buffer]
    if len(chain.axes) >= len(first.spatial) or len(set(read)) != 1 or len(read[0]) != len(first.spatial):
        return chain
    for position, (outer, inner) in enumerate(pairwise(first.spatial)):
        number, rest = read[0][position : position + 2]
        if not isinstance(inner.extent, Const) or not isinstance(number, Apply):
            continue
        axis = next((a for a in chain.axes if (a.var // inner.extent, a.var % inner.extent) == (number, rest)), None)
        if axis is not None and polynomial(axis.extent) == polynomial(outer.extent * inner.extent):
            return following(with_axis_split(chain, chain.axes.index(axis), (outer.extent, inner.extent)), first)
    return chain


def _split(first: Chain, rest: tuple[Chain, ...]) -> tuple[Chain, tuple[Chain, ...]]:
    """Axes of groups and of places within a group, for an axis of which the groups are used."""
    for position, axis in enumerate(first.spatial):
        width = _group_width(first.block, axis)
        if width is not None and isinstance(axis.extent, Const):
            parts = (Const(int(axis.extent.value) // width), Const(width))
            first, *others = (with_axis_split(c, position, parts) for c in (first, *rest))
            return _split(first, tuple(others))
    return first, rest


def _group_width(block: Block, axis: Axis) -> int | None:
    """By what the axis is divided in a block's indices, where that leaves no rest."""
    for s in statements(block.body):
        for whole in expressions(s):
            for e in walk(whole):
                if isinstance(e, Apply) and e.fn == "floordiv" and e.args[0] == axis.var:
                    width, extent = e.args[1], axis.extent
                    if isinstance(width, Const) and isinstance(extent, Const):
                        n = int(width.value)
                        if 1 < n < int(extent.value) and int(extent.value) % n == 0:
                            return n
    return None


def with_axis_split(chain: Chain, position: int, parts: tuple[Expr, Expr]) -> Chain:
    """The chain with one spatial axis, given by its number, split into two of the parts' sizes."""
    axis = chain.spatial[position]
    outer, inner = (Axis(Var(f"{axis.var.name}{s}"), n, "spatial") for s, n in zip("gk", parts, strict=True))
    groups = [[a] for a in chain.axes]
    groups[chain.axes.index(axis)] = [outer, inner]
    return redrawn(chain, [a for g in groups for a in g], {axis.var: outer.var * parts[1] + inner.var})


def _merged(first: Chain, rest: tuple[Chain, ...]) -> tuple[Chain, tuple[Chain, ...]]:
    """Neighbouring axes as one that lie in memory as one for all of the chains."""
    all_of = [[[a.var for a in g] for g in collapsed(c, list(c.spatial))] for c in (first, *rest)]
    ends = [set(_ends(groups)) for groups in all_of]
    cuts = sorted(set.union(*ends))
    if len(cuts) == len(first.spatial):
        return first, rest
    first, *others = (_with_axes_merged(c, cuts) for c in (first, *rest))
    return first, tuple(others)


def _ends(groups: Sequence[Sequence[Var]]) -> Iterator[int]:
    total = 0
    for group in groups:
        total += len(group)
        yield total


def _with_axes_merged(chain: Chain, cuts: Sequence[int]) -> Chain:
    spatial, begin = chain.spatial, 0
    axes: list[Axis] = []
    values: dict[Var, Expr] = {}
    for end in cuts:
        group = spatial[begin:end]
        begin = end
        if len(group) == 1:
            axes.append(group[0])
            continue
        whole = Axis(Var("".join(a.var.name for a in group)), total_size([a.extent for a in group]), "spatial")
        axes.append(whole)
        values.update(taken_apart(whole.var, group))
    return redrawn(chain, [*axes, *chain.reduced], values)


def redrawn(chain: Chain, axes: Sequence[Axis], values: Mapping[Var, Expr]) -> Chain:
    """The chain on new axes; ``values`` express the old axes that it no longer has."""
    bounds = {a.var: int(a.extent.value) for a in axes if isinstance(a.extent, Const)}

    def simplified(e: Expr) -> Expr | None:
        return Load(e.buffer, tuple(simplify(i, bounds) for i in e.indices)) if isinstance(e, Load) else None

    def at_simplified(s: Stmt) -> Stmt | None:
        return Store(s.buffer, tuple(simplify(i, bounds) for i in s.indices), s.value) if isinstance(s, Store) else None

    def drawn(stmt: Stmt) -> Stmt:
        return mutate(map_expressions(substitute_in(stmt, values), simplified), at_simplified)

    loops = loops_of(axes)
    block = replace(
        chain.block,
        axes=tuple(axes),
        values=tuple(loop.var for loop in loops),
        body=drawn(chain.block.body),
        init=chain.block.init and drawn(chain.block.init),
    )
    return Chain(tuple(For(loop.var, loop.extent, Seq(())) for loop in loops), described(block))
