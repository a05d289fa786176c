"""Col2Im: overlapping blocks added up to an image."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphopt.lowering.index.arithmetic import simplify
from graphopt.lowering.loops import compute as tensors
from graphopt.lowering.loops.compute import ReduceStage, Tensor, compute, reduce_axis
from graphopt.lowering.loops.expressions import Const, Expr, cast, conjunction, const, equal, select
from graphopt.lowering.operators.elements import label, required, wide
from graphopt.lowering.operators.indices import linear
from graphopt.lowering.operators.operation import LoweringTable, Operation


def _numbers(op: Operation, name: str, otherwise: list[int]) -> list[int]:
    """An attribute that lists numbers, of which the default goes by the block and not by the input."""
    value = op.attrs.get(name)
    return [int(n) for n in value if isinstance(n, int)] if isinstance(value, tuple) else otherwise


def col2im(op: Operation) -> Tensor:
    """An image as the sum of the blocks that columns hold."""
    columns = _Columns(op)
    is_spread = any(s > 1 < d for s, d in zip(columns.strides, columns.dilations, strict=True))
    sums = columns.tried() if is_spread or max(columns.strides, default=1) == 1 else columns.by_phases()
    dtype = op.input(0).dtype
    return sums if sums.dtype == dtype else compute(sums.shape, lambda *at: cast(sums[at], dtype), dtype, label(op))


class _Columns:
    """The blocks of an image, each of which stands in a column for each channel."""

    def __init__(self, op: Operation) -> None:
        self.x, self.shape, self.name = op.input(0), op.shape(), label(op)
        self.block = [int(n) for n in op.known(2).reshape(-1)]
        self.rank, self.inner = len(self.block), wide(self.x.dtype)
        self.strides = _numbers(op, "strides", [1] * self.rank)
        self.dilations = _numbers(op, "dilations", [1] * self.rank)
        self.pads = _numbers(op, "pads", [0] * (2 * self.rank))
        self.counts = []
        for k, (n, s, d) in enumerate(zip(self.block, self.strides, self.dilations, strict=True)):
            more = self.pads[k] + self.pads[k + self.rank] - d * (n - 1) - 1
            self.counts.append(simplify((self.shape[2 + k] + more) // s + 1, {}))
        many = linear([count - 1 for count in self.counts], self.counts) + 1
        self.fits = required(equal(many, self.x.shape[2]), "Col2Im: there are not as many columns as blocks")

    def element(self, n: Expr, c: Expr, within: Sequence[Expr], where: Sequence[Expr], there: Sequence[Expr]) -> Expr:
        """The element within the block that stands at ``where``, zero where one is not ``there``."""
        inside = [e for i, count in zip(where, self.counts, strict=True) for e in (i >= 0, i < count)]
        row = linear((c, *within), (Const(1), *map(Const, self.block)))
        value = cast(self.x[n, row, linear(where, self.counts)], self.inner)
        return select(conjunction(*there, *inside), value, const(0, self.inner))

    def tried(self) -> Tensor:
        """At each place of the image, all elements of a block are tried."""

        def summed(n: Expr, c: Expr, *at: Expr) -> ReduceStage:
            axes = [reduce_axis(m) for m in self.block]
            within = [a.var for a in axes]
            moved = [i + self.pads[k] - within[k] * self.dilations[k] for k, i in enumerate(at)]
            there = [equal(i % s, 0) for i, s in zip(moved, self.strides, strict=True) if s > 1]
            where = [i // s for i, s in zip(moved, self.strides, strict=True)]
            return tensors.sum(self.element(n, c, within, where, there), *axes)

        return compute(self.shape, summed, None, self.name, self.fits)

    def by_phases(self) -> Tensor:
        """By phases: the places of the image that leave the same rest when they are divided by the strides, each of
        which has the same share of a block. Where there is one element in each share, no two blocks meet."""
        taps = [-(-n // s) for n, s in zip(self.block, self.strides, strict=True)]
        steps = [d if s == 1 else 1 for s, d in zip(self.strides, self.dilations, strict=True)]

        def met(n: Expr, c: Expr, at: Sequence[Expr], turns: Sequence[Expr]) -> Expr:
            """What a turn adds at a phase and a place in it."""
            within = [p + t * s for p, t, s in zip(at[: self.rank], turns, self.strides, strict=True)]
            where = [i - t * d for i, t, d in zip(at[self.rank :], turns, steps, strict=True)]
            there = [i < m for i, m, s in zip(within, self.block, self.strides, strict=True) if m % s]
            return self.element(n, c, within, where, there)

        def apart(at: Sequence[Expr]) -> tuple[Expr, ...]:
            """The phases and places of a point of the image."""
            places = [i + self.pads[k] for k, i in enumerate(at)]
            pairs = list(zip(places, self.strides, strict=True))
            return (*(i % s for i, s in pairs), *(i // s for i, s in pairs))

        if prod(taps) == 1:
            single = [Const(0)] * self.rank
            return compute(self.shape, lambda n, c, *at: met(n, c, apart(at), single), None, self.name, self.fits)

        def summed(n: Expr, c: Expr, *at: Expr) -> ReduceStage:
            turns = [reduce_axis(m) for m in taps]
            return tensors.sum(met(n, c, at, [t.var for t in turns]), *turns)

        sides = zip(self.shape[2:], self.pads[: self.rank], self.strides, strict=True)
        places = [simplify((n + p + (s - 1)) // s, {}) for n, p, s in sides]
        phases = compute((*self.shape[:2], *self.strides, *places), summed, None, "phases", self.fits)
        return compute(self.shape, lambda n, c, *at: phases[(n, c, *apart(at))], None, self.name)


TABLE: LoweringTable = {"Col2Im": col2im}
