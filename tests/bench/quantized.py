"""Times products and convolutions of bytes beside ONNX Runtime, and prints a table.

    python tests/bench/quantized.py [--threads N] [NAME ...]

A row is measured in one run, engines taking turns, the least of bursts: operations in a second (a multiplication and an
addition are two), the ratio to ONNX Runtime, and by how much the results differ at most. Names are parts of those in
the first column, such as ``QLinearConv`` or ``64x64x64``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from models import single
from turns import Table, arguments, fastest, keep_to_cores, onnxruntime_call

import graphopt

SIZES = [(n, n, n) for n in (32, 64, 128, 256, 512, 1024)] + [(m, 1024, 1024) for m in (1, 4, 16)] + [(128, 768, 3072)]
LAYERS = [  # channels in, out, height and width, kernel, stride, groups
    (3, 64, 224, 7, 2, 1), (64, 64, 56, 1, 1, 1), (64, 64, 56, 3, 1, 1), (64, 256, 56, 1, 1, 1), (256, 64, 56, 1, 1, 1),
    (256, 128, 56, 1, 1, 1), (128, 128, 56, 3, 2, 1), (256, 512, 56, 1, 2, 1), (128, 512, 28, 1, 1, 1),
    (128, 128, 28, 3, 1, 1), (256, 256, 14, 3, 1, 1), (256, 1024, 14, 1, 1, 1), (512, 512, 7, 3, 1, 1),
    (512, 2048, 7, 1, 1, 1), (96, 96, 56, 3, 1, 96),
]  # fmt: skip
TABLE = Table("GOP/s", 40, "ours:9.1f ort:9.1f ratio:8.2f differ:10.3g")

Case = tuple[str, bytes, Mapping[str, Any], int]
"""A name, a model, its inputs, and how many operations it takes."""


def one(value: float, dtype: str = "float32") -> Any:
    """A scalar."""
    return np.array(value, dtype)


def numbers(dtype: str, *shape: int) -> Any:
    """Random bytes, or floats."""
    rng = np.random.default_rng(0)
    if dtype == "float32":
        return rng.standard_normal(shape, np.float32)
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)


def products() -> Iterator[Case]:
    """Products by constants."""
    scales = {"sx": one(0.02), "sw": one(0.01), "sy": one(0.7), "zy": one(100, "uint8"), "zw": one(0, "int8")}
    for m, k, n in SIZES:
        x, f, w, zero = (
            numbers("uint8", m, k), numbers("float32", m, k), numbers("int8", k, n), {"zx": one(114, "uint8")}
        )  # fmt: skip
        size, work = f"{m}x{k}x{n}", 2 * m * k * n
        held = {"w": w, **zero}
        yield f"MatMulInteger {size}", single("MatMulInteger", {"x": x}, held, "x w zx"), {"x": x}, work
        made = single("QLinearMatMul", {"x": x}, {**held, **scales}, "x sx zx w sw zw sy zy")
        yield f"QLinearMatMul {size}", made, {"x": x}, work
        made = single("DynamicQuantizeMatMul", {"x": f}, {"w": w, "sw": one(0.01)}, "x w sw", domain="com.microsoft")
        yield f"DynamicQuantizeMatMul {size}", made, {"x": f}, work


def convolutions() -> Iterator[Case]:
    """Layers, with a scale for each channel."""
    rng = np.random.default_rng(0)
    for c, o, size, k, stride, group in LAYERS:
        x, w = numbers("uint8", 1, c, size, size), numbers("int8", o, c // group, k, k)
        held = {"sx": one(0.02), "zx": one(114, "uint8"), "w": w, "sw": rng.uniform(0.001, 0.01, o).astype(np.float32)}
        held |= {"zw": np.zeros(o, np.int8), "sy": one(0.7), "zy": one(100, "uint8")}
        held["b"] = rng.integers(-1000, 1000, o).astype(np.int32)
        attrs = {"pads": [k // 2] * 4, "strides": [stride] * 2, "group": group, "kernel_shape": [k, k]}
        made = single("QLinearConv", {"x": x}, held, "x sx zx w sw zw sy zy b", **attrs)
        out = (size + 2 * (k // 2) - k) // stride + 1
        name = f"QLinearConv {c}->{o} {size}x{size} {k}x{k}/{stride}{'' if group == 1 else f' in {group}'}"
        yield name, made, {"x": x}, 2 * (c // group) * o * k * k * out * out


def row(case: Case, threads: int) -> str:
    """A line of the table."""
    name, made, feeds, work = case
    program = graphopt.compile(made, threads=threads)
    theirs, want = onnxruntime_call(made, feeds, threads)
    out = program(feeds)
    distance = np.abs(want["y"].astype(np.float64) - out["y"]).max()
    mine, other = fastest(lambda: program(feeds, out=out), theirs)
    return TABLE.line(name, work / mine / 1e9, work / other / 1e9, other / mine, distance)


def main() -> None:
    given = arguments(__doc__, "parts of the names of rows").parse_args()
    keep_to_cores(given.threads)
    print(TABLE.heading)
    for case in (*products(), *convolutions()):
        if not given.names or any(n in case[0] for n in given.names):
            print(row(case, given.threads), flush=True)


if __name__ == "__main__":
    main()
