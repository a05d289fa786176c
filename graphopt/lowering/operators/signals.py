"""Signal processing: Fourier transforms as their defining sums, windows, and mel filters.

The roots of unity stand in a tensor of their own, which is computed once in double precision, so that an angle is an
exact index into it however long the signal is.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi

from graphopt.lowering.loops import compute as tensors
from graphopt.lowering.loops.compute import ReduceStage, Tensor, compute, loop, procedure, reduce_axis
from graphopt.lowering.loops.expressions import (
    INDEX,
    Const,
    Expr,
    apply,
    cast,
    conjunction,
    const,
    equal,
    maximum,
    minimum,
    select,
)
from graphopt.lowering.loops.nest import Buffer, If, Stmt, Store, seq
from graphopt.lowering.operators.coordinates import DOUBLE
from graphopt.lowering.operators.elements import integer, label, required, scalar, wide
from graphopt.lowering.operators.indexing import vectors_over
from graphopt.lowering.operators.indices import element
from graphopt.lowering.operators.operation import LoweringTable, Operation
from graphopt.lowering.operators.sampling import as_float


class UnitRoots:
    """The ``count``-th roots of unity, by how many steps around the circle they lie."""

    def __init__(self, count: Expr, dtype: str) -> None:
        def table(name: str) -> Tensor:
            def root(i: Expr) -> Expr:
                return cast(apply(name, cast(i, DOUBLE) * (2 * pi) / as_float(count, DOUBLE)), dtype)

            return compute((count,), root, dtype, f"{name}s")

        self.count, self.cosines, self.sines = count, table("cos"), table("sin")

    def turned(self, value: tuple[Expr, Expr | None], steps: Expr, part: Expr, back: bool) -> Expr:
        """The real part (``part`` 0) or the imaginary one of a complex value turned by so many steps, or back."""
        real, imaginary = value
        power = steps % self.count
        c, s = self.cosines[power], -self.sines[power] if back else self.sines[power]
        if imaginary is None:
            return select(equal(part, 0), real * c, real * s)
        return select(equal(part, 0), real * c - imaginary * s, imaginary * c + real * s)


def _complex(x: Tensor, at: tuple[Expr, ...], dtype: str) -> tuple[Expr, Expr | None]:
    """The element of a signal whose last axis holds the real part, or both parts."""
    real: Expr = cast(x[(*at, 0)], dtype)
    return real, None if x.shape[-1] == Const(1) else cast(x[(*at, 1)], dtype)


def dft(op: Operation) -> Tensor:
    """The discrete Fourier transform along an axis, or its inverse."""
    x, shape, dtype = op.input(0), op.shape(), wide(op.dtype())
    axis = (int(op.known(2).reshape(-1)[0]) if op.has(2) else -2) % x.rank
    inverse, onesided = bool(integer(op, "inverse")), bool(integer(op, "onesided"))
    size = x.shape[axis]
    count = op.elements(1)[0] if op.has(1) else (size - 1) * 2 if inverse and onesided else size
    roots = UnitRoots(count, dtype)
    steps = reduce_axis(minimum(size, count // 2 + 1 if inverse and onesided else count))

    def summed(*at: Expr) -> ReduceStage:
        k, i = steps.var, at[axis]
        value = _complex(x, (*at[:axis], k, *at[axis + 1 : -1]), dtype)
        term = roots.turned(value, i * k, at[-1], back=not inverse)
        if inverse and onesided:  # what is left out is the mirror image, and adds the same real part
            alone = equal(k, 0) | equal(k * 2, count)
            term = term * select(alone, const(1, dtype), const(2, dtype))
        return tensors.sum(term, steps)

    spectrum = compute(shape, summed, None, label(op))
    if not inverse and spectrum.dtype == op.dtype():
        return spectrum
    share = as_float(count, dtype) if inverse else const(1, dtype)
    return compute(shape, lambda *at: cast(spectrum[at] / share, op.dtype()), op.dtype(), label(op))


def stft(op: Operation) -> Tensor:
    """The Fourier transforms of frames of a signal, weighted by a window."""
    x, shape, dtype = op.input(0), op.shape(), wide(op.dtype())
    window = op.input(2) if op.has(2) else None
    hop = element(op, 1)
    given = window.shape[0] if window is not None else x.shape[1]
    count = op.elements(3)[0] if op.has(3) else given
    roots = UnitRoots(count, dtype)
    steps = reduce_axis(count if window is None else minimum(given, count))

    def summed(batch: Expr, frame: Expr, bin_: Expr, part: Expr) -> ReduceStage:
        t = steps.var
        real, imaginary = _complex(x, (batch, frame * hop + t), dtype)
        if window is not None:
            weight = cast(window[t], dtype)
            real, imaginary = real * weight, None if imaginary is None else imaginary * weight
        return tensors.sum(roots.turned((real, imaginary), bin_ * t, part, back=True), steps)

    fits = conjunction(hop >= 0, (shape[1] - 1) * hop + steps.extent <= x.shape[1]) | equal(shape[1], 0)
    checked = required(fits, "STFT: the frames are longer than the signal")
    spectrum = compute(shape, summed, None, label(op), checked)
    return (
        spectrum
        if spectrum.dtype == op.dtype()
        else compute(shape, lambda *at: cast(spectrum[at], op.dtype()), op.dtype())
    )


# -- windows


def _window(formula: Callable[[Expr], Expr]) -> Callable[[Operation], Tensor]:
    """A window of which the formula says the height, by the angle, of which the window is once around."""

    def describe(op: Operation) -> Tensor:
        (size,), dtype = op.shape(), op.dtype()
        around = as_float(size if integer(op, "periodic") else size - 1, DOUBLE)
        return compute((size,), lambda i: cast(formula(cast(i, DOUBLE) * (2 * pi) / around), dtype), dtype, label(op))

    return describe


def _hann(angle: Expr) -> Expr:
    half = apply("sin", angle * 0.5)
    return half * half


def _hamming(angle: Expr) -> Expr:
    return 25 / 46 - apply("cos", angle) * (21 / 46)


def _blackman(angle: Expr) -> Expr:
    return apply("cos", angle) * -0.5 + apply("cos", angle * 2.0) * 0.08 + 0.42


# -- mel filters


def mel_weight_matrix(op: Operation) -> Tensor:
    """Triangles over the bins of a spectrum, as far from each other as pitches sound."""
    length, rate, dtype = element(op, 1), element(op, 2), op.dtype()
    bins, filters = op.shape()

    def mel(k: int) -> Expr:
        constant, tensor = scalar(op, k), op.input(k)
        hertz = cast(constant if constant is not None else tensor[(0,) * tensor.rank], "float32")
        return apply("log1p", hertz / 700.0) * 2595.0 / log(10)

    low, high = mel(3), mel(4)

    def corner(i: Expr) -> Expr:
        step = cast((high - low) / as_float(filters + 2, "float32"), DOUBLE)
        hertz = apply("expm1", (cast(i, DOUBLE) * step + cast(low, DOUBLE)) / 2595.0 * log(10)) * 700.0
        return cast(apply("floor", as_float(length + 1, DOUBLE) * hertz / as_float(rate, DOUBLE)), INDEX)

    corners = compute((filters + 2,), corner, INDEX, "corners")

    def build(out: Buffer) -> Stmt:
        def triangle(i: Expr) -> Stmt:
            first, middle, last = corners[i], corners[i + 1], corners[i + 2]

            def put(start: Expr, end: Expr, value: Callable[[Expr], Expr]) -> Stmt:
                begin = maximum(start, 0)
                return loop(
                    maximum(minimum(end, bins) - begin, 0),
                    lambda k: Store(out, (begin + k, i), cast(value(begin + k), dtype)),
                )

            def share(a: Expr, b: Expr) -> Expr:
                return cast(a, DOUBLE) / cast(b, DOUBLE)

            rising = put(first, middle + 1, lambda j: share(j - first, middle - first))
            peak = put(middle, middle + 1, lambda j: const(1, DOUBLE))
            falling = put(middle, last, lambda j: share(last - j, last - middle))
            return seq(If(equal(first, middle), peak, rising), falling)

        return seq(
            vectors_over(op, (bins, filters), lambda at: Store(out, at, const(0, dtype))), loop(filters, triangle)
        )

    (weights,) = procedure([(label(op), (bins, filters), dtype)], (corners,), build)
    return weights


TABLE: LoweringTable = {
    "BlackmanWindow": _window(_blackman),
    "DFT": dft,
    "HammingWindow": _window(_hamming),
    "HannWindow": _window(_hann),
    "MelWeightMatrix": mel_weight_matrix,
    "STFT": stft,
}
