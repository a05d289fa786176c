"""Dead code elimination: nodes, optional outputs, functions and operator sets that nobody reads are removed."""

from __future__ import annotations

from dataclasses import replace

from graphopt.ir import ops
from graphopt.ir.functions import calls
from graphopt.ir.graph import INPUT, Graph, Node
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.native import NativePass


def remove_unused(space: Workspace, node: Node) -> bool:
    """Remove the node where it is there still and nobody reads it; inputs of the graph stay."""
    if node.op == INPUT or node.id not in space.graph or space.graph.is_used(node.id):
        return False
    space.remove(node.id)
    return True


def cut_outputs(space: Workspace, node: Node) -> bool:
    """Cut optional outputs at the end that nobody reads: running means, masks, indices."""
    if node.n_outputs == 1 or (node.op, node.origin.overload) in space.graph.functions:
        return False
    schema = ops.schema(node.op)
    if schema is None or node.attrs.get("training_mode"):  # a BatchNormalization that trains has all its outputs
        return False
    kept = node.n_outputs
    while kept > schema.min_outputs and kept > 1:
        formal = schema.output(kept - 1)
        if formal is None or not formal.optional or space.uses(node.outputs[kept - 1]):
            break
        kept -= 1
    if kept == node.n_outputs:
        return False
    space.update(node.id, n_outputs=kept)
    return True


def remove_functions(space: Workspace) -> bool:
    """Remove the local functions that nobody calls, and the operator sets of which no op is left."""
    graph = space.graph
    if space.is_body:
        return False
    needed: dict[tuple[str, str], None] = {}
    domains = {""}
    waiting: list[Graph] = [graph]
    while waiting:
        for node in calls(waiting.pop()):
            domains.add(ops.split(node.op)[0])
            key = (node.op, node.origin.overload)
            if key in graph.functions and key not in needed:
                needed[key] = None
                waiting.append(graph.functions[key].body)
    functions = {key: f for key, f in graph.functions.items() if key in needed}
    opsets = tuple(o for o in graph.header.opsets if o[0] in domains)
    if len(functions) == len(graph.functions) and opsets == graph.header.opsets:
        return False
    graph.functions = functions
    graph.header = replace(graph.header, opsets=opsets)
    space.edits += 1
    return True


UNUSED = NativePass("unused-node", "what reaches no output need not be computed", "A1", visit=remove_unused)
OUTPUTS = NativePass("unused-output", "an optional output that nobody reads need not be made", "A23", visit=cut_outputs)
FUNCTIONS = NativePass(
    "unused-function", "functions and operator sets that nobody uses are dropped", "A7", sweep=remove_functions
)
