"""What the search takes on models that are hard for it: seconds of the processor, and the most memory.

    python tests/bench/search.py [--nodes 200] [KIND ...]

Each row is an optimization in a process of its own, without verification. The kinds are branches (a slice, squeezed,
times a matrix) joined by one concatenation, by a chain of sums and by a tree of sums, a sum of inputs, and a chain of
elementwise ops. Memory is what the process had at most beyond what it had when the model was made. The digest is of the
bytes that come out: the same in every run.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import subprocess
import sys
from time import process_time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import graphopt

KINDS = ("concat", "chain", "tree", "sum", "elementwise")
SIZE = 16
"""Rows and columns of the matrices."""


class Model:
    """A model that is being written."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []

    def __call__(self, op: str, *inputs: str, **attrs: object) -> str:
        """Add a node; the name of its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        return name

    def constant(self, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def input(self, *shape: int) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def done(self, output: str, *shape: int) -> bytes:
        outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, "search", self.inputs, outputs, self.constants)
        made: bytes = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
        ).SerializeToString()
        return made


def branches(m: Model, n: int) -> list[str]:
    """A slice for each branch, times a matrix of its own."""
    rng = np.random.default_rng(0)
    x, zero = m.input(n, SIZE // 2, SIZE), m.constant(np.array([0]))
    found = []
    for i in range(n):
        part = m("Slice", x, m.constant(np.array([i])), m.constant(np.array([i + 1])), zero)
        weights = m.constant(rng.standard_normal((SIZE, SIZE), np.float32))
        found.append(m("MatMul", m("Squeeze", part, zero), weights))
    return found


def model(kind: str, n: int) -> bytes:
    """A model of a kind, of so many branches, inputs or ops."""
    m = Model()
    if kind == "elementwise":
        y = m.input(4)
        for i in range(n):
            y = m(("Relu", "Neg", "Abs")[i % 3], y)
        return m.done(y, 4)
    parts = [m.input(4) for _ in range(n)] if kind == "sum" else branches(m, n)
    if kind == "concat":
        zero = m.constant(np.array([0]))
        return m.done(m("Concat", *(m("Unsqueeze", p, zero) for p in parts), axis=0), n, SIZE // 2, SIZE)
    while len(parts) > 1:
        first = m("Add", *parts[:2])
        parts = [*parts[2:], first] if kind == "tree" else [first, *parts[2:]]
    return m.done(parts[0], *((4,) if kind == "sum" else (SIZE // 2, SIZE)))


def row(kind: str, n: int) -> str:
    """What optimizing a model takes, in this process."""
    made = model(kind, n)
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, process_time()
    found, report = graphopt.optimize(made, verify="off", return_report=True)
    seconds = process_time() - begin
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    stop, nodes = (report.exploration.stop, report.exploration.nodes) if report.exploration else ("", 0)
    digest = hashlib.sha256(found).hexdigest()[:8]
    return f"{kind:12}{n:>8}{seconds:>10.1f}{peak:>10.0f}{nodes:>10}  {stop:12}{digest}"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kinds", nargs="*", default=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--nodes", type=int, default=200, help="branches, inputs or ops")
    parser.add_argument("--here", action="store_true", help="in this process, without the heading")
    given = parser.parse_args()
    if given.here:
        for kind in given.kinds:
            print(row(kind, given.nodes))
        return
    print(f"{'kind':12}{'nodes':>8}{'seconds':>10}{'MB':>10}{'e-nodes':>10}  {'stop':12}digest")
    for kind in given.kinds:
        subprocess.run([sys.executable, __file__, "--here", "--nodes", str(given.nodes), kind], check=True)


if __name__ == "__main__":
    main()
