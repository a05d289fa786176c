"""Blocked-layout ops: semantics of the ops on images in blocks of channels, in ONNX's ops on plain images.

A blocked image is ``[N, ceil(C/size), *spatial, size]``: neighbours in memory are channels of one
pixel, as vectors want them. Lanes beyond the last channel hold zeros: what makes something else of them is followed by
an op that clears them. Weights come in three forms: ``blocked`` for blocked images
``[O/s, I/s, *kernel, s (input), s (output)]``, ``plain`` for images of few channels that are not
blocked ``[O/s, I, *kernel, s]``, and ``depthwise`` ``[C/s, *kernel, s]``. A bias is ``[O/s, s]``. The windows of a
transposed convolution do not overlap: its strides are their sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.ir.call import ApplyOp, Arrays, Semantics
from graphopt.ir.constants import Array
from graphopt.ir.graph import Attrs
from graphopt.ir.ops import attribute


def blocked(x: Array, size: int, axis: int = 1) -> Array:
    """The array with an axis split into blocks, the place within a block last; filled up with zeros."""
    missing = -x.shape[axis] % size
    filled = np.pad(x, [(0, missing if a == axis else 0) for a in range(x.ndim)])
    split = filled.reshape(*x.shape[:axis], filled.shape[axis] // size, size, *x.shape[axis + 1 :])
    return np.moveaxis(split, axis + 1, -1)


def unblocked(x: Array, axis: int = 1) -> Array:
    """The array with its last axis joined to the blocks that it is the inside of."""
    moved = np.moveaxis(x, -1, axis + 1)
    return moved.reshape(*moved.shape[:axis], moved.shape[axis] * moved.shape[axis + 1], *moved.shape[axis + 2 :])


def packed(w: Array, size: int, form: str) -> Array:
    """The weights of a convolution as one of the forms has them."""
    if form == "blocked":
        return blocked(blocked(w, size), size, axis=0)
    if form == "plain":
        return blocked(w, size, axis=0)
    if form == "depthwise":
        return blocked(w[:, 0], size, axis=0)
    raise ValueError(f"weights have no form {form!r}")


def unpacked(w: Array, form: str) -> Array:
    """The weights of a convolution as ONNX has them, with those that fill up blocks."""
    if form == "blocked":
        return unblocked(unblocked(w, axis=0), axis=1)
    outer = unblocked(w, axis=0)
    return outer[:, None] if form == "depthwise" else outer


def _inputs(x: Arrays) -> list[Array]:
    return [a for a in x if a is not None]


def _block(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    size: Any = attribute("graphopt::Block", attrs, "size")
    return (blocked(_inputs(x)[0], size),)


def _unblock(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    channels: Any = attrs["channels"]
    return (unblocked(_inputs(x)[0])[:, :channels],)


def beyond(image: Array, channels: int) -> Array:
    """What an image in blocks holds in the lanes beyond its last channel: zeros, in every graph."""
    return unblocked(image)[:, channels:]


def _block_weights(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    op = "graphopt::BlockWeights"
    size: Any = attribute(op, attrs, "size")
    return (packed(_inputs(x)[0], size, str(attribute(op, attrs, "form"))),)


def _conv(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    form = attribute("graphopt::BlockedConv", attrs, "form")
    image, weights, *bias = _inputs(x)
    size = weights.shape[-1]
    if form != "plain":
        image = unblocked(image)
    given: dict[str, Any] = {n: a for n, a in attrs.items() if n != "form"}
    if form == "depthwise":
        given["group"] = image.shape[1]
    (y,) = apply("Conv", [image, unpacked(weights, str(form)), *(b.reshape(-1) for b in bias)], **given)
    return (blocked(y, size),)


def _conv_transpose(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    image, weights, *bias = _inputs(x)
    plain = np.swapaxes(unpacked(weights, "blocked"), 0, 1)
    window: Any = {"kernel_shape": plain.shape[2:], "strides": plain.shape[2:]}
    (y,) = apply("ConvTranspose", [unblocked(image), plain, *(b.reshape(-1) for b in bias)], **window)
    return (blocked(y, weights.shape[-1]),)


def _pool(op: str) -> Semantics:
    def compute(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
        (image,) = _inputs(x)
        given: dict[str, Any] = dict(attrs.items())
        (y,) = apply(op, [unblocked(image)], **given)
        return (blocked(y, image.shape[-1]),)

    return compute


MEANINGS: dict[str, Semantics] = {
    "graphopt::Block": _block,
    "graphopt::BlockWeights": _block_weights,
    "graphopt::BlockedAveragePool": _pool("AveragePool"),
    "graphopt::BlockedConv": _conv,
    "graphopt::BlockedConvTranspose": _conv_transpose,
    "graphopt::BlockedMaxPool": _pool("MaxPool"),
    "graphopt::Unblock": _unblock,
}
"""By op name: what it computes."""
