"""Caches of keys and values: inputs behind which a graph puts something new, and which are outputs then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from graphopt.ir.facts import Fact
from graphopt.ir.graph import INPUT, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.types import Size, symbols

PASTS: Final[Mapping[str, tuple[int, ...]]] = {
    "Attention": (4, 5),
    "com.microsoft::Attention": (4,),
    "com.microsoft::GroupQueryAttention": (3, 4),
    "com.microsoft::MultiHeadAttention": (6, 7),
}
"""The inputs of attention that hold keys and values of the past, together or apart. They go on in its outputs, from the
second on."""


def appended(graph: Graph) -> Iterator[tuple[Value, Node]]:
    """The inputs behind which something is put, each with the Concat that does so and gives an output."""
    for node in graph.nodes():
        past = node.inputs[0] if node.op == "Concat" else None
        is_behind = past is not None and graph.node(past.node).op == INPUT and node.inputs.count(past) == 1
        if past is not None and is_behind and graph.is_output(node.outputs[0]):
            yield past, node


def caches(graph: Graph) -> list[tuple[Size, Size]]:
    """The sizes of what is kept and of what is new, of each cache where one of them at least is open."""
    nodes = [node for _, node in appended(graph)]
    facts = infer(graph) if nodes else {}
    return [sizes for node in nodes if (sizes := _sizes(node, facts)) is not None]


def _sizes(node: Node, facts: Mapping[Value, Fact]) -> tuple[Size, Size] | None:
    """The sizes of what is kept and of what is new along the axis; None where they are not two sizes of their own."""
    axis = node.attrs.get("axis")
    shapes = [facts[v].shape for v in node.inputs if v is not None]
    if not isinstance(axis, int) or not all(shapes):
        return None
    past, *others = (shape[axis] for shape in shapes if shape)
    new: Size = sum(others, 0)
    if symbols(past) & symbols(new) or not (symbols(past) | symbols(new)):
        return None
    return past, new
