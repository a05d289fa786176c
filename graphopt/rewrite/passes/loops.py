"""Loop-invariant code motion, states that no pass changes or reads, and sequences that a loop appends to, which are
stacked. What decides or unrolls control flow is apart, in ``control``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import ml_dtypes
import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir import infer, ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Attr, Attrs, Graph, Node, Value
from graphopt.ir.types import TensorType, is_size, symbols
from graphopt.rewrite.match.workspace import Workspace, facts_within
from graphopt.rewrite.passes.native import NativePass
from graphopt.rewrite.passes.shapes import START_AND_END
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


def begin_unread(space: Workspace, node: Node) -> bool:
    """Begin a state that no pass of a Loop reads, and that every pass makes anew, as a tensor of the rank that it has
    then: exporters begin it as whatever there is, so that nobody could say what rank the Loop's result has."""
    body = node.attrs.get("body")
    if node.op != "Loop" or not isinstance(body, Graph) or not _is_entered(space, node):
        return False
    states = range(2, len(body.inputs) - node.captures)
    unread = [i for i in states if node.inputs[i] is not None and not body.is_used(body.inputs[i].node)]
    if not unread:
        return False
    facts, inputs = infer.infer(body, facts_within(node, body, space.facts)), list(node.inputs)
    for i in unread:
        made, start = body.outputs[i - 1], node.inputs[i]
        if made is None or start is None:
            continue
        after, before = facts[made], space.fact(start)
        if after.shape is not None and after.dtype == before.dtype != "string" and after.rank != before.rank:
            sizes = [n if isinstance(n, int) else 1 for n in after.shape]
            if math.prod(sizes) <= MOST_ZEROS:
                zeros = np.zeros(sizes, getattr(ml_dtypes, after.dtype or "", after.dtype))
                inputs[i] = space.make_constant(Constant.of(zeros, after.dtype))
    if tuple(inputs) == node.inputs:
        return False
    space.update(node.id, inputs=tuple(inputs))
    return True


MOST_ZEROS = 1 << 20
"""Elements that the first value of a state has at most where nobody reads it."""


def _is_entered(space: Workspace, node: Node) -> bool:
    """Whether a Loop has a first pass for sure."""
    count = node.inputs[0]
    limit = None if count is None else space.fact(count).elements
    return _starts(space, node) and (count is None or (limit is not None and all(is_size(n - 1) for n in limit)))


def _starts(space: Workspace, node: Node) -> bool:
    """Whether the condition that a Loop begins with is true for sure."""
    start = node.inputs[1]
    return start is None or space.fact(start).elements == (1,)


HOIST = NativePass(
    "loop-invariant",
    "what is the same in every pass is computed once, in front of the loop",
    "O4",
    visit=hoist_invariants,
    ops=frozenset({"Loop", "Scan"}),
)
BEGUN = NativePass(
    "unread-start",
    "a state that no pass reads begins with the rank that it has later",
    "O7",
    visit=begin_unread,
    ops=frozenset({"Loop"}),
)
STATES = NativePass(
    "unchanged-state",
    "what a loop carries along unchanged is captured",
    "O7",
    visit=capture_states,
    ops=frozenset({"Loop"}),
)


def collect(space: Workspace, node: Node) -> bool:
    """Collect what a Loop appends to an empty sequence, where all that is read of it can be read off the stack."""
    body = node.attrs.get("body")
    if node.op != "Loop" or not isinstance(body, Graph):
        return False
    n_states = len(body.inputs) - 2 - node.captures
    for i in range(n_states):
        added = _appended(space, node, body, i)
        readers = [space.graph.node(user) for user, _ in space.graph.users(node.outputs[i])]
        if added is None or not readers or space.graph.is_output(node.outputs[i]):
            continue
        collecting = _collecting(node, body, i, added)
        inputs = [None if v is None else space.fact(v) for v in collecting.inputs]
        try:
            stack = infer.infer_in_graph(space.graph, collecting, inputs, space.graph.functions)[-1]
        except GraphoptError:
            continue
        known = {s for fact in inputs if fact is not None for size in fact.shape or () for s in symbols(size)}
        is_even = stack.shape is not None and all(symbols(size) <= known for size in stack.shape[1:])
        if all(_reads_a_stack(r, stack) and (is_even or r.attrs.get("new_axis")) for r in readers):
            _rebuild(space, node, collecting, i, readers)
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


def _reads_a_stack(reader: Node, stack: Fact) -> bool:
    """Whether what a node reads of a sequence can be read off the stack of its elements."""
    is_stacking = reader.attrs.get("new_axis") == 1 and reader.attrs.get("axis") == 0
    return reader.op in ("SequenceAt", "SequenceLength") or (
        reader.op == "ConcatFromSequence" and (is_stacking or bool(stack.rank))
    )


def _collecting(node: Node, body: Graph, i: int, added: Value) -> Node:
    """The Loop that collects what this one appended as state number ``i``, as its last output."""
    edited = body.copy()
    end, state = body.outputs[1 + i], body.inputs[2 + i]
    assert end is not None
    edited.outputs = [*body.outputs[: 1 + i], *body.outputs[2 + i :], added]
    names = body.output_names
    edited.output_names = [*names[: 1 + i], *names[2 + i :], f"{names[1 + i]} element"]
    edited.remove(end.node)
    edited.remove(state.node)
    inputs = tuple(v for at, v in enumerate(node.inputs) if at != 2 + i)
    return replace(node, inputs=inputs, attrs=node.attrs.with_(body=edited))


def _rebuild(space: Workspace, node: Node, collecting: Node, i: int, readers: list[Node]) -> None:
    """Put a Loop in the place of another that carried a sequence as state number ``i``."""
    results = space.add(
        "Loop", collecting.inputs, collecting.attrs, collecting.n_outputs, node.captures, collecting.origin
    )
    kept = [port for port in range(node.n_outputs) if port != i]
    for new, port in zip(results, kept, strict=False):
        space.replace(node.outputs[port], new)
    for reader in readers:
        space.replace(Value(reader.id), _read(space, reader, results[-1]))


def _read(space: Workspace, reader: Node, stack: Value) -> Value:
    """What a node reads of a sequence, read off the stack of its elements."""
    if reader.op == "SequenceAt":
        return space.add("Gather", (stack, reader.inputs[1]), Attrs(axis=0))[0]
    if reader.op == "SequenceLength":
        return space.add("Squeeze", (_sizes(space, stack, 0, 1),))[0]
    rank, axis, is_new = space.fact(stack).rank, reader.attrs.get("axis"), reader.attrs.get("new_axis") == 1
    assert isinstance(axis, int)
    if is_new and axis == 0:
        return stack
    assert rank is not None
    axis %= rank if is_new else rank - 1
    moved = stack
    if axis:
        moved = space.add("Transpose", (stack,), Attrs(perm=(*range(1, axis + 1), 0, *range(axis + 1, rank))))[0]
    if is_new:
        return moved
    joined = space.add("Mul", (_sizes(space, moved, axis, axis + 1), _sizes(space, moved, axis + 1, axis + 2)))[0]
    parts = (_sizes(space, moved, 0, axis), joined, _sizes(space, moved, axis + 2, rank))
    target = space.add("Concat", parts, Attrs(axis=0))[0]
    return space.add("Reshape", (moved, target), Attrs(allowzero=1))[0]


def _sizes(space: Workspace, value: Value, start: int, end: int) -> Value:
    if space.opset >= START_AND_END:
        return space.add("Shape", (value,), Attrs(start=start, end=end))[0]
    bounds = [space.make_constant(Constant.of(np.array([n], dtype=np.int64))) for n in (start, end, 0)]
    return space.add("Slice", (space.add("Shape", (value,))[0], *bounds))[0]


def repeat_parts(space: Workspace, node: Node) -> bool:
    """Gather what a Loop appends to a list that is joined, where each pass repeats its part of a tensor as often as
    another tensor says: torch's older exporter writes ``repeat_interleave`` so."""
    body = node.attrs.get("body")
    if node.op != "Loop" or not isinstance(body, Graph) or len(body.inputs) - node.captures != 3 or node.n_outputs > 1:
        return False
    added = _appended(space, node, body, 0)
    readers = [space.graph.node(user) for user, _ in space.graph.users(node.outputs[0])]
    if added is None or not readers or space.graph.is_output(node.outputs[0]) or space.opset < CUMULATIVE:
        return False
    repeat = _repeat(space, node, body, added)
    if repeat is None or not all(_joins(space, reader, repeat) for reader in readers):
        return False
    gathered = _gathered(space, node, repeat)
    for reader in readers:
        space.replace(Value(reader.id), gathered)
    return True


CUMULATIVE = 11
"""The opset from which there are CumSum and ScatterElements."""


class _Repeat(NamedTuple):
    """What passes repeat: parts of one element along an axis, as often as elements of a vector say, in which -1 may
    stand for 1."""

    data: Value
    axis: int
    counts: Value
    has_ones: bool


def _repeat(space: Workspace, node: Node, body: Graph, added: Value) -> _Repeat | None:
    """What every pass appends, where that is its part of a tensor, unsqueezed, expanded and reshaped."""
    chain = [body.node(added.node)]
    while chain[-1].op in ("Reshape", "Expand", "Unsqueeze") and chain[-1].inputs[0] is not None:
        chain.append(body.node(chain[-1].inputs[0].node))
    if [each.op for each in chain] != ["Reshape", "Expand", "Unsqueeze", "SequenceAt"]:
        return None
    reshape, expand, unsqueeze, at = chain
    part = _part(space, node, body, Value(at.id))
    facts = _facts_of_parts(space, node, body)
    if part is None or not _goes_on(space, node, body, facts):
        return None
    data, axis = part
    shape = space.fact(data).shape or ()
    axes, trips = unsqueeze.inputs[1], node.inputs[0]
    if axes is None or facts[axes].elements != (axis + 1,):
        return None
    if trips is None or space.fact(trips).elements != (shape[axis],):
        return None
    kept = shape[:axis], shape[axis + 1 :]
    expanded, made = facts[Value(expand.id)].shape or (), facts[Value(reshape.id)].shape or ()
    if len(expanded) != len(shape) + 1 or (expanded[: axis + 1], expanded[axis + 2 :]) != ((*kept[0], 1), kept[1]):
        return None
    if len(made) != len(shape) or (made[:axis], made[axis + 1 :]) != kept or expand.inputs[1] is None:
        return None
    target, has_ones = _without_ones(body, facts, expand.inputs[1])
    sizes = body.node(target.node)
    if sizes.op != "Concat" or any(v is None or facts[v].shape != (1,) for v in sizes.inputs):
        return None
    size = sizes.inputs[axis + 1] if len(sizes.inputs) == len(expanded) else None
    counted = None if size is None else _part(space, node, body, size)
    if counted is None or space.fact(counted[0]).rank != 1 or space.fact(counted[0]).dtype != "int64":
        return None
    return _Repeat(data, axis, counted[0], has_ones)


def _goes_on(space: Workspace, node: Node, body: Graph, facts: Mapping[Value, Fact]) -> bool:
    """Whether nothing but the number of passes ends a loop."""
    end = body.outputs[0]
    while end is not None and body.node(end.node).op == "Identity":
        end = body.node(end.node).inputs[0]
    is_kept = end is None or end == body.inputs[1] or facts[end].elements == (1,)
    return is_kept and _starts(space, node)


def _facts_of_parts(space: Workspace, node: Node, body: Graph) -> Mapping[Value, Fact]:
    """What is known in a body in which parts have the sizes that they have: types of sequences do not tell."""
    edited, typed = body.copy(), dict[Value, Value]()
    for at in list(body.nodes()):
        part = _part(space, node, body, Value(at.id))
        if part is not None:
            fact, axis = space.fact(part[0]), part[1]
            shape = fact.shape or ()
            kind = TensorType(fact.dtype or "", (*shape[:axis], 1, *shape[axis + 1 :]))
            typed[Value(at.id)] = edited.add_input(f"part {at.id}", kind)
            edited.replace(Value(at.id), typed[Value(at.id)])
    facts = infer.infer(edited, facts_within(node, body, space.facts))
    return {**facts, **{value: facts[new] for value, new in typed.items()}}


def _part(space: Workspace, node: Node, body: Graph, value: Value) -> tuple[Value, int] | None:
    """The tensor of which a value is the part of each pass, of one element along an axis, and the axis."""
    at = body.node(value.node)
    captured = dict(zip(body.inputs[-node.captures :], node.inputs[-node.captures :], strict=True))
    if at.op != "SequenceAt" or at.inputs[1] != body.inputs[0] or at.inputs[0] is None:
        return None
    parts = captured.get(at.inputs[0])
    split = None if parts is None else space.graph.node(parts.node)
    if split is None or split.op != "SplitToSequence" or (data := split.inputs[0]) is None:
        return None
    rank, axis = space.fact(data).rank, split.attrs.get("axis", 0)
    sizes = split.inputs[1] if len(split.inputs) > 1 else None
    is_single = split.attrs.get("keepdims", 1) if sizes is None else _is_one(space.fact(sizes))
    return (data, axis % rank) if rank and isinstance(axis, int) and is_single else None


def _is_one(fact: Fact) -> bool:
    return fact.low == fact.high == 1


def _without_ones(body: Graph, facts: Mapping[Value, Fact], target: Value) -> tuple[Value, bool]:
    """A target shape as it was before a Where put 1 in the place of -1, and whether one did."""
    where = body.node(target.node)
    if where.op != "Where" or None in where.inputs:
        return target, False
    condition, ones, sizes = (v for v in where.inputs if v is not None)
    equal = body.node(condition.node)
    minus = next((v for v in equal.inputs if v is not None and v != sizes), None)
    if equal.op != "Equal" or sizes not in equal.inputs or minus is None:
        return target, False
    is_so = all({*(facts[v].elements or ())} == {n} for v, n in ((ones, 1), (minus, -1)))
    return (sizes, True) if is_so else (target, False)


def _joins(space: Workspace, reader: Node, repeat: _Repeat) -> bool:
    """Whether a node joins the parts along the axis that they were cut along."""
    rank, axis = space.fact(repeat.data).rank, reader.attrs.get("axis")
    is_joined = reader.op == "ConcatFromSequence" and not reader.attrs.get("new_axis")
    return is_joined and bool(rank) and isinstance(axis, int) and axis % (rank or 1) == repeat.axis


def _gathered(space: Workspace, node: Node, repeat: _Repeat) -> Value:
    """All parts as often as they are repeated: the index of each is the sum of all steps before it, from each part that
    is there at all to the next."""

    def made(op: str, *inputs: Value, **attrs: Attr) -> Value:
        return space.add(op, inputs, Attrs(attrs))[0]

    def numbers(*elements: int) -> Value:
        return space.make_constant(Constant.of(np.array(elements, dtype=np.int64)))

    zero, counts, trips = numbers(0), repeat.counts, node.inputs[0]
    axis = space.make_constant(Constant.of(np.array(0, dtype=np.int64)))
    assert trips is not None
    if space.fact(counts).shape != ((space.fact(repeat.data).shape or ())[repeat.axis],):
        counts = made("Slice", counts, zero, made("Reshape", trips, numbers(1)), zero)
    if repeat.has_ones:
        counts = made("Where", made("Equal", counts, numbers(-1)), numbers(1), counts)
    there = made("Reshape", made("NonZero", counts), numbers(-1))
    lengths = made("Gather", counts, there, axis=0)
    before = made("Concat", zero, made("Slice", there, zero, numbers(-1), zero), axis=0)
    room = made("ConstantOfShape", made("ReduceSum", lengths, zero), value=Constant.of(np.zeros(1, np.int64)))
    starts = made("CumSum", lengths, axis, exclusive=1)
    steps = made("ScatterElements", room, starts, made("Sub", there, before), axis=0)
    return made("Gather", repeat.data, made("CumSum", steps, axis), axis=repeat.axis)


COLLECT = NativePass(
    "stacked-sequence",
    "a loop stacks what its passes give by itself, without a sequence that it carries along",
    "F11,O4",
    visit=collect,
    ops=frozenset({"Loop"}),
    makes=frozenset({"Concat", "Gather", "Mul", "Reshape", "Shape", "Slice", "Squeeze", "Transpose"}),
)
REPEATED = NativePass(
    "repeated-parts",
    "what the passes of a loop repeat and append to a list that is joined is gathered",
    "F11,O4",
    visit=repeat_parts,
    ops=frozenset({"Loop"}),
    makes=frozenset(
        {"Concat", "ConstantOfShape", "CumSum", "Equal", "Gather", "NonZero", "ReduceSum", "Reshape"}
        | {"ScatterElements", "Slice", "Sub", "Where"}
    ),
)
