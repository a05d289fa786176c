"""Constants are stored as initializers, however the model spelled them."""

from __future__ import annotations

from graphopt.ir.graph import CONSTANT, Origin
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.native import Pass

INITIALIZER = "initializer"


def store_constants(space: Workspace) -> bool:
    """Spell Constant nodes as initializers; sparse ones and strings stay as they are."""
    before = space.edits
    for node in list(space.graph.nodes()):
        if node.op == CONSTANT and node.origin.form.startswith("value") and "string" not in node.origin.form:
            space.graph.update(node.id, origin=Origin(form=INITIALIZER))
            space.edits += 1
    return space.edits != before


INITIALIZERS = Pass(
    "constant-node", "a Constant node is an initializer, which runtimes need not run", "A8", sweep=store_constants
)
