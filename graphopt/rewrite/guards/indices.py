"""Index guards: functions of rules on constant indices, adjacent slices and identity matrices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from graphopt.ir.types import Size

END = (1 << 62) - 1
"""Ends beyond this mean the end of the axis."""


def is_eye(matrix: Sequence[Any]) -> bool:
    """Whether a matrix, which may have further axes of size 1, has ones on its diagonal and zeros elsewhere."""
    array = np.array(matrix)
    if array.ndim < 2 or array.shape[0] != array.shape[1] or array.size != array.shape[0] ** 2:
        return False
    return bool(np.array_equal(array.reshape(array.shape[:2]), np.eye(len(array))))


def side_by_side(starts: Sequence[int], ends: Sequence[int], size: Size) -> bool:
    """Whether slices from these starts to these ends are an axis of this size cut into pieces, in order.

    True of none: nothing stands against a single slice before the others are known.
    """
    if not starts:
        return True
    if starts[0] != 0 or any(s >= e for s, e in zip(starts, ends, strict=True)):
        return False
    return all(b == e for (_, b), e in zip(pairwise(starts), ends, strict=False)) and (
        ends[-1] == size or (ends[-1] > END and isinstance(size, int))
    )


def all_in_order(places: Sequence[int], size: Size) -> bool:
    """Whether these places are all of an axis of this size, in order. True of none."""
    return not places or tuple(places) == tuple(range(size if isinstance(size, int) else 0))


def widths(starts: Sequence[int], size: Size) -> tuple[Size, ...]:
    """Widths of the pieces into which an axis is cut at these places."""
    return tuple(b - a for a, b in pairwise((*starts, size)))


def common_row(indices: Sequence[Any], axis: int) -> tuple[int, ...]:
    """The indices along an axis, where they are the same whatever the other axes say. ValueError where not."""
    array = np.moveaxis(np.array(indices), axis, -1)
    row = array.reshape(-1, array.shape[-1])[0]
    if not np.all(array == row):
        raise ValueError("the indices are not the same in every row")
    return tuple(map(int, row))
