"""How ops on images in blocks of channels are drawn, ``[N, C/16, *spatial, 16]``, with blocks that are full or not."""

from __future__ import annotations

from graphopt.rewrite.checking.examples.sample import Misfit, Sample, Shape, Want

SIZE = 16
"""Channels in a block."""

FORMS = ("blocked", "plain", "depthwise")


def _channels(s: Sample, blocks: int) -> int:
    """Channels that take so many blocks."""
    return blocks * SIZE - (0 if s.chance(0.4) else s.number(1, SIZE - 1))


def _blocks(channels: int) -> int:
    return -(-channels // SIZE)


def block(s: Sample) -> list[Want]:
    """An image that is not in blocks."""
    wanted = s.want.shape
    if s.bound(0) is not None:
        return [Want(s.bound(0))]
    if wanted is None or len(wanted) < 3 or wanted[-1] != SIZE or wanted[1] < 1:
        wanted = (s.size(), s.number(1, 2), *s.new_shape(s.pick((1, 2, 2))), SIZE)
    return [Want((wanted[0], _channels(s, wanted[1]), *wanted[2:-1]))]


def unblock(s: Sample) -> list[Want]:
    """An image in blocks."""
    shape = s.shape(s.pick((3, 4, 4)) if s.want.shape is None or len(s.want.shape) < 2 else None, 2)
    drawn = s.pick((SIZE, SIZE, 2 * SIZE, 3, 20)) if s.chance(0.6) or shape[1] < 1 else shape[1]
    channels = s.attr("channels", None, lambda: drawn)
    return [Want(s.bound(0) or (shape[0], _blocks(channels), *shape[2:], SIZE))]


def block_weights(s: Sample) -> list[Want]:
    """Weights that are not packed."""
    wanted = s.want.shape or ()
    form = s.attr("form", "blocked", lambda: s.pick(FORMS))
    n = len(wanted) - {"blocked": 4, "plain": 3, "depthwise": 2}[form]
    if s.bound(0) is not None:
        return [Want(s.bound(0))]
    if n < 1 or wanted[-1] != SIZE:
        raise Misfit("weights of another form")
    kernel = wanted[len(wanted) - n - (2 if form == "blocked" else 1) :][:n]
    deep = {"blocked": SIZE * wanted[1] - 3, "plain": wanted[1], "depthwise": 1}[form]
    return [Want((_channels(s, wanted[0]), deep, *kernel))]


def blocked_conv_transpose(s: Sample) -> list[Want]:
    """An image, packed weights and a packed bias; the windows do not overlap."""
    outer, deep, image = s.number(1, 2), s.number(1, 2), (s.number(2, 3), s.number(2, 3))
    weights = (outer, deep, s.number(1, 2), 2, SIZE, SIZE)
    return [Want((s.size(), deep, *image, SIZE)), Want(weights), Want((outer, SIZE))][: len(s.inputs)]


def blocked_conv(s: Sample) -> list[Want]:
    """An image, packed weights and a packed bias."""
    form = s.attr("form", "blocked", lambda: s.pick(FORMS))
    kernel: Shape = s.pick(((1, 2), (2,), (3, 3)))
    for name in ("strides", "dilations", "group"):
        s.attr(name, None, lambda: None)
    s.attr("pads", None, lambda: s.pick((None, (1, 0, 1, 2))) if kernel == (3, 3) else None)
    spatial = tuple(s.number(max(kernel), 3 + (kernel == (3, 3))) for _ in kernel)
    outer, deep = 1 if form == "depthwise" else s.number(1, 2), s.number(1, 2)
    image, weights = {
        "blocked": ((s.size(), deep, *spatial, SIZE), (outer, deep, *kernel, SIZE, SIZE)),
        "plain": ((s.size(), deep, *spatial), (outer, deep, *kernel, SIZE)),
        "depthwise": ((s.size(), outer, *spatial, SIZE), (outer, *kernel, SIZE)),
    }[form]
    return [Want(image), Want(weights), Want((outer, SIZE))][: len(s.inputs)]
