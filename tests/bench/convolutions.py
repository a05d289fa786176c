"""Convolutions over sizes, beside ONNX Runtime and this machine's limit.

    python tests/bench/convolutions.py [PART OF A NAME ...]

For each layer, of a model whose image has open sizes and of one whose sizes are known: what the convolution's kernel
reaches of the multiply-adds that this machine does at most, measured in the same run, how many times as fast as ONNX
Runtime the whole model is, and the largest error as a multiple of what is allowed. The engines take turns, with one
thread, and the best of each counts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper

import graphopt
from graphopt.ceilings import measure
from graphopt.tolerance import error

SECONDS = 1.0
"""How long the engines take turns on one layer."""


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

    @property
    def name(self) -> str:
        """What is printed, in which parts are looked for."""
        more = [f"s{self.stride}" * (self.stride > 1), f"d{self.dilation}" * (self.dilation > 1)]
        more += [f"g{self.group}" * (self.group > 1)]
        form = f"{self.kernel}x{self.kernel} {self.channels}-{self.filters} @{self.side}"
        return " ".join([form, *filter(None, more)])

    def model(self, is_open: bool) -> ModelProto:
        """The model, for any image or for that side."""
        rng, k, pad = np.random.default_rng(0), self.kernel, (self.kernel - 1) * self.dilation // 2
        w = rng.standard_normal((self.filters, self.channels // self.group, k, k), np.float32)
        b = rng.standard_normal(self.filters, np.float32)
        window: dict[str, Any] = {"strides": [self.stride] * 2, "dilations": [self.dilation] * 2, "pads": [pad] * 4}
        nodes = [
            helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[k, k], group=self.group, **window),
            helper.make_node("Relu", ["c"], ["y"]),
        ]
        sides = ["h", "w"] if is_open else [self.side] * 2
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, self.channels, *sides])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        weights = [numpy_helper.from_array(w / (self.channels * k * k) ** 0.5, "w"), numpy_helper.from_array(b, "b")]
        graph = helper.make_graph(nodes, "layer", [x], [y], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

    @property
    def feeds(self) -> dict[str, Any]:
        """An image."""
        return {"x": np.random.default_rng(1).standard_normal((1, self.channels, self.side, self.side), np.float32)}


LAYERS = (
    *(Layer(64, 64, 3, side) for side in (112, 56, 40, 20, 15, 7, 3)),
    *(Layer(n, n, 3, side) for n, side in ((128, 28), (256, 14), (512, 7))),
    *(Layer(a, b, 1, side) for a, b, side in ((64, 256, 56), (64, 128, 80), (480, 512, 20), (16, 16, 160))),
    Layer(512, 512, 1, 1),
    *(Layer(3, n, k, side, 2) for n, k, side in ((16, 3, 640), (64, 7, 224))),
    *(Layer(64, 64, k, 40) for k in (5, 9)),
    *(Layer(96, 24, 3, 160), Layer(64, 128, 3, 56, 2), Layer(64, 64, 3, 40, 1, 2), Layer(64, 64, 3, 40, 1, 1, 2)),
)


def measured(layer: Layer) -> str:
    """A line of the table."""
    models = [graphopt.compile(layer.model(is_open), cache=False) for is_open in (True, False)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    peer = onnxruntime.InferenceSession(layer.model(False).SerializeToString(), options)
    feeds = layer.feeds
    (want,) = peer.run(None, feeds)
    errors = [error(want, got) for m in models for got in m(feeds).values()]
    spent, kernels, peak = [float("inf")] * 3, [float("inf")] * 2, measure().flops
    for _ in _turns():
        for k, model in enumerate(models):
            row = max(model.profile(feeds), key=lambda row: row.flops)
            kernels[k] = min(kernels[k], row.seconds)
            spent[k] = min(spent[k], _seconds(model, feeds))
        spent[2] = min(spent[2], _seconds(lambda x: peer.run(None, x), feeds))
    peak = max(peak, measure().flops)
    shares = [row.flops / s / peak for s in kernels]
    ratios = [spent[2] / s for s in spent[:2]]
    numbers = "".join(f"{x:9.2f}" for x in (*shares, *ratios))
    return f"{layer.name:24}{numbers}{max(errors):9.2f}"


def _turns() -> Iterator[int]:
    """Turns of all engines, as long as time lasts."""
    turn, start = 0, perf_counter()
    while turn < 5 or perf_counter() - start < SECONDS:
        yield turn
        turn += 1


def _seconds(run: Any, feeds: dict[str, Any]) -> float:
    start = perf_counter()
    run(feeds)
    return perf_counter() - start


def main() -> None:
    """Print the table."""
    print(f"{'':24}{'share of the peak':>18}{'times ORT':>18}{'error':>9}")
    print(f"{'layer':24}" + f"{'open':>9}{'known':>9}" * 2)
    for layer in LAYERS:
        if len(sys.argv) < 2 or any(part in layer.name for part in sys.argv[1:]):
            print(measured(layer), flush=True)


if __name__ == "__main__":
    main()
