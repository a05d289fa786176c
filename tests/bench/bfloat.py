"""Times dense layers whose weights are read in bfloat16 beside those in float32 and ONNX Runtime, and prints a table.

    python tests/bench/bfloat.py [--threads N] [ROWSxDEPTHxCOLUMNS ...]

A row is a network of layers of ``DEPTH`` and ``COLUMNS`` in turn, each with a Relu, of which there are so many that the
weights do not stay in caches. All of a row is measured in one run, engines taking turns, the least of bursts: our
program under the policy ``approx``, in which costs choose the weights (``share`` of the layers), as a multiple of the
speed of that under ``reals`` and of ONNX Runtime's. The error is the largest beside float64, as a share of the largest
result, under either policy.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import turns
from models import model
from onnx import helper

import graphopt
from graphopt.ir.bfloat import PRODUCT

SIZES = [(m, 1024, 1024) for m in (1, 2, 4, 8, 16, 32, 64, 128)] + [(m, 768, 3072) for m in (1, 8, 32, 128)]
SIZES += [(m, 4096, 4096) for m in (1, 8)]
BYTES = 1 << 27
"""What weights in float32 take at least: more than caches hold."""
TABLE = turns.Table("", 20, "layers:8.0f share:8.2f us:10.1f x-reals:10.2f x-ort:8.2f error:10.2g reals:10.2g")


def network(m: int, k: int, n: int) -> tuple[bytes, dict[str, Any], Any]:
    """The model, its input, and what it gives."""
    rng = np.random.default_rng(0)
    widths = [(k, n)[layer % 2] for layer in range(2 * -(-BYTES // (8 * k * n)) + 1)]
    held = {
        f"w{layer}": rng.standard_normal(sides, np.float32) * np.float32((2 / sides[0]) ** 0.5)
        for layer, sides in enumerate(pairwise(widths))
    }
    x = rng.standard_normal((m, k), np.float32)
    want, nodes = x.astype(np.float64), []
    for layer, (name, w) in enumerate(held.items()):
        nodes.append(helper.make_node("MatMul", [f"y{layer}", name], [f"z{layer}"]))
        nodes.append(helper.make_node("Relu", [f"z{layer}"], [f"y{layer + 1}"]))
        want = np.maximum(want @ w, 0)
    return model(nodes, {"y0": x}, held, (f"y{len(held)}",)), {"y0": x}, want


def row(m: int, k: int, n: int, threads: int) -> str:
    """A line of the table."""
    made, feeds, want = network(m, k, n)
    programs = [graphopt.compile(made, threads=threads, policy=p, cache=False) for p in ("approx", "reals")]
    outputs = [program(feeds) for program in programs]
    errors = [np.abs(next(iter(out.values())) - want).max() / want.max() for out in outputs]
    ops = [node.op for node in programs[0].graph.nodes()]
    products = ops.count(PRODUCT) + ops.count("MatMul")
    calls = [partial(p, feeds, out=out) for p, out in zip(programs, outputs, strict=True)]
    ours, plain, theirs = turns.fastest(*calls, turns.onnxruntime_call(made, feeds, threads)[0])
    figures = (products, ops.count(PRODUCT) / products, ours * 1e6, plain / ours, theirs / ours, *errors)
    return TABLE.line(f"{m} x {k} x {n}", *figures)


def main() -> None:
    given = turns.arguments(__doc__, "rows x products of a sum x columns, as in 8x768x3072", "SIZES").parse_args()
    turns.keep_to_cores(given.threads)
    print(TABLE.heading)
    for m, k, n in [turns.sides(s) for s in given.names] or SIZES:
        print(row(m, k, n, given.threads), flush=True)


if __name__ == "__main__":
    main()
