"""A loop that appends to a sequence, which is stacked in the end, collects as loops do."""

from __future__ import annotations

from graphopt.ir.graph import Graph, Node, Value
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.native import Pass


def collect(space: Workspace, node: Node) -> bool:
    """Collect what a Loop appends to an empty sequence, where the sequence is only stacked afterwards."""
    body = node.attrs.get("body")
    if node.op != "Loop" or not isinstance(body, Graph):
        return False
    n_states = len(body.inputs) - 2 - node.captures
    for i in range(n_states):
        added = _appended(space, node, body, i)
        stacks = _stacks(space, node.outputs[i])
        if added is not None and stacks:
            _rebuild(space, node, body, i, added, stacks)
            return True
    return False


def _appended(space: Workspace, node: Node, body: Graph, i: int) -> Value | None:
    """What every pass appends to a state that begins as an empty sequence and is read by nothing else."""
    start, end = node.inputs[2 + i], body.outputs[1 + i]
    if start is None or end is None or space.graph.node(start.node).op != "SequenceEmpty":
        return None
    state, last = body.inputs[2 + i], body.node(end.node)
    if last.op != "SequenceInsert" or last.inputs[0] != state or len(last.inputs) > 2:
        return None
    if body.n_uses(state) > 1 or body.n_uses(end) > 1:
        return None
    return last.inputs[1]


def _stacks(space: Workspace, value: Value) -> list[Node]:
    """The nodes that stack the sequence along a new first axis, where nobody else reads it."""
    users = [space.graph.node(user) for user, _ in space.graph.users(value)]
    stacked = all(
        u.op == "ConcatFromSequence" and u.attrs.get("new_axis") == 1 and u.attrs.get("axis") == 0 for u in users
    )
    return users if users and stacked and not space.graph.is_output(value) else []


def _rebuild(space: Workspace, node: Node, body: Graph, i: int, added: Value, stacks: list[Node]) -> None:
    """Put a Loop in the place of this one that collects what it appended as state number ``i``."""
    edited = body.copy()
    end, state = body.outputs[1 + i], body.inputs[2 + i]
    assert end is not None
    edited.outputs = [*body.outputs[: 1 + i], *body.outputs[2 + i :], added]
    names = body.output_names
    edited.output_names = [*names[: 1 + i], *names[2 + i :], f"{names[1 + i]} element"]
    edited.remove(end.node)
    edited.remove(state.node)
    inputs = [v for at, v in enumerate(node.inputs) if at != 2 + i]
    results = space.add("Loop", inputs, node.attrs.with_(body=edited), node.n_outputs, node.captures, node.origin)
    kept = [port for port in range(node.n_outputs) if port != i]
    for new, port in zip(results, kept, strict=False):
        space.replace(node.outputs[port], new)
    for stack in stacks:
        space.replace(Value(stack.id), results[-1])


COLLECT = Pass(
    "stacked-sequence",
    "a loop stacks what its passes give by itself, without a sequence that it carries along",
    "F11,O4",
    visit=collect,
)
