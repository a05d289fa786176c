"""Descriptions of values and matches in call notation, for journals, messages and explanations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.ir import ops
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.rewrite.guards.bindings import is_several
from graphopt.rewrite.match.matcher import Match
from graphopt.rewrite.rule.rule import Term, by_identity, variables


def describe(graph: Graph, value: Value | None, leaves: Sequence[Value] = (), depth: int = 8) -> str:
    """The term that makes a value in call notation, down to the leaves (or to the depth), which stand by name."""
    if value is None:
        return "_"
    if value.node not in graph:
        return f"%{value.node}"
    node = graph.node(value.node)
    constant = graph.constant_of(value)
    if constant is not None and constant.size <= 8 and value not in leaves:
        return _brief(constant.array.tolist())
    if value in leaves or depth == 0 or node.op in (INPUT, CONSTANT):
        return name_of(graph, node, value.port)
    port = f"[{value.port}]" if value.port else ""
    return show_call(graph, node, leaves, depth) + port


def show_call(graph: Graph, node: Node, leaves: Sequence[Value] = (), depth: int = 1) -> str:
    """A node in call notation, its operands as ``describe`` shows them; attributes where they are not the default."""
    parts = [describe(graph, v, leaves, depth - 1) for v in node.inputs]
    parts += [f"{name}={_brief(a)}" for name, a in ops.canonical(node.op, node.attrs).items()]
    return f"{node.op}({', '.join(parts)})"


def _brief(value: object) -> str:
    """A value as short as single precision allows."""
    if isinstance(value, float):
        return str(np.float32(value))
    if isinstance(value, list | tuple):
        inner = ", ".join(map(_brief, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return "{...}" if isinstance(value, Graph) else repr(value)


def leaves_of(match: Match) -> tuple[Value, ...]:
    """The values that the variables of a match stand for."""
    names = _names(match.rule.lhs)
    bound = [b for name, b in match.bindings.values.items() if name in names and b is not None]
    return tuple(v for b in bound for v in (b if is_several(b) else (b,)))


@by_identity
def _names(terms: tuple[Term, ...]) -> frozenset[str]:
    """The names of all variables."""
    return frozenset(v.name for term in terms for v in variables(term))


def name_of(graph: Graph, node: Node, port: int = 0) -> str:
    """The name of an output of a node: its own, the caller's, or its number."""
    value = Value(node.id, port)
    if value in graph.names:
        return graph.names[value]
    if value in graph.outputs:
        return graph.output_names[graph.outputs.index(value)]
    return f"%{node.id}" if not port else f"%{node.id}.{port}"


def names_of(graph: Graph, node: Node) -> list[str]:
    """The names by which a node can be called: its own, and those of the values that it makes; no numbers."""
    of_values = [name_of(graph, node, v.port) for v in node.outputs if v in graph.names or v in graph.outputs]
    return [name for name in (node.origin.name, *of_values) if name]
