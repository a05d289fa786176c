"""Graphs and reports that pages are made of: small, hostile, and of 2 000 nodes."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Origin, Value
from graphopt.ir.text import parse
from graphopt.ir.types import TensorType
from graphopt.optimize import optimize_graph
from graphopt.run.report import Report

HOSTILE = '</script><img src=x onerror="document.title=1"><!--\u2028\x00"\'`'

SMALL = """
graph small (ir 8, opset 17)
x: float32[n, 4]
a = Relu(x)
b = Relu(a)
c = Identity(b)
y = Add(c, x)
return y
"""


def optimized(graph: Graph, **options: Any) -> Report:
    """What the optimizer reports of a graph."""
    return optimize_graph(graph, **options)[1]


def small() -> Graph:
    """A graph in which two rewrites act: ``Relu(Relu(x))``, and an Identity that goes."""
    return parse(SMALL)


def hostile() -> Graph:
    """The same shape, with names that are markup."""
    graph = parse(SMALL)
    graph.name = HOSTILE
    graph.names = {value: f"{name}{HOSTILE}" for value, name in graph.names.items()}
    graph.output_names = [HOSTILE]
    return graph


def modules() -> Graph:
    """A graph whose nodes come from modules, the product of which takes most of the time."""
    graph = parse(
        """x: float32[64, 64]
        w = float32[64, 64]{1.0, ...}
        a = Relu(x)
        b = Relu(a)
        c = MatMul(b, w)
        y = Sigmoid(c)
        return y"""
    )
    names = iter(("/net/act/Relu", "/net/act/Relu_1", "/net/layers.0/linear/MatMul", "/net/layers.0/Sigmoid"))
    for node in list(graph.nodes()):
        if node.op not in (INPUT, CONSTANT):
            graph.update(node.id, origin=Origin(name=next(names)))
    return graph


def large(count: int, seed: int = 0) -> Graph:
    """A graph of so many ops: chains that fork and join, with pairs that a rule makes one."""
    random, graph = Random(seed), Graph("large")
    kind = TensorType("float32", (8, 16))
    recent: list[Value] = [graph.add_input("x", kind)]
    for n in range(count):
        op = random.choice(("Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Add", "Mul"))
        inputs = tuple(random.choice(recent[-12:]) for _ in range(2 if op in ("Add", "Mul") else 1))
        value = Value(graph.add(op, inputs).id)
        graph.names[value] = f"/block{n // 40}/layer.{n}/{op}_output_0"
        recent.append(value)
    for n, value in enumerate(v for v in recent if not graph.users(v)):
        graph.add_output(f"y{n}", value)
    return graph


def network(blocks: int = 4, width: int = 16, seed: int = 0) -> Graph:
    """A small network for images as exporters write it: convolutions with their batch norms and hard swishes in
    pieces, squeeze and excitation, residuals, and transposes around a head that wants channels last."""
    random, graph = np.random.default_rng(seed), Graph("network")

    def call(name: str, op: str, *inputs: Value, **attrs: object) -> Value:
        value = Value(graph.add(op, inputs, Attrs(**attrs)).id)
        graph.names[value] = f"/{name}/{op}_output_0"
        return value

    def weights(name: str, *shape: int) -> Value:
        kept = random.standard_normal(shape, np.float32) / np.float32(np.sqrt(np.prod(shape[1:])))
        return graph.add_constant(Constant.of(np.abs(kept) + np.float32(0.1) if name.endswith("var") else kept), name)

    def number(value: float) -> Value:
        return graph.add_constant(Constant.of(np.float32(value)))

    def conv(name: str, x: Value, ins: int, outs: int, size: int, group: int = 1) -> Value:
        around = (size // 2,) * 4
        found = call(
            name, "Conv", x, weights(f"{name}.weight", outs, ins // group, size, size), group=group, pads=around
        )
        parts = [weights(f"{name}.bn.{part}", outs) for part in ("weight", "bias", "mean", "var")]
        return call(f"{name}/bn", "BatchNormalization", found, *parts)

    def hard_swish(name: str, x: Value) -> Value:
        inner = call(name, "Clip", call(name, "Add", x, number(3)), number(0), number(6))
        return call(name, "Div", call(name, "Mul", x, inner), number(6))

    x = hard_swish(
        "stem/act", conv("stem", graph.add_input("image", TensorType("float32", (1, 3, 56, 56))), 3, width, 3)
    )
    for n in range(blocks):
        name = f"blocks.{n}"
        y = hard_swish(f"{name}/act", conv(f"{name}/expand", x, width, 4 * width, 1))
        y = hard_swish(f"{name}/act2", conv(f"{name}/depthwise", y, 4 * width, 4 * width, 3, group=4 * width))
        squeezed = call(f"{name}/se", "GlobalAveragePool", y)
        squeezed = call(f"{name}/se", "Relu", conv(f"{name}/se/reduce", squeezed, 4 * width, width, 1))
        gate = call(f"{name}/se", "Sigmoid", conv(f"{name}/se/expand", squeezed, width, 4 * width, 1))
        y = conv(f"{name}/project", call(f"{name}/se", "Mul", y, gate), 4 * width, width, 1)
        x = call(name, "Add", x, y)
    last = call(
        "head", "Transpose", call("head", "Relu", call("head", "Transpose", x, perm=(0, 2, 3, 1))), perm=(0, 3, 1, 2)
    )
    flat = call("head", "Flatten", call("head", "GlobalAveragePool", last))
    logits = call(
        "head", "Add", call("head", "MatMul", flat, weights("head.weight", width, 10)), weights("head.bias", 10)
    )
    graph.add_output("scores", call("head", "Softmax", logits, axis=-1))
    return graph
