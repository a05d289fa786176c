"""Times products of matrices beside BLAS, ONNX Runtime and the machine's limit, and prints a table.

    python tests/bench/products.py [--threads N] [ROWSxDEPTHxCOLUMNS ...]

All of a row is measured in one run, engines taking turns, the least of bursts: our program and ONNX Runtime's with a
second operand that is constant, both with one that is an input, and BLAS (one thread). Each is told as a share of the
multiply-adds that the machine does at most, measured in the same run; beside each of ours stand its speed as a
multiple of ONNX Runtime's and its error as a multiple of what is allowed.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import numpy as np
import turns
from models import single

import graphopt
from graphopt.ir.tolerance import error
from graphopt.runtime import libraries

CUBES = [(n, n, n) for n in (32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)]
BERT = [(m, k, n) for m in (8, 32, 128) for k, n in ((768, 768), (768, 3072), (3072, 768))]
THIN = [(m, 1024, 1024) for m in (1, 2, 4, 8, 16)] + [(1024, 1024, n) for n in (1, 4, 16)] + [(1, 2048, 1000)]
TABLE = turns.Table(
    "",
    20,
    "GFLOP/s:8.0f constant:10.2f ort:8.2f ratio:8.2f error:9.2g input:10.2f ort:8.2f ratio:8.2f error:9.2g BLAS:10.2f",
)


def library(x: Any, w: Any, out: Any) -> turns.Call:
    """A call of BLAS."""
    (m, k), n = x.shape, w.shape[1]
    function = libraries.blas().scipy_cblas_sgemm64_
    word, real, place = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
    function.argtypes = [ctypes.c_int] * 3 + [word] * 3 + [real, place, word, place, word, real, place, word]
    at = [a.ctypes.data_as(place) for a in (x, w, out)]  # pointers that keep their arrays
    return lambda: function(101, 111, 111, m, n, k, 1.0, at[0], k, at[1], n, 0.0, at[2], n)


def row(m: int, k: int, n: int, threads: int, limit: turns.Timer) -> str:
    """A line of the table."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    exact = (x.astype(np.float64) @ w).astype(np.float32)
    calls, errors = [library(x, w, np.empty_like(exact))], []
    for feeds, held in (({"x": x}, {"w": w}), ({"x": x, "w": w}, {})):
        made = single("MatMul", feeds, held, "x w")
        program = graphopt.compile(made, threads=threads)
        out = program(feeds)
        errors.append(float(error(exact, out["y"])))
        calls += [partial(program, feeds, out=out), turns.onnxruntime_call(made, feeds, threads)[0]]
    operation, *times = turns.least(limit, *(partial(turns.burst, call) for call in calls))
    blas, constant, its, given, theirs = (2 * m * k * n * operation / t for t in times)
    ours = (constant, its, constant / its, errors[0], given, theirs, given / theirs, errors[1])
    return TABLE.line(f"{m} x {k} x {n}", 1 / operation / 1e9, *ours, blas)


def main() -> None:
    given = turns.arguments(__doc__, "rows x products of a sum x columns, as in 128x768x3072", "SIZES").parse_args()
    turns.keep_to_cores(given.threads)
    print(TABLE.heading)
    limit = turns.operation_timer(given.threads)
    for m, k, n in [turns.sides(s) for s in given.names] or CUBES + BERT + THIN:
        print(row(m, k, n, given.threads, limit), flush=True)


if __name__ == "__main__":
    main()
