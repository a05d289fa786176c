"""Loop-invariant code motion, states that no pass changes, and sequences that a loop appends to and that are stacked in
the end. What decides or unrolls control flow is apart, in ``control``."""

from __future__ import annotations

from graphopt.ir import ops
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.native import NativePass
from graphopt.rewrite.passes.splice import outside

SAFE = (
    ops.KINDS["elementwise"] | ops.KINDS["reduce"] | ops.KINDS["product"] | frozenset({"Transpose", "Softmax", "Shape"})
) - {"Div", "Mod"}
"""Ops that have a value whatever their operands are: computing them although the loop never runs does no harm. A
division of integers by zero has none."""


def hoist_invariants(space: Workspace, node: Node) -> bool:
    """Move nodes of a Loop or Scan that read only constants and captured values in front of it."""
    body = node.attrs.get("body")
    if node.op not in ("Loop", "Scan") or not isinstance(body, Graph) or not node.captures:
        return False
    captured = dict(zip(body.inputs[-node.captures :], node.inputs[-node.captures :], strict=True))
    invariant = _invariant(body, set(captured))
    if not invariant:
        return False
    outer: dict[Value, Value | None] = dict(captured)
    for inner in invariant:
        outputs = space.add(
            inner.op, [outside(space, body, outer, v) for v in inner.inputs], inner.attrs, inner.n_outputs
        )
        outer.update(zip(inner.outputs, outputs, strict=True))
    edited = body.copy()
    moved = {n.id for n in invariant}
    added: list[Value | None] = []
    for value in (v for n in invariant for v in n.outputs):
        if edited.is_output(value) or any(user not in moved for user, _ in edited.users(value)):
            edited.replace(value, edited.add_input(f"captured {len(edited.inputs)}", edited.types.get(value)))
            added.append(outer[value])
    for inner in reversed(invariant):
        edited.remove(inner.id)
    attrs = node.attrs.with_(body=edited)
    space.update(node.id, inputs=node.inputs + tuple(added), attrs=attrs, captures=node.captures + len(added))
    return True


def _invariant(body: Graph, captured: set[Value]) -> list[Node]:
    """The nodes that are the same in every pass, in order."""
    same = {v.node for v in captured}
    constants = {n.id for n in body.nodes() if n.op == CONSTANT}
    invariant: list[Node] = []
    for node in body.order():
        if node.op in (INPUT, CONSTANT) or node.op not in SAFE or node.bodies or not ops.is_pure(node.op, node.attrs):
            continue
        read = {v.node for v in node.inputs if v is not None}
        if read & same and read <= same | constants:
            same.add(node.id)
            invariant.append(node)
    return invariant


def capture_states(space: Workspace, node: Node) -> bool:
    """Capture what a Loop carries from pass to pass without changing it."""
    body = node.attrs.get("body")
    if node.op != "Loop" or not isinstance(body, Graph):
        return False
    n_states = len(body.inputs) - 2 - node.captures
    kept = [i for i in range(n_states) if body.outputs[1 + i] != body.inputs[2 + i] or node.inputs[2 + i] is None]
    if len(kept) == n_states:
        return False
    fixed = [i for i in range(n_states) if i not in kept]
    edited = body.copy()
    formal, actual = body.inputs, node.inputs
    edited.inputs = [
        *formal[:2],
        *(formal[2 + i] for i in kept),
        *formal[2 + n_states :],
        *(formal[2 + i] for i in fixed),
    ]
    outputs = [0, *(1 + i for i in kept), *range(1 + n_states, len(body.outputs))]
    edited.outputs = [body.outputs[i] for i in outputs]
    edited.output_names = [body.output_names[i] for i in outputs]
    inputs = [*actual[:2], *(actual[2 + i] for i in kept), *actual[2 + n_states :], *(actual[2 + i] for i in fixed)]
    if outputs == [0]:
        return False  # a Loop makes at least one value
    results = space.add(
        "Loop", inputs, node.attrs.with_(body=edited), len(outputs) - 1, node.captures + len(fixed), node.origin
    )
    for index, new in zip(outputs[1:], results, strict=True):
        space.replace(node.outputs[index - 1], new)
    for i in fixed:
        start = actual[2 + i]
        assert start is not None
        space.replace(node.outputs[i], start)
    return True


HOIST = NativePass(
    "loop-invariant",
    "what is the same in every pass is computed once, in front of the loop",
    "O4",
    visit=hoist_invariants,
    ops=frozenset({"Loop", "Scan"}),
)
STATES = NativePass(
    "unchanged-state",
    "what a loop carries along unchanged is captured",
    "O7",
    visit=capture_states,
    ops=frozenset({"Loop"}),
)


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


COLLECT = NativePass(
    "stacked-sequence",
    "a loop stacks what its passes give by itself, without a sequence that it carries along",
    "F11,O4",
    visit=collect,
    ops=frozenset({"Loop"}),
)
