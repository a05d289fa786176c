"""Control flow: decided branches and short loops become plain nodes; bodies lose what nobody needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, Attrs, Graph, Node, Value
from graphopt.ir.infer_bodies import loop_head
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.native import NativePass
from graphopt.rewrite.passes.splice import splice

MOVED_BYTES = 1024
"""Constants up to this size are copied into the bodies that read them."""


def decide_if(space: Workspace, node: Node) -> bool:
    """Put a branch in the place of an If whose condition is constant."""
    condition = node.inputs[0] if node.op == "If" else None
    constant = None if condition is None else space.constant(condition)
    if constant is None or constant.size != 1:
        return False
    branch = node.attrs.get("then_branch" if bool(constant.array.reshape(-1)[0]) else "else_branch")
    if not isinstance(branch, Graph):
        return False
    _become(space, node, splice(space, branch, node.inputs[1:]))
    return True


def drop_choice(space: Workspace, node: Node) -> bool:
    """Put a branch in the place of an If whose branches are equal."""
    yes, no = node.attrs.get("then_branch"), node.attrs.get("else_branch")
    if node.op != "If" or not isinstance(yes, Graph) or not isinstance(no, Graph):
        return False
    if len(yes) != len(no) or body_key(yes) != body_key(no):
        return False
    _become(space, node, splice(space, yes, node.inputs[1:]))
    return True


def body_key(body: Graph) -> bytes:
    """A hash of what a body does: equal for bodies that differ in names alone, those of their results included."""
    unnamed = body.copy()
    unnamed.output_names = [""] * len(body.outputs)
    unnamed.names = {}
    unnamed.types = {}
    return unnamed.key()


def unroll_loop(space: Workspace, node: Node) -> bool:
    """Put the passes of a Loop one after another, where their number is known and small."""
    body = node.attrs.get("body")
    if node.op != "Loop" or not isinstance(body, Graph):
        return False
    trips = _trips(space, node, body)
    if trips is None or (trips > 1 and trips * max(_nodes(body, space.unroll), 1) > space.unroll):
        return False
    n_states = len(body.inputs) - 2 - node.captures
    states = list(node.inputs[2 : 2 + n_states])
    captured = node.inputs[len(node.inputs) - node.captures :]
    scans = node.outputs[n_states:]
    if trips == 0 and any(map(space.uses, scans)):
        return False
    collected: list[list[Value]] = [[] for _ in scans]
    counter, goes = loop_head(body)
    condition = space.make_constant(Constant.of(np.full((1,) * (goes.rank or 0), True)))
    for trip in range(trips):
        number = space.make_constant(Constant.of(np.full((1,) * (counter.rank or 0), trip, dtype=np.int64)))
        outputs = splice(space, body, [number, condition, *states, *captured], named=trip == 0)
        states = outputs[1 : 1 + n_states]
        for parts, value in zip(collected, outputs[1 + n_states :], strict=True):
            parts.append(_stacked(space, value))
    results = [None if not parts else parts[0] if len(parts) == 1 else _joined(space, parts) for parts in collected]
    _become(space, node, [*states, *results])
    return True


def _nodes(body: Graph, limit: float) -> int:
    """The nodes of a body, those of bodies within included, and of loops within that are going to be unrolled."""
    total = len(body)
    for node in body.nodes():
        inside = sum(_nodes(inner, limit) for inner in node.bodies.values())
        count = body.constant_of(node.inputs[0]) if node.op == "Loop" else None
        trips = 1 if count is None or count.size != 1 else int(count.array.reshape(-1)[0])
        total += inside * trips if 1 < trips * inside <= limit else inside
    return total


def _trips(space: Workspace, node: Node, body: Graph) -> int | None:
    """How often a Loop runs, where that is known: its condition must be true, and stay so or not."""
    count, condition = node.inputs[:2]
    start = True if condition is None else _truth(space.constant(condition))
    if start is False:
        return 0
    again = body.constant_of(body.outputs[0])
    stays = body.outputs[0] == body.inputs[1] or _truth(again) is True
    limit = None if count is None else space.constant(count)
    number = None if limit is None else int(limit.array.reshape(-1)[0])
    if number is not None and number <= 0:
        return 0
    if not start:
        return None
    if _truth(again) is False:  # at most one pass, and none where the count may be zero
        return 1 if number is not None or count is None else None
    return number if stays else None


def _truth(constant: Constant | None) -> bool | None:
    return None if constant is None or constant.size != 1 else bool(constant.array.reshape(-1)[0])


def _stacked(space: Workspace, value: Value | None) -> Value:
    assert value is not None
    axes = space.make_constant(Constant.of(np.array([0], dtype=np.int64)))
    return space.add("Unsqueeze", (value, axes))[0]


def _joined(space: Workspace, parts: Sequence[Value]) -> Value:
    return space.add("Concat", parts, Attrs(axis=0))[0]


def _become(space: Workspace, node: Node, values: Sequence[Value | None]) -> None:
    for old, new in zip(node.outputs, values, strict=True):
        if new is not None:
            space.replace(old, new)


def trim_captures(space: Workspace, node: Node) -> bool:
    """Copy small constants into the bodies that capture them, and capture only what a body reads, once."""
    bodies = node.bodies
    if not node.captures or not bodies:
        return False
    start = len(node.inputs) - node.captures
    outer = node.inputs[start:]
    change: dict[int, Callable[[Graph, int], None]] = {}
    for i, value in enumerate(outer):
        constant = space.graph.constant_of(value)
        if not any(_reads(body, i - node.captures) for body in bodies.values()):
            change[i] = lambda body, at: None
        elif constant is not None and constant.nbytes <= MOVED_BYTES:
            change[i] = lambda body, at, c=constant: body.replace(body.inputs[at], body.add_constant(c))  # type: ignore[misc]
        elif (first := outer.index(value)) < i and first not in change:
            change[i] = lambda body, at, f=first - node.captures: body.replace(body.inputs[at], body.inputs[f])  # type: ignore[misc]
    if not change:
        return False
    attrs = {}
    for name, body in bodies.items():
        edited = body.copy()
        for i, act in change.items():
            act(edited, i - node.captures)
        for gone in [edited.inputs[i - node.captures] for i in change]:
            edited.remove(gone.node)
        attrs[name] = edited
    kept = tuple(v for i, v in enumerate(outer) if i not in change)
    space.update(node.id, inputs=node.inputs[:start] + kept, attrs=node.attrs.with_(**attrs), captures=len(kept))
    return True


def _reads(body: Graph, at: int) -> bool:
    return body.is_used(body.inputs[at].node)


def trim_outputs(space: Workspace, node: Node) -> bool:
    """Drop the outputs of an If that nobody reads, and what a Loop carries or collects for nobody."""
    if node.op == "If":
        wanted = [i for i, v in enumerate(node.outputs) if space.uses(v)]
        if len(wanted) == node.n_outputs or not wanted:
            return False
        attrs = {name: _with_outputs(body, wanted) for name, body in node.bodies.items()}
        _narrow(space, node, node.inputs, node.attrs.with_(**attrs), wanted)
        return True
    body = node.attrs.get("body")
    if node.op != "Loop" or not isinstance(body, Graph):
        return False
    n_states = len(body.inputs) - 2 - node.captures
    wanted = _wanted_of_loop(space, node, body, n_states)
    if len(wanted) == node.n_outputs or not wanted:
        return False
    edited = _with_outputs(body, [0, *(1 + i for i in wanted)])
    dropped = [i for i in range(n_states) if i not in wanted]
    _remove_unused(edited)
    for gone in [edited.inputs[2 + i] for i in dropped]:
        edited.remove(gone.node)
    inputs = tuple(v for i, v in enumerate(node.inputs) if i - 2 not in dropped)
    _narrow(space, node, inputs, node.attrs.with_(body=edited), wanted)
    return True


def _wanted_of_loop(space: Workspace, node: Node, body: Graph, n_states: int) -> list[int]:
    """The outputs of a Loop that are read, and the states that these and the condition are computed from."""
    wanted = {i for i, v in enumerate(node.outputs) if space.uses(v)}
    states = {body.inputs[2 + i].node: i for i in range(n_states)}
    waiting = [body.outputs[0], *(body.outputs[1 + i] for i in sorted(wanted))]
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if value is None or value.node in seen:
            continue
        seen.add(value.node)
        state = states.get(value.node)
        if state is not None and state not in wanted:
            wanted.add(state)
            waiting.append(body.outputs[1 + state])
        waiting.extend(body.node(value.node).inputs)
    return sorted(wanted)


def _with_outputs(body: Graph, wanted: Sequence[int]) -> Graph:
    edited = body.copy()
    edited.outputs = [body.outputs[i] for i in wanted]
    edited.output_names = [body.output_names[i] for i in wanted]
    return edited


def _remove_unused(body: Graph) -> None:
    for node in reversed(body.order()):
        if (node.inputs or node.op == CONSTANT) and not body.is_used(node.id):
            body.remove(node.id)


def _narrow(space: Workspace, node: Node, inputs: Sequence[Value | None], attrs: Attrs, wanted: Sequence[int]) -> None:
    """Put a node with only some of the outputs in the place of a node."""
    outputs = space.add(node.op, inputs, attrs, len(wanted), node.captures, node.origin)
    for index, new in zip(wanted, outputs, strict=True):
        space.replace(node.outputs[index], new)


DECIDED = NativePass(
    "decided-if", "a branch that is always taken needs no If", "O1", visit=decide_if, ops=frozenset({"If"})
)
IDLE = NativePass(
    "idle-if", "an If whose branches are equal is no choice", "O2", visit=drop_choice, ops=frozenset({"If"})
)
UNROLL = NativePass(
    "short-loop",
    "a loop of a few passes is its passes one after another",
    "O3",
    visit=unroll_loop,
    ops=frozenset({"Loop"}),
    makes=frozenset({"Concat", "Unsqueeze"}),
)
CAPTURES = NativePass(
    "captures", "a body holds its small constants itself, and captures only what it reads", "A8", visit=trim_captures
)
CARRIED = NativePass(
    "carried-for-nobody",
    "what no one reads is neither returned nor carried from pass to pass",
    "O7",
    visit=trim_outputs,
    ops=frozenset({"If", "Loop"}),
)
