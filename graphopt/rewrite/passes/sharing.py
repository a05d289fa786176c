"""Common subexpressions and equal constants become one."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from graphopt.ir import ops
from graphopt.ir.constants import SMALL, Constant
from graphopt.ir.functions import callee
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Node, Value
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.native import NativePass


def share_nodes(space: Workspace) -> bool:
    """Let the first of several equal pure nodes stand for all; bodies are equal by their structure."""
    first: dict[Hashable, Node] = {}
    before = space.edits
    for node in space.graph.order():
        node = space.graph.node(node.id)  # its inputs may have been shared since
        if node.op in (INPUT, CONSTANT) or not ops.is_pure(node.op, node.attrs) or callee(node, space.graph.functions):
            continue
        twin = first.setdefault(_node_key(node), node)
        if twin is not node:
            for mine, its in zip(node.outputs, twin.outputs, strict=True):
                space.replace(mine, its)
    return space.edits != before


def _node_key(node: Node) -> Hashable:
    inputs: tuple[Value | None, ...] = node.inputs
    if ops.is_commutative(node.op):
        inputs = tuple(sorted(node.inputs, key=lambda v: (-1, 0) if v is None else v))
    attrs: Hashable = ops.canonical(node.op, node.attrs)
    if node.bodies:
        bodies = tuple((name, body.key()) for name, body in node.bodies.items())
        attrs = (Attrs({n: a for n, a in node.attrs.items() if not isinstance(a, Graph)}), bodies)
    return node.op, inputs, attrs, node.n_outputs, node.captures, node.origin.overload


def share_constants(space: Workspace) -> bool:
    """Let the first of several equal constants stand for all.

    Elements are read only where dtype, shape and the first few elements agree.
    """
    groups: dict[Hashable, list[tuple[Value, Constant]]] = {}
    for node in space.graph.nodes():
        constant = node.attrs.get("value") if node.op == CONSTANT else None
        if isinstance(constant, Constant):
            groups.setdefault((constant.dtype, constant.shape, _splat(constant)), []).append((Value(node.id), constant))
    before = space.edits
    for group in groups.values():
        if len(group) > 1:
            _share_group(space, group)
    return space.edits != before


def _share_group(space: Workspace, group: list[tuple[Value, Constant]]) -> None:
    heads: dict[bytes, list[tuple[Value, Constant]]] = {}
    for value, constant in group:
        heads.setdefault(_head(constant), []).append((value, constant))
    for alike in heads.values():
        first: dict[bytes, Value] = {}
        for value, constant in alike if len(alike) > 1 else []:
            key = b"" if constant.splat is not None else constant.digest
            twin = first.setdefault(key, value)
            if twin != value:
                space.replace(value, twin)


def _splat(constant: Constant) -> bytes | None:
    return None if constant.splat is None else constant.splat.tobytes()


def _head(constant: Constant) -> bytes:
    """A few of the elements, enough to tell most constants apart without reading them."""
    if constant.splat is not None:
        return b""
    if constant.dtype == "string" or constant.size <= SMALL:
        return constant.digest
    return bytes(np.ascontiguousarray(constant.array.reshape(-1)[:SMALL]).view(np.uint8).tobytes())


DUPLICATES = NativePass("duplicate-constant", "equal constants are stored once", "A6,A21", sweep=share_constants)
COMMON = NativePass("common-node", "equal nodes are computed once", "A4", sweep=share_nodes)
