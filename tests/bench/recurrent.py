"""Times LSTM and GRU beside ONNX Runtime, over sizes, and prints a table.

    python tests/bench/recurrent.py [--threads N] [LSTM_HIDDENxSTEPSxBATCH ...]

Weights are constants, and the inputs are as wide as the hidden state. All of a row is measured in one run, engines
taking turns, the least of bursts: microseconds of ours and of ONNX Runtime's, the ratio, and the error of ours as a
multiple of what is allowed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.tolerance import error

SIZES = [(h, s, b) for h in (64, 128, 256, 512) for s in (1, 10, 100) for b in (1, 8)]
GATES = {"LSTM": 4, "GRU": 3}
ROUNDS, SECONDS = 7, 0.02


def model(op: str, hidden: int, steps: int, batch: int) -> bytes:
    """One layer of constant weights."""
    rng = np.random.default_rng(0)
    rows, bound = GATES[op] * hidden, hidden**-0.5
    shapes = {"W": (1, rows, hidden), "R": (1, rows, hidden), "B": (1, 2 * rows)}
    held = [numpy_helper.from_array(rng.uniform(-bound, bound, s).astype(np.float32), n) for n, s in shapes.items()]
    node = helper.make_node(op, ["X", *shapes], ["Y", "Y_h"], hidden_size=hidden)
    inputs = [helper.make_tensor_value_info("X", TensorProto.FLOAT, [steps, batch, hidden])]
    outputs = [
        helper.make_tensor_value_info("Y", TensorProto.FLOAT, [steps, 1, batch, hidden]),
        helper.make_tensor_value_info("Y_h", TensorProto.FLOAT, [1, batch, hidden]),
    ]
    graph = helper.make_graph([node], "g", inputs, outputs, held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(made.SerializeToString())


def session(made: bytes, threads: int) -> onnxruntime.InferenceSession:
    """ONNX Runtime's."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    return onnxruntime.InferenceSession(made, options, providers=["CPUExecutionProvider"])


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


def row(op: str, hidden: int, steps: int, batch: int, threads: int) -> str:
    """A line of the table."""
    made = model(op, hidden, steps, batch)
    x = np.random.default_rng(1).standard_normal((steps, batch, hidden), np.float32)
    program, other = graphopt.compile(made, threads=threads), session(made, threads)
    got, want = program({"X": x}), other.run(["Y", "Y_h"], {"X": x})
    distance = max(float(error(a, got[n])) for n, a in zip(("Y", "Y_h"), want, strict=True))
    calls = [lambda: program({"X": x}), lambda: other.run(None, {"X": x})]
    least = [np.inf] * len(calls)
    for _ in range(ROUNDS):
        least = [min(t, burst(call)) for t, call in zip(least, calls, strict=True)]
    times = "".join(f"{t * 1e6:12.1f}" for t in least)
    return f"{f'{op} {hidden} x {steps} x {batch}':20}{times}{least[1] / least[0]:8.2f}{distance:8.2f}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("sizes", nargs="*", help="op_hidden x steps x rows of a batch, as in LSTM_128x10x8")
    arguments.add_argument("--threads", type=int, default=1)
    given = arguments.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.threads])
    named = [s.partition("_")[::2] for s in given.sizes]
    chosen = [(op, *map(int, s.split("x"))) for op, s in named] or [(op, *s) for op in GATES for s in SIZES]
    print(f"{'hidden, steps, rows':20}{'graphopt':>12}{'ort':>12}{'ratio':>8}{'error':>8}")
    for op, hidden, steps, batch in chosen:
        print(row(op, hidden, steps, batch, given.threads), flush=True)


if __name__ == "__main__":
    main()
