"""Convolutions of 3 x 3 by minimal filtering, beside direct ones and ONNX Runtime: how fast, and how exact.

    python tests/bench/winograd.py [--threads N] [HxIxO ...]    # pixels along each side, channels in and out

A row has the microseconds of ONNX Runtime and, as multiples of its speed, those of the direct convolution in blocks and
of tiles of 2 x 2 and of 4 x 4 results, each with its error: the largest of any result, in units of float32's roundoff
times the sum of absolute products that the result has. ``share`` is what the direct one reaches of the multiply-adds
that this machine does at most, measured in the same run; ``chosen`` is what costs make of the layer. Engines take
turns, and the least of several bursts counts.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import turns
from models import single

import graphopt
from graphopt.ir import onnx_io
from graphopt.ir.blocked import blocked, packed, unblocked
from graphopt.ir.winograd import transformed
from graphopt.optimize import optimize_graph
from graphopt.target import CPU

LAYERS = (
    "224x64x64", "112x64x128", "112x128x128", "56x64x64", "56x128x256", "56x256x256", "56x64x192", "28x128x128",
    "28x256x512", "28x512x512", "28x128x192", "28x128x32", "14x256x256", "14x512x512", "14x96x208", "13x64x256",
    "7x512x512", "7x160x320",
)  # fmt: skip
"""Of VGG-19, ResNet-50, GoogLeNet, SqueezeNet and DenseNet-121."""
TABLE = turns.Table(
    "layer", 12, "ORT:10.1f direct:8.2f share:6.2f error:6.2f 2x2:6.2f error:6.2f 4x4:6.2f error:6.2f chosen:32"
)
FORMS = (("BlockedConv", {}), ("BlockedWinogradConv", {"tile": 2}), ("BlockedWinogradConv", {"tile": 4}))


def main() -> None:
    """Measure the layers that the command line names."""
    given = turns.arguments(__doc__, "pixels along each side x channels in x channels out", "LAYER").parse_args()
    turns.keep_to_cores(given.threads)
    print(TABLE.heading)
    limit = turns.operation_timer(given.threads)
    for layer in given.names or LAYERS:
        print(row(layer, given.threads, limit), flush=True)


def row(layer: str, threads: int, limit: turns.Timer) -> str:
    """A line of the table."""
    side, deep, wide = turns.sides(layer)
    random = np.random.default_rng(0)
    x = np.maximum(random.standard_normal((1, deep, side, side)), 0).astype(np.float32)
    w = random.standard_normal((wide, deep, 3, 3)).astype(np.float32) * np.float32((2 / (9 * deep)) ** 0.5)
    plain = single("Conv", {"x": x}, {"w": w}, "x w", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    theirs, _ = turns.onnxruntime_call(plain, {"x": x}, threads)
    feeds, weights = {"x": blocked(x, 16)}, packed(w, 16, "blocked")
    want, size = exact(x, w), exact(np.abs(x), np.abs(w))
    errors, calls = [], []
    for op, attrs in FORMS:
        held = {"w": transformed(weights, attrs["tile"]) if attrs else weights}
        form = single(op, feeds, held, "x w", domain="graphopt", pads=[1, 1, 1, 1], **attrs)
        program = graphopt.compile(form, threads=threads, optimize=False)
        out = program(feeds)
        errors.append((np.abs(unblocked(out["y"])[:, :wide] - want) / size).max() * 2**24)
        calls.append(partial(program, feeds, out=out))
    operation, ort, *times = turns.least(limit, *(partial(turns.burst, call) for call in (theirs, *calls)))
    share = 2 * x.size * wide * 9 * operation / times[0]
    figures = [figure for t, e in zip(times, errors, strict=True) for figure in (ort / t, e)]
    return TABLE.line(layer, ort * 1e6, figures[0], share, *figures[1:], taken(plain).rjust(32))


def exact(x: Any, w: Any) -> Any:
    """The convolution in double precision."""
    height, width = x.shape[2:]
    wide = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]).astype(np.float64)
    total = np.zeros((w.shape[0], height * width))
    for i in range(3):
        for j in range(3):
            window = wide[0, :, i : i + height, j : j + width].reshape(x.shape[1], -1)
            total += w[:, :, i, j].astype(np.float64) @ window
    return total.reshape(1, -1, height, width)


def taken(plain: bytes) -> str:
    """The convolution that costs make of a layer."""
    made, _ = optimize_graph(onnx_io.load(plain), target=CPU)
    found = [n for n in made.nodes() if "Conv" in n.op]
    return " ".join(f"{n.op}{n.attrs.get('tile', '')}" for n in found)


if __name__ == "__main__":
    main()
