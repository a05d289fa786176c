"""Inlining of local functions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.functions import callee, expanded_size
from graphopt.ir.graph import CONSTANT, AttrRef, Attrs, Function, Graph, Node
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.native import NativePass
from graphopt.rewrite.passes.splice import splice

LIMIT = 100_000
"""How many nodes a model may have once its functions are expanded."""


def inline_functions(space: Workspace) -> bool:
    """Put the bodies of local functions in the place of their calls.

    Raises InvalidModelError where a function calls itself, LimitError where the result would have more than ``LIMIT``
    nodes and the calls more than they have now.
    """
    graph = space.graph
    waiting = _calls(graph, 0)
    if not waiting:
        return False
    expanded_size(graph, max(LIMIT, 2 * len(graph)))
    before = space.edits
    while waiting:
        node = graph.node(waiting.pop())
        function = callee(node, graph.functions)
        if function is None or not _fits(space, function):
            continue
        first = graph.next_id
        bound = partial(_bound, call=node, function=function)
        outputs = splice(space, function.body, node.inputs, bound, named=False)
        for old, new in zip(node.outputs, outputs, strict=False):
            if new is not None:
                space.replace(old, new)
        _import(graph, function)
        waiting += _calls(graph, first)
    return space.edits != before


def _calls(graph: Graph, first: int) -> list[int]:
    """The calls of local functions among the nodes from an id on, the last first."""
    return [n.id for n in graph.since(first) if callee(n, graph.functions)][::-1]


def _fits(space: Workspace, function: Function) -> bool:
    """Whether the model's opset has what the function needs, where the function is written for another."""
    opset = dict(function.opsets).get("", space.opset)
    if opset == space.opset:
        return True
    inner = [n for n in function.body.nodes() if n.inputs]
    return all(ops.refusal(n.op, Attrs(), [], space.opset) is None or ops.schema(n.op, space.opset) for n in inner)


def _import(graph: Graph, function: Function) -> None:
    opsets = dict(graph.header.opsets)
    added = tuple(o for o in function.opsets if o[0] not in opsets)
    if added:
        graph.header = replace(graph.header, opsets=graph.header.opsets + added)


def _bound(node: Node, call: Node, function: Function) -> Attrs:
    """The attributes of a node of a function as a call sets them."""
    if not any(isinstance(a, AttrRef | Graph) for a in node.attrs.values()):
        return node.attrs
    attrs: dict[str, Any] = {}
    for name, attr in node.attrs.items():
        if isinstance(attr, AttrRef):
            value = call.attrs.get(attr.name, function.defaults.get(attr.name))
            if value is not None:
                attrs[name] = value
        else:
            attrs[name] = _bound_body(attr, call, function) if isinstance(attr, Graph) else attr
    if node.op == CONSTANT and "value" not in attrs and len(attrs) == 1:
        ((form, value),) = attrs.items()
        attrs = {"value": _spelled(form, value)}
    return Attrs(attrs)


def _bound_body(body: Graph, call: Node, function: Function) -> Graph:
    bound = body.copy()
    for node in list(bound.nodes()):
        attrs = _bound(node, call, function)
        if attrs is not node.attrs:
            bound.update(node.id, attrs=attrs)
    return bound


def _spelled(form: str, value: object) -> Constant:
    """The constant that a Constant node spells as a plain number, string or list."""
    if "string" in form:
        array = np.empty(len(value) if isinstance(value, tuple) else (), dtype=object)
        array[...] = value
        return Constant.of(array, "string")
    return Constant.of(np.array(value, dtype=np.float32 if "float" in form else np.int64))


INLINE = NativePass(
    "inline-functions",
    "what a local function does can be rewritten once it stands in the graph",
    "A15,O6",
    sweep=inline_functions,
)
