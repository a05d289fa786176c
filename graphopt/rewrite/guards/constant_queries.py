"""Constant queries: questions of guards about a constant's elements, whatever their number."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from graphopt.ir.constants import Constant

BLANK = -1e30
"""What a mask adds at most to a score that does not count, or the least number of a dtype that has none so small."""


@lru_cache(256)
def period(constant: Constant) -> int | None:
    """After how many elements the last axis begins anew: its size where it does not repeat."""
    if not constant.shape or not constant.shape[-1]:
        return None
    size = constant.shape[-1]
    rows = constant.array.reshape(-1, size)
    for n in (n for n in range(1, size) if size % n == 0):
        if np.array_equal(rows[:, n:], rows[:, :-n]):
            return n
    return size


@lru_cache(256)
def row_high(constant: Constant) -> float | None:
    """The smallest of what is largest in each row."""
    if not constant.shape or not constant.size or "float" not in constant.dtype:
        return None
    return float(constant.array.max(axis=-1).min())


@lru_cache(256)
def causal(constant: Constant) -> bool | None:
    """Whether a square of rows leaves, in each, the scores up to the diagonal, and blanks out the others."""
    if len(constant.shape) < 2 or constant.shape[-1] != constant.shape[-2]:
        return None
    array = constant.array.reshape(-1, *constant.shape[-2:])
    lower = np.tril(np.ones(constant.shape[-2:], bool))
    if array.dtype.kind == "b":
        return bool(np.array_equal(array, np.broadcast_to(lower, array.shape)))
    if "float" not in constant.dtype:
        return None
    least: Any = ml_dtypes.finfo(array.dtype)  # type: ignore[no-untyped-call]
    blank = max(BLANK, float(least.min))
    return bool((array[:, lower] == 0).all() and (array[:, ~lower].astype(np.float64) <= blank).all())
