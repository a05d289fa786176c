"""Region pooling: RoiAlign divides regions of images into bins and combines each bin's samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import inf

from graphopt.lowering.loops import compute as tensors
from graphopt.lowering.loops.compute import Tensor, compute, loop, procedure, reduce_axis, require
from graphopt.lowering.loops.expressions import INDEX, Const, Expr, apply, cast, const, maximum, minimum, select
from graphopt.lowering.loops.nest import Buffer, Check, Stmt, Store, seq
from graphopt.lowering.operators.elements import integer, label, number, text, wide, widened
from graphopt.lowering.operators.indexing import over
from graphopt.lowering.operators.indices import clamped, matching
from graphopt.lowering.operators.operation import LoweringTable, Operation
from graphopt.lowering.operators.sampling import as_float


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

    def sample(self, r: Expr, c: Expr, bins: Sequence[Expr], steps: Sequence[Expr]) -> Expr:
        """One sample of a bin: of the four elements around it the weighted mean, or the largest weighted one."""
        corners: list[tuple[Expr, Expr, Expr, Expr]] = []
        for axis, (bin_index, step) in enumerate(zip(bins, steps, strict=True)):
            start, length = self.extent(r, axis)
            count = as_float(self.samples(r, axis), self.dtype)
            at = start + cast(bin_index, self.dtype) * length + (cast(step, self.dtype) + 0.5) * length / count
            size = self.x.shape[2 + axis]
            outside = (at < -1.0) | (at > as_float(size, self.dtype))
            inner = minimum(maximum(at, const(0, self.dtype)), as_float(size, self.dtype) - 1.0)
            below = clamped(cast(inner, INDEX), size)
            corners.append((outside, below, minimum(below + 1, size - 1), inner - cast(below, self.dtype)))
        (above, top, bottom, down), (left, first, last, along) = corners
        n = clamped(cast(self.images[r], INDEX), self.x.shape[0])
        terms = [
            widened(self.x[n, c, row, column]) * (share * part)
            for row, share in ((top, 1.0 - down), (bottom, down))
            for column, part in ((first, 1.0 - along), (last, along))
        ]
        whole = reduce((lambda a, b: a + b) if self.mode == "avg" else maximum, terms)
        return select(above | left, const(0, self.dtype), whole)

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
    combine = tensors.sum if regions.mode == "avg" else tensors.max

    def combined(r: Expr, c: Expr, *bins: Expr) -> tensors.ReduceStage:
        return combine(regions.sample(r, c, bins, [s.var for s in steps]), *steps)

    checked = [*regions.matching, require(regions.images.shape, regions.fits, message)]
    samples = compute(op.shape(), combined, None, "samples", checked)
    count = regions.ratio**2 if regions.mode == "avg" else 1
    return compute(op.shape(), lambda *at: cast(samples[at] / float(count), op.dtype()), op.dtype(), label(op))


def _adaptive(op: Operation, regions: Regions, message: str) -> Sequence[Tensor]:
    """As many samples as a bin has elements."""
    mean = regions.mode == "avg"
    total = Buffer("total", (Const(1),), regions.dtype, "local")
    where = (Const(0),)

    def build(out: Buffer) -> Stmt:
        def bin_(at: tuple[Expr, ...]) -> Stmt:
            r, c, *bins = at
            counts = [regions.samples(r, axis) for axis in (0, 1)]

            def step(steps: tuple[Expr, ...]) -> Stmt:
                sample = regions.sample(r, c, bins, steps)
                return Store(total, where, total[0] + sample if mean else maximum(total[0], sample))

            many = counts[0] * counts[1]
            result = total[0] / cast(maximum(many, 1), regions.dtype) if mean else total[0]
            result = select(many > 0, result, const(0, regions.dtype))
            start = Store(total, where, const(0 if mean else -inf, regions.dtype))
            return seq(start, over(counts, step), Store(out, at, cast(result, out.dtype)))

        first, *rest = op.shape()
        fits = [Check(r.condition, r.message) for r in regions.matching]
        loops = loop(first, lambda r: seq(Check(regions.fits(r), message), over(rest, lambda at: bin_((r, *at)))))
        return seq(*fits, loops)

    inputs = (regions.x, regions.rois, regions.images)
    return procedure([(label(op), op.shape(), op.dtype())], inputs, build, (total,))


TABLE: LoweringTable = {"RoiAlign": roi_align}
