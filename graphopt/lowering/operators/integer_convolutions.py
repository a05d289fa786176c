"""Integer convolution: weights times windows of a byte image, by the kernel of integer products.

The kernel's windows are planes. A line is a plane of one row; of more axes, the first ones are unrolled: what windows
see along them are more channels (im2col along these axes alone), and where they stand is one more image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, TypeVar

from graphopt.frozen import dataclass
from graphopt.kernels.product_form import BYTES, QUAD
from graphopt.lowering.analysis.access_analysis import total_size
from graphopt.lowering.cpu.integer_products import columns_of
from graphopt.lowering.intrinsics.integer import PIXELS, WINDOWS
from graphopt.lowering.loops.compute import Requirement, Tensor, compute, fresh, loop, procedure
from graphopt.lowering.loops.expressions import Const, Expr, Load, apply, cast, conjunction, maximum, minimum, select
from graphopt.lowering.loops.nest import Buffer, BufferRegion, For, Invoke, Range, Stmt, Store, seq
from graphopt.lowering.operators.elements import broadcast, fitting, integer
from graphopt.lowering.operators.indices import digits, matching
from graphopt.lowering.operators.operation import Operation
from graphopt.lowering.operators.windows import windows

T = TypeVar("T")
SUMS: Final = "int32"
ONE: Final = Const(1)
ROWS: Final = 256
"""Channels of a piece at most: for so many, what windows see is not laid out too often."""
NEAR: Final = 1 << 16
"""Sums of a piece, which stay near until they are read again."""
FEW: Final = 4
"""Channels of a result that one image gives below which laying out what windows see costs more than it gains."""
ENOUGH: Final = 4
"""Pieces that threads share evenly enough."""


@dataclass(frozen=True)
class QuantizedOperand:
    """An operand and the zero point that it is counted from: an expression over the channel of the result, of these
    tensors."""

    tensor: Tensor
    zero: Callable[[Expr], Expr]
    zeros: tuple[Tensor, ...]
    several: bool
    """Whether channels may have zero points of their own."""
    fits: tuple[Requirement, ...]
    """That there is a zero point for whatever is counted from one, where that is not known."""


def fits(op: Operation, x: Tensor, w: Tensor) -> bool:
    """Whether the convolution of the operands is one for the kernel."""
    group, wide = integer(op, "group"), w.shape[0]
    is_narrow = isinstance(wide, Const) and int(wide.value) < FEW * group
    is_nonempty = all(s != Const(0) for s in w.shape)
    return op.is_for_host and x.rank > 2 and {x.dtype, w.dtype} <= set(BYTES) and not is_narrow and is_nonempty


def convolved(op: Operation, x: QuantizedOperand, w: QuantizedOperand) -> Tensor:
    """The sums over windows of an image, in int32."""
    return _ConvolutionWriter(op, x, w).total


class _ConvolutionWriter:
    """Writes the loops of one convolution: pieces of channels by pixels."""

    def __init__(self, op: Operation, x: QuantizedOperand, w: QuantizedOperand) -> None:
        self.x, self.zeros, self.shape = x.tensor, (w, x), op.shape()
        self.group, window = integer(op, "group"), w.tensor.shape[2:]
        self.where = windows(op, self.x.shape[2:], window, self.shape[2:])
        self.outer, self.has_rows = max(len(window) - 2, 0), len(window) > 1
        self.kernel, self.plane = self.in_plane(window, ONE), self.in_plane(self.shape[2:], ONE)
        self.strides, self.dilations = self.in_plane(self.where.strides, 1), self.in_plane(self.where.dilations, 1)
        unrolled, channels, kernel = window[: self.outer], w.tensor.shape[1], self.kernel
        self.places = self.shape[2 : 2 + self.outer]
        self.depth, self.images = total_size((channels, *unrolled)), total_size((self.shape[0], *self.places))
        depth = self.depth

        def weight(o: Expr, p: Expr) -> Expr:
            tap, (*seen, channel) = p // depth, digits(p % depth, (*unrolled, channels))
            in_window = (tap // kernel[1], tap % kernel[1]) if self.has_rows else (tap,)
            return w.tensor[(o, channel, *seen, *in_window)]

        checked = (self.x.shape[1], w.tensor.shape[0]), (channels * self.group, self.shape[1])
        self.fits = [*matching(op, *checked), *w.fits, *x.fits]
        is_step = window == (ONE,) * 2 and set(self.where.strides) == {1}
        self.is_pointwise = is_step and not self.where.is_padded
        self.image = self.x if self.is_pointwise else self.in_quads(x, channels)
        self.w = compute(
            (w.tensor.shape[0], kernel[0] * kernel[1] * depth), weight, w.tensor.dtype, "laid",
            requirements=self.fits,
        )  # fmt: skip
        self.near = Buffer("sums", (Const(self.rows), Const(self.columns)), SUMS, "local")
        self.local = [
            Buffer(name, (Const(self.rows if z.several else 1),), SUMS, "local")
            for name, z in zip(("zeros_w", "zeros_x"), self.zeros, strict=True)
        ]
        self.total = procedure(
            [("conv", self.shape, SUMS)],
            [self.image, self.w, *w.zeros, *x.zeros],
            self.all,
            [self.near, *self.local],
            stores_once=True,
        )[0]

    def in_plane(self, sizes: Sequence[T], one: T) -> tuple[T, T]:
        """What is said of the last two axes, of which a line has one."""
        first, second = (one, *sizes)[-2:]
        return first, second

    def in_quads(self, x: QuantizedOperand, channels: Expr) -> Tensor:
        """The image with its padding, four channels as the bytes of a number: ``[N, groups, H, channels / 4, W]``."""
        where, depth, outer = self.where, self.depth, self.outer
        reach = zip(self.plane, self.strides, self.kernel, self.dilations, strict=True)
        # of an image without pixels there is no window, and so no side, whatever the strides
        sides = [maximum((n - 1) * s + (k - 1) * d + 1, 0) for n, s, k, d in reach]

        def element(image: Expr, group: Expr, row: Expr, quad: Expr, column: Expr) -> Expr:
            item, *place = digits(image, (self.shape[0], *self.places))
            pixel = (row, column) if self.has_rows else (column,)
            outside = cast(x.zero(Const(0)), "uint8")
            quad_bytes: Expr = Const(0, SUMS)
            for d in range(QUAD):
                p = quad * QUAD + d
                *seen, channel = digits(p, (*where.kernel[:outer], channels))
                steps = zip(place, seen, where.strides, where.dilations, strict=False)
                along = [i * s + k * apart for i, k, s, apart in steps]
                position = [i - b for i, b in zip((*along, *pixel), where.before, strict=True)]
                value = cast(self.x[(item, group * channels + channel, *position)], "uint8")
                if where.is_padded:
                    axes = zip(position, self.x.shape[2:], strict=True)
                    inside = [c for i, size in axes for c in (i >= 0, i < size)]
                    value = select(conjunction(*inside), value, outside)
                if not (isinstance(depth, Const) and int(depth.value) % QUAD == 0):
                    value = select(p < depth, value, Const(0, "uint8"))
                quad_bytes = quad_bytes | apply("shl", cast(value, SUMS), Const(8 * d, SUMS))
            return quad_bytes

        shape = (self.images, Const(self.group), sides[0], (depth + (QUAD - 1)) // QUAD, sides[1])
        return compute(shape, element, SUMS, "quads", self.fits)

    # -- pieces

    @cached_property
    def channels(self) -> Expr:
        """Channels of the result that each group has."""
        return self.shape[1] // self.group

    @cached_property
    def pixels(self) -> Expr:
        """Pixels of the result, in a plane."""
        return self.plane[0] * self.plane[1]

    @cached_property
    def rows(self) -> int:
        """Channels of a piece."""
        if not isinstance(self.channels, Const):
            return ROWS
        channels = int(self.channels.value)
        return -(-channels // -(-channels // ROWS))

    @cached_property
    def columns(self) -> int:
        """Pixels of a piece."""
        pixels = max(int(self.pixels.value), 1) if isinstance(self.pixels, Const) else None
        # as many pieces as are worth sharing out, where channels and groups alone do not make up so many
        down = -(-int(self.channels.value) // self.rows) if isinstance(self.channels, Const) else 1
        return columns_of(pixels, self.rows, -(-ENOUGH // (down * self.group)), NEAR)

    # -- loops

    def all(self, y: Buffer) -> Stmt:
        """All pieces: of each image, of each group, some channels, some pixels."""
        down, across = (
            (self.channels + (self.rows - 1)) // self.rows,
            (self.pixels + (self.columns - 1)) // self.columns,
        )
        item = fresh()
        o = item // across % down * self.rows
        group = item // (across * down) % self.group
        body = self.piece(y, item // (across * down * self.group), group, o, item % across * self.columns)
        return For(item, self.images * self.group * down * across, body, "parallel")

    def piece(self, y: Buffer, n: Expr, group: Expr, o: Expr, pixel: Expr) -> Stmt:
        """Some channels of a group and some pixels of an image."""
        rows, columns = minimum(self.rows, self.channels - o), minimum(self.columns, self.pixels - pixel)
        first = group * self.channels + o
        counts = [rows if z.several else Const(1) for z in self.zeros]
        filled = [
            _vectorized(count, lambda i, z=z, b=b: Store(b, (i,), z.zero(first + i)))  # type: ignore[misc]
            for z, b, count in zip(self.zeros, self.local, counts, strict=True)
        ]
        image, deep = self.image, Range(group * self.depth, self.depth)
        sides = [Range(Const(0), side) for side in image.shape[2:]]
        regions = [
            BufferRegion(self.near, (Range(Const(0), rows), Range(Const(0), columns))),
            BufferRegion(self.w, (Range(first, rows), Range(Const(0), self.w.shape[1]))),
            BufferRegion(image, (Range(n), deep if self.is_pointwise else Range(group), *sides)),
            *(BufferRegion(b, (Range(Const(0), c),)) for b, c in zip(self.local, counts, strict=True)),
        ]
        sizes = (rows, columns, self.depth, *counts, pixel)
        if self.is_pointwise:
            call = Invoke(PIXELS.format(self.w.dtype, self.x.dtype), (*regions, *sizes, *image.shape[-2:]))
        else:
            steps = (self.plane[1], *map(Const, (*self.strides, *self.dilations)))
            name = WINDOWS.format(self.x.dtype, self.w.dtype)
            call = Invoke(name, (*regions, *sizes, *self.kernel, *steps, *image.shape[-3:]))

        item, *place = digits(n, (self.shape[0], *self.places))

        def element(i: Expr, p: Expr) -> Stmt:
            at = pixel + p
            in_plane = (at // self.plane[1], at % self.plane[1]) if self.has_rows else (at,)
            return Store(y, (item, first + i, *place, *in_plane), Load(self.near, (i, p)))

        stored = loop(rows, lambda i: _vectorized(columns, lambda p: element(i, p)))
        return seq(*filled, call, stored)


def _vectorized(extent: Expr, body: Callable[[Expr], Stmt]) -> Stmt:
    var = fresh()
    return For(var, extent, body(var), "vectorized")


def operand(
    op: Operation, tensor: Tensor, zero: Tensor | None, known_zero: Expr | None, channels: Expr = ONE
) -> QuantizedOperand:
    """An operand with the zero point that is known, or stands in a tensor: of one element, or of one for each of so
    many channels, which may turn out only when the program runs."""
    if known_zero is not None or zero is None:
        number = Const(0, SUMS) if known_zero is None else known_zero
        return QuantizedOperand(tensor, lambda o: number, (), False, ())
    several = zero.rank == 1 and ONE not in (zero.shape[0], channels)
    fits = fitting(op.op, zero.shape, (channels,) if several else (ONE,) * zero.rank)

    def element(o: Expr) -> Expr:
        return cast(broadcast(zero, (channels,), (o,)) if several else zero[(Const(0),) * zero.rank], SUMS)

    return QuantizedOperand(tensor, element, (zero,), several, tuple(fits))
