"""Integer schedules: pieces of byte products, each followed by its element-wise consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphopt.lowering.analysis.canonical_nest import Chain
from graphopt.lowering.cpu.integer_products import SUMS, called_integer_product, pieces
from graphopt.lowering.cpu.scheduling import Scheduling
from graphopt.lowering.cpu.tiled_calls import finished, in_pieces, loops_over
from graphopt.lowering.loops.expressions import Const, Expr, Var, substitute, variables
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import Axis, Buffer, BufferRegion, Invoke, Range, Stmt, Store, seq


def multiplied(owner: Scheduling, chains: Sequence[Chain]) -> Stmt | None:
    """A product of bytes with what is done to its elements; None where the chains are something else."""
    product = called_integer_product(chains, owner.nest)
    if product is None:
        return None
    (first, *rest), sizes = chains, pieces(product)
    result, axes = first.stores[0].buffer, (product.m, product.n)
    near: Buffer | None = None
    if rest:  # sums are passed on by memory that stays near
        near = owner.local(result.name, [Const(sizes[a]) for a in axes], SUMS)
        owner.gone.add(result)
    zeros = [
        owner.local("zeros", [Const(sizes[a] if a.var in variables(z) else 1)], SUMS)
        for a, z in zip(axes, product.zeros, strict=True)
    ]

    def piece(values: Mapping[Var, Expr], rows: Range, columns: Range) -> Stmt:
        parts = dict(zip(axes, (rows, columns), strict=True))
        filled, counted = _filled(owner, dict(zip(zeros, product.zeros, strict=True)), parts, values)
        others = {**values, **{a.var: Const(0) for a in (*axes, product.k)}}
        if near is None:
            target = product.c.region(rows, columns, others)
        else:
            target = BufferRegion(near, tuple(Range(Const(0), p.extent) for p in parts.values()))
        steps = Range(Const(0), product.k.extent)
        a, b = product.a.region(rows, steps, others), product.b.region(steps, columns, others)
        extents = (rows.extent, columns.extent, product.k.extent, *(z.ranges[0].extent for z in counted))
        call = Invoke(product.name, (target, a, b, *counted, *extents))
        if near is None:
            return seq(filled, call)
        loops = loops_over(owner, rows, columns)
        source = near, tuple(loop.var for loop in loops)
        return seq(filled, call, finished(rest[0], first, parts, loops, values, source))

    return in_pieces(owner, first, (*axes, product.k), sizes, piece)


def _filled(
    owner: Scheduling, zeros: Mapping[Buffer, Expr], parts: Mapping[Axis, Range], values: Mapping[Var, Expr]
) -> tuple[Stmt, list[BufferRegion]]:
    """Statements that fill buffers with the zero points of a piece's rows and columns, one or all, and these
    buffers."""
    filled, counted = [], []
    for (buffer, zero), (axis, part) in zip(zeros.items(), parts.items(), strict=True):
        step = LoopSpec(owner.var("i"), part.extent if axis.var in variables(zero) else Const(1), "vectorized")
        value = substitute(zero, {**values, axis.var: part.start + step.var})
        filled.append(wrapped([step], Store(buffer, (step.var,), value)))
        counted.append(BufferRegion(buffer, (Range(Const(0), step.extent),)))
    return seq(*filled), counted
