"""Convolutions of 3 x 3 by minimal filtering, beside direct ones and ONNX Runtime: how fast, and how exact.

    python tests/bench/winograd.py [--threads N] [HxIxO ...]    # pixels along each side, channels in and out

A row has the microseconds of ONNX Runtime and, as multiples of its speed, those of the direct convolution in blocks and
of tiles of 2 x 2 and of 4 x 4 results; ``chosen`` is what costs make of the layer. Engines take turns, and the least of
several bursts counts: at one thread, of processor time. Errors are the largest of any result, in units of float32's
roundoff times the sum of absolute products that the result has.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.ir import onnx_io
from graphopt.ir.blocked import blocked, packed, unblocked
from graphopt.ir.winograd import transformed
from graphopt.optimize import optimize_graph
from graphopt.target import CPU

LAYERS = (
    "224x64x64", "112x64x128", "112x128x128", "56x64x64", "56x128x256", "56x256x256", "56x64x192", "28x128x128",
    "28x256x512", "28x512x512", "28x128x192", "28x128x32", "14x256x256", "14x512x512", "14x96x208", "13x64x256",
    "7x512x512", "7x160x320",
)  # fmt: skip
"""Of VGG-19, ResNet-50, GoogLeNet, SqueezeNet and DenseNet-121."""
ROUNDS, SECONDS = 7, 0.02


def main() -> None:
    """Measure the layers that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("layers", nargs="*", default=LAYERS)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    print(f"{'layer':12} {'ORT us':>9} {'direct':>7} {'2 x 2':>7} {'4 x 4':>7}  {'errors':>20}  chosen")
    for layer in given.layers:
        print(row(layer, given.threads), flush=True)


def row(layer: str, threads: int) -> str:
    """A line of the table."""
    side, deep, wide = map(int, layer.split("x"))
    random = np.random.default_rng(0)
    x = np.maximum(random.standard_normal((1, deep, side, side)), 0).astype(np.float32)
    w = random.standard_normal((wide, deep, 3, 3)).astype(np.float32) * np.float32((2 / (9 * deep)) ** 0.5)
    blocks, plain = blocked(x, 16), model(x, w, "Conv", kernel_shape=[3, 3])
    weights = packed(w, 16, "blocked")
    forms = {
        "direct": model(blocks, weights, "graphopt.BlockedConv"),
        "2 x 2": model(blocks, transformed(weights, 2), "graphopt.BlockedWinogradConv", tile=2),
        "4 x 4": model(blocks, transformed(weights, 4), "graphopt.BlockedWinogradConv", tile=4),
    }
    programs = {n: graphopt.compile(form, threads=threads, optimize=False, cache=False) for n, form in forms.items()}
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(plain.SerializeToString(), options, providers=["CPUExecutionProvider"])
    want = exact(x, w)
    runs: dict[str, Callable[[], Any]] = {"ort": lambda: session.run(None, {"x": x})}
    size = exact(np.abs(x), np.abs(w))
    errors = []
    for name, program in programs.items():
        got = unblocked(program({"x": blocks})["y"])[:, :wide]
        errors.append(f"{(np.abs(got - want) / size).max() * 2**24:6.2f}")
        runs[name] = partial(program, {"x": blocks})
    best = timed(runs, time.thread_time if threads == 1 else time.perf_counter)
    ratios = " ".join(f"{best['ort'] / best[name]:7.2f}" for name in forms)
    return f"{layer:12} {best['ort'] * 1e6:9.1f} {ratios}  {' '.join(errors)}  {taken(plain)}"


def model(x: Any, w: Any, op: str, **attrs: Any) -> onnx.ModelProto:
    """The model of one convolution with these weights."""
    domain, _, name = op.rpartition(".")
    node = helper.make_node(name, ["x", "w"], ["y"], domain=domain, pads=[1, 1, 1, 1], **attrs)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "layer", [given], [made], [numpy_helper.from_array(np.ascontiguousarray(w), "w")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("graphopt", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def exact(x: Any, w: Any) -> Any:
    """The convolution in double precision."""
    height, width = x.shape[2:]
    wide = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]).astype(np.float64)
    total = np.zeros((w.shape[0], height * width))
    for i in range(3):
        for j in range(3):
            window = wide[0, :, i : i + height, j : j + width].reshape(x.shape[1], -1)
            total += w[:, :, i, j].astype(np.float64) @ window
    return total.reshape(1, -1, height, width)


def taken(plain: onnx.ModelProto) -> str:
    """The convolution that costs make of a layer."""
    made, _ = optimize_graph(onnx_io.load(plain), target=CPU)
    found = [n for n in made.nodes() if "Conv" in n.op]
    return " ".join(f"{n.op}{n.attrs.get('tile', '')}" for n in found)


def timed(runs: dict[str, Callable[[], Any]], clock: Callable[[], float]) -> dict[str, float]:
    """Seconds of a run, the least of bursts that take turns."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            count, begin = 0, clock()
            while count == 0 or clock() - begin < SECONDS:
                run()
                count += 1
            best[name] = min(best[name], (clock() - begin) / count)
    return best


if __name__ == "__main__":
    main()
