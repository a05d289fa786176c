"""Graphs and reports that pages are made of: small, hostile, and of 2 000 nodes."""

from __future__ import annotations

from random import Random

from graphopt.ir.graph import Graph, Value
from graphopt.ir.text import parse
from graphopt.optimize import optimize_graph
from graphopt.report import Report

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


def optimized(graph: Graph) -> Report:
    """What the optimizer reports of a graph."""
    return optimize_graph(graph)[1]


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


def large(count: int, seed: int = 0) -> Graph:
    """A graph of so many ops: chains that fork and join, with pairs that a rule makes one."""
    random, graph = Random(seed), Graph("large")
    from graphopt.ir.types import TensorType

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
