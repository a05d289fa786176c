"""Sequences and optional values whose contents are known become plain tensors, which runtimes and rules work on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.ir.constants import Constant
from graphopt.ir.graph import Attrs, Node, Value
from graphopt.ir.types import OptionalType, TensorType
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.native import NativePass

DEEPEST = 256
"""How many elements inserted one after the other are followed."""
END = (1 << 63) - 1


def open_sequence(space: Workspace, node: Node) -> bool:
    """Compute from tensors what reads a sequence of known elements: one of them, their number, all joined."""
    reader = _READERS.get(node.op)
    if reader is None or not node.inputs or node.inputs[0] is None or not space.graph.is_used(node.id):
        return False
    result = reader(space, node)
    if result is None:
        return False
    space.replace(Value(node.id), result)
    return True


def elements_of(space: Workspace, sequence: Value, depth: int = DEEPEST) -> list[Value] | None:
    """The elements of a sequence that was put together from single tensors."""
    maker = space.graph.node(sequence.node)
    if maker.op == "SequenceConstruct":
        return [v for v in maker.inputs if v is not None]
    if maker.op == "SequenceEmpty":
        return []
    if maker.op == "Identity" and maker.inputs[0] is not None:
        return elements_of(space, maker.inputs[0], depth)
    if maker.op not in ("SequenceInsert", "SequenceErase") or maker.inputs[0] is None or not depth:
        return None
    elements = elements_of(space, maker.inputs[0], depth - 1)
    at = 2 if maker.op == "SequenceInsert" else 1
    position = len(elements or ()) - (at == 1) if len(maker.inputs) <= at else _number(space, maker.inputs[at])
    if elements is None or position is None:
        return None
    position += len(elements) if position < 0 else 0
    if maker.op == "SequenceErase":
        return elements[:position] + elements[position + 1 :] if 0 <= position < len(elements) else None
    added = maker.inputs[1]
    return (
        [*elements[:position], added, *elements[position:]]
        if added is not None and 0 <= position <= len(elements)
        else None
    )


def _number(space: Workspace, value: Value | None) -> int | None:
    elements = None if value is None else space.fact(value).elements
    return elements[0] if elements and len(elements) == 1 and isinstance(elements[0], int) else None


# -- what reads a sequence


def _at(space: Workspace, node: Node) -> Value | None:
    sequence, position = node.inputs[0], _number(space, node.inputs[1])
    assert sequence is not None
    elements = elements_of(space, sequence)
    if elements is not None and position is not None:
        position += len(elements) if position < 0 else 0
        return elements[position] if 0 <= position < len(elements) else None
    maker = space.graph.node(sequence.node)
    return _part(space, maker, node.inputs[1], position) if maker.op == "SplitToSequence" else None


def _part(space: Workspace, split: Node, index: Value | None, position: int | None) -> Value | None:
    """One part of a tensor that was split: taken by Gather where parts are of one element, else by Slice."""
    data, axis = split.inputs[0], split.attrs.get("axis", 0)
    assert data is not None
    assert isinstance(axis, int)
    given = split.inputs[1] if len(split.inputs) > 1 else None
    if given is None:
        if index is None or split.attrs.get("keepdims", 1):
            return None if position is None else _slice(space, data, axis, position, position + 1)
        return space.add("Gather", (data, index), Attrs(axis=axis))[0]
    sizes = space.fact(given).elements
    if position is None or position < 0 or not sizes or not all(isinstance(s, int) for s in sizes):
        return None
    numbers = [s for s in sizes if isinstance(s, int)]
    if space.fact(given).rank == 0:
        return _slice(space, data, axis, position * numbers[0], (position + 1) * numbers[0])
    return (
        _slice(space, data, axis, sum(numbers[:position]), sum(numbers[: position + 1]))
        if position < len(numbers)
        else None
    )


def _slice(space: Workspace, data: Value, axis: int, start: int, end: int) -> Value:
    bounds = [_vector(space, [n]) for n in (start, END if end == 0 else end, axis)]
    return space.add("Slice", (data, *bounds))[0]


def _vector(space: Workspace, numbers: Sequence[int]) -> Value:
    return space.make_constant(Constant.of(np.array(numbers, dtype=np.int64)))


def _length(space: Workspace, node: Node) -> Value | None:
    sequence = node.inputs[0]
    assert sequence is not None
    elements = elements_of(space, sequence)
    count = None if elements is None else len(elements)
    maker = space.graph.node(sequence.node)
    if maker.op == "SplitToSequence":
        count = _n_parts(space, maker)
    return None if count is None else space.make_constant(Constant.of(np.array(count, dtype=np.int64)))


def _n_parts(space: Workspace, split: Node) -> int | None:
    data, axis = split.inputs[0], split.attrs.get("axis", 0)
    assert data is not None
    assert isinstance(axis, int)
    shape = space.fact(data).shape
    size = None if shape is None else shape[axis]
    given = split.inputs[1] if len(split.inputs) > 1 else None
    if given is None:
        return size if isinstance(size, int) else None
    lengths, width = space.fact(given).shape, _number(space, given)
    if lengths:
        return lengths[0] if isinstance(lengths[0], int) else None
    return -(-size // width) if isinstance(size, int) and width else None


def _joined(space: Workspace, node: Node) -> Value | None:
    sequence, axis, new = node.inputs[0], node.attrs.get("axis"), node.attrs.get("new_axis", 0)
    assert sequence is not None
    elements = elements_of(space, sequence)
    maker = space.graph.node(sequence.node)
    if maker.op == "SplitToSequence" and not new and _splits(maker, space, axis):
        return maker.inputs[0]
    if not elements:
        return None
    if new:
        axes = _vector(space, [axis])  # type: ignore[list-item]
        elements = [space.add("Unsqueeze", (v, axes))[0] for v in elements]
    return space.add("Concat", elements, Attrs(axis=axis))[0]  # type: ignore[arg-type]


def _splits(split: Node, space: Workspace, axis: object) -> bool:
    """Whether a split keeps its axis, and goes along this one."""
    rank = None if split.inputs[0] is None else space.fact(split.inputs[0]).rank
    split_axis = split.attrs.get("axis", 0)
    if rank is None or not isinstance(axis, int) or not isinstance(split_axis, int) or split_axis % rank != axis % rank:
        return False
    return len(split.inputs) > 1 or bool(split.attrs.get("keepdims", 1))


_READERS = {"SequenceAt": _at, "SequenceLength": _length, "ConcatFromSequence": _joined}


# -- optional values


def open_optional(space: Workspace, node: Node) -> bool:
    """Decide whether an optional value is there, and take it out, where the graph says so."""
    if node.op not in ("OptionalHasElement", "OptionalGetElement") or not space.graph.is_used(node.id):
        return False
    value = node.inputs[0] if node.inputs else None
    maker = None if value is None else space.graph.node(value.node)
    inside = value
    if maker is not None and maker.op == "Optional":
        inside = maker.inputs[0] if maker.inputs else None
    elif value is not None and not isinstance(space.fact(value).type, TensorType):
        return False
    if node.op == "OptionalHasElement":
        truth = np.array(inside is not None and not _is_optional(space, inside))
        if inside is not None and not truth:
            return False
        space.replace(Value(node.id), space.make_constant(Constant.of(truth)))
        return True
    if inside is None:
        return False
    space.replace(Value(node.id), inside)
    return True


def _is_optional(space: Workspace, value: Value) -> bool:
    type = space.fact(value).type
    return type is None or isinstance(type, OptionalType)


SEQUENCES = NativePass(
    "open-sequence",
    "what reads a sequence of known tensors reads the tensors",
    "F11",
    visit=open_sequence,
    ops=frozenset(_READERS),
    makes=frozenset({"Concat", "Gather", "Slice", "Unsqueeze"}),
)
OPTIONALS = NativePass(
    "open-optional",
    "an optional value that is there is a value",
    "F12",
    visit=open_optional,
    ops=frozenset({"OptionalHasElement", "OptionalGetElement"}),
)
