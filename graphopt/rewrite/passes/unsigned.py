"""Bytes without a sign: ops on int8 activations that ONNX Runtime computes several times as fast on uint8.

A quantized tensor means the same where its elements and its zero point are 128 more. Tensors that ops on integers
connect are moved together, from the ops that quantize to those that make floats again. Where one of them is an input or
output of the graph, or is read by an op that is not known here, all stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np

from graphopt.ir.constants import Constant
from graphopt.ir.graph import Node, Value
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.native import NativePass

Places: TypeAlias = tuple[tuple[tuple[int, int], ...], int | None]
"""Which inputs are quantized, each with the place of its zero point, and the place of that of the result."""

_ONE: Places = (((0, 2),), 4)
_TWO: Places = (((0, 2), (3, 5)), 7)
MS = "com.microsoft::"
QUANTIZED: Mapping[str, Places] = {
    "QuantizeLinear": ((), 2),
    "DequantizeLinear": (((0, 2),), None),
    "QLinearConv": (((0, 2),), 7),
    "QLinearMatMul": _TWO,
    f"{MS}QGemm": (((0, 2), (3, 5)), 8),
    f"{MS}QLinearAdd": _TWO,
    f"{MS}QLinearMul": _TWO,
    f"{MS}QLinearSigmoid": _ONE,
    f"{MS}QLinearLeakyRelu": _ONE,
    f"{MS}QLinearSoftmax": _ONE,
    f"{MS}QLinearAveragePool": _ONE,
    f"{MS}QLinearGlobalAveragePool": _ONE,
}
PRODUCTS = frozenset({"QLinearConv", "QLinearMatMul", f"{MS}QGemm"})
WEIGHTS = dict.fromkeys(PRODUCTS, 3)
"""The operand of a product that may be of another dtype, where it is constant."""
MOVING = frozenset(
    {"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather", "MaxPool", "Identity"}
)
"""Ops whose result has elements of the first input."""


def without_sign(space: Workspace) -> bool:
    """Move all int8 activations of products to uint8, where everything that they meet can be."""
    before = space.edits
    for group in _groups(space):
        if any(node.op in PRODUCTS for node in group):
            _move(space, group)
    return space.edits != before


def _groups(space: Workspace) -> Iterator[list[Node]]:
    """The nodes that int8 tensors connect, in order, of each group that can be moved."""
    order = [n for n in space.graph.order() if any(_is_signed(space, v) for v in (*n.outputs, *n.inputs))]
    above = {node.id: node.id for node in order}

    def first(id: int) -> int:
        while above[id] != id:
            id = above[id]
        return id

    for node in order:
        for value in node.inputs:
            if value is not None and _is_signed(space, value):
                above[first(node.id)] = first(value.node)
    fixed = {first(node.id) for node in order if not _can_move(space, node)}
    groups: dict[int, list[Node]] = {}
    for node in order:
        groups.setdefault(first(node.id), []).append(node)
    yield from (nodes for name, nodes in groups.items() if name not in fixed)


def _is_signed(space: Workspace, value: Value | None) -> bool:
    """Whether a tensor is of int8 and computed as the model runs."""
    return value is not None and space.fact(value).dtype == "int8" and not space.fact(value).is_const


def _places(space: Workspace, node: Node) -> Places:
    """Which inputs of a node move, and the place of the zero point of its result, where it has one."""
    if node.op == f"{MS}QLinearConcat":
        return tuple((i, i + 2) for i in range(2, len(node.inputs), 3)), 1
    inputs, zero = QUANTIZED.get(node.op, ((), None))
    held = WEIGHTS.get(node.op)
    inputs = tuple((i, z) for i, z in inputs if i != held or _is_signed(space, node.inputs[i]))
    return inputs, zero if zero is not None and zero < len(node.inputs) and node.inputs[zero] is not None else None


def _can_move(space: Workspace, node: Node) -> bool:
    """Whether all int8 activations that a node reads and makes are where they may be uint8, too."""
    if node.bodies or node.n_outputs != 1 or "output_dtype" in node.attrs:
        return False
    result = Value(node.id)
    if _is_signed(space, result) and space.graph.is_output(result):
        return False
    if node.op in MOVING:
        return not any(_is_signed(space, v) for v in node.inputs[1:])
    inputs, zero = _places(space, node)
    moved, zeros = [i for i, _ in inputs], [z for _, z in inputs] + ([] if zero is None else [zero])
    places = {*moved, *zeros}
    return (
        (bool(inputs) or node.op == "QuantizeLinear")
        and all(i < len(node.inputs) and _dtype(space, node.inputs[i]) == "int8" for i in places)
        and all(_is_constant(space, node.inputs[z]) for z in zeros)
        and all(_is_signed(space, node.inputs[i]) or _is_constant(space, node.inputs[i]) for i in moved)
        and not any(_is_signed(space, v) for i, v in enumerate(node.inputs) if i not in moved)
        and (zero is not None) == _is_signed(space, result)
    )


def _dtype(space: Workspace, value: Value | None) -> str | None:
    return None if value is None else space.fact(value).dtype


def _is_constant(space: Workspace, value: Value | None) -> bool:
    return value is not None and space.graph.constant_of(value) is not None


def _move(space: Workspace, group: list[Node]) -> None:
    """Compute a group on uint8."""
    made: dict[Value, Value] = {}
    for node in group:
        pairs, zero = _places(space, node)
        places = (
            {0} if node.op in MOVING else {*(i for pair in pairs for i in pair), *(() if zero is None else (zero,))}
        )
        inputs = list(node.inputs)
        for i in sorted(places):
            value = inputs[i]
            assert value is not None
            inputs[i] = made[value] if value in made else _lifted(space, value)
        old = Value(node.id)
        (new,) = space.add(node.op, inputs, node.attrs)
        if _is_signed(space, old):
            made[old] = new
        else:
            space.replace(old, new)


def _lifted(space: Workspace, value: Value) -> Value:
    """A constant that is 128 more."""
    constant = space.graph.constant_of(value)
    assert constant is not None
    return space.make_constant(Constant.of((constant.array.astype(np.int16) + 128).astype(np.uint8), "uint8"))


UNSIGNED = NativePass(
    "unsigned-products",
    "products of uint8 activations, which ONNX Runtime computes several times as fast as of int8",
    "N3",
    sweep=without_sign,
    targets=frozenset({"ort"}),
)
