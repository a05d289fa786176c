"""Tiled calls: blocks of a matrix product, each computed by a call and finished before the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from graphopt.lowering.analysis.access_analysis import UNKNOWN, total_size
from graphopt.lowering.analysis.canonical_nest import Chain, exchange
from graphopt.lowering.cpu.scheduling import Scheduling
from graphopt.lowering.loops.expressions import Const, Expr, Var, minimum
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import Axis, Buffer, Range, Stmt, described

Counts: TypeAlias = Sequence[tuple[int, int]]
"""How many pieces a product is done in: from so many multiplications on, so many."""

BY_LIBRARY: Counts = ((1 << 21, 2), (1 << 24, 4))
"""BLAS arranges both operands anew in each piece."""
BY_PANELS: Counts = ((1 << 21, 2), (1 << 27, 4), (1 << 30, 16))
"""The operand in panels is read anew in each piece of rows. Of 16, which take a millisecond each, threads that are held
up by something else do fewer."""
OF_BYTES: Counts = ((1 << 23, 2), (1 << 25, 4), (1 << 27, 16))
"""Four products at once: a piece takes as long as one of a quarter as many."""


def wanted(work: int | None, counts: Counts) -> int:
    """In how many pieces so many multiplications are to be done: one where that is soon done, or it is not known how
    many they are; else more, so that threads have equal shares, but few, for each reads its operands by itself."""
    return max((n for least, n in counts if work is not None and work >= least), default=1)


def in_pieces(
    owner: Scheduling, first: Chain, axes: tuple[Axis, Axis, Axis], sizes: Mapping[Axis, int],
    piece: Callable[[Mapping[Var, Expr], Range, Range], Stmt],
) -> Stmt:  # fmt: skip
    """The product that a chain is, shared out: its ``axes`` are those of rows, columns and steps, some of which are
    computed so many at once as ``sizes`` says, the others whole. ``piece`` is given where the other axes are."""
    rows, columns, steps = axes
    others = [a for a in first.spatial if a not in (rows, columns)]
    outer = {a: LoopSpec(owner.var("i"), a.extent) for a in others}
    outer |= {a: LoopSpec(owner.var("o"), (a.extent + (size - 1)) // size) for a, size in sizes.items()}

    def part(axis: Axis, at: Mapping[Var, Expr]) -> Range:
        if axis not in sizes:
            return Range(Const(0), axis.extent)
        start = at[outer[axis].var] * sizes[axis]
        return Range(start, minimum(sizes[axis], axis.extent - start))

    def body(at: Mapping[Var, Expr]) -> Stmt:
        values = {a.var: at[outer[a].var] for a in others} | {a.var: Const(0) for a in first.reduced}
        return piece(values, part(rows, at), part(columns, at))

    many = [minimum(sizes.get(a, UNKNOWN), a.extent) for a in (rows, columns)]
    return owner.shared_out([*outer.values()], total_size([*many, steps.extent]), body)


def loops_over(owner: Scheduling, rows: Range, columns: Range) -> tuple[LoopSpec, LoopSpec]:
    """The loops over the elements of a piece."""
    return LoopSpec(owner.var("i"), rows.extent), LoopSpec(owner.var("c"), columns.extent, "vectorized")


def finished(
    chain: Chain, first: Chain, parts: Mapping[Axis, Range], loops: Sequence[LoopSpec], values: Mapping[Var, Expr],
    source: tuple[Buffer, tuple[Expr, ...]],
) -> Stmt:  # fmt: skip
    """The epilogue of a piece: the chain for the ``parts`` of rows and columns that the ``first`` computed, over
    ``loops``, with its other axes at ``values``. ``source`` is the element's location."""
    mine = dict(zip((a.var for a in first.spatial), (a.var for a in chain.spatial), strict=True))
    where = {mine[v]: e for v, e in values.items() if v in mine}
    for (axis, part), loop in zip(parts.items(), loops, strict=True):
        where[mine[axis.var]] = part.start + loop.var
    block = chain.with_values([where[a.var] for a in chain.axes])
    block = replace(block, body=exchange(block.body, {first.stores[0].buffer: source}))
    return wrapped(loops, described(block))
