"""Splicing of a closed graph (a body, a function), or a part of it, into another one, where values stand for its
inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Node, Value
from graphopt.rewrite.match.workspace import Workspace


def splice(
    space: Workspace,
    body: Graph,
    arguments: Sequence[Value | None],
    attributes: Callable[[Node], Attrs] = lambda node: node.attrs,
    *,
    named: bool = True,
) -> list[Value | None]:
    """The values in the workspace that stand for the body's outputs; missing arguments are absent.

    ``attributes`` gives the attributes that the copy of a node has; with ``named`` it has the name that
    the node has, unless that is taken: of several copies of a graph one at most should be named.
    """
    copies: dict[Value, Value | None] = dict.fromkeys(body.inputs)
    copies.update(zip(body.inputs, arguments, strict=False))
    names = {n.origin.name for n in space.graph.nodes()} if named else frozenset()
    for node in body.order():
        if node.op == INPUT:
            continue
        attrs = attributes(node)
        constant = attrs.get("value")
        if node.op == CONSTANT and isinstance(constant, Constant):
            copies[Value(node.id)] = space.make_constant(constant)
            continue
        inputs = [None if v is None else copies[v] for v in node.inputs]
        name = node.origin.name if named and node.origin.name not in names else ""
        origin = replace(node.origin, extra=None, name=name)
        outputs = space.add(node.op, inputs, attrs, node.n_outputs, node.captures, origin)
        copies.update(zip(node.outputs, outputs, strict=True))
    return [None if v is None else copies[v] for v in body.outputs]


def outside(space: Workspace, body: Graph, outer: dict[Value, Value | None], value: Value | None) -> Value | None:
    """The value in front of a body's owner that a value of the body stands for: that in ``outer``, which constants of
    the body are added to."""
    if value is not None and value not in outer:
        constant = body.constant_of(value)
        assert constant is not None
        outer[value] = space.make_constant(constant)
    return None if value is None else outer[value]
