"""Shapes and sizes: shape operands that are known but for sizes that the op itself can tell (0, -1, 1, the end) become
constants, and sizes that are computed twice, or assembled from pieces of a shape, are read once and directly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np

from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Node, Value
from graphopt.ir.types import Size
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.native import NativePass

END = (1 << 63) - 1
"""The end of a slice that goes on to the end of the axis, whatever its size."""


def fix_shape(space: Workspace, node: Node, accepts: Callable[[Sequence[int]], bool]) -> bool:
    """Make the shape operand of a Reshape, Expand or Slice a constant where that is provably the same."""
    if node.op not in _OPERANDS or len(node.inputs) <= _OPERANDS[node.op]:
        return False
    operand = node.inputs[_OPERANDS[node.op]]
    if operand is None or space.graph.node(operand.node).op == CONSTANT or space.fact(operand).is_const:
        return False
    elements = _ELEMENTS[node.op](space, node)
    if elements is None or not accepts(elements if node.op == "Reshape" else ()):
        return False
    dtype = space.fact(operand).dtype or "int64"
    constant = Constant.of(np.array(elements, dtype=dtype), dtype)
    inputs = list(node.inputs)
    inputs[_OPERANDS[node.op]] = space.make_constant(constant)
    attrs = node.attrs.with_(allowzero=None) if node.op == "Reshape" else node.attrs
    space.update(node.id, inputs=tuple(inputs), attrs=attrs)
    return True


def reshape_elements(space: Workspace, node: Node) -> list[int] | None:
    """The result's sizes: 0 where it is the input's size at the same place, -1 for at most one other.

    With -1 all others must be positive numbers: nothing can be told of a -1 beside a size that may be 0.
    """
    source, target = space.fact(_first(node)).shape, space.fact(Value(node.id)).shape
    if target is None:
        return None
    if source is not None:
        copied: list[Size | None] = [
            size if isinstance(size, int) else 0 if i < len(source) and source[i] == size else None
            for i, size in enumerate(target)
        ]
        known_sizes = [c for c in copied if isinstance(c, int)]
        if len(known_sizes) == len(target) and all(
            c != 0 or not isinstance(t, int) for c, t in zip(known_sizes, target, strict=True)
        ):
            return known_sizes
    aligned = _aligned(space, node, source)
    if aligned is not None:
        return aligned
    numbers = [s for s in target if isinstance(s, int)]
    if len(numbers) == len(target) - 1 and all(n > 0 for n in numbers):
        return [s if isinstance(s, int) else -1 for s in target]
    return None


def _aligned(space: Workspace, node: Node, source: tuple[Size, ...] | None) -> list[int] | None:
    """The sizes that the model itself asks for, one of them -1, with 0 where a size is the input's at the same place.

    The -1 is the model's own, so that it fails on empty tensors already.
    """
    requested = space.fact(node.inputs[1]).elements  # type: ignore[arg-type]
    if requested is None or source is None or -1 not in requested or 0 in requested:
        return None
    sizes = [
        size if isinstance(size, int) else 0 if i < len(source) and source[i] == size else None
        for i, size in enumerate(requested)
    ]
    numbers = [f for f in sizes if f is not None]
    return numbers if len(numbers) == len(sizes) else None


def expand_elements(space: Workspace, node: Node) -> list[int] | None:
    """The result's sizes, 1 where the input has that size already."""
    source, target = space.fact(_first(node)).shape, space.fact(Value(node.id)).shape
    if source is None or target is None:
        return None
    padded = (None,) * (len(target) - len(source)) + source
    sizes = [t if isinstance(t, int) else 1 if s == t else None for s, t in zip(padded, target, strict=True)]
    numbers = [n for n in sizes if n is not None]
    return numbers if len(numbers) == len(target) else None


def slice_elements(space: Workspace, node: Node) -> list[int] | None:
    """The ends, where each is a number or the size of its axis; steps must go forward."""
    ends, shape = space.fact(node.inputs[2]).elements, space.fact(_first(node)).shape  # type: ignore[arg-type]
    if ends is None or shape is None:
        return None
    axes = _known(space, node, 3, range(len(ends)))
    steps = _known(space, node, 4, [1] * len(ends))
    if axes is None or steps is None or any(s <= 0 for s in steps):
        return None
    limit = END if space.fact(node.inputs[2]).dtype == "int64" else (1 << 31) - 1  # type: ignore[arg-type]
    numbers: list[int] = []
    for end, axis in zip(ends, axes, strict=True):
        if not isinstance(end, int) and end != shape[axis]:
            return None
        numbers.append(end if isinstance(end, int) else limit)
    return numbers


def _known(space: Workspace, node: Node, index: int, default: Sequence[int]) -> list[int] | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    elements = default if value is None else space.fact(value).elements
    if elements is None or not all(isinstance(e, int) for e in elements):
        return None
    return [e for e in elements if isinstance(e, int)]


def _first(node: Node) -> Value:
    value = node.inputs[0]
    assert value is not None
    return value


_OPERANDS = {"Reshape": 1, "Expand": 1, "Slice": 2}
_ELEMENTS = {"Reshape": reshape_elements, "Expand": expand_elements, "Slice": slice_elements}


def share_reshapes(space: Workspace) -> bool:
    """Let the first of several reshapes (or expands) of one value to one shape stand for all."""
    first: dict[Hashable, Value] = {}
    before = space.edits
    for node in space.graph.order():
        if node.op not in ("Reshape", "Expand") or not space.graph.is_used(node.id):
            continue
        value = Value(node.id)
        shape = space.fact(value).shape
        if shape is None:
            continue
        source = space.graph.node(node.id).inputs[0]
        twin = first.setdefault((node.op, source, shape), value)
        if twin != value:
            space.replace(value, twin)
    return space.edits != before


def _fixing(accepts: Callable[[Sequence[int]], bool]) -> Callable[[Workspace, Node], bool]:
    def visit(space: Workspace, node: Node) -> bool:
        return fix_shape(space, node, accepts)

    return visit


FIXED = (
    NativePass(
        "known-target",
        "a target shape, or the end of a slice, is a constant where the sizes are known",
        "B10",
        visit=_fixing(lambda elements: 0 not in elements and -1 not in elements),
        ops=frozenset(_OPERANDS),
    ),
    NativePass(
        "aligned-target",
        "sizes of a target shape are matched with the input's one by one; the model's own -1 is the rest",
        "B11",
        visit=_fixing(lambda elements: 0 in elements and -1 in elements),
        ops=frozenset(_OPERANDS),
    ),
    NativePass(
        "reshape-as",
        "a target shape that repeats sizes of the input is a constant with 0 in their place",
        "B9",
        visit=_fixing(lambda elements: 0 in elements),
        ops=frozenset(_OPERANDS),
    ),
    NativePass(
        "open-size",
        "the one size of a target shape that is open is -1",
        "D8",
        visit=_fixing(lambda elements: -1 in elements),
        ops=frozenset(_OPERANDS),
    ),
)
SAME = NativePass(
    "common-reshape",
    "reshapes of one value to one shape are one, however the shape is computed",
    "A5",
    sweep=share_reshapes,
)


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


def pick_elements(space: Workspace, node: Node) -> bool:
    """Pick elements of a vector of integers at once, where they are moved about in a matrix and read off it as a vector
    again: no size is followed through a matrix. torch's exporter turns the amounts of a Pad around so."""
    value = Value(node.id)
    fact = space.fact(value)
    if fact.rank != 1 or fact.dtype not in ("int32", "int64") or fact.is_const or not space.graph.is_used(node.id):
        return False
    moves, source = [node], _first(node)
    while space.fact(source).rank != 1:
        maker = space.graph.node(source.node)
        if maker.op not in MOVING or len(moves) == DEEPEST:
            return False
        moves.append(maker)
        source = _first(maker)
    if len(moves) < 3:  # two reshapes are one
        return False
    count = space.fact(source).size
    if not isinstance(count, int) or not 0 < count <= MOST:
        return False
    picked: np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None = np.arange(count)
    for move in reversed(moves):
        picked = None if picked is None else _moved(space, move, picked)
    if picked is None:
        return False
    indices = space.make_constant(Constant.of(picked))
    space.replace(value, space.add("Gather", (source, indices), Attrs(axis=0))[0])
    return True


MOVING = frozenset({"Flatten", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Ops by which elements are moved about."""
MOST = 256
"""Vectors with more elements are not followed."""


def _moved(
    space: Workspace, move: Node, elements: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None:
    """What a node that moves elements makes of these; None where that is not known."""
    if move.op == "Transpose":
        perm = move.attrs.get("perm")
        return elements.transpose(perm if isinstance(perm, tuple) else None)  # type: ignore[arg-type]
    shape = space.fact(Value(move.id)).shape
    sizes = [size for size in shape or () if isinstance(size, int)]
    if shape is None or len(sizes) < len(shape):
        return None
    if move.op != "Slice":
        return elements.reshape(sizes)
    constants = [None if v is None else space.fact(v).constant for v in move.inputs[1:]]
    if any(c is None for c in constants):
        return None
    starts, ends, *rest = [c.array.tolist() for c in constants if c is not None]
    axes, steps = rest[0] if rest else range(len(starts)), rest[1] if len(rest) > 1 else [1] * len(starts)
    for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
        elements = elements[(slice(None),) * (axis % elements.ndim) + (slice(*bounds),)]
    return elements


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
    ops=frozenset({"Gather", "Slice"}),
    makes=frozenset({"Shape"}),
)
TAKEN = NativePass(
    "taken-sizes",
    "sizes that are cut out of a shape and put together again are taken at once",
    "B16",
    visit=take_sizes,
    ops=PIECES,
    makes=frozenset({"Shape"}),
)
PICKED = NativePass(
    "picked-elements",
    "sizes that are moved about in a matrix are picked out of a vector",
    "B16",
    visit=pick_elements,
    ops=frozenset({"Flatten", "Reshape", "Squeeze"}),
    makes=frozenset({"Gather"}),
)
