"""Caches of keys and values: inputs behind which a graph puts something new, and which are outputs then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphopt.ir.facts import Fact
from graphopt.ir.graph import INPUT, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.types import Size, symbols


def caches(graph: Graph) -> list[tuple[Size, Size]]:
    """The sizes of what is kept and of what is new, of each cache where one of them at least is open."""
    nodes = [node for node in graph.nodes() if _grows(graph, node)]
    facts = infer(graph) if nodes else {}
    return [sizes for node in nodes if (sizes := _sizes(node, facts)) is not None]


def _grows(graph: Graph, node: Node) -> bool:
    """Whether a node puts something new behind an input and gives that out."""
    return (
        node.op == "Concat"
        and len(node.inputs) == 2
        and isinstance(node.inputs[0], Value)
        and graph.node(node.inputs[0].node).op == INPUT
        and graph.is_output(node.outputs[0])
    )


def _sizes(node: Node, facts: Mapping[Value, Fact]) -> tuple[Size, Size] | None:
    """The sizes of what is kept and of what is new along the axis; None where they are not two sizes of their own."""
    axis = node.attrs.get("axis")
    shapes: Sequence[tuple[Size, ...] | None] = [None if v is None else facts[v].shape for v in node.inputs]
    if not isinstance(axis, int) or any(s is None for s in shapes):
        return None
    past, new = (s[axis] for s in shapes if s is not None)
    if symbols(past) & symbols(new) or not (symbols(past) | symbols(new)):
        return None
    return past, new
