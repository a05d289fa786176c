"""Shape functions: the sizes of what an op gives where they depend on elements of its inputs, as expressions that a
program computes before it runs the op.

What has to be found out together with the sizes is left to the op: ``Operation.found``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from graphopt.ir.types import Size, symbols
from graphopt.lowering.loops.expressions import (
    INDEX,
    Const,
    Expr,
    apply,
    cast,
    equal,
    maximum,
    minimum,
    select,
)
from graphopt.lowering.operators.elements import integer, only, text
from graphopt.lowering.operators.indices import axes_of, axis_of, counted, element, length
from graphopt.lowering.operators.operation import NotKnown, Operation, Shapes
from graphopt.lowering.operators.selection import SHAPES

ShapeFunction: TypeAlias = "Callable[[Operation], Shapes | Sequence[Expr]]"
"""From an operation to the sizes of its outputs, which are those of the first where it gives no more."""


def shapes_of(op: Operation) -> Shapes | None:
    """The sizes of an operation's outputs; None where no function tells them, or all are functions of the inputs' sizes
    anyway."""
    function = TABLE.get(op.op)
    if function is None or not any(_is_open(op, fact.shape) for fact in op.outputs):
        return None
    shapes = function(op)
    return shapes if isinstance(shapes, Shapes) else Shapes([shapes] * len(op.outputs))


def _is_open(op: Operation, shape: Sequence[Size] | None) -> bool:
    """Whether a shape has sizes that those of the inputs do not tell."""
    known = {name for fact in op.facts if fact is not None for size in fact.shape or () for name in symbols(size)}
    return any(symbols(size) - known for size in shape or ())


def reshape(op: Operation) -> Sequence[Expr]:
    """0 copies a size (unless ``allowzero``), -1 takes what is left."""
    x = op.input(0).shape
    sizes = [element(op, 1, k) for k in range(length(op, 1))]
    if not integer(op, "allowzero"):
        sizes = [select(equal(size, 0), x[k], size) if k < len(x) else size for k, size in enumerate(sizes)]
    stated = _product([select(equal(size, -1), 1, size) for size in sizes])
    rest = _product(x) // maximum(stated, 1)
    return [select(equal(size, -1), rest, size) for size in sizes]


def expand(op: Operation) -> Sequence[Expr]:
    """The broadcast of the input's sizes and those that are asked for."""
    x, count = op.input(0).shape, length(op, 1)
    rank = max(len(x), count)
    sizes: list[Expr] = []
    for k in range(rank):
        ours = x[k - rank + len(x)] if k >= rank - len(x) else Const(1)
        theirs = element(op, 1, k - rank + count) if k >= rank - count else Const(1)
        sizes.append(select(equal(ours, 1), theirs, ours))
    return sizes


def slice_(op: Operation) -> Sequence[Expr]:
    """How many elements there are from start to end."""
    x, count = op.input(0), length(op, 1)
    sizes = list(x.shape)
    for k, axis in enumerate(axes_of(op, 3, x.rank) or range(count)):
        size, step = x.shape[axis], element(op, 4, k) if op.has(4) else Const(1)
        start, end = counted(element(op, 1, k), size), counted(element(op, 2, k), size)
        up = (_within(end, 0, size) - _within(start, 0, size) + step - 1) // maximum(step, 1)
        down = (_within(start, -1, size - 1) - _within(end, -1, size - 1) - step - 1) // maximum(-step, 1)
        sizes[axis] = maximum(select(step > 0, up, down), 0)
    return sizes


def _within(index: Expr, low: int, high: Expr) -> Expr:
    return minimum(maximum(index, low), high)


def pad(op: Operation) -> Sequence[Expr]:
    """What is put before and behind is added."""
    x, count = op.input(0), length(op, 1) // 2
    sizes = list(x.shape)
    for k, axis in enumerate(axes_of(op, 3, x.rank) or range(count)):
        sizes[axis] = x.shape[axis] + element(op, 1, k) + element(op, 1, k + count)
    return sizes


def tile(op: Operation) -> Sequence[Expr]:
    """Every axis so many times."""
    return [size * element(op, 1, k) for k, size in enumerate(op.input(0).shape)]


def as_listed(op: Operation) -> Sequence[Expr]:
    """The elements of the first input."""
    return [element(op, 0, k) for k in range(length(op, 0))]


def one_hot(op: Operation) -> Sequence[Expr]:
    """One more axis, of the depth."""
    sizes = op.input(0).shape
    axis = axis_of(op, "axis", len(sizes) + 1)
    return (*sizes[:axis], element(op, 1), *sizes[axis:])


def top_k(op: Operation) -> Sequence[Expr]:
    """So many along the axis."""
    sizes, axis = op.input(0).shape, axis_of(op)
    return (*sizes[:axis], element(op, 1), *sizes[axis + 1 :])


def unsqueeze(op: Operation) -> Sequence[Expr]:
    """1 where an axis is put in, and the sizes of the input in between."""
    sizes, rank = op.input(0).shape, len(op.shape())
    axes = [counted(element(op, 1, k), Const(rank)) for k in range(length(op, 1))]

    def size(k: int) -> Expr:
        before = _count([axis < k for axis in axes])
        inner: Expr = Const(1)
        for s, given in enumerate(sizes):
            inner = select(equal(before, k - s), given, inner)
        return select(equal(_count([equal(axis, k) for axis in axes]), 0), inner, 1)

    return [size(k) for k in range(rank)]


def squeeze(op: Operation) -> Sequence[Expr]:
    """The sizes of the input but for the axes that are taken out."""
    sizes = op.input(0).shape
    axes = [counted(element(op, 1, k), Const(len(sizes))) for k in range(length(op, 1))]
    before = [_count([axis < s for axis in axes]) for s in range(len(sizes))]
    kept = [equal(_count([equal(axis, s) for axis in axes]), 0) for s in range(len(sizes))]

    def size(k: int) -> Expr:
        found: Expr = Const(1)
        for s, given in enumerate(sizes):
            found = select(kept[s] & equal(before[s], s - k), given, found)
        return found

    return [size(k) for k in range(len(op.shape()))]


def _count(conditions: Sequence[Expr]) -> Expr:
    total: Expr = Const(0)
    for condition in conditions:
        total = total + select(condition, Const(1), Const(0))
    return total


def range_(op: Operation) -> Sequence[Expr]:
    """How many steps there are below the limit, or above it."""
    if op.dtype() in ("float16", "bfloat16", "float32", "float64"):
        start, limit, step = (cast(only(op, k), "float64") for k in range(3))
        return [maximum(cast(apply("ceil", (limit - start) / step), INDEX), 0)]
    start, limit, step = (element(op, k) for k in range(3))
    up, down = (limit - start + step - 1) // maximum(step, 1), (start - limit - step - 1) // maximum(-step, 1)
    return [maximum(select(step > 0, up, down), 0)]


def window(op: Operation) -> Sequence[Expr]:
    """As many as are asked for."""
    return [maximum(element(op, 0), 0)]


def mel(op: Operation) -> Sequence[Expr]:
    """The bins of a spectrum, and the filters."""
    return [maximum(element(op, 1) // 2 + 1, 0), maximum(element(op, 0), 0)]


def resize(op: Operation) -> Sequence[Expr]:
    """The sizes that are asked for, or the input's times the scales, rounded down."""
    x = op.input(0)
    listed = None if "@" in op.op else op.attr("axes")
    axes = [int(a) % x.rank for a in listed] if isinstance(listed, tuple) else list(range(x.rank))  # type: ignore[arg-type]
    sizes = list(x.shape)
    if op.has(3) and text(op, "keep_aspect_ratio_policy") not in ("", "stretch"):
        raise NotKnown(op.op, 3)
    for k, axis in enumerate(axes):
        sizes[axis] = element(op, 3, k) if op.has(3) else _scaled(x.shape[axis], op.input(2)[Const(k)])
    return sizes


def _scaled(size: Expr, scale: Expr) -> Expr:
    return cast(apply("floor", cast(size, "float32") * scale), INDEX)


def split(op: Operation) -> Shapes:
    """Parts of the sizes that are asked for."""
    sizes, axis = op.input(0).shape, axis_of(op)
    return Shapes([(*sizes[:axis], element(op, 1, k), *sizes[axis + 1 :]) for k in range(len(op.outputs))])


def _product(sizes: Sequence[Expr]) -> Expr:
    total: Expr = Const(1)
    for size in sizes:
        total = total * size
    return total


TABLE: Mapping[str, ShapeFunction] = {
    **SHAPES,
    "BlackmanWindow": window,
    "ConstantOfShape": as_listed,
    "Expand": expand,
    "HammingWindow": window,
    "HannWindow": window,
    "MelWeightMatrix": mel,
    "OneHot": one_hot,
    "Pad": pad,
    "Range": range_,
    "Reshape": reshape,
    "Resize": resize,
    "Slice": slice_,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "TopK": top_k,
    "Unsqueeze": unsqueeze,
}
