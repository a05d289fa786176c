"""What the search takes on models that are hard for it: seconds of the processor, and the most memory.

    python tests/bench/search.py [--sizes 200 400] [--record FILE] [KIND ...]

Each row is a file that is optimized into another in a process of its own, without verification. The kinds are chains
(of ops that rules join, of ops that they do not, of sums with constants, of several ops), consumers of one value
(products by constants, matrix products), branches (a slice, squeezed, times a matrix, unsqueezed, and a bias) joined by
one concatenation, by a chain of sums and by a tree of sums, and a sum of inputs. Memory is what the process had at most
beyond what it had when the model was made. The digest is of the bytes that come out: the same in every run.
``--record`` writes the rows down, from which ``python -m docs.generators`` draws a picture.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import graphopt

CHAINS = ("elementwise", "unary", "add", "mixed")
CONSUMERS = ("products", "matrices")
JOINS = ("concat", "chain", "tree")
KINDS = {
    **dict.fromkeys(CHAINS, (1000, 5000, 20_000, 100_000)),
    **dict.fromkeys(CONSUMERS, (200, 400, 800)),
    **dict.fromkeys((*JOINS, "sum"), (200, 400, 800)),
}
"""The sizes of each kind: ops of a chain, consumers, branches or inputs."""
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

    def done(self, outputs: Sequence[str], *shape: int) -> bytes:
        infos = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape) for output in outputs]
        graph = helper.make_graph(self.nodes, "search", self.inputs, infos, self.constants)
        made: bytes = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
        ).SerializeToString()
        return made


def branches(m: Model, n: int) -> list[str]:
    """A slice for each branch, squeezed, times a matrix of its own, unsqueezed, and a bias of its own."""
    rng = np.random.default_rng(0)
    x, zero = m.input(n, SIZE // 2, SIZE), m.constant(np.array([0]))
    found = []
    for i in range(n):
        part = m("Slice", x, m.constant(np.array([i])), m.constant(np.array([i + 1])), zero)
        weights = m.constant(rng.standard_normal((SIZE, SIZE), np.float32))
        product = m("Unsqueeze", m("MatMul", m("Squeeze", part, zero), weights), zero)
        found.append(m("Add", product, m.constant(rng.standard_normal(SIZE, np.float32))))
    return found


def chain(m: Model, kind: str, n: int) -> str:
    """Ops one after the other: ``elementwise`` become a few, ``add`` one, and the others stay as they are."""
    rng = np.random.default_rng(0)
    y = m.input(4)
    ops = {"elementwise": ("Relu", "Neg", "Abs"), "unary": ("Sin", "Tanh", "Erf"), "add": ("Add",)}
    for i in range(n):
        match ops.get(kind, ("Sin", "Mul", "Add", "Tanh"))[i % len(ops.get(kind, "four"))]:
            case "Add" | "Mul" as op:
                y = m(op, y, m.constant(rng.standard_normal(4, np.float32)))
            case op:
                y = m(op, y)
    return y


def consumers(m: Model, kind: str, n: int) -> list[str]:
    """Ops that read one value, each with a constant of its own."""
    rng = np.random.default_rng(0)
    x, op = m.input(SIZE, SIZE), "Mul" if kind == "products" else "MatMul"
    return [m(op, x, m.constant(rng.standard_normal((SIZE, SIZE), np.float32))) for _ in range(n)]


def model(kind: str, n: int) -> bytes:
    """A model of a kind, of so many ops, consumers, branches or inputs."""
    m = Model()
    if kind in CHAINS:
        return m.done([chain(m, kind, n)], 4)
    if kind in CONSUMERS:
        return m.done(consumers(m, kind, n), SIZE, SIZE)
    parts = [m.input(4) for _ in range(n)] if kind == "sum" else branches(m, n)
    if kind == "concat":
        return m.done([m("Concat", *parts, axis=0)], n, SIZE // 2, SIZE)
    while len(parts) > 1:
        first = m("Add", *parts[:2])
        parts = [*parts[2:], first] if kind == "tree" else [first, *parts[2:]]
    return m.done(parts, *((4,) if kind == "sum" else (1, SIZE // 2, SIZE)))


class Row(NamedTuple):
    """What optimizing a model took."""

    kind: str
    nodes: int
    seconds: float
    megabytes: float
    enodes: int
    stop: str
    digest: str

    def text(self) -> str:
        return (
            f"{self.kind:12}{self.nodes:>8}{self.seconds:>10.1f}{self.megabytes:>10.0f}{self.enodes:>10}  "
            f"{self.stop:12}{self.digest}"
        )


def row(kind: str, n: int) -> Row:
    """What optimizing a model takes, in this process."""
    with TemporaryDirectory() as folder:
        given, made = Path(folder, "given.onnx"), Path(folder, "made.onnx")
        given.write_bytes(model(kind, n))
        before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, process_time()
        _, report = graphopt.optimize(given, output=made, verify="off", return_report=True)
        seconds = process_time() - begin
        digest = hashlib.sha256(made.read_bytes()).hexdigest()[:8]
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    stop, nodes = (report.exploration.stop, report.exploration.nodes) if report.exploration else ("", 0)
    return Row(kind, n, round(seconds, 2), round(peak, 1), nodes, stop, digest)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kinds", nargs="*", default=tuple(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--sizes", type=int, nargs="+", help="ops of a chain, consumers, branches or inputs")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the rows into this file, too")
    parser.add_argument("--here", action="store_true", help="in this process, as JSON")
    given = parser.parse_args()
    if given.here:
        print(json.dumps([row(kind, n) for kind in given.kinds for n in given.sizes]))
        return
    print(f"{'kind':12}{'nodes':>8}{'seconds':>10}{'MB':>10}{'e-nodes':>10}  {'stop':12}digest")
    rows: list[Row] = []
    for kind in given.kinds:
        for n in given.sizes or KINDS[kind]:
            command = [sys.executable, __file__, "--here", kind, "--sizes", str(n)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            rows += [Row(*found) for found in json.loads(done.stdout)]
            print(rows[-1].text(), flush=True)
    if given.record is not None:
        lines = ",\n".join(json.dumps(r._asdict()) for r in rows)
        given.record.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
