"""Probe models: a tiny model around one call of an op, in which a runtime's profiler can see how long it takes.

The call stands between others that cost little, so that memory is as warm as in a network, and is
written in place where networks would: between two absolute values, or, where it is to be measured in
a blocked layout that it would not enter by itself, between two pools over single pixels, which compute
in that layout and hold it inside. Small calls come in several copies with inputs of their own, as a
profiler counts whole microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.constants import Array, Constant
from graphopt.ir.graph import NO_ATTRS, Attrs, Graph, Header, Origin, Value
from graphopt.ir.onnx_io import to_bytes
from graphopt.ir.op_table import ops_where
from graphopt.ir.types import TensorType
from graphopt.rewrite.extract.workload import OpWorkload, WorkloadOperand
from graphopt.target import ops as ops_named
from graphopt.verify.inputs import draw, ranges

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

TELLING = ops_where(group=("comparison", "test")) | ops_named(
    "ArgMax ArgMin NonZero Cast CastLike QuantizeLinear DynamicQuantizeLinear Shape Size"
)
"""Ops that make of floating-point numbers something else."""

BLOCK = 16
"""Channels of a block, as runtimes have it on processors with wide vectors."""


@dataclass(frozen=True)
class Probe:
    """A model, what to feed it, and how many calls of the op it makes. Names of nodes that are not the op's begin with
    ``ENTER`` and ``LEAVE``."""

    model: bytes
    feeds: dict[str, Any]
    copies: int


def probe(call: OpWorkload) -> Probe | None:
    """A model that makes the call; None where there can be none."""
    nbytes = sum(x.nbytes for x in call.inputs if x is not None)
    if nbytes > LARGEST or is_constant(call):
        return None
    facts = [None if x is None else x.fact() for x in call.inputs]
    opset = next((n for n in OPSETS if ops.refusal(call.op, call.attrs, facts, n) is None), None)
    if opset is None:
        return None
    around = "Abs" if nbytes >= SMALL and not call.blocked else ""
    if call.blocked and call.op not in ENTERING:
        around = "MaxPool"
        if not all(_fills_blocks(x) for x in call.inputs if x is not None and not x.is_const):
            return None
    graph = Graph(header=Header(10 if opset < 22 else 11, (("", opset), ("com.microsoft", 1))))
    copies = COPIES if nbytes < SMALL else 1
    try:
        constants = [_constant(graph, call, i) for i in range(len(call.inputs))]
        for copy in range(copies):
            _add(graph, call, constants, copy, around)
        return Probe(to_bytes(graph), _feeds(graph), copies)
    except (GraphoptError, ValueError, TypeError):
        return None


def is_constant(call: OpWorkload) -> bool:
    """Whether the call has no inputs but constants: it is computed when the model is loaded."""
    return all(x is None or x.is_const for x in call.inputs)


def _fills_blocks(x: WorkloadOperand) -> bool:
    return x.dtype == "float32" and len(x.shape) == 4 and x.shape[1] % BLOCK == 0


def _add(graph: Graph, call: OpWorkload, constants: Sequence[Value | None], copy: int, around: str) -> None:
    inputs: list[Value | None] = []
    for i, x in enumerate(call.inputs):
        if x is None or x.is_const:
            inputs.append(constants[i])
            continue
        value = graph.add_input(f"x{copy}_{i}", TensorType(x.dtype, x.shape))
        is_wrapped = around and x.dtype == "float32" and x.size
        inputs.append(_wrap(graph, around, value, f"{ENTER}{copy}_{i}") if is_wrapped else value)
    node = graph.add(call.op, tuple(inputs), call.attrs, call.n_outputs)
    is_float = all(x is None or x.dtype == "float32" for x in call.inputs[:1]) and call.op not in TELLING
    for port, value in enumerate(node.outputs):
        result = _wrap(graph, around, value, f"{LEAVE}{copy}_{port}") if around and is_float else value
        graph.add_output(f"y{copy}_{port}", result)


def _wrap(graph: Graph, op: str, x: Value, name: str) -> Value:
    """An op around the call, with a name by which a profile tells it."""
    attrs = Attrs(kernel_shape=(1, 1)) if op == "MaxPool" else NO_ATTRS
    value = graph.add(op, (x,), attrs, origin=Origin(name=name)).outputs[0]
    graph.names[value] = name  # in a blocked layout, nodes are called by what they make
    return value


def _constant(graph: Graph, call: OpWorkload, index: int) -> Value | None:
    x = call.inputs[index]
    if x is None or not x.is_const:
        return None
    constant = x.fact().constant
    return graph.add_constant(constant if constant is not None else Constant.of(_random(x), x.dtype), f"c{index}")


def _random(x: WorkloadOperand) -> Array:
    """Elements for a constant that nothing is known of: small positive numbers, which are no subnormal anywhere."""
    rng = np.random.default_rng(0)
    if x.dtype in ("float32", "float64", "float16"):
        return np.asarray(rng.uniform(0.01, 0.1, x.shape)).astype(x.dtype)
    if x.dtype in ("int8", "uint8", "bool"):
        return np.asarray(rng.integers(0, 2, x.shape)).astype(x.dtype)
    raise ValueError(f"constants of {x.dtype} may mean anything")


def _feeds(graph: Graph) -> dict[str, Any]:
    return draw(graph, {}, ranges(graph), {}, seed=0, kind=1)
