"""Scatters that are concatenations: their indices are constants and fill whole slabs of an axis. A theme of its own.

``y[..., 2] = u`` is exported as ScatterND or ScatterElements with every index spelled out. Where the indices say
one slab of one axis, the result is what stands before the slab, the updates, and what stands behind. A
chain of such writes that covers the axis is a concatenation of the updates.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphopt.frozen import dataclass
from graphopt.ir.constants import Array, Constant
from graphopt.ir.graph import Attrs, Node, Value
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.native import NativePass

SCATTERS = frozenset({"ScatterND", "ScatterElements"})

MOST_INDICES = 1 << 20
"""Constants of more indices are not looked at."""


@dataclass(frozen=True)
class AxisRun:
    """A run of an axis: elements ``start`` to ``stop`` of a value, along that axis, of the ``size`` that it has."""

    value: Value
    start: int
    stop: int
    size: int

    @property
    def is_whole(self) -> bool:
        """Whether it is all of its value."""
        return (self.start, self.stop) == (0, self.size)


def join_slabs(space: Workspace, node: Node, covers: bool) -> bool:
    """Concatenate what a scatter leaves and what it writes, where no part has to be cut out as the model runs.

    With ``covers`` only where nothing is left of what was written into, else only where something is.
    """
    if node.op not in SCATTERS or node.attrs.get("reduction", "none") != "none":
        return False
    data, indices, updates = node.inputs[:3]
    constant = None if indices is None else space.graph.constant_of(indices)
    shape = None if data is None else _known(space, data)
    if data is None or updates is None or constant is None or constant.size > MOST_INDICES or not shape:
        return False
    slab = _slab(node, constant.array, shape)
    if slab is None:
        return False
    axis, first, width = slab
    if _known(space, updates) != (*shape[:axis], width, *shape[axis + 1 :]):
        return False
    before = _parts(space, data, axis, shape[axis])
    parts = [*_cut(before, 0, first), AxisRun(updates, 0, width, width), *_cut(before, first + width, shape[axis])]
    left = any(part.value == data or space.graph.constant_of(part.value) is not None for part in parts)
    if left == covers or any(not p.is_whole and space.graph.constant_of(p.value) is None for p in parts):
        return False
    values = [p.value if p.is_whole else _cut_constant(space, p, axis) for p in parts]
    joined = values[0] if len(values) == 1 else space.add("Concat", values, Attrs(axis=axis))[0]
    space.replace(Value(node.id), joined)
    return True


def _known(space: Workspace, value: Value) -> tuple[int, ...] | None:
    shape = space.fact(value).shape
    if shape is None:
        return None
    numbers = tuple(s for s in shape if isinstance(s, int))
    return numbers if len(numbers) == len(shape) else None


def _slab(node: Node, indices: Array, shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """The axis, first place and width of the slab that constant indices say, where they say one."""
    if not indices.size:
        return None
    if node.op == "ScatterElements":
        axis = int(node.attrs.get("axis", 0)) % len(shape)  # type: ignore[arg-type]
        places = _run(np.moveaxis(indices, axis, -1), shape[axis])
        return None if places is None else (axis, *places)
    depth = indices.shape[-1]
    if indices.ndim != depth + 1:
        return None
    slab: tuple[int, int, int] | None = None
    for axis in range(depth):
        places = _run(np.moveaxis(indices[..., axis], axis, -1), shape[axis])
        if places is None:
            return None
        if places != (0, shape[axis]):
            if slab is not None:
                return None
            slab = (axis, *places)
    return slab or (0, 0, shape[0])


def _run(indices: Array, size: int) -> tuple[int, int] | None:
    """Where neighbouring places begin and how many they are, where every row of the indices says the same."""
    row = indices.reshape(-1, indices.shape[-1])[0]
    row = np.where(row < 0, row + size, row)
    first, width = int(row[0]), len(row)
    same = np.array_equal(row, np.arange(first, first + width)) and first + width <= size
    alike = np.all(np.where(indices < 0, indices + size, indices) == row)
    return (first, width) if same and alike else None


def _parts(space: Workspace, value: Value, axis: int, size: int) -> list[AxisRun]:
    """The parts that a value was put together from along an axis, or the value."""
    maker = space.graph.node(value.node)
    if maker.op == "Concat" and int(maker.attrs.get("axis", 0)) % (space.fact(value).rank or 1) == axis:  # type: ignore[arg-type]
        shapes = [None if v is None else _known(space, v) for v in maker.inputs]
        if all(shapes):
            return [AxisRun(v, 0, s[axis], s[axis]) for v, s in zip(maker.inputs, shapes, strict=True) if v and s]
    return [AxisRun(value, 0, size, size)]


def _cut(parts: list[AxisRun], start: int, stop: int) -> list[AxisRun]:
    """What lies between two places of parts in a row."""
    between: list[AxisRun] = []
    at = 0
    for part in parts:
        low, high = max(start - at, 0), min(stop - at, part.size)
        if low < high:
            between.append(AxisRun(part.value, low, high, part.size))
        at += part.size
    return between


def _cut_constant(space: Workspace, part: AxisRun, axis: int) -> Value:
    constant = space.graph.constant_of(part.value)
    assert constant is not None
    index = (slice(None),) * axis + (slice(part.start, part.stop),)
    return space.make_constant(Constant.of(np.ascontiguousarray(constant.array[index]), constant.dtype))


def _joining(covers: bool) -> Callable[[Workspace, Node], bool]:
    def visit(space: Workspace, node: Node) -> bool:
        return join_slabs(space, node, covers)

    return visit


SLABS = (
    NativePass(
        "complete-scatter",
        "scatters that write everything are what they write",
        "F7",
        visit=_joining(covers=True),
        ops=SCATTERS,
        makes=frozenset({"Concat"}),
    ),
    NativePass(
        "scatter-into-fill",
        "what is written into a fill stands beside it",
        "F8",
        visit=_joining(covers=False),
        ops=SCATTERS,
        makes=frozenset({"Concat"}),
    ),
)
