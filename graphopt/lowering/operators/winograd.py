"""Winograd convolution of blocked images: tiles are transformed, multiplied, and transformed back.

For each place in a transformed tile there is a product of matrices, tiles by channels. A strip of tiles goes through
all three steps while it lies in the caches: by itself where its transform is small, else from a transform of the whole
image, which threads make together and of which each multiplies other channels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final

from graphopt.frozen import dataclass
from graphopt.ir.minimal_filtering import TAPS, filtering
from graphopt.kernels.host import BLOCK, block_tile
from graphopt.lowering.intrinsics.tile import BACK, INTO, PRODUCT
from graphopt.lowering.loops.compute import Tensor, compute, fresh, loop, procedure
from graphopt.lowering.loops.expressions import Const, Expr, const, equal, minimum, select
from graphopt.lowering.loops.nest import Buffer, BufferRegion, For, Invoke, Range, Stmt, Store, seq
from graphopt.lowering.operators.elements import integer
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation
from graphopt.lowering.operators.windows import windows

STRIP: Final = 36
"""Elements that a strip has of each channel for each row of the tile that products keep in registers."""
STACK: Final = 1 << 18
"""Bytes on the stack that the transform of a strip may take."""
ENOUGH: Final = 8
"""Strips below which threads would not share them evenly."""


@dataclass(frozen=True)
class Tiling:
    """Strips of tiles: the tiles of all images of a batch, one after another."""

    outputs: int
    """Rows, and columns, of results in a tile."""
    batch: Expr
    height: Expr
    width: Expr
    longest: int
    """Tiles that a strip may have."""

    @cached_property
    def across(self) -> Expr:
        """Tiles side by side."""
        return (self.width + (self.outputs - 1)) // self.outputs

    @cached_property
    def each(self) -> Expr:
        """Tiles of an image."""
        return (self.height + (self.outputs - 1)) // self.outputs * self.across

    @cached_property
    def count(self) -> Expr:
        """Tiles of all images."""
        return self.batch * self.each

    @cached_property
    def length(self) -> int:
        """Tiles of a strip: an even number, and as many in each as can be."""
        if not isinstance(self.count, Const) or not self.count.value:
            return self.longest
        strips = -(-int(self.count.value) // self.longest)
        return (-(-int(self.count.value) // strips) + 1) & ~1

    @cached_property
    def strips(self) -> Expr:
        """The number of strips."""
        return (self.count + (self.length - 1)) // self.length

    def inside(self, strip: Expr) -> Expr:
        """The number of tiles in a strip, the last of which may be beyond the end."""
        return minimum(self.length, (self.count - strip * self.length + 1) // 2 * 2)

    def corner(self, number: Expr) -> tuple[Expr, Expr, Expr]:
        """The image that a tile is of, and where its results begin in it."""
        tile = number % self.each
        return number // self.each, tile // self.across * self.outputs, tile % self.across * self.outputs


class _Winograd:
    """Writes the loops of one convolution."""

    def __init__(self, op: Operation) -> None:
        self.x, self.u, self.outputs = op.input(0), op.input(1), integer(op, "tile")
        self.places = (self.outputs + TAPS - 1) ** 2
        shape = op.shape()
        if self.x.dtype != "float32" or shape[-1] != Const(BLOCK):
            raise NotLowered(f"{op.op} of {self.x.dtype} in blocks of {shape[-1]}")
        self.before = windows(op, self.x.shape[2:-1], (Const(TAPS),) * 2, shape[2:-1]).before
        self.deep, self.wide = self.x.shape[1], shape[1]
        rows, self.blocks = block_tile()
        short = Tiling(self.outputs, shape[0], shape[2], shape[3], rows * STRIP // self.places & ~1)
        self.is_apart = self._bytes(short.longest, self.deep) > STACK or self._is_short(short)
        self.tiling = Tiling(self.outputs, shape[0], shape[2], shape[3], short.longest * (4 if self.is_apart else 1))
        self.blocks *= 1 if self.is_apart else 2
        outer, scope = ((self.tiling.strips,), "global") if self.is_apart else ((), "local")
        length, places = Const(self.tiling.length), Const(self.places)
        lanes = Const(BLOCK)
        self.inner = Buffer("transformed", (*outer, places, self.deep, length, lanes), "float32", scope)  # type: ignore[arg-type]
        self.products = Buffer("products", (places, Const(self.blocks), length, lanes), "float32", "local")
        self.result = Buffer("result", (Const(self.outputs**2), lanes), "float32", "local")
        self.total = procedure(
            [("conv", shape, "float32")],
            [self.x, self.u],
            self.apart if self.is_apart else self.together,
            [self.inner, self.products, self.result],
            stores_once=True,
        )[0]

    def _bytes(self, tiles: int, depth: Expr) -> int:
        """Bytes of the transform of so many tiles; more than enough where their channels are not known."""
        blocks = int(depth.value) if isinstance(depth, Const) else STACK
        return 4 * BLOCK * self.places * tiles * blocks

    def _is_short(self, tiling: Tiling) -> bool:
        return isinstance(tiling.count, Const) and int(tiling.count.value) < ENOUGH * tiling.longest

    # -- strips

    def together(self, y: Buffer) -> Stmt:
        """Each strip by itself."""

        def strip(s: Expr) -> Stmt:
            groups = (self.wide + (self.blocks - 1)) // self.blocks
            inputs = self.each_tile(s, lambda t: loop(self.deep, lambda k: self.input(s, t, k)))
            return seq(inputs, loop(groups, lambda g: self.multiplied(y, s, g)))

        return _parallel(self.tiling.strips, strip)

    def apart(self, y: Buffer) -> Stmt:
        """All strips' transforms; then the products, of some channels at a time."""

        def inputs(item: Expr) -> Stmt:
            s, k = item // self.deep, item % self.deep
            return self.each_tile(s, lambda t: self.input(s, t, k))

        def products(item: Expr) -> Stmt:
            return self.multiplied(y, item % self.tiling.strips, item // self.tiling.strips)

        groups = (self.wide + (self.blocks - 1)) // self.blocks
        return seq(_parallel(self.tiling.strips * self.deep, inputs), _parallel(groups * self.tiling.strips, products))

    def each_tile(self, s: Expr, body: Callable[[Expr], Stmt]) -> Stmt:
        return loop(self.tiling.inside(s), body)

    def input(self, s: Expr, t: Expr, k: Expr) -> Stmt:
        """The transform of a tile's block of channels; beyond the last image, of nothing."""
        number = s * self.tiling.length + t
        n, row, column = self.tiling.corner(number)
        n = minimum(n, self.tiling.batch - 1)
        height, width = self.x.shape[2:-1]
        height = select(number < self.tiling.count, height, 0)
        plane = self.region(self.x, n, k, ..., ..., ...)
        target = self.region(self.inner, *self.outer(s), ..., k, t, ...)
        at = row - self.before[0], column - self.before[1]
        return Invoke(INTO.format(self.outputs), (target, plane, *at, height, width))

    def multiplied(self, y: Buffer, s: Expr, group: Expr) -> Stmt:
        """The products of a strip and a group of blocks of channels, and what they are transformed to."""
        first = group * self.blocks
        many = minimum(self.blocks, self.wide - first)
        tiles = self.tiling.inside(s)

        def product(a: Expr) -> Stmt:
            c = self.region(self.products, a, Range(Const(0), many), Range(Const(0), tiles), ...)
            left = self.region(self.inner, *self.outer(s), a, ..., Range(Const(0), tiles), ...)
            right = self.region(self.u, Range(first, many), a, ..., ..., ...)
            return Invoke(PRODUCT, (c, left, right, tiles, many, self.deep))

        def output(k: Expr, t: Expr) -> Stmt:
            source = self.region(self.products, ..., k, t, ...)
            transform = Invoke(BACK.format(self.outputs), (self.region(self.result, ..., ...), source))
            return seq(transform, self.stored(y, first + k, s * self.tiling.length + t))

        real = minimum(self.tiling.length, self.tiling.count - s * self.tiling.length)
        return seq(loop(Const(self.places), product), loop(many, lambda k: loop(real, lambda t: output(k, t))))

    def stored(self, y: Buffer, block: Expr, number: Expr) -> Stmt:
        """The results of a tile that are within the image."""
        n, row, column = self.tiling.corner(number)
        height, width = self.tiling.height - row, self.tiling.width - column

        def element(i: Expr, j: Expr, lane: Expr) -> Stmt:
            return Store(y, (n, block, row + i, column + j, lane), self.result[i * self.outputs + j, lane])

        def rows(i: Expr) -> Stmt:
            return loop(minimum(self.outputs, width), lambda j: _lanes(lambda lane: element(i, j, lane)))

        return loop(minimum(self.outputs, height), rows)

    def outer(self, s: Expr) -> tuple[Expr, ...]:
        """The leading indices of a strip's transform."""
        return (s,) if self.is_apart else ()

    @staticmethod
    def region(buffer: Buffer, *sides: object) -> BufferRegion:
        """A box: an index, a range, or ``...`` for all of a side."""
        ranges = []
        for side, extent in zip(sides, buffer.shape, strict=True):
            if side is ...:
                ranges.append(Range(Const(0), extent))
            else:
                ranges.append(side if isinstance(side, Range) else Range(side))  # type: ignore[arg-type]
        return BufferRegion(buffer, tuple(ranges))


def _parallel(extent: Expr, body: Callable[[Expr], Stmt]) -> Stmt:
    var = fresh()
    return For(var, extent, body(var), "parallel")


def _lanes(body: Callable[[Expr], Stmt]) -> Stmt:
    var = fresh()
    return For(var, Const(BLOCK), body(var), "vectorized")


def _conv(op: Operation) -> Tensor:
    total = _Winograd(op).total
    if not op.has(2):
        return total
    bias = op.input(2)
    return compute(total.shape, lambda *at: total[at] + bias[at[1], at[-1]], name="biased")


def _weights(op: Operation) -> Tensor:
    """The transform of weights that are not known ahead of time."""
    w, outputs = op.input(0), integer(op, "tile")
    matrix, size = filtering(outputs).kernel, outputs + TAPS - 1

    def factor(a: Expr, k: int) -> Expr:
        """An element of a column of the matrix."""
        selected: Expr = const(0.0, w.dtype)
        for row, elements in enumerate(matrix):
            selected = select(equal(a, row), const(float(elements[k]), w.dtype), selected)
        return selected

    def element(block: Expr, element_index: Expr, deep: Expr, inner: Expr, lane: Expr) -> Expr:
        total: Expr = const(0.0, w.dtype)
        for r in range(TAPS):
            for c in range(TAPS):
                total = (
                    total
                    + factor(element_index // size, r)
                    * factor(element_index % size, c)
                    * w[block, deep, r, c, inner, lane]
                )
        return total

    return compute(op.shape(), element, w.dtype, "transformed")


TABLE: LoweringTable = {"graphopt::BlockedWinogradConv": _conv, "graphopt::WinogradWeights": _weights}
