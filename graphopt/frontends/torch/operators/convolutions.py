"""Convolutions, pooling and resizing of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphopt.frontends.torch.operators.reductions import reduced
from graphopt.frontends.torch.table import Emitter, Table
from graphopt.frontends.torch.writer import Number, Writer
from graphopt.ir.graph import Value

TABLE = Table()
aten = torch.ops.aten


def _each(numbers: int | Sequence[int], rank: int) -> list[int]:
    """One number for each axis, where one may be said for all."""
    listed = [numbers] if isinstance(numbers, int) else list(numbers)
    return listed * rank if len(listed) == 1 else listed


def _with_batch(g: Writer, x: Value, rank: int, function: Any) -> Value:
    """The function of a batch, also for one that torch has left out."""
    if g.rank(x) == rank + 2:
        return function(x)  # type: ignore[no-any-return]
    return g.squeeze(function(g.unsqueeze(x, 0)), 0)


@TABLE.entry(aten.convolution)
def _convolution(
    g: Writer,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    rank = g.rank(weight) - 2
    strides, dilations, margins = (tuple(_each(n, rank)) for n in (stride, dilation, padding))
    attrs: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": margins * 2, "group": groups}
    if transposed:
        attrs["output_padding"] = tuple(_each(output_padding, rank))
    op, inputs = "ConvTranspose" if transposed else "Conv", (weight,) if bias is None else (weight, bias)
    return _with_batch(g, x, rank, lambda images: g.op(op, images, *inputs, **attrs))


@TABLE.entry(aten.conv1d, aten.conv2d, aten.conv3d)
def _plain_convolution(
    g: Writer,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Value:
    rank = g.rank(weight) - 2
    dilations = _each(dilation, rank)
    if not isinstance(padding, str):
        return _convolution(
            g, x, weight, bias, _each(stride, rank), _each(padding, rank), dilations, False, [0] * rank, groups
        )
    kernel = [g.known(n, "the size of a kernel") for n in g.sizes(weight)[2:]]
    whole = [d * (n - 1) if padding == "same" else 0 for d, n in zip(dilations, kernel, strict=True)]
    margins = (*(n // 2 for n in whole), *(n - n // 2 for n in whole))
    inputs = (weight,) if bias is None else (weight, bias)
    strides = tuple(_each(stride, rank))
    return _with_batch(
        g,
        x,
        rank,
        lambda images: g.op(
            "Conv", images, *inputs, strides=strides, dilations=tuple(dilations), pads=margins, group=groups
        ),
    )


@TABLE.entry(aten.conv_transpose1d, aten.conv_transpose2d, aten.conv_transpose3d)
def _transposed_convolution(
    g: Writer,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Value:
    rank = g.rank(weight) - 2
    stride, padding, dilation, more = (_each(n, rank) for n in (stride, padding, dilation, output_padding))
    return _convolution(g, x, weight, bias, stride, padding, dilation, True, more, groups)


# -- pooling


def _largest(
    g: Writer,
    x: Value,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] = (),
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    *,
    rank: int,
) -> Value:
    sizes = tuple(_each(kernel, rank))
    attrs: dict[str, Any] = {
        "kernel_shape": sizes,
        "strides": tuple(_each(stride, rank)) if stride else sizes,
        "pads": tuple(_each(padding, rank)) * 2,
        "dilations": tuple(_each(dilation, rank)),
        "ceil_mode": int(ceil_mode),
    }
    return _with_batch(g, x, rank, lambda images: g.op("MaxPool", images, **attrs))


def _max_pool(rank: int, with_places: bool) -> Emitter:
    def emit(g: Writer, *arguments: Any, **named: Any) -> Any:
        found = _largest(g, *arguments, **named, rank=rank)
        return (found, None) if with_places else found

    return emit


def _average_pool(rank: int) -> Emitter:
    def emit(
        g: Writer,
        x: Value,
        kernel: int | Sequence[int],
        stride: int | Sequence[int] = (),
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        sizes = tuple(_each(kernel, rank))
        if divisor_override is not None:
            raise g.refused("a mean over windows with a divisor of its own")
        attrs: dict[str, Any] = {
            "kernel_shape": sizes,
            "strides": tuple(_each(stride, rank)) if stride else sizes,
            "pads": tuple(_each(padding, rank)) * 2,
            "ceil_mode": int(ceil_mode),
            "count_include_pad": int(count_include_pad),
        }
        return _with_batch(g, x, rank, lambda images: g.op("AveragePool", images, **attrs))

    return emit


def _adaptive_mean(rank: int) -> Emitter:
    """A mean over windows that cover the axis evenly: along each axis a product by a matrix of means."""

    def emit(g: Writer, x: Value, output_size: int | Sequence[int | None]) -> Value:
        wanted = [output_size] * rank if isinstance(output_size, int) else list(output_size)
        axes = range(g.rank(x) - rank, g.rank(x))
        if all(n == 1 for n in wanted):
            return reduced(g, "ReduceMean", x, list(axes), True)
        for axis, n in zip(axes, wanted, strict=True):
            if n is not None and g.shape(x)[axis] != n:
                size = g.known(g.size(x, axis), "the size of an image that is pooled adaptively")
                means = g.constant(_means(size, n).astype(g.dtype(x)))
                x = g.swapped(g.op("MatMul", g.swapped(x, axis, -1), means), axis, -1)
        return x

    return emit


def _means(size: int, count: int) -> np.ndarray[Any, Any]:
    """A matrix whose column k takes the mean of window k of ``count`` windows over ``size`` elements."""
    found = np.zeros((size, count))
    for k in range(count):
        first, last = k * size // count, -(-(k + 1) * size // count)
        found[first:last, k] = 1 / (last - first)
    return found


for _rank in (1, 2, 3):
    TABLE.entry(getattr(aten, f"max_pool{_rank}d"))(_max_pool(_rank, with_places=False))
    TABLE.entry(getattr(aten, f"avg_pool{_rank}d"))(_average_pool(_rank))
    TABLE.entry(getattr(aten, f"adaptive_avg_pool{_rank}d"))(_adaptive_mean(_rank))
TABLE.entry(aten.max_pool2d_with_indices)(_max_pool(2, with_places=True))
TABLE.entry(aten.max_pool3d_with_indices)(_max_pool(3, with_places=True))
TABLE.entry(aten._adaptive_avg_pool2d)(_adaptive_mean(2))
TABLE.entry(aten._adaptive_avg_pool3d)(_adaptive_mean(3))


# -- resizing


def _resized(g: Writer, x: Value, size: Sequence[Number] | None, scales: Sequence[Any] | None, **attrs: Any) -> Value:
    rank = g.rank(x) - 2
    if size is not None and not any(isinstance(g.number(n), Value) for n in size):
        return g.op("Resize", x, None, None, g.integers([*g.sizes(x)[:2], *size]), **attrs)
    given = [1.0, 1.0, *(s for s in (scales or ())[-rank:] if s is not None)]
    if len(given) == rank + 2:
        return g.op("Resize", x, None, np.array(given, np.float32), **attrs)
    assert size is not None
    return g.op("Resize", x, None, None, g.integers([*g.sizes(x)[:2], *size]), **attrs)


def _nearest(exact: bool) -> Emitter:
    """torch's own way counts from the pixels' corners; the exact one from their centres."""
    attrs = (
        {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
        if exact
        else {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    )

    def emit(g: Writer, x: Value, size: Sequence[Number] | None, *scales: Any, **_: Any) -> Value:
        return _resized(g, x, size, _flat(scales), mode="nearest", **attrs)

    return emit


def _flat(scales: Sequence[Any]) -> list[Any]:
    return [s for part in scales for s in (part if isinstance(part, list | tuple) else [part])]


def _interpolated(mode: str) -> Emitter:
    def emit(g: Writer, x: Value, size: Sequence[Number] | None, align_corners: bool, *scales: Any, **_: Any) -> Value:
        how = "align_corners" if align_corners else "half_pixel"
        attrs = {"cubic_coeff_a": -0.75} if mode == "cubic" else {}
        return _resized(g, x, size, _flat(scales), mode=mode, coordinate_transformation_mode=how, **attrs)

    return emit


for _rank, _linear in ((1, "linear"), (2, "bilinear"), (3, "trilinear")):
    TABLE.entry(getattr(aten, f"upsample_nearest{_rank}d"))(_nearest(exact=False))
    TABLE.entry(getattr(aten, f"_upsample_nearest_exact{_rank}d"))(_nearest(exact=True))
    TABLE.entry(getattr(aten, f"upsample_{_linear}{_rank}d"))(_interpolated("linear"))
TABLE.entry(aten.upsample_bicubic2d)(_interpolated("cubic"))
