"""Common subexpressions and constants: equal ones are computed and stored once, and a constant stands where runtimes
prepare it.

A runtime prepares the weights of an op (transposes, packs, lays them out) only where they are constants
of the same graph. A weight that a body captures from outside is prepared anew in every run, so each
constant moves into the one body that reads it. Small constants that several bodies read are copied
(``control.trim_captures`` does that, and drops the captures that are left without a reader).
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from graphopt.ir import ops
from graphopt.ir.constants import SMALL, Constant
from graphopt.ir.functions import callee
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Node, Origin, Value
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


def own_constants(space: Workspace, node: Node) -> bool:
    """Move each captured constant that one body alone reads, and nothing outside, into that body."""
    if not node.captures:
        return False
    edited: dict[str, Graph] = {}
    for i, value in enumerate(node.inputs[len(node.inputs) - node.captures :]):
        constant = space.graph.constant_of(value)
        if value is None or constant is None or space.uses(value) != 1:
            continue
        readers = [name for name, body in node.bodies.items() if body.is_used(_formal(node, body, i))]
        if len(readers) != 1:
            continue
        body = edited.setdefault(readers[0], node.bodies[readers[0]].copy())
        inner = body.add_constant(constant)
        body.replace(body.inputs[i - node.captures], inner)
        if value in space.graph.names:
            body.names[inner] = space.graph.names[value]
    if edited:
        space.update(node.id, attrs=Attrs({**node.attrs, **edited}))
    return bool(edited)


def _formal(node: Node, body: Graph, i: int) -> int:
    """The node of the parameter that stands for the node's capture number ``i``."""
    return body.inputs[i - node.captures].node


OWN = NativePass(
    "own-constants",
    "runtimes prepare weights beforehand only where they are constants of the same graph",
    "A8",
    visit=own_constants,
)


INITIALIZER = "initializer"


def store_constants(space: Workspace) -> bool:
    """Spell Constant nodes as initializers; sparse ones and strings stay as they are."""
    before = space.edits
    for node in list(space.graph.nodes()):
        if node.op == CONSTANT and node.origin.form.startswith("value") and "string" not in node.origin.form:
            space.graph.update(node.id, origin=Origin(form=INITIALIZER))
            space.edits += 1
    return space.edits != before


INITIALIZERS = NativePass(
    "constant-node", "a Constant node is an initializer, which runtimes need not run", "A8", sweep=store_constants
)
