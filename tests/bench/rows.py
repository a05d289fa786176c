"""Times ops on rows beside ONNX Runtime and the bytes that the machine moves, and prints a table.

    python tests/bench/rows.py [NAME ...] [--threads N] [--shapes 128x768,1x21x65x65] [--half] [--open]

Names are cases, or beginnings of their names; a case that ends in ``-by-hand`` is the op as exporters write it out. A
row has the microseconds of a call here, of our kernels alone, and of ONNX Runtime (the least of bursts that take
turns), the ratio of the two calls (above 1: we are faster) and of ONNX Runtime's call to our kernels, the bytes that
inputs and outputs have for a second of our kernels, as a share of what a copy moves where they lie (near caches or
memory, measured in the same run), the largest error as a multiple of what is allowed, and the number of calls that the
program makes. Both sides are timed with outputs that exist already. ``--half`` is float16, ``--open`` leaves the number
of rows open.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from turns import Table, arguments, geometric_mean, keep_to_cores, onnxruntime_call, raced, sides

import graphopt
from graphopt.benchmark import ceilings
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.ir.tolerance import error

TABLE = Table("", 39, "us:10.1f kernels:10.1f ort:10.1f ratio:8.2f kern.:8.2f GB/s:8.1f share:8.2f error:9.2g n:4")
SHAPES = "1x64 16x64 1x4096 128x128 128x768 512x1024 1024x4096 4096x4096"
IMAGES = "1x21x65x65 1x64x56x56"

ROOT_HALF, ROOT_2_PI = math.sqrt(0.5), math.sqrt(2 / math.pi)
ON_ELEMENTS = {
    "exp": "z = Exp(x)",
    "log": "z = Log(Abs(x))",
    "tanh": "z = Tanh(x)",
    "sigmoid": "z = Sigmoid(x)",
    "erf": "z = Erf(x)",
    "pow": "z = Pow(Abs(x), 1.7)",
    "pow-rows": "z = Pow(Abs(x), s)",
    "softplus": "z = Softplus(x)",
    "mish": "z = Mish(x)",
    "elu": "z = Elu(x)",
    "selu": "z = Selu(x)",
    "celu": "z = Celu(x)",
    "sin": "z = Sin(x)",
    "gelu": "z = Gelu(x)",
    "gelu-tanh": 'z = Gelu(x, approximate="tanh")',
    "gelu-by-hand": f"z = Mul(Mul(x, 0.5), Add(Erf(Mul(x, {ROOT_HALF})), 1.0))",
    "gelu-tanh-by-hand": f"z = Mul(Mul(x, 0.5), Add(Tanh(Mul(Add(x, Mul(Pow(x, 3.0), 0.044715)), {ROOT_2_PI})), 1.0))",
    "silu-by-hand": "z = Mul(x, Sigmoid(x))",
}
ON_ROWS = {
    "softmax": "z = Softmax(x, axis=-1)",
    "softmax-by-hand": "m = ReduceMax(x, [-1], keepdims=1)\ne = Exp(Sub(x, m))\n"
    "z = Div(e, ReduceSum(e, [-1], keepdims=1))",
    "log-softmax": "z = LogSoftmax(x, axis=-1)",
    "layer-norm": "z = LayerNormalization(x, s, b, axis=-1)",
    "layer-norm-added": "z = LayerNormalization(Add(x, y), s, b, axis=-1)",
    "layer-norm-by-hand": "d = Sub(x, ReduceMean(x, [-1], keepdims=1))\n"
    "v = ReduceMean(Pow(d, 2.0), [-1], keepdims=1)\nz = Add(Mul(Div(d, Sqrt(Add(v, 0.00001))), s), b)",
    "layer-norm-added-by-hand": "a = Add(x, y)\nd = Sub(a, ReduceMean(a, [-1], keepdims=1))\n"
    "v = ReduceMean(Pow(d, 2.0), [-1], keepdims=1)\nz = Add(Mul(Div(d, Sqrt(Add(v, 0.00001))), s), b)",
    "rms-norm": "z = RMSNormalization(x, s, axis=-1)",
    "rms-norm-by-hand": "v = ReduceMean(Pow(x, 2.0), [-1], keepdims=1)\n"
    "z = Mul(Mul(x, Reciprocal(Sqrt(Add(v, 0.00001)))), s)",
}
ON_CHANNELS = {
    "prelu": "z = PRelu(x, w)",
    "softmax-channels": "z = Softmax(x, axis=1)",
    "log-softmax-channels": "z = LogSoftmax(x, axis=1)",
    "layer-norm-channels": "d = Sub(x, ReduceMean(x, [1], keepdims=1))\n"
    "v = ReduceMean(Pow(d, 2.0), [1], keepdims=1)\nz = Mul(Div(d, Sqrt(Add(v, 0.00001))), w)",
}
BACKWARDS = "i = Range(WIDTH1, -1, -1)\n"
ON_PLACES = {
    "slice-single": "z = Slice(x, [WIDTH1], [-10000], [1], [-1])",
    "gather-single": BACKWARDS + "z = Gather(x, i, axis=1)",
    "gather-nd-single": BACKWARDS + "z = GatherND(x, Expand(Unsqueeze(i, [1]), [HEIGHT, WIDTH, 1]), batch_dims=1)",
    "gather-elements": BACKWARDS + "z = GatherElements(x, Expand(i, [HEIGHT, WIDTH]), axis=1)",
    "dft": "z = DFT(Unsqueeze(x, [2]), _, 1, onesided=1)",
}
CASES = {**ON_ELEMENTS, **ON_ROWS, **ON_CHANNELS, **ON_PLACES}


def model(text: str, shape: tuple[int, ...], dtype: str, is_open: bool) -> Any:
    """The graph of a case, in whose text ``x`` and ``y`` are inputs of that shape, ``s`` and ``b`` a row."""
    channels = f", {', '.join('1' for _ in shape[2:])}" if len(shape) > 2 else ""
    whole = ", ".join(["n", *map(str, shape[1:])] if is_open else map(str, shape))
    inputs = {"x": whole, "y": whole, "s": str(shape[-1]), "b": str(shape[-1]), "w": f"{shape[1]}{channels}"}
    words = text.replace("(", " ").replace(")", " ").replace(",", " ").split()
    given = [f"{name}: {dtype}[{sides}]" for name, sides in inputs.items() if name in words]
    sides = {"WIDTH1": shape[-1] - 1, "WIDTH": shape[-1], "HEIGHT": shape[0]}
    for side, n in sides.items():
        text = text.replace(side, str(n))
    text = "\n".join(["graph main (ir 10, opset 23)", *given, text, "return z"])
    return parse(text if dtype == "float32" else _narrowed(text, dtype))


def _narrowed(text: str, dtype: str) -> str:
    """The text with its numbers of another dtype."""
    import re

    return re.sub(r"(?<=[ (])(\d+\.\d+(?:e-?\d+)?)(?=[),])", rf"{dtype}[]{{\1}}", text)


def row(name: str, shape: tuple[int, ...], given: Any, limits: ceilings.Ceilings) -> tuple[str, float]:
    """A line of the table, and the ratio."""
    dtype = "float16" if given.half else "float32"
    graph = model(CASES[name], shape, dtype, given.open)
    rng, inputs = np.random.default_rng(0), {}
    for value in graph.inputs:
        sizes = [shape[0] if not isinstance(n, int) else n for n in graph.types[value].shape]
        inputs[graph.names[value]] = rng.standard_normal(sizes).astype(dtype)
    head = f"{name:26}{'x'.join(map(str, shape)):>13}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = graphopt.compile(graph, threads=limits.threads)
    try:
        theirs, want = onnxruntime_call(onnx_io.to_bytes(graph), inputs, limits.threads)
    except Exception as refused:
        return f"{head}  ONNX Runtime: {str(refused)[:80]}", math.nan
    out = compiled(inputs)
    distance = max(float(error(want[k], out[k])) for k in want)
    mine, kernels, other = raced(compiled, inputs, out, theirs)
    kernels = min(kernels, mine)  # profiles write to fresh memory
    moved = sum(a.nbytes for a in (*inputs.values(), *out.values()))
    times, rate = (t * 1e6 for t in (mine, kernels, other)), moved / kernels
    figures = (rate / 1e9, rate / limits.bandwidth(moved), distance, compiled.report.calls)
    return TABLE.line(head, *times, other / mine, other / kernels, *figures), other / mine


def main() -> None:
    parser = arguments(__doc__, "cases (default: all), or beginnings of their names")
    parser.add_argument("--shapes", help="sides with x between, with commas between shapes")
    parser.add_argument("--half", action="store_true", help="float16 instead of float32")
    parser.add_argument("--open", action="store_true", help="leave the number of rows open")
    given = parser.parse_args()
    keep_to_cores(given.threads)
    limits = ceilings.measure(given.threads)
    print(f"a copy moves {limits.near_bytes / 1e9:.0f} GB/s near, {limits.bytes / 1e9:.0f} GB/s in memory")
    print(TABLE.heading)
    ratios = []
    for name in CASES:
        if given.names and not any(name.startswith(n) for n in given.names):
            continue
        shapes = given.shapes.split(",") if given.shapes else (IMAGES if name in ON_CHANNELS else SHAPES).split()
        for shape in shapes:
            line, ratio = row(name, sides(shape), given, limits)
            print(line, flush=True)
            ratios.append(ratio)
    print(geometric_mean(ratios))


if __name__ == "__main__":
    main()
