"""Products of matrices that a call computes, in pieces that can be shared out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphopt.lowering.chain_facts import (
    UNKNOWN,
    total_size,
)
from graphopt.lowering.chains import Chain, exchange
from graphopt.lowering.convolution_tiles import convolution_of
from graphopt.lowering.expressions import Const, Expr, Var, minimum
from graphopt.lowering.library import Product, called_product, pieces
from graphopt.lowering.loop_nests import Loop, wrapped
from graphopt.lowering.loops import (
    Axis,
    Buffer,
    Range,
    Stmt,
    accesses,
    seq,
)
from graphopt.lowering.scheduling import Scheduling


def called(owner: Scheduling, found: Sequence[Chain]) -> Stmt | None:
    """A product by the library, in pieces that can be shared out, each followed by what is done to its elements."""
    first, rest = found[0], found[1:]
    product = called_product(found, owner.nest)
    if product is None or convolution_of(first, rest) is not None:
        return None
    made = first.stores[0].buffer
    target = made
    if rest:  # the library writes where the result will stand, if that is of the same kind
        store = rest[0].stores[0]
        if len(rest[0].stores) == 1 and store.buffer.dtype == made.dtype:
            target = replace(store.buffer)
            owner.gone.add(made)
    steps = pieces(product)
    others = [a for a in first.spatial if a not in (product.m, product.n)]
    outer = {a: Loop(owner.var("i"), a.extent) for a in others}
    outer |= {a: Loop(owner.var("o"), (a.extent + (step - 1)) // step) for a, step in steps.items()}

    def part(axis: Axis, at: Mapping[Var, Expr]) -> Range:
        if axis not in steps:
            return Range(Const(0), axis.extent)
        start = at[outer[axis].var] * steps[axis]
        return Range(start, minimum(steps[axis], axis.extent - start))

    def body(at: Mapping[Var, Expr]) -> Stmt:
        values = {a.var: at[outer[a].var] for a in others}
        rows, columns = part(product.m, at), part(product.n, at)
        single = {a.var: Const(0) for a in first.reduced}
        call = product.call(target, rows, columns, {**values, **single})
        return seq(call, *(_piece(owner, c, first, product, (rows, columns), values, target) for c in rest))

    sizes = [minimum(steps.get(a, UNKNOWN), a.extent) for a in (product.m, product.n)]
    return owner.shared_out([*outer.values()], total_size([*sizes, product.k.extent]), body)


def _piece(
    owner: Scheduling, chain: Chain, first: Chain, product: Product, part: tuple[Range, Range],
    values: Mapping[Var, Expr], target: Buffer,
) -> Stmt:  # fmt: skip
    """What is done to each element of a piece of the product."""
    mine = dict(zip((a.var for a in first.spatial), (a.var for a in chain.spatial), strict=True))
    row, column = Loop(owner.var("i"), part[0].extent), Loop(owner.var("c"), part[1].extent, "vectorized")
    where = {mine[v]: e for v, e in values.items()}
    where[mine[product.m.var]] = part[0].start + row.var
    where[mine[product.n.var]] = part[1].start + column.var
    block = chain.with_values([where[a.var] for a in chain.axes])
    made = first.stores[0].buffer
    if target != made:
        own = chain.stores[0].indices
        block = replace(block, body=exchange(block.body, {made: (target, own)}))
        read, written = accesses(block)
        block = replace(block, reads=read, writes=written)
    return wrapped([row, column], block)
