"""Element-wise schedules on CUDA: each thread computes a few neighbouring elements. One of the rules of ``schedules``.

Along rows of unknown length, an element's number would have to be divided by that length, by every thread for each
element. So blocks of threads take pieces of some neighbouring rows each; a warp has one piece, and its threads every
32nd element of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphopt.kernels.cuda.limits import WARP
from graphopt.lowering.analysis.access_analysis import collapsed, known_size, point_of, taken_apart, total_size
from graphopt.lowering.analysis.canonical_nest import Chain
from graphopt.lowering.cuda.threads import DeviceScheduling, powers
from graphopt.lowering.loops.expressions import Const, Expr, Var, minimum
from graphopt.lowering.loops.loop_nests import LoopSpec
from graphopt.lowering.loops.nest import Axis, For, If, Stmt


def element_wise(owner: DeviceScheduling, chain: Chain) -> Stmt:
    """The block with one thread for each element, or for as many as it may read or write at once."""
    groups = collapsed(chain, chain.axes)
    most = _width(owner, chain, groups)
    width = owner.choose("width", powers(1, most), most)
    extents = [total_size([a.extent for a in group]) for group in groups]
    total = total_size(extents)

    def block(element: Expr) -> Stmt:
        values: dict[Var, Expr] = {}
        for group, at in zip(groups, point_of(element, extents), strict=True):
            values.update(taken_apart(at, group))
        return chain.with_values([values[a.var] for a in chain.axes])

    def several(unit: Expr) -> Stmt:
        if width == 1:
            return block(unit)
        lane = owner.var("u")
        whole: Stmt = For(lane, Const(width), block(unit * width + lane), "vectorized")
        if known_size([total]) is not None:  # a multiple of the width
            return whole
        rest = owner.var("u")
        last = For(rest, total - unit * width, block(unit * width + rest))
        return If((unit + 1) * width <= total, whole, last)

    return owner.over_threads((total + (width - 1)) // width if width > 1 else total, several)


def result_wise(owner: DeviceScheduling, chain: Chain) -> Stmt:
    """A reduction with one thread for each result, which takes all steps by itself."""
    loops = [LoopSpec(owner.var("r"), a.extent) for a in chain.reduced]
    steps = dict(zip((a.var for a in chain.reduced), (loop.var for loop in loops), strict=True))

    def result(item: Expr) -> Stmt:
        return owner.accumulated(chain, {**taken_apart(item, chain.spatial), **steps}, loops)

    return owner.over_threads(total_size([a.extent for a in chain.spatial]), result)


def _width(owner: DeviceScheduling, chain: Chain, groups: Sequence[Sequence[Axis]]) -> int:
    """The number of neighbouring elements of a thread: as many as it may access at once, where they are adjacent in
    what is written and divide each row."""
    if not groups:
        return 1
    last = groups[-1][-1]
    wide = [a for a in chain.accesses if (s := a.stride(last.var)) is not None and s.number == 1]
    if not any(a.is_write for a in wide) or any(a.is_write and a not in wide for a in chain.accesses):
        return 1
    extent = known_size([a.extent for a in groups[-1]])
    if extent is None and len(groups) > 1:
        return 1
    return owner.card.width([a.buffer.dtype for a in wide], extent or 0)


EACH: Final = 8
"""Elements of a piece that one thread takes."""


def by_rows(owner: DeviceScheduling, chain: Chain) -> Stmt | None:
    """The kernel of a block that computes element by element along rows of a length that is not known; None where it
    does not."""
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

    return owner.over_blocks((count + (rows - 1)) // rows * pieces, block)
