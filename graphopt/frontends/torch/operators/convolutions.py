"""Convolutions, pooling and resizing of images."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
import torch

from graphopt.frontends.torch.operators.reductions import reduced
from graphopt.frontends.torch.table import Emitter, Table
from graphopt.frontends.torch.writer import Number, OpWriter
from graphopt.ir.graph import Value
from graphopt.ir.onnx_io.tensors import numpy_dtype

TABLE = Table()
aten = torch.ops.aten


def _each(numbers: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """One number for each axis, where one may be said for all."""
    listed = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    return listed * rank if len(listed) == 1 else listed


def _with_batch(g: OpWriter, x: Value, rank: int, op: str, *inputs: Value, n: int = 1, **attrs: Any) -> list[Value]:
    """So many outputs of an op on a batch, also for one that torch has left out."""
    if g.rank(x) == rank + 2:
        return list(g.several(op, n, x, *inputs, **attrs))
    return [g.squeeze(y, 0) for y in g.several(op, n, g.unsqueeze(x, 0), *inputs, **attrs)]


def _convolved(
    g: OpWriter,
    op: str,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: int | Sequence[int],
    margins: Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
    **more: Any,
) -> Value:
    """``margins`` are those before each axis, then those after each."""
    rank = g.rank(weight) - 2
    inputs = (weight,) if bias is None else (weight, bias)
    attrs: dict[str, Any] = {"strides": _each(stride, rank), "dilations": _each(dilation, rank), "pads": tuple(margins)}
    return _with_batch(g, x, rank, op, *inputs, **attrs, group=groups, **more)[0]


@TABLE.entry(aten.convolution)
def _convolution(
    g: OpWriter,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    transposed: bool,
    output_padding: int | Sequence[int],
    groups: int,
) -> Value:
    rank = g.rank(weight) - 2
    margins = _each(padding, rank) * 2
    more = {"output_padding": _each(output_padding, rank)} if transposed else {}
    op = "ConvTranspose" if transposed else "Conv"
    return _convolved(g, op, x, weight, bias, stride, margins, dilation, groups, **more)


@TABLE.entry(aten.conv1d, aten.conv2d, aten.conv3d)
def _plain_convolution(
    g: OpWriter,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Value:
    rank = g.rank(weight) - 2
    if not isinstance(padding, str):
        margins = _each(padding, rank) * 2
    elif padding == "valid":
        margins = (0,) * rank * 2
    else:
        kernel = [g.known(n, "the size of a kernel") for n in g.sizes(weight)[2:]]
        whole = [d * (n - 1) for d, n in zip(_each(dilation, rank), kernel, strict=True)]
        margins = (*(n // 2 for n in whole), *(n - n // 2 for n in whole))
    return _convolved(g, "Conv", x, weight, bias, stride, margins, dilation, groups)


@TABLE.entry(aten.conv_transpose1d, aten.conv_transpose2d, aten.conv_transpose3d)
def _transposed_convolution(
    g: OpWriter,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Value:
    return _convolution(g, x, weight, bias, stride, padding, dilation, True, output_padding, groups)


# -- pooling


def _windows(
    rank: int, kernel: int | Sequence[int], stride: int | Sequence[int], padding: int | Sequence[int], ceil_mode: bool
) -> dict[str, Any]:
    """What ONNX calls windows of this size; where torch names no strides, they lie side by side."""
    sizes = _each(kernel, rank)
    strides = sizes if isinstance(stride, Sequence) and not stride else _each(stride, rank)
    return {
        "kernel_shape": sizes,
        "strides": strides,
        "pads": _each(padding, rank) * 2,
        "ceil_mode": int(ceil_mode),
    }


def _max_pool(rank: int, with_places: bool) -> Emitter:
    """The places of what is largest are counted within an image by torch, and within the batch by ONNX."""

    def emit(
        g: OpWriter,
        x: Value,
        kernel: int | Sequence[int],
        stride: int | Sequence[int] = (),
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
    ) -> Any:
        attrs = {**_windows(rank, kernel, stride, padding, ceil_mode), "dilations": _each(dilation, rank)}
        if not with_places:
            return _with_batch(g, x, rank, "MaxPool", **attrs)[0]
        if not g.is_used(1):
            return _with_batch(g, x, rank, "MaxPool", **attrs)[0], None
        largest, places = _with_batch(g, x, rank, "MaxPool", n=2, **attrs)
        image = g.product(g.sizes(x)[-rank:])
        return largest, g.op("Mod", places, g.cast(image, "int64"))

    return emit


def _average_pool(rank: int) -> Emitter:
    def emit(
        g: OpWriter,
        x: Value,
        kernel: int | Sequence[int],
        stride: int | Sequence[int] = (),
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        attrs = _windows(rank, kernel, stride, padding, ceil_mode)
        if not ceil_mode and divisor_override is None:
            return _with_batch(g, x, rank, "AveragePool", **attrs, count_include_pad=int(count_include_pad))[0]
        axes, sizes = range(g.rank(x) - rank, g.rank(x)), g.result().shape[-rank:]
        divisor = np.ones((1,) * rank, np.int64)
        each = zip(axes, sizes, attrs["kernel_shape"], attrs["strides"], attrs["pads"], strict=False)
        for k, (axis, count, width, step, margin) in enumerate(each):
            size = g.known(g.size(x, axis), "the size of an image that is pooled so")
            starts = np.arange(count) * step - margin
            inside = np.arange(size)[:, None] - starts
            within = (inside >= 0) & (inside < width)
            counts = np.minimum(starts + width, size + margin) - starts if count_include_pad else within.sum(0)
            divisor = divisor * counts.reshape([-1 if j == k else 1 for j in range(rank)])
            x = _weighted(g, x, axis, within)
        divisor = divisor if divisor_override is None else np.asarray(divisor_override)
        return g.op("Div", x, divisor.astype(numpy_dtype(g.dtype(x))))

    return emit


def _adaptive_mean(rank: int) -> Emitter:
    """A mean over windows that cover the axis evenly: along each axis a product by a matrix of means."""

    def emit(g: OpWriter, x: Value, output_size: int | Sequence[int | None]) -> Value:
        wanted = [output_size] * rank if isinstance(output_size, int) else list(output_size)
        axes = range(g.rank(x) - rank, g.rank(x))
        if all(n == 1 for n in wanted):
            return reduced(g, "ReduceMean", x, list(axes), True)
        for axis, n in zip(axes, wanted, strict=True):
            if n is not None and g.shape(x)[axis] != n:
                size = g.known(g.size(x, axis), "the size of an image that is pooled adaptively")
                x = _weighted(g, x, axis, _means(size, n))
        return x

    return emit


def _weighted(g: OpWriter, x: Value, axis: int, weights: np.ndarray[Any, Any]) -> Value:
    """Along an axis, sums of the elements with the weights that a column has for each."""
    columns = g.constant(weights.astype(numpy_dtype(g.dtype(x))))
    return g.swapped(g.op("MatMul", g.swapped(x, axis, -1), columns), axis, -1)


def _means(size: int, count: int) -> np.ndarray[Any, Any]:
    """A matrix whose column k takes the mean of window k of ``count`` windows over ``size`` elements."""
    weights = np.zeros((size, count))
    for k, window in enumerate(_even_windows(size, count)):
        weights[window.start : window.stop, k] = 1 / len(window)
    return weights


def _even_windows(size: int, count: int) -> list[range]:
    """So many windows that cover the elements of an axis evenly."""
    return [range(k * size // count, -(-(k + 1) * size // count)) for k in range(count)]


def _adaptive_maximum(rank: int) -> Emitter:
    """The largest element of windows that cover the axis evenly, along one axis after the other."""

    def emit(g: OpWriter, x: Value, output_size: int | Sequence[int]) -> tuple[Value, Value | None]:
        if g.is_used(1):
            return _adaptive_maximum_and_place(g, x, _each(output_size, rank))
        for axis, n in zip(range(g.rank(x) - rank, g.rank(x)), _each(output_size, rank), strict=True):
            if n == 1:
                x = reduced(g, "ReduceMax", x, axis, True)
            elif g.shape(x)[axis] != n:
                windows = _even_windows(g.known(g.size(x, axis), "the size of an image that is pooled adaptively"), n)
                widest = max(map(len, windows))
                # a window that is narrower has its last element more than once
                places = np.array([[w[min(k, len(w) - 1)] for k in range(widest)] for w in windows], np.int64)
                x = reduced(g, "ReduceMax", g.op("Gather", x, places, axis=axis), axis + 1, False)
        return x, None

    return emit


def _adaptive_maximum_and_place(g: OpWriter, x: Value, output_size: Sequence[int]) -> tuple[Value, Value]:
    """Also where it is, counted in its image in rows: the first where elements are equal."""
    *lead, sizes = *g.sizes(x)[: -len(output_size)], g.sizes(x)[-len(output_size) :]
    image = [g.known(n, "the size of an image that is pooled adaptively") for n in sizes]
    along = [_even_windows(n, count) for n, count in zip(image, output_size, strict=True)]
    numbers = np.arange(prod(image)).reshape(image)
    windows = [numbers[np.ix_(*each)].ravel() for each in product(*along)]
    widest = max(map(len, windows))  # one that is narrower has its last element more than once
    places = np.array([np.pad(w, (0, widest - len(w)), mode="edge") for w in windows], np.int64)
    flat = g.op("Gather", g.reshape(x, [*lead, prod(image)]), places, axis=len(lead))
    at = g.op("ArgMax", flat, axis=len(lead) + 1, keepdims=1)
    each = g.expand(g.constant(places), [*lead, *places.shape])
    results = [g.op("GatherElements", v, at, axis=len(lead) + 1) for v in (flat, each)]
    largest, where = (g.reshape(v, [*lead, *output_size]) for v in results)
    return largest, where


for _rank in (1, 2, 3):
    TABLE.entry(getattr(aten, f"max_pool{_rank}d"))(_max_pool(_rank, with_places=False))
    TABLE.entry(getattr(aten, f"avg_pool{_rank}d"))(_average_pool(_rank))
    TABLE.entry(getattr(aten, f"adaptive_avg_pool{_rank}d"))(_adaptive_mean(_rank))
for _rank in (2, 3):
    TABLE.entry(getattr(aten, f"max_pool{_rank}d_with_indices"))(_max_pool(_rank, with_places=True))
    TABLE.entry(getattr(aten, f"_adaptive_avg_pool{_rank}d"))(_adaptive_mean(_rank))
    TABLE.entry(getattr(aten, f"adaptive_max_pool{_rank}d"))(_adaptive_maximum(_rank))


# -- resizing


def _resized(
    g: OpWriter, x: Value, size: Sequence[Number] | None, scales: Sequence[Any], is_by_scale: bool, **attrs: Any
) -> Value:
    """``is_by_scale`` is whether the scales, where torch is given some, say where an element comes from.

    ONNX's are of float32: rounded up, they make the same sizes.
    """
    lead, spatial = g.sizes(x)[:2], g.sizes(x)[2:]
    given = [float(s) for part in scales for s in (part if isinstance(part, Sequence) else [part]) if s is not None]
    if size is None and not is_by_scale and not any(isinstance(n, Value) for n in spatial):
        size = [int(n * s) for n, s in zip(spatial, given, strict=True)]  # type: ignore[operator]
    if size is not None and not (is_by_scale and len(given) == len(spatial)):
        return g.op("Resize", x, None, None, g.integers([*lead, *size]), **attrs)
    exact = np.array([1, 1, *given])
    near = exact.astype(np.float32)
    return g.op("Resize", x, None, np.where(near < exact, np.nextafter(near, np.float32(np.inf)), near), **attrs)


def _nearest(exact: bool) -> Emitter:
    """torch's own way counts from the pixels' corners; the exact one from their centres."""
    attrs = (
        {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
        if exact
        else {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    )

    def emit(g: OpWriter, x: Value, size: Sequence[Number] | None, *scales: Any) -> Value:
        return _resized(g, x, size, scales, True, mode="nearest", **attrs)

    return emit


def _interpolated(mode: str) -> Emitter:
    def emit(g: OpWriter, x: Value, size: Sequence[Number] | None, align_corners: bool, *scales: Any) -> Value:
        how = "align_corners" if align_corners else "half_pixel"
        attrs = {"cubic_coeff_a": -0.75} if mode == "cubic" else {}
        return _resized(g, x, size, scales, not align_corners, mode=mode, coordinate_transformation_mode=how, **attrs)

    return emit


for _rank, _linear in ((1, "linear"), (2, "bilinear"), (3, "trilinear")):
    TABLE.entry(getattr(aten, f"upsample_nearest{_rank}d"))(_nearest(exact=False))
    TABLE.entry(getattr(aten, f"_upsample_nearest_exact{_rank}d"))(_nearest(exact=True))
    TABLE.entry(getattr(aten, f"upsample_{_linear}{_rank}d"))(_interpolated("linear"))
TABLE.entry(aten.upsample_bicubic2d)(_interpolated("cubic"))


def _smoothed(target: Any) -> Emitter:
    """What torch makes of the unit matrix along one axis are the weights for all images."""

    def emit(g: OpWriter, x: Value, size: Any, align_corners: bool, *scales: Any) -> Value:
        given = [s for part in scales for s in (part if isinstance(part, Sequence) else [part])]
        for axis, wanted, scale in zip((2, 3), g.result().shape[2:], given if any(given) else [None] * 2, strict=True):
            count = g.known(g.size(x, axis), "the size of an image that is resized so")
            wanted = g.known(wanted, "the size of an image that is resized so")
            unit = torch.eye(count, dtype=torch.float64)[None, None]
            weights = target.default(unit, [wanted, count], align_corners, scale, None)
            x = _weighted(g, x, axis, weights[0, 0].T.numpy())
        return x

    return emit


TABLE.entry(aten._upsample_bilinear2d_aa)(_smoothed(aten._upsample_bilinear2d_aa))
TABLE.entry(aten._upsample_bicubic2d_aa)(_smoothed(aten._upsample_bicubic2d_aa))


@TABLE.entry(aten.grid_sampler, aten.grid_sampler_2d, aten.grid_sampler_3d)
def _grid_sample(g: OpWriter, x: Value, grid: Value, mode: int, padding: int, align_corners: bool) -> Value:
    if mode == 2 and padding == 1:
        raise g.refused("bicubic samples beyond the border, of which ONNX and its runtimes give different ones")
    return g.op(
        "GridSample",
        x,
        grid,
        mode=("linear", "nearest", "cubic")[mode],
        padding_mode=("zeros", "border", "reflection")[padding],
        align_corners=int(align_corners),
    )
