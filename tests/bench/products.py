"""Times products of matrices beside BLAS, ONNX Runtime and the machine's limit, and prints a table.

    python tests/bench/products.py [--threads N] [ROWSxDEPTHxCOLUMNS ...]

All of a row is measured in one run, engines taking turns, the least of bursts: our program with a second operand that
is constant, and with one that is an input, BLAS (one thread), and ONNX Runtime's MatMul with a constant. Each is told
as a share of the multiply-adds that the machine does at most, measured in the same run; then the ratio to ONNX
Runtime, and the error of ours as a multiple of what is allowed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt import ceilings
from graphopt.runtime.libraries import blas
from graphopt.tolerance import error

CUBES = [(n, n, n) for n in (32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)]
BERT = [(m, k, n) for m in (8, 32, 128) for k, n in ((768, 768), (768, 3072), (3072, 768))]
THIN = [(m, 1024, 1024) for m in (1, 2, 4, 8, 16)] + [(1024, 1024, n) for n in (1, 4, 16)] + [(1, 2048, 1000)]
ROUNDS, SECONDS = 7, 0.02


def model(m: int, k: int, n: int, weights: Any | None) -> bytes:
    """``x @ w``, of a constant or of an input."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [m, k])]
    held = [] if weights is None else [numpy_helper.from_array(weights, "w")]
    if weights is None:
        inputs.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [k, n]))
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [m, n])]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", inputs, outputs, held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(made.SerializeToString())


def runtime(model: bytes, x: Any, out: Any, threads: int) -> Callable[[], object]:
    """A call of ONNX Runtime's session, its input and output bound."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    held = onnxruntime.OrtValue.ortvalue_from_numpy(out)
    binding.bind_ortvalue_output("y", held)
    return lambda: session.run_with_iobinding(binding)


def library(x: Any, w: Any, out: Any) -> Callable[[], object]:
    """A call of BLAS."""
    (m, k), n = x.shape, w.shape[1]
    function = blas().scipy_cblas_sgemm64_
    word, real, place = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
    function.argtypes = [ctypes.c_int] * 3 + [word] * 3 + [real, place, word, place, word, real, place, word]
    return lambda: function(
        101, 111, 111, m, n, k, 1.0, x.ctypes.data, k, w.ctypes.data, n, 0.0, out.ctypes.data, n
    )  # fmt: skip


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


def row(m: int, k: int, n: int, threads: int) -> str:
    """A line of the table."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    out = {"y": np.empty((m, n), np.float32)}
    constant = graphopt.compile(model(m, k, n, w), threads=threads, cache=False)
    given = graphopt.compile(model(m, k, n, None), threads=threads, cache=False)
    exact = (x.astype(np.float64) @ w).astype(np.float32)
    distance = max(float(error(exact, constant({"x": x})["y"])), float(error(exact, given({"x": x, "w": w})["y"])))
    calls = [
        lambda: constant({"x": x}, out=out),
        lambda: given({"x": x, "w": w}, out=out),
        library(x, w, np.empty((m, n), np.float32)),
        runtime(model(m, k, n, w), x, np.empty((m, n), np.float32), threads),
    ]
    for call in calls:
        call()
    least, peak = [np.inf] * len(calls), 0.0
    for _ in range(ROUNDS):
        peak = max(peak, ceilings.measure(threads).flops)
        least = [min(t, burst(call)) for t, call in zip(least, calls, strict=True)]
    shares = "".join(f"{2 * m * k * n / t / peak:10.2f}" for t in least)
    ratios = "".join(f"{least[3] / t:8.2f}" for t in least[:2])
    return f"{f'{m} x {k} x {n}':20}{peak / 1e9:8.0f}{shares}{ratios}{distance:8.2f}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("sizes", nargs="*", help="rows x products of a sum x columns, as in 128x768x3072")
    arguments.add_argument("--threads", type=int, default=1)
    given = arguments.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.threads])
    sizes = [tuple(map(int, s.split("x"))) for s in given.sizes] or CUBES + BERT + THIN
    words = ("constant", "input", "BLAS", "ort")
    print(f"{'':20}{'GFLOP/s':>8}{''.join(f'{w:>10}' for w in words)}{'c/ort':>8}{'i/ort':>8}{'error':>8}")
    for m, k, n in sizes:
        print(row(m, k, n, given.threads), flush=True)


if __name__ == "__main__":
    main()
