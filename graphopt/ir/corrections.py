"""Corrections of onnx's reference implementation: ops that it computes wrongly. A table that ends with its bugs, hence
apart."""

from __future__ import annotations

from math import erf, pi, sqrt
from typing import Any

import numpy as np

from graphopt.ir.call import ApplyOp, Arrays, Semantics
from graphopt.ir.constants import Array
from graphopt.ir.graph import Attrs
from graphopt.ir.ops import attribute


def _batch_normalization(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """Before opset 14 the reference implementation moves the given mean and variance towards the batch's."""
    if attribute("BatchNormalization", attrs, "training_mode"):
        return apply("BatchNormalization", x, 3, **attrs)
    image = x[0]
    assert image is not None
    epsilon: Any = attribute("BatchNormalization", attrs, "epsilon")
    ones = (1,) * (image.ndim - 2)
    scale, shift, mean, variance = (array.reshape(-1, *ones) for array in x[1:] if array is not None)
    return ((scale * (image - mean) / np.sqrt(variance + epsilon) + shift).astype(image.dtype),)


def _lrn(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """The reference implementation looks at as many channels as the batch has entries."""
    image = x[0]
    assert image is not None
    given: list[Any] = [attribute("LRN", attrs, name) for name in ("size", "alpha", "beta", "bias")]
    size, alpha, beta, bias = given
    before, after = (size - 1) // 2, size // 2 + 1
    channels = range(image.shape[1])
    squares = [np.sum(image[:, max(c - before, 0) : c + after] ** 2, axis=1) for c in channels]
    total = np.stack(squares, axis=1) if squares else np.zeros_like(image)
    return ((image / (bias + alpha / size * total) ** beta).astype(image.dtype),)


def _quantize(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """The reference implementation takes numbers that are far outside the range for others."""
    data, scale = x[0], x[1]
    assert data is not None
    assert scale is not None
    zero = x[2] if len(x) > 2 else None
    is_integer = "float" not in (zero.dtype.name if zero is not None else "") and not attrs.get("output_dtype")
    if is_integer and data.dtype in (np.float32, np.float16) and scale.size and np.isfinite(scale).all():
        steps = 1 << 20 if zero is not None and zero.dtype.itemsize > 1 else 1 << 10
        limit = np.abs(scale).max() * data.dtype.type(steps)
        data = np.clip(data, -limit, limit)
    return apply("QuantizeLinear", [data, *x[1:]], **dict(attrs))


def _erf(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """The reference implementation rounds to float32, whatever the dtype is."""
    data = x[0]
    assert data is not None
    return (np.vectorize(erf, otypes=[np.float64])(data).astype(data.dtype),)


def _gelu(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """The reference implementation rounds the error function, and constants, to float32, whatever the dtype is."""
    data = x[0]
    assert data is not None
    wide = data.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if attribute("Gelu", attrs, "approximate") == "tanh":
            y = wide / (1 + np.exp(-2 * sqrt(2 / pi) * (wide + 0.044715 * wide**3)))
        else:
            y = wide / 2 * (1 + np.vectorize(erf, otypes=[np.float64])(wide / sqrt(2)))
    return (y.astype(data.dtype),)


def _one_hot(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """The reference implementation takes indices that are out of range for others."""
    indices, depth, values = x
    assert indices is not None
    assert depth is not None
    assert values is not None
    n, axis = int(depth.reshape(-1)[0]), int(attrs.get("axis", -1))  # type: ignore[arg-type]
    whole = np.expand_dims(indices.astype(np.int64), axis)
    classes = np.arange(n).reshape([n if i == axis % whole.ndim else 1 for i in range(whole.ndim)])
    return (np.where(classes == np.where(whole < 0, whole + n, whole), values[1], values[0]).astype(values.dtype),)


def _optional(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Any, ...]:
    """The reference implementation makes a list of the value, which it does not take apart again."""
    return (x[0] if x else None,)


def _hard_swish(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """The reference implementation takes a sixth in single precision, whatever the dtype is."""
    data = x[0]
    assert data is not None
    with np.errstate(invalid="ignore"):
        return ((data * np.clip(data / 6 + 0.5, 0, 1)).astype(data.dtype),)


def _layer_normalization(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """The reference implementation takes mean and deviation of halves in their dtype, not in that of ``stash_type``."""
    data, scale, shift = (*x, None)[:3]
    assert data is not None
    assert scale is not None
    given: list[Any] = [attribute("LayerNormalization", attrs, name) for name in ("axis", "epsilon", "stash_type")]
    axis, epsilon, stash = given
    axes = tuple(range(axis % data.ndim, data.ndim))
    wide = data.astype(np.float32) if stash == 1 and data.dtype.itemsize < 4 else data
    mean = wide.mean(axes, keepdims=True)
    deviation = wide - mean
    inverse = 1 / np.sqrt((deviation**2).mean(axes, keepdims=True) + wide.dtype.type(epsilon))
    y = (deviation * inverse).astype(data.dtype) * scale
    return (y if shift is None else y + shift), mean, inverse


def _conv_transpose(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """The reference implementation takes groups, and kernels with holes and margins, for others."""
    if "auto_pad" in attrs or "output_shape" in attrs:
        return apply("ConvTranspose", x, **attrs)
    images, weights, biases = (*x, None)[:3]
    assert images is not None
    assert weights is not None
    rank, groups = images.ndim - 2, int(attrs.get("group", 1))  # type: ignore[arg-type]
    given: dict[str, Any] = dict(attrs)
    strides, holes, more = (
        given.get(n, [k] * rank) for n, k in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    pads = given.get("pads", [0] * 2 * rank)
    kernel, sizes = weights.shape[2:], images.shape[2:]
    full = [
        (n - 1) * s + d * (k - 1) + 1 + m for n, s, d, k, m in zip(sizes, strides, holes, kernel, more, strict=True)
    ]
    each: list[Array] = []
    for part, weight in zip(np.split(images, groups, 1), np.split(weights, groups), strict=True):
        out = np.zeros((len(images), weight.shape[1], *full), images.dtype)
        for at in np.ndindex(*kernel):
            starts = [k * d for k, d in zip(at, holes, strict=True)]
            where: list[Any] = [
                slice(b, b + (n - 1) * s + 1, s) for b, n, s in zip(starts, sizes, strides, strict=True)
            ]
            out[:, :, *where] += np.einsum("nc...,cm->nm...", part, weight[:, :, *at])
        each.append(out)
    inner: list[Any] = [slice(b, n - e) for b, e, n in zip(pads[:rank], pads[rank:], full, strict=True)]
    result = np.concatenate(each, 1)[:, :, *inner]
    return (result if biases is None else result + biases.reshape(-1, *[1] * rank),)


def _group_normalization(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """The reference implementation takes no batch without elements, and the square of the mean from the mean of
    squares, of which little is left where the mean is large."""
    data, scale, shift = x[:3]
    assert data is not None
    assert scale is not None
    assert shift is not None
    if data.size == 0:
        return (data,)
    given: list[Any] = [attribute("GroupNormalization", attrs, name) for name in ("num_groups", "epsilon")]
    groups, epsilon = given
    single = attrs.get("stash_type", 1) == 1
    parts = data.reshape(len(data), groups, -1).astype(np.float32 if single else data.dtype)
    deviation = parts - parts.mean(2, keepdims=True)
    variance = (deviation**2).mean(2, keepdims=True) + parts.dtype.type(epsilon)
    normal = (deviation / np.sqrt(variance)).reshape(data.shape).astype(data.dtype)
    by_channel = [v.reshape(-1, *[1] * (data.ndim - 2)) for v in (scale, shift)]
    return (normal * by_channel[0] + by_channel[1],)


def _gather_elements(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """onnx's clips some indices that are out of range, which ONNX forbids, and takes no more than 64 of a vector."""
    data, indices = x
    assert data is not None
    assert indices is not None
    axis: Any = attribute("GatherElements", attrs, "axis")
    if indices.size and not (-data.shape[axis] <= indices.min() and indices.max() < data.shape[axis]):
        raise IndexError(f"an index is out of range for {data.shape[axis]} elements")
    corner = tuple(slice(None) if k == axis % data.ndim else slice(n) for k, n in enumerate(indices.shape))
    return (np.take_along_axis(data[corner], indices.astype(np.int64), axis),)


def _lp_normalization(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """The reference implementation sums elements with their signs where p is 1."""
    data = x[0]
    assert data is not None
    given: list[Any] = [attribute("LpNormalization", attrs, name) for name in ("axis", "p")]
    axis, p = given
    norm = np.linalg.norm(data, ord=p, axis=axis, keepdims=True)
    with np.errstate(all="ignore"):
        return (np.where(norm == 0, 0, data / norm).astype(data.dtype),)


def _max_pool(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """The reference implementation takes pads before and behind for those of other axes where windows move by one, and
    knows no integers there."""
    image = x[0]
    assert image is not None
    given: dict[str, Any] = dict(attrs)
    rank = len(given["kernel_shape"])
    pads = given.get("pads", (0,) * 2 * rank)
    moves_by_one = all(n == 1 for name in ("strides", "dilations") for n in given.get(name, ()))
    is_wrong = len(set(pads)) > 1 or image.dtype.kind in "iu"
    if not (moves_by_one and is_wrong) or given.get("auto_pad", "NOTSET") != "NOTSET":
        return apply("MaxPool", x, 2, **attrs)
    least = np.iinfo(image.dtype).min if image.dtype.kind in "iu" else -np.inf
    around = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    padded = np.pad(image, around, constant_values=np.array(least, image.dtype))
    windows = np.lib.stride_tricks.sliding_window_view(padded, given["kernel_shape"], tuple(range(2, 2 + rank)))
    return (windows.max(tuple(range(2 + rank, 2 + 2 * rank))),)


def _qlinear_conv(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """The reference implementation takes scales of channels for those of images, of two axes."""
    w, scale = x[3], x[4]
    assert w is not None
    assert scale is not None
    if scale.size == 1 or w.ndim == 4:
        return apply("QLinearConv", x, **attrs)
    image, image_scale, image_zero, _, _, w_zero, y_scale, y_zero, *rest = x
    assert image is not None
    assert image_scale is not None
    assert y_scale is not None
    assert y_zero is not None
    ones = (1,) * (w.ndim - 1)
    exact = [image.astype(np.float64), w.astype(np.float64)]  # sums of products of 8 bits are exact in float64
    if image_zero is not None:
        exact[0] -= image_zero
    if w_zero is not None:
        exact[1] -= w_zero.reshape(-1, *ones) if w_zero.size > 1 else w_zero.reshape(())
    exact += [bias.astype(np.float64) for bias in rest if bias is not None]
    (total,) = apply("Conv", exact, **attrs)
    scaled = total * (image_scale.reshape(()) * scale / y_scale.reshape(())).reshape(-1, *ones[1:]) + y_zero.reshape(())
    limits = np.iinfo(y_zero.dtype)
    return (np.round(np.clip(scaled, limits.min, limits.max)).astype(y_zero.dtype),)


CORRECTIONS: dict[str, Semantics] = {
    "BatchNormalization": _batch_normalization,
    "ConvTranspose": _conv_transpose,
    "Erf": _erf,
    "GatherElements": _gather_elements,
    "Gelu": _gelu,
    "GroupNormalization": _group_normalization,
    "HardSwish": _hard_swish,
    "LRN": _lrn,
    "LayerNormalization": _layer_normalization,
    "LpNormalization": _lp_normalization,
    "MaxPool": _max_pool,
    "OneHot": _one_hot,
    "Optional": _optional,
    "QLinearConv": _qlinear_conv,
    "QuantizeLinear": _quantize,
}
"""Ops that are computed here instead."""
