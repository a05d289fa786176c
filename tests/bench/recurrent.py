"""Times LSTM and GRU beside ONNX Runtime, over sizes, and prints a table.

    python tests/bench/recurrent.py [--threads N] [LSTM_HIDDENxSTEPSxBATCH ...]

Weights are constants, and the inputs are as wide as the hidden state. All of a row is measured in one run, engines
taking turns, the least of bursts: microseconds of ours and of ONNX Runtime's, the ratio, and the error of ours as a
multiple of what is allowed.
"""

from __future__ import annotations

import numpy as np
from models import model
from onnx import helper
from turns import Table, arguments, fastest, keep_to_cores, onnxruntime_call, sides

import graphopt
from graphopt.ir.tolerance import error

SIZES = [(h, s, b) for h in (64, 128, 256, 512) for s in (1, 10, 100) for b in (1, 8)]
GATES = {"LSTM": 4, "GRU": 3}
TABLE = Table("hidden, steps, rows", 20, "graphopt:12.1f ort:12.1f ratio:8.2f error:9.2g")


def layer(op: str, hidden: int, x: np.ndarray) -> bytes:
    """One layer of constant weights."""
    rng = np.random.default_rng(0)
    rows, bound = GATES[op] * hidden, hidden**-0.5
    shapes = {"W": (1, rows, hidden), "R": (1, rows, hidden), "B": (1, 2 * rows)}
    held = {name: rng.uniform(-bound, bound, shape).astype(np.float32) for name, shape in shapes.items()}
    node = helper.make_node(op, ["X", *shapes], ["Y", "Y_h"], hidden_size=hidden)
    return model([node], {"X": x}, held, node.output)


def row(op: str, hidden: int, steps: int, batch: int, threads: int) -> str:
    """A line of the table."""
    feeds = {"X": np.random.default_rng(1).standard_normal((steps, batch, hidden), np.float32)}
    made = layer(op, hidden, feeds["X"])
    program = graphopt.compile(made, threads=threads)
    theirs, want = onnxruntime_call(made, feeds, threads)
    out = program(feeds)
    distance = max(float(error(a, out[n])) for n, a in want.items())
    mine, other = fastest(lambda: program(feeds, out=out), theirs)
    return TABLE.line(f"{op} {hidden} x {steps} x {batch}", mine * 1e6, other * 1e6, other / mine, distance)


def main() -> None:
    given = arguments(__doc__, "op_hidden x steps x rows of a batch, as in LSTM_128x10x8", "SIZES").parse_args()
    keep_to_cores(given.threads)
    named = [name.partition("_")[::2] for name in given.names]
    chosen = [(op, *sides(s)) for op, s in named] or [(op, *s) for op in GATES for s in SIZES]
    print(TABLE.heading)
    for op, hidden, steps, batch in chosen:
        print(row(op, hidden, steps, batch, given.threads), flush=True)


if __name__ == "__main__":
    main()
