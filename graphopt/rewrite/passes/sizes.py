"""Sizes that are computed twice, or assembled from pieces of a shape, are read once and directly."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Node, Value
from graphopt.ir.types import Size
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.native import NativePass

PIECES = frozenset({"Concat", "Gather", "Slice", "Squeeze", "Unsqueeze", "Reshape", "Cast", "Identity"})
"""Ops that cut pieces out of a shape and put them together."""
START_AND_END = 15
"""The opset from which Shape can give some of the sizes."""
DEEPEST = 12
"""Over how many ops the shape that the pieces were cut from is looked for."""


def share_sizes(space: Workspace) -> bool:
    """Let the first of several values that hold the same sizes, however they were computed, stand for all."""
    first: dict[Hashable, Value] = {}
    before = space.edits
    for node in space.graph.order():
        if node.op in (INPUT, CONSTANT) or node.bodies or not space.graph.is_used(node.id):
            continue
        for value in node.outputs:
            fact = space.fact(value)
            if not fact.elements or all(isinstance(e, int) for e in fact.elements) or not space.uses(value):
                continue
            twin = first.setdefault((fact.dtype, fact.shape, fact.elements), value)
            if twin != value:
                space.replace(value, twin)
    return space.edits != before


def take_range(space: Workspace, node: Node) -> bool:
    """Read neighbouring sizes off a tensor, where they are gathered or sliced out of its whole shape."""
    return node.op in ("Gather", "Slice") and take_sizes(space, node)


def take_sizes(space: Workspace, node: Node) -> bool:
    """Read neighbouring sizes of one tensor off its shape, where they were cut out and put together again."""
    if node.op not in PIECES or space.opset < START_AND_END or not space.graph.is_used(node.id):
        return False
    value = Value(node.id)
    fact = space.fact(value)
    if fact.dtype != "int64" or fact.rank != 1 or not fact.elements or all(isinstance(e, int) for e in fact.elements):
        return False
    for source in _measured(space, node, DEEPEST):
        start = _place(fact.elements, space.fact(source).shape or ())
        if start is not None:
            rank = len(space.fact(source).shape or ())
            span = {"start": start} if start else {}
            end = start + len(fact.elements)
            attrs = Attrs(span if end == rank else {**span, "end": end})
            space.replace(value, space.add("Shape", (source,), attrs)[0])
            return True
    return False


def _measured(space: Workspace, node: Node, depth: int) -> Iterator[Value]:
    """The tensors whose shapes the node's pieces were cut from."""
    for value in node.inputs if depth else ():
        maker = None if value is None else space.graph.node(value.node)
        if maker is not None and maker.op == "Shape" and maker.inputs[0] is not None:
            yield maker.inputs[0]
        elif maker is not None and maker.op in PIECES:
            yield from _measured(space, maker, depth - 1)


def _place(elements: tuple[Size, ...], shape: tuple[Size, ...]) -> int | None:
    """Where in a shape these sizes stand side by side."""
    return next((i for i in range(len(shape)) if shape[i : i + len(elements)] == elements), None)


SIZES = NativePass(
    "common-size",
    "a size that is computed in two ways, as a sum of sizes and as a size of what was joined, is computed once",
    "B12",
    sweep=share_sizes,
)
RANGE = NativePass(
    "range-of-shape",
    "sizes side by side are read off a tensor without those around them",
    "B4",
    visit=take_range,
    makes=frozenset({"Shape"}),
)
TAKEN = NativePass(
    "taken-sizes",
    "sizes that are cut out of a shape and put together again are taken at once",
    "B16",
    visit=take_sizes,
    makes=frozenset({"Shape"}),
)
