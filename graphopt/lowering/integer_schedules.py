"""Schedules of products of bytes: pieces of sums by our own kernel, each followed by what is done to its elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphopt.lowering.chain_facts import total_size
from graphopt.lowering.chains import Chain, exchange
from graphopt.lowering.expressions import Const, Expr, Var, minimum, substitute, variables
from graphopt.lowering.integer_products import SUMS, IntegerProduct, called_integer_product, pieces
from graphopt.lowering.loop_nests import Loop, wrapped
from graphopt.lowering.loops import Axis, Buffer, Invoke, Range, Region, Stmt, Store, seq
from graphopt.lowering.scheduling import Scheduling


def multiplied(owner: Scheduling, found: Sequence[Chain]) -> Stmt | None:
    """A product of bytes with what is done to its elements; None where the chains are something else."""
    product = called_integer_product(found, owner.nest)
    return None if product is None else _Pieces(owner, found[0], found[1:], product).all()


class _Pieces:
    """Writes the loops over pieces of a product."""

    def __init__(self, owner: Scheduling, first: Chain, rest: Sequence[Chain], product: IntegerProduct) -> None:
        self.owner, self.first, self.rest, self.product = owner, first, rest, product
        self.sizes = pieces(product)
        self.made = first.stores[0].buffer
        shape = [Const(self.sizes[a]) for a in (product.m, product.n)]
        self.near: Buffer | None = None
        if rest:  # sums are passed on by memory that stays near
            self.near = owner.local(self.made.name, shape, SUMS)
            owner.gone.add(self.made)
        axes = (product.m, product.n)
        self.zeros = [
            owner.local("zeros", [Const(self.sizes[a] if a.var in variables(z) else 1)], SUMS)
            for a, z in zip(axes, product.zeros, strict=True)
        ]

    def all(self) -> Stmt:
        """All pieces, shared out."""
        product = self.product
        others = [a for a in self.first.spatial if a not in self.sizes]
        outer = {a: Loop(self.owner.var("i"), a.extent) for a in others}
        outer |= {a: Loop(self.owner.var("o"), (a.extent + (n - 1)) // n) for a, n in self.sizes.items()}

        def body(at: Mapping[Var, Expr]) -> Stmt:
            values = {a.var: at[outer[a].var] for a in others} | {a.var: Const(0) for a in self.first.reduced}
            return self.piece(values, *(self.part(a, at[outer[a].var]) for a in (product.m, product.n)))

        steps = [minimum(n, a.extent) for a, n in self.sizes.items()]
        return self.owner.shared_out([*outer.values()], total_size([*steps, product.k.extent]), body)

    def part(self, axis: Axis, number: Expr) -> Range:
        """What a piece has of an axis."""
        start = number * self.sizes[axis]
        return Range(start, minimum(self.sizes[axis], axis.extent - start))

    def piece(self, values: Mapping[Var, Expr], rows: Range, columns: Range) -> Stmt:
        """Some rows and columns."""
        product = self.product
        filled, zeros = [], []
        pairs = zip((product.m, product.n), (rows, columns), product.zeros, self.zeros, strict=True)
        for axis, part, zero, buffer in pairs:
            step = self.owner.var("i")
            count = part.extent if axis.var in variables(zero) else Const(1)
            value = substitute(zero, {**values, axis.var: part.start + step})
            filled.append(wrapped([Loop(step, count, "vectorized")], Store(buffer, (step,), value)))
            zeros.append(Region(buffer, (Range(Const(0), count),)))
        rest = {**values, **{a.var: Const(0) for a in (product.m, product.n, product.k)}}
        if self.near is None:
            target = product.c.region(rows, columns, rest)
        else:
            target = Region(self.near, tuple(Range(Const(0), p.extent) for p in (rows, columns)))
        steps = Range(Const(0), product.k.extent)
        a, b = product.a.region(rows, steps, rest), product.b.region(steps, columns, rest)
        counts = [z.ranges[0].extent for z in zeros]
        sizes = (rows.extent, columns.extent, product.k.extent)
        call = Invoke(product.name, (target, a, b, *zeros, *sizes, *counts))
        return seq(*filled, call, *(self.finished(c, values, rows, columns) for c in self.rest))

    def finished(self, chain: Chain, values: Mapping[Var, Expr], rows: Range, columns: Range) -> Stmt:
        """What is done to each of the sums."""
        assert self.near is not None
        mine = dict(zip((a.var for a in self.first.spatial), (a.var for a in chain.spatial), strict=True))
        row, column = Loop(self.owner.var("i"), rows.extent), Loop(self.owner.var("c"), columns.extent, "vectorized")
        where = {mine[v]: e for v, e in values.items() if v in mine}
        where[mine[self.product.m.var]] = rows.start + row.var
        where[mine[self.product.n.var]] = columns.start + column.var
        block = chain.with_values([where[a.var] for a in chain.axes])
        return wrapped([row, column], exchange(block, {self.made: (self.near, (row.var, column.var))}))
