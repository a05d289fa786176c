"""Convolution matching: convolutions in nests, recognized by their indices, as calls of a device's library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from graphopt.frozen import dataclass
from graphopt.lowering.cuda.card import Card
from graphopt.lowering.cuda.sums import SumEpilogue, Sums, finish_of, sums_of
from graphopt.lowering.emit.kernel_source import LibraryCall
from graphopt.lowering.index.arithmetic import polynomial
from graphopt.lowering.index.polynomials import Polynomial
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, Var, conjuncts, variables
from graphopt.lowering.loops.nest import Buffer, Stmt

RANKS: Final = (1, 2, 3)
"""How many axes images have for the library."""


@dataclass(frozen=True, slots=True)
class ImageAxis:
    """An axis of images: how long they are before and after, the window along it, and the zeros before them."""

    size: Expr
    outputs: Expr
    window: Expr
    stride: int
    dilation: int
    before: Expr


@dataclass(frozen=True, slots=True)
class ImageTensor:
    """A buffer, and at which of its dimensions the two outer ones lie, and then those of the axes."""

    buffer: Buffer
    dims: tuple[int, ...]

    @property
    def strides(self) -> tuple[Expr, ...]:
        """The elements from one neighbour to the next."""
        return tuple(self.buffer.row_major[d] for d in self.dims)

    @property
    def order(self) -> str | None:
        """``first`` where channels come before the axes, ``last`` where after; None for any other order."""
        outer, channel, *axes = self.dims
        for name, dims in (("first", (outer, channel, *axes)), ("last", (outer, *axes, channel))):
            if dims == tuple(range(len(dims))):
                return name
        return None


@dataclass(frozen=True, slots=True)
class DeviceConvolution:
    """``y = epilogue(x * w + bias + residual)``; see ``runtime.library_calls.Convolution``."""

    x: ImageTensor
    w: ImageTensor
    y: ImageTensor
    axes: tuple[ImageAxis, ...]
    batch: Expr
    channels: Expr
    filters: Expr
    groups: int
    bias: Buffer | None = None
    residual: Buffer | None = None
    epilogue: str = ""

    @property
    def dtype(self) -> str:
        """The type of all elements."""
        return self.x.buffer.dtype

    @property
    def multiplied(self) -> tuple[Expr, ...]:
        """The product of these is how many multiplications it is."""
        return self.batch, self.filters, self.channels, *(n for a in self.axes for n in (a.outputs, a.window))

    @property
    def moved(self) -> tuple[tuple[Expr, ...], ...]:
        """The same for the elements of each tensor, the result last."""
        buffers = (self.x.buffer, self.w.buffer, self.residual, self.y.buffer)
        return tuple(b.shape for b in buffers if b is not None)

    def is_for(self, card: Card) -> bool:
        """Whether there is a library that computes it."""
        return card.has_convolutions

    def call(self, is_approximate: bool) -> LibraryCall:
        """The call that computes it."""
        buffers = (self.x.buffer, self.w.buffer, self.y.buffer, self.bias, self.residual)
        axes = [(a.size, a.outputs, a.window, Const(a.stride), Const(a.dilation), a.before) for a in self.axes]
        strides = [s for t in (self.x, self.w, self.y) for s in t.strides]
        outer = self.batch, self.channels, self.filters, Const(self.groups)
        attributes: dict[str, bool | int | str] = {
            "dtype": self.dtype,
            "rank": len(self.axes),
            "tf32": self.dtype == "float32" and is_approximate,
            "has_bias": self.bias is not None,
            "has_residual": self.residual is not None,
            "epilogue": self.epilogue,
        }
        settings = tuple((name, value) for name, value in attributes.items() if value)
        places = tuple((b, Const(0)) for b in buffers if b is not None)
        return LibraryCall("convolution", places, (*outer, *(n for axis in axes for n in axis), *strides), settings)


def convolution_of(stmt: Stmt) -> DeviceConvolution | None:
    """The convolution that a statement is, where the library's function computes it; None where it does not."""
    sums = sums_of(stmt)
    finish = None if sums is None else finish_of(sums, False)
    if sums is None or finish is None or finish.epilogue not in ("", "relu") or sums.dtype == "float64":
        return None
    for image, weight in (sums.factors, sums.factors[::-1]):
        convolution = _slid(sums, image, weight) if isinstance(weight, Load) else None
        if convolution is not None:
            return _finished(convolution, sums, finish)
    return None


def _finished(convolution: DeviceConvolution, sums: Sums, finish: SumEpilogue) -> DeviceConvolution | None:
    """The convolution with what is added to it: an element for each channel, or a tensor that lies as the result."""
    result = sums.stored
    channel = result.indices[convolution.y.dims[1]]
    bias = [load.buffer for load in finish.added if load.indices == (channel,)]
    residual = [
        load.buffer
        for load in finish.added
        if load.indices == result.indices and load.buffer.row_major == result.buffer.row_major
    ]
    if len(bias) > 1 or len(residual) > 1 or len(bias) + len(residual) < len(finish.added):
        return None
    return replace(convolution, bias=_first(bias), residual=_first(residual), epilogue=finish.epilogue)


def _first(buffers: Sequence[Buffer]) -> Buffer | None:
    return buffers[0] if buffers else None


# ------------------------------------------------------------------ what slides over what


@dataclass(frozen=True, slots=True)
class _Along:
    """A dimension of the image as a sum of two loops: one over results and one over steps, with their strides, from
    ``start`` on."""

    loop: Var | None
    step: Var | None
    stride: int
    dilation: int
    start: Polynomial


@dataclass(frozen=True, slots=True)
class _ImageDims:
    """Dimensions of the image: that of images, of channels, and of axes, each with its loops."""

    batch: tuple[int, _Along]
    channel: tuple[int, _Along]
    axes: tuple[tuple[int, _Along], ...]

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions, the outer ones first."""
        return self.batch[0], self.channel[0], *(k for k, _ in self.axes)


def _parts(ways: Sequence[_Along | None]) -> _ImageDims | None:
    dims = [(k, a) for k, a in enumerate(ways) if a is not None]
    batches = [(k, a) for k, a in dims if a.step is None]
    channels = [(k, a) for k, a in dims if a.loop is None and a.step is not None]
    axes = tuple((k, a) for k, a in dims if a.loop is not None and a.step is not None)
    if len(dims) < len(ways) or len(batches) != 1 or len(channels) != 1 or len(axes) not in RANKS:
        return None
    return _ImageDims(batches[0], channels[0], axes)


def _slid(sums: Sums, image: Expr, weight: Load) -> DeviceConvolution | None:
    """The convolution of an image with weights, if each loop has its part in it."""
    masked, w_at, y_at = _masked(image), _loops(weight.indices), _loops(sums.stored.indices)
    if masked is None or w_at is None or y_at is None:
        return None
    conditions, x = masked
    spatial, steps = ({loop.var: loop.extent for loop in loops} for loops in (sums.loops, sums.steps))
    filters = [v for v in w_at if v in spatial]
    outer = {v: n for v, n in spatial.items() if v not in filters}
    parts = _parts([_along(index, outer, steps) for index in x.indices])
    if len(filters) != 1 or parts is None:
        return None
    batch, channel, slid = parts.batch[1], parts.channel[1], [a for _, a in parts.axes]
    order_w = [*filters, channel.step, *(a.step for a in slid)]
    order_y = [batch.loop, *filters, *(a.loop for a in slid)]
    if not (_has_all(w_at, order_w, steps) and _has_all(y_at, order_y, spatial)):
        return None
    depth = steps[order_w[1]] if order_w[1] is not None else Const(1)
    groups = _groups(channel, filters[0], spatial[filters[0]], depth)
    if groups is None or batch.start.terms or (batch.stride, channel.dilation) != (1, 1):
        return None
    axes = _axes(parts, x.buffer, spatial, steps)
    if axes is None or not _covers(conditions, x, dict(parts.axes)):
        return None
    convolution = DeviceConvolution(
        ImageTensor(x.buffer, parts.dims),
        ImageTensor(weight.buffer, tuple(map(w_at.index, order_w))),
        ImageTensor(sums.stored.buffer, tuple(map(y_at.index, order_y))),
        axes,
        Const(1) if batch.loop is None else spatial[batch.loop],
        depth,
        spatial[filters[0]],
        groups,
    )
    return (
        convolution
        if {t.order for t in (convolution.x, convolution.w, convolution.y)} in ({"first"}, {"last"})
        else None
    )


def _axes(
    parts: _ImageDims, image: Buffer, spatial: Mapping[Var, Expr], steps: Mapping[Var, Expr]
) -> tuple[ImageAxis, ...] | None:
    """The axes of the images; None where windows begin within them, or elsewhere for each result."""
    axes = []
    for k, a in parts.axes:
        assert a.loop is not None
        assert a.step is not None
        before = (-a.start).expr()
        is_cut = isinstance(before, Const) and before.value < 0
        if is_cut or variables(before) & (spatial.keys() | steps.keys()):
            return None
        axes.append(ImageAxis(image.shape[k], spatial[a.loop], steps[a.step], a.stride, a.dilation, before))
    return tuple(axes)


def _masked(image: Expr) -> tuple[tuple[Expr, ...], Load] | None:
    """An element of the image, and the conditions without which it is zero."""
    if isinstance(image, Load):
        return (), image
    if not (isinstance(image, Apply) and image.fn == "select"):
        return None
    condition, value, other = image.args
    is_zero = isinstance(other, Const) and other.value == 0
    return (tuple(conjuncts(condition)), value) if is_zero and isinstance(value, Load) else None


def _loops(indices: Sequence[Expr]) -> list[Var | None] | None:
    """The loops that are the indices, None for an index of 0; None where they are anything else."""
    if not all(isinstance(i, Var) or i == Const(0) for i in indices):
        return None
    return [i if isinstance(i, Var) else None for i in indices]


def _along(index: Expr, outer: Mapping[Var, Expr], steps: Mapping[Var, Expr]) -> _Along | None:
    """The loops and strides of an index; None where it is no sum of one loop of each kind and a constant part."""
    terms, rest = [], polynomial(index)
    for loops in (outer, steps):
        loop_variables = [v for v in loops if v in variables(index)]
        parts = rest.split(loop_variables[0]) if len(loop_variables) == 1 else None
        times = None if parts is None else parts[0].number
        if loop_variables and (times is None or times < 1):
            return None
        terms.append((loop_variables[0] if loop_variables else None, times or 1))
        rest = rest if parts is None else parts[1]
    return _Along(terms[0][0], terms[1][0], terms[0][1], terms[1][1], rest)


def _groups(channel: _Along, index: Var, filters: Expr, depth: Expr) -> int | None:
    """The number of groups of channels, by the first channel of a filter; None where it is not known."""
    if not channel.start.terms:
        return 1
    if len(channel.start.terms) > 1 or not isinstance(filters, Const):
        return None
    ((atoms, apart),) = channel.start.terms.items()
    share = Const(1) if atoms == (index,) else _share(atoms, index)
    if share is None or Const(apart) != depth or int(filters.value) % int(share.value):
        return None
    return int(filters.value) // int(share.value)


def _share(atoms: tuple[Expr, ...], index: Var) -> Const | None:
    """The number of filters in a group, where the atoms are the number of the group."""
    (atom, *others) = atoms
    if others or not (isinstance(atom, Apply) and atom.fn == "floordiv" and atom.args[0] == index):
        return None
    return atom.args[1] if isinstance(atom.args[1], Const) else None


def _has_all(at: Sequence[Var | None], order: Sequence[Var | None], loops: Mapping[Var, Expr]) -> bool:
    """Whether the indices are these, each once, and no other loop of more than one step is there."""
    return sorted(map(str, at)) == sorted(map(str, order)) and all(
        v in order or n == Const(1) for v, n in loops.items()
    )


def _covers(conditions: Sequence[Expr], x: Load, axes: Mapping[int, _Along]) -> bool:
    """Whether all that conditions ask is that an element is within the image."""
    return all(any(_is_within(c, x.indices[k], x.buffer.shape[k]) for k in axes) for c in conditions)


def _is_within(condition: Expr, index: Expr, size: Expr) -> bool:
    if not (isinstance(condition, Apply) and condition.fn in ("ge", "lt")):
        return False
    end = Const(0) if condition.fn == "ge" else size
    return polynomial(condition.args[0]) == polynomial(index) and polynomial(condition.args[1]) == polynomial(end)
