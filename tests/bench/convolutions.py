"""Convolutions over sizes, beside ONNX Runtime, OpenVINO where it is installed, and this machine's limit.

    python tests/bench/convolutions.py [--threads N] [PART OF A NAME ...]

For each layer, of a model whose image has open sizes and of one whose sizes are known: what the convolution's kernel
reaches of the multiply-adds that this machine does at most, measured in the same run, how many times as fast as ONNX
Runtime the whole model is, and the largest error as a multiple of what is allowed; then, for known sizes, how many
times as fast as OpenVINO it is, and what computes it (for open and for known sizes where the two differ). Minimal
filtering (Winograd) counts the operations that it does, not those that it saves. All models take and give plain images,
so that engines pay for bringing them into their layouts. The engines take turns, and the best of each counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import nan
from typing import Any

import numpy as np
import turns
from models import model
from onnx import helper

import graphopt
from graphopt.ir.tolerance import error
from graphopt.runtime.profile import ProfileRow

TABLE = turns.Table("layer", 28, "open:9.2f known:9.2f open:9.2f known:9.2f open:9.2g known:9.2g OpenVINO:10.2f by:4")


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution followed by a Relu, and the side of its image."""

    channels: int
    filters: int
    kernel: int
    side: int
    stride: int = 1
    dilation: int = 1
    group: int = 1
    op: str = "Conv"

    @property
    def name(self) -> str:
        """What is printed, in which parts are looked for."""
        more = [f"s{self.stride}" * (self.stride > 1), f"d{self.dilation}" * (self.dilation > 1)]
        more += [f"g{self.group}" * (self.group > 1), "transposed" * (self.op != "Conv")]
        form = f"{self.kernel}x{self.kernel} {self.channels}-{self.filters} @{self.side}"
        return " ".join([form, *filter(None, more)])

    def model(self, is_open: bool) -> bytes:
        """The model, for any image or for that side."""
        rng, k, pad = np.random.default_rng(0), self.kernel, (self.kernel - 1) * self.dilation // 2
        pad = 0 if self.kernel == self.stride > 1 else pad  # patches
        ends = (self.filters, self.channels) if self.op == "Conv" else (self.channels, self.filters)
        w = rng.standard_normal((ends[0], ends[1] // self.group, k, k), np.float32)
        held = {"w": w / np.float32((self.channels * k * k) ** 0.5), "b": rng.standard_normal(self.filters, np.float32)}
        window: dict[str, Any] = {"strides": [self.stride] * 2, "dilations": [self.dilation] * 2, "pads": [pad] * 4}
        nodes = [
            helper.make_node(self.op, ["x", "w", "b"], ["c"], kernel_shape=[k, k], group=self.group, **window),
            helper.make_node("Relu", ["c"], ["y"]),
        ]
        return model(nodes, self.feeds, held, shapes={"x": [1, self.channels, "h", "w"]} if is_open else {})

    @property
    def feeds(self) -> dict[str, Any]:
        """An image."""
        return {"x": np.random.default_rng(1).standard_normal((1, self.channels, self.side, self.side), np.float32)}


LAYERS = (
    *(Layer(64, 64, 3, side) for side in (112, 56, 40, 20, 15, 7, 3)),
    *(Layer(n, n, 3, side) for n, side in ((128, 28), (256, 14), (512, 7))),
    *(Layer(a, b, 1, side) for a, b, side in ((64, 256, 56), (64, 128, 80), (480, 512, 20), (16, 16, 160))),
    *(Layer(512, 512, 1, 1), Layer(512, 2048, 1, 7)),
    *(Layer(3, n, k, side, 2) for n, k, side in ((16, 3, 640), (64, 7, 224))),
    *(Layer(3, 64, 3, 224), Layer(1, 32, 5, 28)),
    *(Layer(c, n, k, side, k) for c, n, k, side in ((3, 768, 16, 224), (3, 96, 4, 224), (8, 64, 4, 128))),
    *(Layer(64, 64, k, 40) for k in (5, 9)),
    *(Layer(96, 24, 3, 160), Layer(64, 128, 3, 56, 2), Layer(256, 512, 1, 28, 2), Layer(64, 64, 3, 40, 1, 2)),
    *(Layer(n, n, k, side, s, 1, n) for n, k, side, s in ((96, 3, 56, 1), (96, 3, 112, 2), (192, 5, 28, 1))),
    *(Layer(64, 64, k, 100, 1, 1, 64) for k in (7, 11, 15)),
    *(Layer(64, 64, 3, 40, 1, 1, 2), Layer(128, 128, 3, 28, 1, 1, 32)),
    *(Layer(64, 32, 4, 28, 2, op="ConvTranspose"), Layer(24, 24, 2, 160, 2, op="ConvTranspose")),
)


def main_kernel(program: Any, feeds: dict[str, Any]) -> ProfileRow:
    """The kernel that does most, in one call."""
    return max(program.profile(feeds), key=lambda row: row.flops)


def operation_seconds(program: Any, feeds: dict[str, Any]) -> float:
    """Seconds that the kernel that does most takes for one of its operations."""
    row = main_kernel(program, feeds)
    return row.seconds / row.flops


def measured(layer: Layer, threads: int, limit: turns.Timer) -> str:
    """A line of the table."""
    files, feeds = [layer.model(is_open) for is_open in (True, False)], layer.feeds
    programs = [graphopt.compile(file, threads=threads) for file in files]
    theirs, want = turns.onnxruntime_call(files[1], feeds, threads)
    outs = [program(feeds) for program in programs]
    errors = [float(error(want["y"], out["y"])) for out in outs]
    calls = [partial(program, feeds, out=out) for program, out in zip(programs, outs, strict=True)]
    other = turns.openvino_call(files[1], feeds, threads)
    peak, *seconds = turns.least(
        limit,
        *(partial(operation_seconds, program, feeds) for program in programs),
        *(partial(turns.burst, call) for call in (*calls, theirs, other) if call is not None),
    )
    spent, ort, rest = seconds[2:4], seconds[4], seconds[5:]
    shares = [peak / operation for operation in seconds[:2]]
    beside = [*(ort / s for s in spent), *errors, rest[0] / spent[1] if rest else nan]
    labels = dict.fromkeys(main_kernel(p, feeds).label.replace("graphopt::", "") for p in programs)
    return TABLE.line(layer.name, *shares, *beside, "  " + ", ".join(labels))


def main() -> None:
    given = turns.arguments(__doc__, "parts of the names of layers", "PART").parse_args()
    turns.keep_to_cores(given.threads)
    print(f"{'':28}{'share of the peak':>18}{'times ORT':>18}{'error':>18}{'times':>10}")
    print(TABLE.heading)
    limit = turns.operation_timer(given.threads)
    for layer in LAYERS:
        if not given.names or any(part in layer.name for part in given.names):
            print(measured(layer, given.threads, limit), flush=True)


if __name__ == "__main__":
    main()
