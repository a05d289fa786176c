"""A tiny model around one call of an op, in which a runtime's profiler can see how long it takes.

The call stands alone, or, where it is to be measured in a blocked layout that it would not enter by
itself, between two pools over single pixels, which compute in that layout and hold it inside. Small
calls come in several copies with inputs of their own, as a profiler counts whole microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.inputs import draw, ranges
from graphopt.ir import ops
from graphopt.ir.constants import Array, Constant
from graphopt.ir.graph import Attrs, Graph, Header, Origin, Value
from graphopt.ir.onnx_io import to_bytes
from graphopt.ir.types import TensorType
from graphopt.rewrite.workload import Operand, Workload
from graphopt.target import ops as ops_named

OPSETS = (21, 24, 9)
"""Opsets to write a model in, the first that has the op: those that runtimes of today read."""

SMALL = 1 << 17
"""Bytes of operands below which several copies run."""

COPIES = 8

LARGEST = 1 << 29
"""Bytes of operands above which nothing is measured."""

ENTER, LEAVE = "enter", "leave"

ENTERING = ops_named("Conv com.microsoft::FusedConv MaxPool AveragePool GlobalMaxPool GlobalAveragePool")
"""Ops that enter a blocked layout by themselves."""

BLOCK = 16


@dataclass(frozen=True)
class Probe:
    """A model, what to feed it, and how many calls of the op it makes. Names of nodes that are not the op's begin with
    ``ENTER`` and ``LEAVE``."""

    model: bytes
    feeds: dict[str, Any]
    copies: int


def probe(call: Workload) -> Probe | None:
    """A model that makes the call; None where there can be none."""
    nbytes = sum(x.nbytes for x in call.inputs if x is not None)
    if nbytes > LARGEST or all(x is None or x.is_const for x in call.inputs):
        return None  # what has no inputs is computed when the model is loaded
    facts = [None if x is None else x.fact() for x in call.inputs]
    opset = next((n for n in OPSETS if ops.refusal(call.op, call.attrs, facts, n) is None), None)
    if opset is None:
        return None
    wrap = call.blocked and call.op not in ENTERING
    if wrap and not all(_fills_blocks(x) for x in call.inputs if x is not None and not x.is_const):
        return None
    graph = Graph(header=Header(10 if opset < 22 else 11, (("", opset), ("com.microsoft", 1))))
    copies = COPIES if nbytes < SMALL else 1
    constants = [_constant(graph, call, i) for i in range(len(call.inputs))]
    try:
        for copy in range(copies):
            _add(graph, call, constants, copy, wrap)
        return Probe(to_bytes(graph), _feeds(graph), copies)
    except (GraphoptError, ValueError, TypeError):
        return None


def _fills_blocks(x: Operand) -> bool:
    return x.dtype == "float32" and len(x.shape) == 4 and x.shape[1] % BLOCK == 0


def _add(graph: Graph, call: Workload, constants: Sequence[Value | None], copy: int, wrap: bool) -> None:
    inputs: list[Value | None] = []
    for i, x in enumerate(call.inputs):
        if x is None or x.is_const:
            inputs.append(constants[i])
            continue
        value = graph.add_input(f"x{copy}_{i}", TensorType(x.dtype, x.shape))
        inputs.append(_pool(graph, value, f"{ENTER}{copy}_{i}") if wrap else value)
    node = graph.add(call.op, tuple(inputs), call.attrs, call.n_outputs)
    for port, value in enumerate(node.outputs):
        result = _pool(graph, value, f"{LEAVE}{copy}_{port}") if wrap else value
        graph.add_output(f"y{copy}_{port}", result)


def _pool(graph: Graph, x: Value, name: str) -> Value:
    """A pool over single pixels, whose name is that of its value: runtimes name nodes without one by theirs."""
    return graph.add("MaxPool", (x,), Attrs(kernel_shape=(1, 1)), origin=Origin(name=name)).outputs[0]


def _constant(graph: Graph, call: Workload, index: int) -> Value | None:
    x = call.inputs[index]
    if x is None or not x.is_const:
        return None
    known = x.fact().constant
    return graph.add_constant(known if known is not None else Constant.of(_random(x), x.dtype), f"c{index}")


def _random(x: Operand) -> Array:
    """Elements for a constant that nothing is known of: small positive numbers, which are no subnormal anywhere."""
    rng = np.random.default_rng(0)
    if x.dtype in ("float32", "float64", "float16"):
        return np.asarray(rng.uniform(0.01, 0.1, x.shape)).astype(x.dtype)
    if x.dtype in ("int8", "uint8", "bool"):
        return np.asarray(rng.integers(0, 2, x.shape)).astype(x.dtype)
    raise ValueError(f"constants of {x.dtype} may mean anything")


def _feeds(graph: Graph) -> dict[str, Any]:
    return draw(graph, {}, ranges(graph), {}, seed=0, kind=1)
