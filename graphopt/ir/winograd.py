"""Winograd convolutions of images in blocks of 16 channels: semantics and type inference.

Tiles of ``tile`` by ``tile`` results are made from tiles of two more rows and columns. Weights come transformed,
``[O/16, places, I/16, 16 (input), 16 (output)]``, a place for each element of a tile of inputs, and a convolution is
computed tile by tile in double precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.ir.call import ApplyOp, Arrays, OpCall
from graphopt.ir.constants import Array
from graphopt.ir.graph import Attrs
from graphopt.ir.infer_products import windows
from graphopt.ir.infer_shapes import Types, agree, spell
from graphopt.ir.minimal_filtering import TAPS, filtering

SIZE = 16
"""Channels in a block."""
TILES = (2, 4)
"""Rows, and columns, of results that a tile may have."""


def transformed(w: Array, tile: int) -> Array:
    """Weights ``[O/16, I/16, 3, 3, 16, 16]`` as convolutions by tiles want them; each element is rounded once."""
    matrix = _matrix(tile)
    whole: Array = np.einsum("ar,oircpq,bc->oabipq", matrix, w.astype(np.float64), matrix, optimize=True)
    return whole.reshape(w.shape[0], matrix.shape[0] ** 2, w.shape[1], *w.shape[4:]).astype(w.dtype)


def _matrix(tile: int) -> Array:
    return np.array([[float(c) for c in row] for row in filtering(tile).kernel])


def _weights(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    tile: Any = attrs["tile"]
    (w,) = (a for a in x if a is not None)
    return (transformed(w, tile),)


def _conv(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    # tile by tile, as Lavin and Gray's algorithm has it, and not by the plain convolution: what says that both are the
    # same (the rules blocked-winograd-*) is checked by it
    tile: Any = attrs["tile"]
    image, u, *bias = (a for a in x if a is not None)
    matrices = filtering(tile)
    into, out = (np.array([[float(c) for c in row] for row in m]) for m in (matrices.input, matrices.output))
    side = tile + TAPS - 1
    pads: Any = attrs.get("pads") or (0, 0, 0, 0)
    if str(attrs.get("auto_pad", "NOTSET")).startswith("SAME"):
        pads = (1, 1, 1, 1)
    sizes = [max(image.shape[2 + a] + pads[a] + pads[a + 2] - TAPS + 1, 0) for a in (0, 1)]
    filled = [(pads[a], pads[a + 2] + (-size % tile if size else tile)) for a, size in enumerate(sizes)]
    padded = np.pad(image.astype(np.float64), [(0, 0), (0, 0), *filled, (0, 0)])
    tiles = np.lib.stride_tricks.sliding_window_view(padded, (side, side), (2, 3))[:, :, ::tile, ::tile]
    inputs = np.einsum("ra,nihwpab,sb->nihwprs", into, tiles, into, optimize=True)
    kernels = u.astype(np.float64).reshape(u.shape[0], side, side, *u.shape[2:])
    products = np.einsum("nihwprs,orsipq->nohwqrs", inputs, kernels, optimize=True)
    results = np.einsum("kr,nohwqrs,ls->nohkwlq", out, products, out, optimize=True)
    n, o, rows, _, columns, _, lanes = results.shape
    whole = results.reshape(n, o, rows * tile, columns * tile, lanes)[:, :, : sizes[0], : sizes[1]]
    for b in bias:
        whole = whole + b.reshape(-1, 1, 1, lanes)
    return (whole.astype(image.dtype),)


MEANINGS = {"graphopt::BlockedWinogradConv": _conv, "graphopt::WinogradWeights": _weights}
"""By op name: what it computes."""


# -- types


def _places(call: OpCall) -> int:
    tile = call.integer("tile")
    if tile not in TILES:
        raise ValueError(f"tiles of {tile} by {tile} results")
    return (tile + TAPS - 1) ** 2


def _infer_weights(call: OpCall) -> Types:
    w, places = call.shape(0), _places(call)
    if w is None:
        return [None]
    if len(w) != 6:
        raise ValueError(f"weights in blocks have a window of two sides, not the shape {spell(w)}")
    for n in w[2:4]:
        agree(n, TAPS, "a side of the window and that of minimal filtering")
    return [call.tensor((w[0], places, w[1], *w[4:]))]


def _infer_conv(call: OpCall) -> Types:
    x, u, places = call.shape(0), call.shape(1), _places(call)
    if x is None or u is None:
        return [None]
    if len(x) != 5 or len(u) != 5:
        raise ValueError(f"transformed weights {spell(u)} do not fit an image {spell(x)}")
    agree(u[1], places, "the places of the weights and of a tile")
    agree(x[1], u[2], "the image's blocks and the weights'")
    agree(x[-1], u[-1], "the sizes of blocks")
    agree(u[-1], SIZE, "the size of blocks")
    return [call.tensor((x[0], u[0], *windows(call, x[2:-1], (TAPS, TAPS)), SIZE))]


WINOGRAD = {"graphopt::BlockedWinogradConv": _infer_conv, "graphopt::WinogradWeights": _infer_weights}
"""How to infer the types of an op's outputs."""
