"""Tensor functions that move elements: reshapes, slices, joins, gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.lowering.loops.compute import Tensor
from graphopt.lowering.loops.expressions import Const, Expr, wrong
from graphopt.tensor.application import Operand, op, several

SizeLike = Expr | int
"""A size: a number, or an expression such as ``x.shape[0]``."""


def reshape(x: Tensor, shape: Sequence[SizeLike]) -> Tensor:
    """The same elements in another shape, of which one size may be -1.

    >>> tensor.reshape(x, (n, 2, 4))
    <Tensor reshape: float32[n, 2, 4]>
    """
    return op("Reshape", [x, tuple(shape)], allowzero=1)


def flatten(x: Tensor, axis: int = 1) -> Tensor:
    """A matrix: the axes before ``axis`` are one, and the others are.

    >>> tensor.flatten(image)
    <Tensor flatten: float32[1, 256]>
    """
    return op("Flatten", [x], axis=axis)


def transpose(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """The axes in another order (None: from behind).

    >>> tensor.transpose(x, (1, 0))
    <Tensor transpose: float32[8, n]>
    """
    order = tuple(reversed(range(x.rank))) if axes is None else tuple(a % max(x.rank, 1) for a in axes)
    return op("Transpose", [x], perm=order)


def expand_dims(x: Tensor, axis: int | Sequence[int]) -> Tensor:
    """With axes of size 1 at these places of the result.

    >>> tensor.expand_dims(x, 0)
    <Tensor unsqueeze: float32[1, n, 8]>
    """
    return op("Unsqueeze", [x, _ints(axis)])


def squeeze(x: Tensor, axis: int | Sequence[int]) -> Tensor:
    """Without these axes, of size 1.

    >>> tensor.squeeze(image, 0)
    <Tensor squeeze: float32[4, 8, 8]>
    """
    return op("Squeeze", [x, _ints(axis)])


def broadcast_to(x: Tensor, shape: Sequence[SizeLike]) -> Tensor:
    """The elements repeated as numpy broadcasts.

    >>> tensor.broadcast_to(row, (n, 4))
    <Tensor expand: float32[n, 4]>
    """
    return op("Expand", [x, tuple(shape)])


def tile(x: Tensor, repeats: Sequence[int]) -> Tensor:
    """The whole tensor repeated so many times along each axis.

    >>> tensor.tile(x, (1, 3))
    <Tensor tile: float32[n, 24]>
    """
    return op("Tile", [x, _ints(repeats)])


def concat(*tensors: Tensor, axis: int = 0) -> Tensor:
    """Tensors one behind another along an axis.

    >>> tensor.concat(x, x, axis=1)
    <Tensor concat: float32[n, 16]>
    """
    return op("Concat", list(tensors), axis=axis)


def stack(*tensors: Tensor, axis: int = 0) -> Tensor:
    """Tensors of one shape along a new axis.

    >>> tensor.stack(x, x, axis=1)
    <Tensor concat: float32[n, 2, 8]>
    """
    return concat(*(expand_dims(t, axis) for t in tensors), axis=axis)


def split(x: Tensor, parts: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """Parts along an axis: so many equal ones, or ones of these sizes.

    >>> tensor.split(x, 2, axis=1)
    (<Tensor split: float32[n, 4]>, <Tensor split: float32[n, 4]>)
    """
    if isinstance(parts, int):
        size = x.shape[axis]
        if not isinstance(size, Const) or int(size.value) % parts:
            raise wrong(f"split: axis {axis} is of {_said(size)}, and {parts} equal parts are asked for")
        parts = [int(size.value) // parts] * parts
    return several("Split", len(parts), [x, _ints(parts)], axis=axis)


def slice(
    x: Tensor,
    begin: Sequence[int],
    end: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Tensor:
    """A part of the tensor: from ``begin`` up to ``end`` along the axes (the first ones), as Python slices.

    >>> tensor.slice(x, [2], [8], axes=[1])
    <Tensor slice: float32[n, 6]>
    """
    where = list(range(len(begin))) if axes is None else list(axes)
    stride = [1] * len(begin) if steps is None else list(steps)
    return op("Slice", [x, _ints(begin), _ints(end), _ints(where), _ints(stride)])


def pad(
    x: Tensor, before: Sequence[int], behind: Sequence[int], value: Operand = None, mode: str = "constant"
) -> Tensor:
    """With so many elements before and behind along each axis; ``mode`` is ``constant``, ``reflect``, ``edge`` or
    ``wrap``.

    >>> tensor.pad(x, [0, 1], [0, 1])
    <Tensor pad: float32[n, 10]>
    """
    return op("Pad", [x, _ints([*before, *behind]), value], mode=mode)


def gather(x: Tensor, indices: Operand, axis: int = 0) -> Tensor:
    """The elements (rows, ...) along an axis at the indices; negative ones count from behind.

    >>> tensor.gather(x, [0, 2], axis=1)
    <Tensor gather: float32[n, 2]>
    """
    return op("Gather", [x, indices], axis=axis)


def gather_elements(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """Along an axis the element at each index, elsewhere where the index itself stands (``take_along_axis``).

    >>> tensor.gather_elements(x, te.placeholder((n, 2), "int64"), axis=1)
    <Tensor gatherelements: float32[n, 2]>
    """
    return op("GatherElements", [x, indices], axis=axis)


def scatter(x: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "none") -> Tensor:
    """The tensor with elements put (or with ``reduction`` added, ...) at indices along an axis.

    >>> tensor.scatter(x, te.placeholder((n, 2), "int64"), te.placeholder((n, 2)), axis=1)
    <Tensor scatterelements: float32[n, 8]>
    """
    return op("ScatterElements", [x, indices, updates], axis=axis, reduction=reduction)


def topk(x: Tensor, k: int, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) elements along an axis, in order, and where they stand.

    >>> tensor.topk(x, 2, axis=1)
    (<Tensor topk: float32[n, 2]>, <Tensor indices: int64[n, 2]>)
    """
    values, places = several("TopK", 2, [x, np.array([k], np.int64)], axis=axis, largest=largest)
    return values, places


def one_hot(indices: Tensor, depth: int, axis: int = -1, dtype: str = "float32") -> Tensor:
    """1 where the index stands along a new axis of size ``depth``, and 0 elsewhere.

    >>> tensor.one_hot(te.placeholder((n,), "int64"), 10)
    <Tensor onehot: float32[n, 10]>
    """
    return op("OneHot", [indices, np.array(depth, np.int64), np.array([0, 1], dtype)], axis=axis)


def _ints(values: int | Sequence[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array([values] if isinstance(values, int) else list(values), np.int64)


def _said(size: Expr) -> str:
    return f"size {int(size.value)}" if isinstance(size, Const) else "an open size"
