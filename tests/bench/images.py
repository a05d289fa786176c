"""Times layers of image networks that are no dense convolution, for open and for known sizes, beside ONNX Runtime.

    python tests/bench/images.py [--threads N] [NAME ...]

Each layer stands between two 1x1 convolutions, so that it may compute in blocks of channels on both sides. A row has
the microseconds of the whole model here and in ONNX Runtime, their ratio (above 1: we are faster), and the seconds that
compiling took; below it stand the microseconds of each kernel and its rates, to hold against those of ``copy``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from turns import ROUNDS, Table, arguments, fastest, keep_to_cores, onnxruntime_call

import graphopt
from graphopt.ir import onnx_io
from graphopt.runtime.profile import best_rows

TABLE = Table("", 26, "us:10.1f ort:10.1f ratio:7.2f compile:8.1f")
Layer = Callable[[graphopt.GraphBuilder, Any, int], Any]


def weights(*shape: int) -> np.ndarray:
    """Random numbers whose sums over a window are about 1."""
    drawn = np.random.default_rng(0).standard_normal(shape) / max(np.prod(shape[1:]), 1) ** 0.5
    return np.asarray(drawn, np.float32)


def conv(b: graphopt.GraphBuilder, x: Any, read: int, made: int, k: int = 1, group: int = 1, step: Any = (1, 1)) -> Any:
    """A convolution with a bias, padded to keep the size of images where its step is 1."""
    given = {"kernel_shape": (k, k), "strides": step, "pads": (k // 2,) * 4, "group": group}
    return b.emit("Conv", [x, weights(made, read // group, k, k), weights(made)], given)


def depthwise(k: int, step: tuple[int, int] = (1, 1)) -> Layer:
    """A convolution of each channel by itself, and its activation."""
    return lambda b, x, c: b.emit("HardSwish", [conv(b, x, c, c, k, c, step)])


def pool(op: str, k: int, step: int, pad: int) -> Layer:
    """A pool."""
    return lambda b, x, c: b.emit(op, [x], {"kernel_shape": (k, k), "strides": (step, step), "pads": (pad,) * 4})


def squeeze_and_excite(b: graphopt.GraphBuilder, x: Any, c: int) -> Any:
    """Channels weighed by what a small network makes of their means."""
    few = b.emit("Relu", [conv(b, b.emit("GlobalAveragePool", [x]), c, c // 4)])
    return b.emit("Mul", [x, b.emit("HardSigmoid", [conv(b, few, c // 4, c)])])


def transposed(b: graphopt.GraphBuilder, x: Any, c: int) -> Any:
    """Twice the size, by windows that do not overlap."""
    given = {"kernel_shape": (2, 2), "strides": (2, 2)}
    return b.emit("Relu", [b.emit("ConvTranspose", [x, weights(c, c, 2, 2), weights(c)], given)])


def enlarged(b: graphopt.GraphBuilder, x: Any, times: int) -> Any:
    """So many times the size, by the nearest element."""
    given = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return b.emit("Resize", [x, None, np.array([1, 1, times, times], np.float32)], given)


def resized(b: graphopt.GraphBuilder, x: Any, c: int) -> Any:
    """Half the size and back, added."""
    half = b.emit("MaxPool", [x], {"kernel_shape": (2, 2), "strides": (2, 2)})
    return b.emit("Add", [x, enlarged(b, conv(b, half, c, c), 2)])


def joined(b: graphopt.GraphBuilder, x: Any, c: int) -> Any:
    """Images of several sizes, enlarged, as one."""
    parts = [conv(b, x, c, c // 4)]
    for times in (2, 4, 8):
        small = b.emit("AveragePool", [x], {"kernel_shape": (times, times), "strides": (times, times)})
        parts.append(enlarged(b, conv(b, small, c, c // 4), times))
    return b.emit("Concat", parts, {"axis": 1})


LAYERS: dict[str, tuple[Layer, int, tuple[int, int]]] = {
    "copy": (lambda b, x, c: b.emit("MaxPool", [x], {"kernel_shape": (1, 1)}), 96, (160, 160)),
    "depthwise 3x3": (depthwise(3), 96, (160, 160)),
    "depthwise 3x3 /2": (depthwise(3, (2, 2)), 96, (160, 160)),
    "depthwise 5x5": (depthwise(5), 192, (40, 40)),
    "depthwise 5x5 /2": (depthwise(5, (2, 2)), 192, (40, 40)),
    "depthwise 3x3 /2,1": (depthwise(3, (2, 1)), 64, (24, 160)),
    "max 2x2 /2": (pool("MaxPool", 2, 2, 0), 64, (80, 80)),
    "max 3x3 /2": (pool("MaxPool", 3, 2, 1), 64, (80, 80)),
    "average 3x3": (pool("AveragePool", 3, 1, 1), 64, (80, 80)),
    "squeeze-excite": (squeeze_and_excite, 96, (40, 40)),
    "transposed 2x2": (transposed, 24, (160, 160)),
    "resize, add": (resized, 24, (160, 160)),
    "resize, concat": (joined, 96, (160, 160)),
}


def model(name: str, known: bool) -> Any:
    """The graph of a layer between two convolutions."""
    layer, channels, (height, width) = LAYERS[name]
    b = graphopt.GraphBuilder()
    x = b.input("x", "float32", (1, 16, height, width) if known else (1, 16, "h", "w"))
    made = layer(b, b.emit("Relu", [conv(b, x, 16, channels)]), channels)
    b.output("y", conv(b, made, channels, 16))
    return b.build()["main"]


def row(name: str, known: bool, threads: int) -> str:
    """A line of the table, and one for each kernel."""
    graph, (_, _, (height, width)) = model(name, known), LAYERS[name]
    inputs = {"x": np.random.default_rng(1).standard_normal((1, 16, height, width), np.float32)}
    start = time.perf_counter()
    compiled = graphopt.compile(graph, threads=threads, jobs=1)
    out = compiled(inputs)
    built = time.perf_counter() - start
    theirs, _ = onnxruntime_call(onnx_io.to_bytes(graph), inputs, threads)
    mine, other = fastest(lambda: compiled(inputs, out=out), theirs)
    lines = [TABLE.line(f"{name:20}{'known' if known else 'open'}", mine * 1e6, other * 1e6, other / mine, built)]
    for part in best_rows(compiled.profile(inputs) for _ in range(4 * ROUNDS)):
        seconds = max(part.seconds, 1e-9)
        rates = f"{part.flops / seconds / 1e9:9.1f} GFLOP/s{part.bytes / seconds / 1e9:8.1f} GB/s"
        lines.append(f"{'':6}{seconds * 1e6:20.1f}{rates}  {part.label}")
    return "\n".join(lines)


def main() -> None:
    given = arguments(__doc__, "layers (default: all), or beginnings of their names").parse_args()
    keep_to_cores(given.threads)
    print(TABLE.heading)
    for name in LAYERS:
        if not given.names or any(name.startswith(n) for n in given.names):
            for known in (False, True):
                print(row(name, known, given.threads), flush=True)


if __name__ == "__main__":
    main()
