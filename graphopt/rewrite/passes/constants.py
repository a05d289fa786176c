"""Constant placement: constants are initializers, and bodies of If, Loop and Scan own those that nobody else reads.

A runtime prepares the weights of an op (transposes, packs, lays them out) only where they are constants
of the same graph. A weight that a body captures from outside is prepared anew in every run, so each
constant moves into the one body that reads it. Small constants that several bodies read are copied
(``control.trim_captures`` does that, and drops the captures that are left without a reader).
"""

from __future__ import annotations

from graphopt.ir.graph import CONSTANT, Attrs, Graph, Node, Origin
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.native import NativePass


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
