"""Times a dense layer that is written as programs beside the same of ops, taking turns, and prints a table.

    python tests/bench/programs_fused.py [--threads 1] [--shape M K N ...]

The layer is ``relu(x @ w + b)``. ``ops`` are MatMul, Add and Relu; ``script`` calls three programs that are written as
text, ``compute`` three tensor functions (``emit_compute``), ``one`` a single tensor function; ``lowered`` is what
``LowerToPrograms`` makes of the ops, and ``scheduled`` that by ``Schedule``. Behind each time, the least of bursts in
turns, stand its ratio to that of the ops and the number of kernels that a call runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from turns import burst, least

import graphopt
from graphopt import te
from graphopt.passes import LowerToPrograms, Schedule, Sequential

SHAPES = ((1, 784, 128), (16, 512, 512), (64, 64, 64), (256, 512, 512), (1024, 256, 256))
SECONDS = 0.05
ROUNDS = 15
SCRIPT = """
@program
def dense(X: Buffer[({m}, {k}), "float32"], W: Buffer[({k}, {n}), "float32"], Y: Buffer[({m}, {n}), "float32"]):
    notes({{"schedule": "default"}})
    for i, j, k in grid({m}, {n}, {k}):
        with block("Y"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                Y[vi, vj] = 0.0
            Y[vi, vj] = Y[vi, vj] + X[vi, vk] * W[vk, vj]

@program
def add(X: Buffer[({m}, {n}), "float32"], B: Buffer[({n},), "float32"], Y: Buffer[({m}, {n}), "float32"]):
    notes({{"schedule": "default"}})
    for i, j in grid({m}, {n}):
        with block("Y"):
            vi, vj = axis.remap("SS", [i, j])
            Y[vi, vj] = X[vi, vj] + B[vj]

@program
def relu(X: Buffer[({m}, {n}), "float32"], Y: Buffer[({m}, {n}), "float32"]):
    notes({{"schedule": "default"}})
    for i, j in grid({m}, {n}):
        with block("Y"):
            vi, vj = axis.remap("SS", [i, j])
            Y[vi, vj] = max(X[vi, vj], 0.0)
"""


def dense(x: te.Tensor, w: te.Tensor) -> te.Tensor:
    """A matrix product."""
    k = te.reduce_axis(x.shape[1])
    return te.compute((x.shape[0], w.shape[1]), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k))


def add(x: te.Tensor, b: te.Tensor) -> te.Tensor:
    """A bias."""
    return te.compute(x.shape, lambda i, j: x[i, j] + b[j])


def relu(x: te.Tensor) -> te.Tensor:
    """What is above 0."""
    return te.compute(x.shape, lambda i, j: te.max(x[i, j], 0.0))


def layer(x: te.Tensor, w: te.Tensor, b: te.Tensor) -> te.Tensor:
    """All in one."""
    return relu(add(dense(x, w), b))


def modules(m: int, k: int, n: int) -> Iterator[tuple[str, graphopt.Module]]:
    """The layer in each way."""
    random = np.random.default_rng(0)
    w, b = random.standard_normal((k, n), np.float32), random.standard_normal(n, np.float32)
    given = graphopt.Module.read(SCRIPT.format(m=m, k=k, n=n))
    for way in ("ops", "script", "compute", "one"):
        builder = graphopt.GraphBuilder(module=given if way == "script" else None)
        x = builder.input("x", "float32", (m, k))
        match way:
            case "ops":
                y = builder.emit("Relu", [builder.emit("Add", [builder.emit("MatMul", [x, w]), b])])
            case "script":
                product = builder.emit("module::dense", [x, w])
                y = builder.emit("module::relu", [builder.emit("module::add", [product, b])])
            case "compute":
                y = builder.emit_compute(relu, [builder.emit_compute(add, [builder.emit_compute(dense, [x, w]), b])])
            case _:
                y = builder.emit_compute(layer, [x, w, b])
        builder.output("y", y)
        module = builder.build()
        yield way, module
        if way == "ops":
            yield "lowered", LowerToPrograms()(module)
            yield "scheduled", Sequential([LowerToPrograms(), Schedule()])(module)


def row(shape: tuple[int, ...], threads: int) -> None:
    """The times of a shape, printed."""
    m, k, n = shape
    x = np.random.default_rng(1).standard_normal((m, k), np.float32)
    made: dict[str, Any] = {way: graphopt.compile(module, threads=threads) for way, module in modules(m, k, n)}
    want = made["ops"](x)["y"]
    for program in made.values():
        np.testing.assert_allclose(program(x)["y"], want, rtol=1e-4, atol=1e-3)
    timers = (partial(burst, partial(program, x), SECONDS) for program in made.values())
    spent = dict(zip(made, least(*timers, rounds=ROUNDS), strict=True))
    told = (
        f"{way} {seconds * 1e6:8.1f} us {seconds / spent['ops']:5.2f}x ({made[way].report.calls})"
        for way, seconds in spent.items()
    )
    print(f"{m:5} x {k:4} x {n:4}  {'   '.join(told)}", flush=True)


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shape", type=int, nargs=3, action="append", default=[])
    given = parser.parse_args()
    for shape in given.shape or SHAPES:
        row(tuple(shape), given.threads)


if __name__ == "__main__":
    main()
