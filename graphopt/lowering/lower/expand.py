"""Function expansion: ops without a nest, which ONNX defines by other ops, become calls of functions, which are
inlined.

It stands apart from ``graphopt.compile``, which holds the steps alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from graphopt.errors import SENSELESS
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Function, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.types import TensorType
from graphopt.lowering.operators.table import lowering

BODIED = frozenset({"If", "Loop", "Scan"})
"""Ops that are lowered with their bodies."""


def expanded(graph: Graph) -> Graph:
    """The graph with the bodies of such ops as local functions; the graph itself where there are none."""
    from graphopt.ir.onnx_io.bodies import function_of  # only here is onnx needed to lower a graph

    wanted = [n for n in graph.nodes() if _is_unknown(graph, n)]
    if not wanted:
        return graph
    facts = infer(graph)
    functions: dict[int, Function] = {}
    for node in wanted:
        types = _types(node, facts)
        if types is None:
            continue
        try:
            function = function_of(graph, node, types, f"graphopt.{node.id}")
        except SENSELESS:  # of a call that ONNX forbids, it makes what is no function
            continue
        if function is not None:
            functions[node.id] = function
    if not functions:
        return graph
    expanded_graph = graph.copy()
    expanded_graph.functions = {**graph.functions, **{(f.op, f.overload): f for f in functions.values()}}
    for id, function in functions.items():
        expanded_graph.update(id, origin=replace(expanded_graph.node(id).origin, overload=function.overload))
    return expanded_graph


def _is_unknown(graph: Graph, node: Node) -> bool:
    lowered = node.op in (INPUT, CONSTANT, *BODIED) or lowering(node.op) is not None
    return not lowered and (node.op, node.origin.overload) not in graph.functions


def _types(node: Node, facts: Mapping[Value, Fact]) -> list[TensorType | None] | None:
    """The types of the inputs, None for those left out; None where one is no tensor."""
    types: list[TensorType | None] = []
    for value in node.inputs:
        type = None if value is None else facts[value].type
        if value is not None and not isinstance(type, TensorType):
            return None
        types.append(type if isinstance(type, TensorType) else None)
    return types
