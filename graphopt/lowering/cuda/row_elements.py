"""Row-wise elements on CUDA, for rows of unknown length: a thread computes its row once, not for each element.

An element's number would have to be divided by that length, by every thread for each element. So blocks of threads take
pieces of some neighbouring rows each; a warp has one piece, and its threads every 32nd element of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphopt.kernels.cuda.limits import WARP
from graphopt.lowering.analysis.access_analysis import collapsed, known_size, point_of, taken_apart, total_size
from graphopt.lowering.analysis.canonical_nest import Chain
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.loops.expressions import Const, Expr, Var, minimum
from graphopt.lowering.loops.nest import For, If, Stmt

EACH: Final = 8
"""Elements of a piece that one thread takes."""


def by_rows(owner: DeviceScheduling, chains: Sequence[Chain]) -> tuple[Stmt, int] | None:
    """The kernel of the first block, where it computes element by element along rows of a length that is not known;
    None where it does not."""
    chain = chains[0]
    groups = collapsed(chain, chain.axes)
    if chain.block.init is not None or len(groups) < 2 or known_size([a.extent for a in groups[-1]]) is not None:
        return None
    extents = [total_size([a.extent for a in group]) for group in groups]
    length, count, rows = extents[-1], total_size(extents[:-1]), owner.card.threads // WARP
    pieces = (length + (WARP * EACH - 1)) // (WARP * EACH)

    def block(number: Expr) -> Stmt:
        first = number % pieces * (WARP * EACH)

        def element(row: Expr, column: Expr) -> Stmt:
            values: dict[Var, Expr] = {}
            for group, at in zip(groups, [*point_of(row, extents[:-1]), column], strict=True):
                values.update(taken_apart(at, group))
            return chain.with_values([values[a.var] for a in chain.axes])

        def piece(row: Expr, lane: Expr) -> Stmt:
            start, whole, part = first + lane, owner.var("k"), owner.var("k")
            left = minimum((length - start + (WARP - 1)) // WARP, EACH)
            every = For(whole, Const(EACH), element(row, whole * WARP + start), "unrolled")
            some = For(part, left, element(row, part * WARP + start))
            return If(first + WARP * EACH <= length, every, some)

        def warp(y: Expr) -> Stmt:
            row = number // pieces * rows + y
            return owner.by_threads(WARP, lambda x: owner.within(row, count, rows, lambda r: piece(r, x)))

        return owner.by_threads(rows, warp, "y")

    return owner.over_blocks((count + (rows - 1)) // rows * pieces, block), 1
