"""Times models of one op, as they occur in real models, beside ONNX Runtime, and prints a table.

    python tests/bench/ops.py [NAME ...] [--threads N] [--sources]

A row has the microseconds of a call here, of our kernels alone, and of ONNX Runtime (the least of bursts that take
turns), the ratio of the two calls (above 1: we are faster), the largest error as a multiple of what is allowed, and
the seconds that compiling the kernels took. Both sides are timed with outputs that exist already.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from turns import Table, arguments, geometric_mean, keep_to_cores, onnxruntime_call, raced

import graphopt
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.ir.tolerance import error

TABLE = Table("", 18, "us:10.1f kernels:10.1f ort:10.1f ratio:8.2f kern.:8.2f error:9.2g n:4 compile:8.2f")

CASES = {
    "add": "x: float32[1, 64, 56, 56] y: float32[1, 64, 56, 56] z = Add(x, y) return z",
    "add-bias": "x: float32[128, 768] y: float32[768] z = Add(x, y) return z",
    "add-channel": "x: float32[1, 64, 56, 56] y: float32[64, 1, 1] z = Mul(x, y) return z",
    "add-outer": "x: float32[256, 1] y: float32[1, 300] z = Add(x, y) return z",
    "add-mask": "x: float32[1, 12, 128, 128] y: float32[1, 1, 1, 128] z = Add(x, y) return z",
    "sigmoid": "x: float32[1, 64, 56, 56] z = Sigmoid(x) return z",
    "gelu": "x: float32[128, 3072] z = Mul(Mul(x, Add(Erf(Div(x, 1.4142135)), 1.0)), 0.5) return z",
    "tanh": "x: float32[128, 768] z = Tanh(x) return z",
    "where": "c: bool[1, 1, 128, 128] x: float32[12, 1, 128, 128] z = Where(c, x, -1000000000.0) return z",
    "less": "x: float32[100, 1000] y: float32[100, 1000] z = Less(x, y) return z",
    "softmax-128": "x: float32[1, 12, 128, 128] z = Softmax(x, axis=-1) return z",
    "softmax-1000": "x: float32[32, 1000] z = Softmax(x, axis=-1) return z",
    "softmax-4096": "x: float32[64, 4096] z = Softmax(x, axis=-1) return z",
    "softmax-100k": "x: float32[4, 100000] z = Softmax(x, axis=-1) return z",
    "softmax-axis1": "x: float32[1, 21, 65, 65] z = Softmax(x, axis=1) return z",
    "layernorm": "x: float32[128, 768] s: float32[768] b: float32[768] z = LayerNormalization(x, s, b, axis=-1) "
    "return z",
    "mean-spatial": "x: float32[1, 512, 14, 14] z = ReduceMean(x, [2, 3], keepdims=1) return z",
    "mean-channel": "x: float32[1, 256, 28, 28] z = ReduceMean(x, [1], keepdims=1) return z",
    "mean-last": "x: float32[128, 768] z = ReduceMean(x, [-1], keepdims=1) return z",
    "sum-all": "x: float32[64, 56, 56] z = ReduceSum(x, [0, 1, 2], keepdims=0) return z",
    "max-middle": "x: float32[16, 100, 64] z = ReduceMax(x, [1], keepdims=0) return z",
    "globalpool": "x: float32[1, 1024, 7, 7] z = GlobalAveragePool(x) return z",
    "argmax": "x: float32[128, 1000] z = ArgMax(x, axis=-1, keepdims=0) return z",
    "argmax-axis1": "x: float32[1, 21, 65, 65] z = ArgMax(x, axis=1, keepdims=0) return z",
    "transpose-0213": "x: float32[1, 128, 12, 64] z = Transpose(x, perm=[0, 2, 1, 3]) return z",
    "transpose-0231": "x: float32[1, 64, 56, 56] z = Transpose(x, perm=[0, 2, 3, 1]) return z",
    "transpose-0312": "x: float32[1, 56, 56, 64] z = Transpose(x, perm=[0, 3, 1, 2]) return z",
    "transpose-10": "x: float32[768, 768] z = Transpose(x, perm=[1, 0]) return z",
    "transpose-0231-3": "x: float32[1, 3, 224, 224] z = Transpose(x, perm=[0, 2, 3, 1]) return z",
    "concat-channel": "x: float32[1, 64, 28, 28] y: float32[1, 128, 28, 28] z = Concat(x, y, axis=1) return z",
    "concat-last": "x: float32[256, 100] y: float32[256, 28] z = Concat(x, y, axis=-1) return z",
    "split": "x: float32[128, 2304] a, b, c = Split(x, [768, 768, 768], axis=-1) return a, b, c",
    "slice": "x: float32[1, 64, 56, 56] z = Slice(x, [0, 0], [56, 56], [2, 3], [2, 2]) return z",
    "pad": "x: float32[1, 64, 56, 56] z = Pad(x, [0, 0, 1, 1, 0, 0, 1, 1]) return z",
    "gather": "x: float32[5000, 768] i: int64[128] z = Gather(x, i, axis=0) return z",
    "resize-nearest": 'x: float32[1, 64, 28, 28] z = Resize(x, _, float32[4]{1, 1, 2, 2}, _, mode="nearest", '
    'coordinate_transformation_mode="asymmetric", nearest_mode="floor") return z',
    "resize-linear": 'x: float32[1, 64, 28, 28] z = Resize(x, _, float32[4]{1, 1, 2, 2}, _, mode="linear") return z',
    "maxpool": "x: float32[1, 64, 112, 112] z = MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]) "
    "return z",
    "averagepool": "x: float32[1, 64, 56, 56] z = AveragePool(x, kernel_shape=[2, 2], strides=[2, 2]) return z",
    "depthwise": "x: float32[1, 96, 56, 56] w: float32[96, 1, 3, 3] z = Conv(x, w, group=96, kernel_shape=[3, 3], "
    "pads=[1, 1, 1, 1]) return z",
    "depthwise-s2": "x: float32[1, 96, 56, 56] w: float32[96, 1, 3, 3] z = Conv(x, w, group=96, kernel_shape=[3, 3], "
    "strides=[2, 2], pads=[1, 1, 1, 1]) return z",
    "firstconv": "x: float32[1, 3, 224, 224] w: float32[64, 3, 7, 7] z = Conv(x, w, kernel_shape=[7, 7], "
    "strides=[2, 2], pads=[3, 3, 3, 3]) return z",
    "convtranspose": "x: float32[1, 64, 28, 28] w: float32[64, 32, 4, 4] z = ConvTranspose(x, w, kernel_shape=[4, 4], "
    "strides=[2, 2], pads=[1, 1, 1, 1]) return z",
    "batchnorm": "x: float32[1, 64, 56, 56] s: float32[64] b: float32[64] m: float32[64] v: float32[64] "
    "z = BatchNormalization(x, s, b, m, Abs(v)) return z",
    "instancenorm": "x: float32[1, 64, 56, 56] s: float32[64] b: float32[64] z = InstanceNormalization(x, s, b) "
    "return z",
    "groupnorm": "x: float32[1, 64, 32, 32] s: float32[64] b: float32[64] "
    "z = GroupNormalization(x, s, b, num_groups=8) return z",
    "cumsum": "x: float32[64, 512] z = CumSum(x, 1) return z",
    "cumsum-0": "x: float32[512, 64] z = CumSum(x, 0) return z",
    "topk": "x: float32[16, 1000] a, b = TopK(x, [5], axis=-1) return a, b",
    "quantize": "x: float32[1, 64, 56, 56] z = QuantizeLinear(x, 0.05, uint8[]{128}) return z",
    "dequantize": "x: uint8[1, 64, 56, 56] z = DequantizeLinear(x, 0.05, uint8[]{128}) return z",
    "gemv-1": "x: float32[1, 2048] w = float32[2048, 1000]{0.5, ...} z = MatMul(x, w) return z",
    "gemv-4": "x: float32[4, 768] w = float32[768, 768]{0.5, ...} z = MatMul(x, w) return z",
    "gemv-t": "x: float32[1, 2048] w = float32[1000, 2048]{0.5, ...} z = Gemm(x, w, transB=1) return z",
    "gemm-small": "x: float32[16, 32] w = float32[32, 16]{0.5, ...} z = MatMul(x, w) return z",
    "half-add": "x: float16[1, 64, 56, 56] y: float16[1, 64, 56, 56] z = Add(x, y) return z",
    "half-sigmoid": "x: float16[128, 768] z = Sigmoid(x) return z",
    "tiny-int": "x: int64[4] y: int64[4] z = Add(Mul(x, y), y) return z",
    "tiny-concat": "x: int64[1] y: int64[2] z = Concat(x, y, axis=0) return z",
    "lstm-1": "x: float32[1, 1, 128] h: float32[1, 1, 128] c: float32[1, 1, 128] w = float32[1, 512, 128]{0.01, ...} "
    "r = float32[1, 512, 128]{0.01, ...} y = LSTM(x, w, r, _, _, h, c, hidden_size=128) return y",
    "lstm-100": "x: float32[100, 1, 128] w = float32[1, 512, 128]{0.01, ...} r = float32[1, 512, 128]{0.01, ...} "
    "y = LSTM(x, w, r, hidden_size=128) return y",
    "gru-100": "x: float32[100, 1, 128] w = float32[1, 384, 128]{0.01, ...} r = float32[1, 384, 128]{0.01, ...} "
    "y = GRU(x, w, r, hidden_size=128) return y",
    "depthwise-7": "x: float32[1, 96, 56, 56] w: float32[96, 1, 7, 7] z = Conv(x, w, group=96, kernel_shape=[7, 7], "
    "pads=[3, 3, 3, 3]) return z",
    "softmax-peaked": "x: float32[2, 8, 128, 128] z = Softmax(Mul(x, 100.0), axis=-1) return z",
    "roialign": "x: float32[1, 64, 50, 50] r: float32[50, 4] i = int64[50]{0, ...} "
    "z = RoiAlign(x, r, i, output_height=7, output_width=7, sampling_ratio=2) return z",
    "bytes-product": "x: uint8[128, 768] w = int8[768, 768]{3, ...} z = MatMulInteger(x, w) return z",
    "bits-1": "x: float32[1, 2048] w = uint8[8192, 64, 16]{17, ...} s = float32[8192, 64]{0.01, ...} "
    "z = com.microsoft::MatMulNBits(x, w, s, K=2048, N=8192, bits=4, block_size=32) return z",
    "any-bits": "x: float32[b, n, 2048] w = uint8[8192, 64, 16]{17, ...} s = float32[8192, 64]{0.01, ...} "
    "z = com.microsoft::MatMulNBits(x, w, s, K=2048, N=8192, bits=4, block_size=32) return z",
    "any-dequantized": "x: float32[n, 2048] w = int8[2048, 2048]{3, ...} s = float32[2048]{0.01, ...} "
    "z = MatMul(x, DequantizeLinear(w, s, axis=1)) return z",
    "any-add": "x: float32[n, 768] y: float32[768] z = Add(x, y) return z",
    "any-softmax": "x: float32[b, 12, n, n] z = Softmax(x, axis=-1) return z",
    "any-layernorm": "x: float32[n, 768] s: float32[768] b: float32[768] z = LayerNormalization(x, s, b, axis=-1) "
    "return z",
    "any-transpose": "x: float32[b, n, 12, 64] z = Transpose(x, perm=[0, 2, 1, 3]) return z",
    "any-concat": "x: float32[1, 64, n, n] y: float32[1, 64, n, n] z = Concat(x, y, axis=1) return z",
}
"""Models by name, in graphopt's own notation."""

SIZES = {"n": 128, "b": 1}


def feeds(graph: Any) -> dict[str, Any]:
    """Random inputs."""
    rng, found = np.random.default_rng(0), {}
    for value in graph.inputs:
        type = graph.types[value]
        shape = [n if isinstance(n, int) else SIZES[str(n)] for n in type.shape]
        drawn = rng.standard_normal(shape)
        found[graph.names[value]] = (
            drawn > 0
            if type.dtype == "bool"
            else np.asarray(abs(drawn) * 20 if "int" in type.dtype else drawn).astype(type.dtype)
        )
    return found


def row(name: str, threads: int, sources: bool) -> tuple[str, float]:
    """A line of the table, and the ratio."""
    graph = parse(CASES[name])
    inputs = feeds(graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = graphopt.compile(graph, threads=threads, optimize=False, jobs=1)
    report = compiled.report
    if sources:
        for part in compiled.compiled.linked.parts:
            print(part.emitted.kernel.source)
    try:
        theirs, want = onnxruntime_call(onnx_io.to_bytes(graph), inputs, threads)
    except Exception as refused:
        return f"{name:18} ONNX Runtime: {str(refused)[:80]}", math.nan
    got, out = compiled(inputs), {k: np.empty_like(v) for k, v in want.items()}
    distance = max(float(error(np.asarray(want[k]), got[k])) for k in want)
    mine, kernels, other = raced(compiled, inputs, out, theirs)
    spent = next(s.seconds for s in report.steps if s.name == "compile")
    times = (t * 1e6 for t in (mine, kernels, other))
    line = TABLE.line(name, *times, other / mine, other / kernels, distance, report.calls, spent)
    return line + " by reference" * bool(report.unlowered), other / mine


def main() -> None:
    parser = arguments(__doc__, "cases (default: all), or beginnings of their names")
    parser.add_argument("--sources", action="store_true", help="print the kernels as well")
    given = parser.parse_args()
    keep_to_cores(given.threads)
    print(TABLE.heading)
    ratios = []
    for name in CASES:
        if not given.names or any(name.startswith(n) for n in given.names):
            try:
                line, ratio = row(name, given.threads, given.sources)
            except Exception as failed:
                line, ratio = f"{name:18} failed: {type(failed).__name__}: {str(failed)[:200]}", math.nan
            print(line, flush=True)
            ratios.append(ratio)
    print(geometric_mean(ratios))


if __name__ == "__main__":
    main()
