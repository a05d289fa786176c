"""Times products and convolutions of bytes beside ONNX Runtime, and prints a table.

    python tests/bench/quantized.py [--threads N] [NAME ...]

A row is measured in one run, engines taking turns, the least of bursts: operations in a second (a multiplication and an
addition are two), the ratio to ONNX Runtime, and by how much the results differ at most. Names are parts of those in
the first column, such as ``QLinearConv`` or ``64x64x64``.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper
from onnx.helper import np_dtype_to_tensor_dtype

import graphopt

SIZES = [(n, n, n) for n in (32, 64, 128, 256, 512, 1024)] + [(m, 1024, 1024) for m in (1, 4, 16)] + [(128, 768, 3072)]
LAYERS = [  # channels in, out, height and width, kernel, stride, groups
    (3, 64, 224, 7, 2, 1), (64, 64, 56, 1, 1, 1), (64, 64, 56, 3, 1, 1), (64, 256, 56, 1, 1, 1), (256, 64, 56, 1, 1, 1),
    (256, 128, 56, 1, 1, 1), (128, 128, 56, 3, 2, 1), (256, 512, 56, 1, 2, 1), (128, 512, 28, 1, 1, 1),
    (128, 128, 28, 3, 1, 1), (256, 256, 14, 3, 1, 1), (256, 1024, 14, 1, 1, 1), (512, 512, 7, 3, 1, 1),
    (512, 2048, 7, 1, 1, 1), (96, 96, 56, 3, 1, 96),
]  # fmt: skip
ROUNDS, SECONDS = 7, 0.02
MS = "com.microsoft"

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


def model(op: str, x: Any, held: Mapping[str, Any], names: str, domain: str = "", **attrs: Any) -> bytes:
    """A model of one op: of the input x, and constants by name."""
    node = helper.make_node(op, ["" if n == "-" else n for n in names.split()], ["y"], domain=domain, **attrs)
    infos = [helper.make_tensor_value_info("x", np_dtype_to_tensor_dtype(x.dtype), x.shape)]
    kept = [numpy_helper.from_array(a, n) for n, a in held.items()]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")], kept)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def products() -> Iterator[Case]:
    """Products by constants."""
    scales = {"sx": one(0.02), "sw": one(0.01), "sy": one(0.7), "zy": one(100, "uint8"), "zw": one(0, "int8")}
    for m, k, n in SIZES:
        x, f, w, zero = (
            numbers("uint8", m, k), numbers("float32", m, k), numbers("int8", k, n), {"zx": one(114, "uint8")}
        )  # fmt: skip
        size, work = f"{m}x{k}x{n}", 2 * m * k * n
        held = {"w": w, **zero}
        yield f"MatMulInteger {size}", model("MatMulInteger", x, held, "x w zx"), {"x": x}, work
        made = model("QLinearMatMul", x, {**held, **scales}, "x sx zx w sw zw sy zy")
        yield f"QLinearMatMul {size}", made, {"x": x}, work
        made = model("DynamicQuantizeMatMul", f, {"w": w, "sw": one(0.01)}, "x w sw", MS)
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
        made = model("QLinearConv", x, held, "x sx zx w sw zw sy zy b", **attrs)
        out = (size + 2 * (k // 2) - k) // stride + 1
        name = f"QLinearConv {c}->{o} {size}x{size} {k}x{k}/{stride}{'' if group == 1 else f' in {group}'}"
        yield name, made, {"x": x}, 2 * (c // group) * o * k * k * out * out


def burst(call: Callable[[], object]) -> float:
    """Seconds of the fastest of some calls."""
    best, end = np.inf, time.perf_counter() + SECONDS
    while True:
        start = time.perf_counter()
        call()
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return float(best)


def row(case: Case, threads: int) -> str:
    """A line of the table."""
    name, made, feeds, work = case
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(made, options, providers=["CPUExecutionProvider"])
    program = graphopt.compile(made, threads=threads, cache=False)
    (want,), got = session.run(None, feeds), program(feeds)["y"]
    distance = float(np.abs(want.astype(np.float64) - got).max())
    out, binding = {"y": np.empty_like(want)}, session.io_binding()
    binding.bind_cpu_input("x", feeds["x"])
    binding.bind_ortvalue_output("y", onnxruntime.OrtValue.ortvalue_from_numpy(np.empty_like(want)))
    calls = [lambda: program(feeds, out=out), lambda: session.run_with_iobinding(binding)]
    least = [np.inf] * len(calls)
    for _ in range(ROUNDS):
        least = [min(t, burst(call)) for t, call in zip(least, calls, strict=True)]
    rates = "".join(f"{work / t / 1e9:9.1f}" for t in least)
    return f"{name:40}{rates}{least[1] / least[0]:8.2f}{distance:10.3g}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("names", nargs="*", help="parts of the names of rows")
    arguments.add_argument("--threads", type=int, default=1)
    given = arguments.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.threads])
    print(f"{'GOP/s':40}{'ours':>9}{'ort':>9}{'ratio':>8}{'differ':>10}")
    for case in (*products(), *convolutions()):
        if not given.names or any(n in case[0] for n in given.names):
            print(row(case, given.threads), flush=True)


if __name__ == "__main__":
    main()
