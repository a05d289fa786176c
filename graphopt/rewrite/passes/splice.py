"""Copies a closed graph (a body, a function) into another one, where values stand for its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Node, Value
from graphopt.rewrite.workspace import Workspace


def splice(
    space: Workspace,
    body: Graph,
    arguments: Sequence[Value | None],
    attributes: Callable[[Node], Attrs] = lambda node: node.attrs,
) -> list[Value | None]:
    """The values in the workspace that stand for the body's outputs; missing arguments are absent.

    ``attributes`` gives the attributes that the copy of a node has.
    """
    copies: dict[Value, Value | None] = dict.fromkeys(body.inputs)
    copies.update(zip(body.inputs, arguments, strict=False))
    for node in body.order():
        if node.op == INPUT:
            continue
        attrs = attributes(node)
        constant = attrs.get("value")
        if node.op == CONSTANT and isinstance(constant, Constant):
            copies[Value(node.id)] = space.make_constant(constant)
            continue
        inputs = [None if v is None else copies[v] for v in node.inputs]
        while inputs and inputs[-1] is None and not node.captures:
            inputs.pop()
        origin = replace(node.origin, extra=None)
        made = space.add(node.op, inputs, attrs, node.n_outputs, node.captures, origin)
        copies.update(zip(node.outputs, made, strict=True))
    return [None if v is None else copies[v] for v in body.outputs]
