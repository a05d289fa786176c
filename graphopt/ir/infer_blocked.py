"""Type inference of blocked-layout ops, on images ``[N, ceil(C/size), *spatial, size]``; apart from their semantics
(``blocked``), which evaluation reads."""

from __future__ import annotations

from graphopt.ir.call import OpCall
from graphopt.ir.infer_products import windows
from graphopt.ir.infer_shapes import Inference, Types, agree, spell
from graphopt.ir.types import Size


def blocks(channels: Size, size: int) -> Size:
    """How many blocks hold so many channels."""
    return (channels + (size - 1)) // size


def _size(call: OpCall) -> int:
    size = call.integer("size")
    if size < 1:
        raise ValueError(f"blocks of {size} channels")
    return size


def _block(call: OpCall) -> Types:
    x = call.shape(0)
    if x is None:
        return [None]
    if len(x) < 2:
        raise ValueError(f"an image has channels, not the shape {spell(x)}")
    size = _size(call)
    return [call.tensor((x[0], blocks(x[1], size), *x[2:], size))]


def _unblock(call: OpCall) -> Types:
    x, channels = call.shape(0), call.integer("channels")
    if x is None:
        return [None]
    if len(x) < 3:
        raise ValueError(f"a blocked image has blocks of channels, not the shape {spell(x)}")
    if channels < 1 or x[-1] == 0:
        raise ValueError(f"blocks of {x[-1]} hold no {channels} channels")
    if isinstance(x[-1], int):
        agree(x[1], blocks(channels, x[-1]), f"the blocks and those of {channels} channels")
    return [call.tensor((x[0], channels, *x[2:-1]))]


def _block_weights(call: OpCall) -> Types:
    w, form, size = call.shape(0), call.text("form"), _size(call)
    if w is None:
        return [None]
    if len(w) < 3:
        raise ValueError(f"weights have output and input channels and a window, not the shape {spell(w)}")
    outer = blocks(w[0], size)
    if form == "blocked":
        return [call.tensor((outer, blocks(w[1], size), *w[2:], size, size))]
    if form == "plain":
        return [call.tensor((outer, *w[1:], size))]
    if form == "depthwise":
        agree(w[1], 1, "the input channels of weights for each channel and 1")
        return [call.tensor((outer, *w[2:], size))]
    raise ValueError(f"weights have no form {form!r}")


def _conv(call: OpCall) -> Types:
    x, w, form, group = call.shape(0), call.shape(1), call.text("form"), call.integer("group", 1)
    if x is None or w is None:
        return [None]
    # the axes of an image that are not spatial, and those of weights before and after the window
    image, before, after = {"blocked": (3, 2, 2), "plain": (2, 2, 1), "depthwise": (3, 1, 1)}.get(form, (0, 0, 0))
    if not image or len(x) - image < 1 or len(w) - before - after != len(x) - image:
        raise ValueError(f"{form} weights {spell(w)} do not fit an image {spell(x)}")
    if form == "depthwise":
        agree(x[1], w[0], "the blocks of the image and of the weights")
    else:
        agree(x[1], w[1] * group, f"the image's blocks and {group} times the weights'")
    if form != "plain":
        agree(x[-1], w[-1], "the sizes of blocks")
    spatial = x[2:] if form == "plain" else x[2:-1]
    return [call.tensor((x[0], w[0], *windows(call, spatial, w[before:-after]), w[-1]))]


def _conv_transpose(call: OpCall) -> Types:
    x, w = call.shape(0), call.shape(1)
    if x is None or w is None:
        return [None]
    if len(x) < 4 or len(w) != len(x) + 1:
        raise ValueError(f"blocked weights {spell(w)} do not fit an image {spell(x)}")
    agree(x[1], w[1], "the blocks of the image and of the weights")
    agree(x[-1], w[-1], "the sizes of blocks")
    return [call.tensor((x[0], w[0], *(n * k for n, k in zip(x[2:-1], w[2:-2], strict=True)), w[-1]))]


def _pool(call: OpCall) -> Types:
    x, kernel = call.shape(0), call.integers("kernel_shape")
    if x is None or kernel is None:
        return [None]
    return [call.tensor((*x[:2], *windows(call, x[2:-1], kernel), x[-1]))]


BLOCKED: dict[str, Inference] = {
    "graphopt::Block": _block,
    "graphopt::BlockWeights": _block_weights,
    "graphopt::BlockedAveragePool": _pool,
    "graphopt::BlockedConv": _conv,
    "graphopt::BlockedConvTranspose": _conv_transpose,
    "graphopt::BlockedMaxPool": _pool,
    "graphopt::Unblock": _unblock,
}
"""How to infer the types of an op's outputs."""
