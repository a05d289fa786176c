"""Convolutions of images of bytes, as products of weights by what windows see, which our own kernel lays out as it
goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from graphopt.kernels.integer_form import DTYPES, panel
from graphopt.lowering.compute import Tensor, compute, fresh, loop, procedure
from graphopt.lowering.expressions import Const, Expr, Load, cast, minimum
from graphopt.lowering.integer_intrinsics import WINDOWS
from graphopt.lowering.loops import Buffer, For, Invoke, Range, Region, Stmt, Store, seq
from graphopt.lowering.operators.elements import integer
from graphopt.lowering.operators.indices import matching
from graphopt.lowering.operators.operation import Operation
from graphopt.lowering.operators.windows import windows

SUMS: Final = "int32"
ROWS: Final = 256
"""Channels of a piece at most: for so many, what windows see is not laid out too often."""
NEAR: Final = 1 << 16
"""Sums of a piece, which stay near until they are read again."""
FEW: Final = 4
"""Channels of a result that one image gives below which laying out what windows see costs more than it gains."""
ENOUGH: Final = 4
"""Pieces that threads share evenly enough."""


@dataclass(frozen=True)
class Operand:
    """An operand and the zero point that it is counted from: an expression over the channel of the result, of these
    tensors."""

    tensor: Tensor
    zero: Callable[[Expr], Expr]
    zeros: tuple[Tensor, ...]
    several: bool
    """Whether channels have zero points of their own."""


def fits(op: Operation, x: Tensor, w: Tensor) -> bool:
    """Whether the convolution of the operands is one for the kernel."""
    group, wide = integer(op, "group"), w.shape[0]
    is_narrow = isinstance(wide, Const) and int(wide.value) < FEW * group
    known = all(s != Const(0) for s in w.shape)
    return x.rank == 4 and {x.dtype, w.dtype} <= set(DTYPES) and not is_narrow and known


def convolved(op: Operation, x: Operand, w: Operand) -> Tensor:
    """The sums over windows of a plane image, in int32."""
    return _Convolution(op, x, w).total


class _Convolution:
    """Writes the loops of one convolution: pieces of channels by pixels."""

    def __init__(self, op: Operation, x: Operand, w: Operand) -> None:
        self.x, self.zeros, self.shape = x.tensor, (w, x), op.shape()
        self.group, kernel = integer(op, "group"), w.tensor.shape[2:]
        self.depth, self.kernel = w.tensor.shape[1], kernel
        self.where = windows(op, self.x.shape[2:], kernel, self.shape[2:])
        depth = self.depth

        def weight(o: Expr, p: Expr) -> Expr:
            place = p // depth
            return w.tensor[o, p % depth, place // kernel[1], place % kernel[1]]

        checked = (self.x.shape[1], w.tensor.shape[0]), (depth * self.group, self.shape[1])
        self.w = compute(
            (w.tensor.shape[0], kernel[0] * kernel[1] * depth), weight, w.tensor.dtype, "laid",
            requirements=matching(op, *checked),
        )  # fmt: skip
        self.near = Buffer("sums", (Const(self.rows), Const(self.columns)), SUMS, "local")
        self.local = [
            Buffer(name, (Const(self.rows if z.several else 1),), SUMS, "local")
            for name, z in zip(("zeros_w", "zeros_x"), self.zeros, strict=True)
        ]
        self.total = procedure(
            [("conv", self.shape, SUMS)],
            [self.x, self.w, *w.zeros, *x.zeros],
            self.all,
            [self.near, *self.local],
            stores_once=True,
        )[0]

    # -- pieces

    @cached_property
    def channels(self) -> Expr:
        """Channels of the result that each group has."""
        return self.shape[1] // self.group

    @cached_property
    def pixels(self) -> Expr:
        """Pixels of the result."""
        return self.shape[2] * self.shape[3]

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
        width = panel()
        most = max(NEAR // self.rows // width, 1) * width
        if not isinstance(self.pixels, Const):
            return most
        pixels = max(int(self.pixels.value), 1)
        across = max(-(-pixels // most), min(ENOUGH, -(-pixels // (4 * width))))
        return -(-pixels // across // width) * width

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
        return For(item, self.shape[0] * self.group * down * across, body, "parallel")

    def piece(self, y: Buffer, n: Expr, group: Expr, o: Expr, pixel: Expr) -> Stmt:
        """Some channels of a group and some pixels of an image."""
        rows, columns = minimum(self.rows, self.channels - o), minimum(self.columns, self.pixels - pixel)
        first = group * self.channels + o
        counts = [rows if z.several else Const(1) for z in self.zeros]
        filled = [
            _vectorized(count, lambda i, z=z, b=b: Store(b, (i,), z.zero(first + i)))  # type: ignore[misc]
            for z, b, count in zip(self.zeros, self.local, counts, strict=True)
        ]
        regions = [
            Region(self.near, (Range(Const(0), rows), Range(Const(0), columns))),
            Region(self.w, (Range(first, rows), Range(Const(0), self.w.shape[1]))),
            Region(
                self.x,
                (Range(n), Range(group * self.depth, self.depth), *(Range(Const(0), s) for s in self.x.shape[2:])),
            ),
            *(Region(b, (Range(Const(0), c),)) for b, c in zip(self.local, counts, strict=True)),
        ]
        where = self.where
        sides = (*self.kernel, *self.x.shape[2:], self.shape[3])
        steps = (*map(Const, (*where.strides, *where.dilations)), *where.before)
        name = WINDOWS.format(self.w.dtype, self.x.dtype)
        call = Invoke(name, (*regions, rows, columns, self.depth, *counts, pixel, *sides, *steps))

        def element(i: Expr, p: Expr) -> Stmt:
            at = pixel + p
            value = Load(self.near, (i, p))
            return Store(y, (n, first + i, at // self.shape[3], at % self.shape[3]), value)

        stored = loop(rows, lambda i: _vectorized(columns, lambda p: element(i, p)))
        return seq(*filled, call, stored)


def _vectorized(extent: Expr, body: Callable[[Expr], Stmt]) -> Stmt:
    var = fresh()
    return For(var, extent, body(var), "vectorized")


def operand(tensor: Tensor, zero: Tensor | None, known: Expr | None) -> Operand:
    """An operand with the zero point that is known, or stands in a tensor, of one element or one for each channel."""
    if known is not None or zero is None:
        number = Const(0, SUMS) if known is None else known
        return Operand(tensor, lambda o: number, (), False)
    several = zero.rank == 1 and zero.shape[0] != Const(1)
    return Operand(tensor, lambda o: cast(zero[_at(zero, o, several)], SUMS), (zero,), several)


def _at(zero: Tensor, o: Expr, several: bool) -> tuple[Expr, ...]:
    return (o,) if several else tuple(Const(0) for _ in zero.shape)
