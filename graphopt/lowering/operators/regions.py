"""Region pooling: regions of images are divided into bins; RoiAlign combines samples of each, MaxRoiPool elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import inf
from typing import NamedTuple, TypeAlias

from graphopt.lowering.loops import compute as tensors
from graphopt.lowering.loops.compute import Tensor, compute, loop, procedure, reduce_axis, require
from graphopt.lowering.loops.expressions import INDEX, Const, Expr, Load, apply, cast, const, maximum, minimum, select
from graphopt.lowering.loops.nest import Buffer, Check, Stmt, Store, seq
from graphopt.lowering.operators.elements import integer, label, number, text, wide, widened
from graphopt.lowering.operators.indexing import over
from graphopt.lowering.operators.indices import clamped, matching
from graphopt.lowering.operators.operation import LoweringTable, Operation
from graphopt.lowering.operators.sampling import as_float

Corners: TypeAlias = Callable[[Expr, int, Expr, Expr], tuple[Expr, Expr]]
"""By region, axis, bin and step of a sample: the element before it, and how far behind that it lies."""


class Regions:
    """The regions of a RoiAlign, along each of the two axes."""

    def __init__(self, op: Operation) -> None:
        self.x, self.rois, self.images = op.input(0), op.input(1), op.input(2)
        self.dtype = wide(self.x.dtype)
        self.shape, self.mode = op.shape(), text(op, "mode").lower()
        self.scale, self.ratio = number(op, "spatial_scale"), integer(op, "sampling_ratio")
        self.matching = matching(op, self.rois.shape, (*self.images.shape, Const(4)))
        self.half = text(op, "coordinate_transformation_mode") == "half_pixel"

    def extent(self, r: Expr, axis: int) -> tuple[Expr, Expr]:
        """The start of a region along an axis (0 for rows, 1 for columns), and the length of its bins."""
        offset = 0.5 if self.half else 0.0
        start = cast(self.rois[r, 1 - axis], self.dtype) * self.scale - offset
        end = cast(self.rois[r, 3 - axis], self.dtype) * self.scale - offset
        whole = end - start if self.half else maximum(end - start, const(1, self.dtype))
        return start, whole / as_float(self.shape[2 + axis], self.dtype)

    def samples(self, r: Expr, axis: int) -> Expr:
        """The number of samples in a bin along an axis."""
        if self.ratio > 0:
            return Const(self.ratio)
        _, length = self.extent(r, axis)
        return maximum(cast(apply("ceil", length), INDEX), 0)

    def corner(self, r: Expr, axis: int, bin_index: Expr, step: Expr) -> tuple[Expr, Expr]:
        """The element before a sample along an axis, -1 where the sample lies outside of the image, and how far behind
        it the sample lies."""
        start, length = self.extent(r, axis)
        count = as_float(self.samples(r, axis), self.dtype)
        at = start + cast(bin_index, self.dtype) * length + (cast(step, self.dtype) + 0.5) * length / count
        size = self.x.shape[2 + axis]
        outside = (at < -1.0) | (at > as_float(size, self.dtype))
        inner = minimum(maximum(at, const(0, self.dtype)), as_float(size, self.dtype) - 1.0)
        below = clamped(cast(inner, INDEX), size)
        return select(outside, const(-1, INDEX), below), inner - cast(below, self.dtype)

    def tables(self) -> Corners:
        """The corners of all samples, where bins have a number of samples that is known: they are the same in each
        channel."""
        known = []
        for axis in (0, 1):
            shape = (self.shape[0], Const(self.ratio), self.shape[2 + axis])
            place, share = (
                compute(
                    shape,
                    lambda r, s, b, axis=axis, part=part: self.corner(r, axis, b, s)[part],
                    (INDEX, self.dtype)[part],
                    ("places", "shares")[part],
                )
                for part in (0, 1)
            )
            known.append((place, share))

        def corner(r: Expr, axis: int, bin_index: Expr, step: Expr) -> tuple[Expr, Expr]:
            place, share = known[axis]
            return place[r, step, bin_index], share[r, step, bin_index]

        return corner

    def sample(self, r: Expr, c: Expr, bins: Sequence[Expr], steps: Sequence[Expr], corner: Corners) -> Expr:
        """One sample of a bin: of the four elements around it the weighted mean, or the largest weighted one."""
        (top, down), (first, along) = (corner(r, axis, bins[axis], steps[axis]) for axis in (0, 1))
        n = clamped(cast(self.images[r], INDEX), self.x.shape[0])
        rows, columns = (
            ((maximum(at, 0), 1.0 - share), (minimum(maximum(at, 0) + 1, size - 1), share))
            for at, share, size in ((top, down, self.x.shape[2]), (first, along, self.x.shape[3]))
        )
        terms = [widened(self.x[n, c, row, column]) * (share * part) for row, share in rows for column, part in columns]
        whole = reduce((lambda a, b: a + b) if self.mode == "avg" else maximum, terms)
        return select((top < 0) | (first < 0), const(0, self.dtype), whole)

    def fits(self, r: Expr) -> Expr:
        """Whether there is the image that the region is of."""
        image = cast(self.images[r], INDEX)
        return (image >= 0) & (image < self.x.shape[0])


def roi_align(op: Operation) -> Tensor | Sequence[Tensor]:
    """The mean or the largest of samples in each bin."""
    regions = Regions(op)
    message = "RoiAlign: there is no such image"
    if regions.ratio <= 0:
        return _adaptive(op, regions, message)
    steps = [reduce_axis(regions.ratio), reduce_axis(regions.ratio)]
    combine, corner = tensors.sum if regions.mode == "avg" else tensors.max, regions.tables()

    def combined(r: Expr, c: Expr, *bins: Expr) -> tensors.ReduceStage:
        return combine(regions.sample(r, c, bins, [s.var for s in steps], corner), *steps)

    checked = [*regions.matching, require(regions.images.shape, regions.fits, message)]
    samples = compute(op.shape(), combined, None, "samples", checked)
    count = regions.ratio**2 if regions.mode == "avg" else 1
    return compute(op.shape(), lambda *at: cast(samples[at] / float(count), op.dtype()), op.dtype(), label(op))


def _adaptive(op: Operation, regions: Regions, message: str) -> Sequence[Tensor]:
    """As many samples as a bin has elements."""
    mean = regions.mode == "avg"

    def bin_(r: Expr, bins: Sequence[Expr]) -> Bin:
        counts = [regions.samples(r, axis) for axis in (0, 1)]
        many = counts[0] * counts[1]

        def combined(total: Expr, c: Expr, steps: Sequence[Expr]) -> Expr:
            sample = regions.sample(r, c, bins, steps, regions.corner)
            return total + sample if mean else maximum(total, sample)

        def result(total: Expr) -> Expr:
            whole = total / cast(maximum(many, 1), regions.dtype) if mean else total
            return cast(select(many > 0, whole, const(0, regions.dtype)), op.dtype())

        return Bin(counts, combined, result)

    def fits(r: Expr) -> Stmt:
        return Check(regions.fits(r), message)

    inputs = (regions.x, regions.rois, regions.images)
    start = const(0 if mean else -inf, regions.dtype)
    return _pooled(op, inputs, start, fits, bin_, 32, [Check(r.condition, r.message) for r in regions.matching])


class Bin(NamedTuple):
    """How the elements of a bin are combined: how many there are along each axis, what a total becomes with those of a
    channel at some step, and what is made of the total."""

    counts: Sequence[Expr]
    combined: Callable[[Expr, Expr, Sequence[Expr]], Expr]
    result: Callable[[Expr], Expr]


def _pooled(
    op: Operation,
    inputs: tuple[Tensor, ...],
    start: Const,
    fits: Callable[[Expr], Stmt],
    bin_: Callable[[Expr, Sequence[Expr]], Bin],
    together: int,
    checks: Sequence[Stmt] = (),
) -> Sequence[Tensor]:
    """Bins of regions, some channels at a time, so that where the elements of a bin lie is computed once for them; the
    more that is, the more channels, though of images whose sizes are powers of two a cache holds few."""
    first, channels, *rest = op.shape()
    totals = Buffer("totals", (Const(together),), start.dtype, "local")

    def build(out: Buffer) -> Stmt:
        def pooled(r: Expr, block: Expr, bins: tuple[Expr, ...]) -> Stmt:
            bin_of, count = bin_(r, bins), minimum(channels - block * together, together)

            def step(steps: tuple[Expr, ...]) -> Stmt:
                def combine(c: Expr) -> Stmt:
                    return Store(totals, (c,), bin_of.combined(Load(totals, (c,)), block * together + c, steps))

                return loop(count, combine)

            def finish(c: Expr) -> Stmt:
                return Store(out, (r, block * together + c, *bins), bin_of.result(Load(totals, (c,))))

            begin = loop(together, lambda c: Store(totals, (c,), start))
            return seq(begin, over(bin_of.counts, step), loop(count, finish))

        blocks = ((channels + (together - 1)) // together, *rest)
        regions = loop(first, lambda r: seq(fits(r), over(blocks, lambda at: pooled(r, at[0], at[1:]))))
        return seq(*checks, regions)

    return procedure([(label(op), op.shape(), op.dtype())], inputs, build, (totals,))


def max_roi_pool(op: Operation) -> Sequence[Tensor]:
    """The largest element of each bin; 0 where a bin has none. Corners are rounded, halves away from zero."""
    x, rois, sizes = op.input(0), op.input(1), op.shape()[2:]
    scale, inner = number(op, "spatial_scale"), wide(x.dtype)

    def corner(r: Expr, k: int) -> Expr:
        at = cast(rois[r, k], inner) * scale
        return cast(select(at < 0.0, -apply("floor", 0.5 - at), apply("floor", at + 0.5)), INDEX)

    def span(r: Expr, axis: int, place: Expr) -> tuple[Expr, Expr]:
        """Where a bin begins along an axis (0 for rows, 1 for columns), and how many elements it has."""
        start, size = corner(r, 2 - axis), x.shape[2 + axis]
        length = cast(maximum(corner(r, 4 - axis) - start + 1, 1), inner) / as_float(sizes[axis], inner)
        low, high = apply("floor", cast(place, inner) * length), apply("ceil", cast(place + 1, inner) * length)
        begin, end = (maximum(minimum(cast(e, INDEX) + start, size), 0) for e in (low, high))
        return begin, maximum(end - begin, 0)

    def bin_(r: Expr, bins: Sequence[Expr]) -> Bin:
        spans = [span(r, axis, place) for axis, place in enumerate(bins)]
        counts = [count for _, count in spans]
        n = clamped(cast(rois[r, 0], INDEX), x.shape[0])

        def combined(total: Expr, c: Expr, steps: Sequence[Expr]) -> Expr:
            return maximum(total, x[(n, c, *(begin + i for (begin, _), i in zip(spans, steps, strict=True)))])

        return Bin(counts, combined, lambda total: select(counts[0] * counts[1] > 0, total, const(0, x.dtype)))

    def fits(r: Expr) -> Stmt:
        image = cast(rois[r, 0], INDEX)
        return Check((image >= 0) & (image < x.shape[0]), "MaxRoiPool: there is no such image")

    return _pooled(op, (x, rois), const(-inf, x.dtype), fits, bin_, 8)


TABLE: LoweringTable = {"MaxRoiPool": max_roi_pool, "RoiAlign": roi_align}
