"""Rounding: whether arrays differ by no more than it leaves; float64 and moved constants are the measure.

Apart from ``local`` for length.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from graphopt.ir.constants import Array
from graphopt.ir.tolerance import error, is_inexact

ROUNDING = 32
"""By how many units in the last place of a row's largest element a part may differ before float64 is asked."""

NOISE = 8.0
"""How many times what moving constants by one unit in the last place does may be put down to their rounding."""

NEARER = 4.0
"""How many times further from float64 a result may be than the original where it is beyond the tolerance."""

FLIPPED = 0.002
"""The share of whole numbers that may be others for being rounded from half way between two: quantized ones are then
off by one."""

EXACT = 1e-11
"""The share of a row's largest element by which float64 itself is not trusted."""

FEW_OF = 8
"""Where fewer than one in so many elements of a constant are others, they are not so by rounding."""


def _rows(array: Array) -> Array:
    """For each element the largest of its row (of its last axis)."""
    if array.ndim == 0 or array.size == 0:
        return array
    return np.asarray(np.broadcast_to(array.max(axis=-1, keepdims=True), array.shape))


def is_suspicious(want: Array, made: Array) -> bool:
    """Whether an element differs by more than rounding most often does."""
    if not is_inexact(want):
        return not np.array_equal(want, made)
    if want.shape == made.shape and want.tobytes() == made.tobytes():
        return False
    a, b = plain(want), plain(made)
    with np.errstate(all="ignore"):
        far = np.abs(a - b)
        if np.isfinite(far).all():
            return bool((far > ROUNDING * epsilon(want.dtype) * _rows(np.abs(a))).any())
        agree = (a == b) | (np.isnan(a) & np.isnan(b))
        finite = np.isfinite(a) & np.isfinite(b)
        if not (agree | finite).all():
            return True
        far = np.where(agree, 0, np.abs(np.where(finite, a, 0) - np.where(finite, b, 0)))
        return bool((far > ROUNDING * epsilon(want.dtype) * _rows(np.where(finite, np.abs(a), 0))).any())


def is_moved(want: Array, other: Array) -> bool:
    """Whether most of a value is another for other inputs, and all of it finite where it is a float."""
    if not is_inexact(want):
        return not np.array_equal(want, other)
    a, b = plain(want), plain(other)
    return bool(
        np.isfinite(a).all() and 2 * (np.abs(a - b) > ROUNDING * epsilon(want.dtype) * np.abs(a)).sum() >= a.size
    )


def is_another_constant(one: Array, other: Array) -> bool:
    """Whether constants that should be the same differ by more than their own rounding, element by element, and by more
    than what rounding leaves of the largest of their row, or in few elements alone: rounding moves most of them."""
    if is_suspicious(one, other):
        return True
    a, b, step = plain(one), plain(other), epsilon(one.dtype)
    with np.errstate(all="ignore"):
        far, sizes = np.nan_to_num(np.abs(a - b), nan=0.0, posinf=0.0), np.nan_to_num(np.abs(a), nan=0.0, posinf=0.0)
    apart = far > ROUNDING * step * sizes
    return bool(
        (apart & (far > 2 * step * _rows(sizes))).any()
        or (0 < FEW_OF * (far > 0).sum() < (sizes > 0).sum() and apart.any())
    )


def is_near(want: Array, made: Array, times: float = 1.0) -> bool:
    """Whether elements differ by no more than so many times the tolerance of their row: where float64 cannot tell."""
    if not is_inexact(want):
        apart = want.astype(np.float64) - made.astype(np.float64) if want.dtype.kind in "iu" else want != made
        return bool((want != made).mean() <= FLIPPED and np.abs(apart).max(initial=0) <= 1)
    if want.ndim == 0:
        return error(want, made) <= times
    rows = want.reshape(-1, want.shape[-1]), made.reshape(-1, made.shape[-1])
    return all(error(a, b) <= times for a, b in zip(*rows, strict=True))


def is_equal_but_for(wide: Any, other: Any, noise: Sequence[tuple[Any, Any]], share: float = 0.0) -> bool:
    """Whether two values agree but for a share of each element, and what differs within the pairs of ``noise``."""
    if not isinstance(wide, np.ndarray) or not isinstance(other, np.ndarray) or wide.shape != other.shape:
        return False
    if wide.size == 0:
        return True
    if not is_inexact(wide):
        flips = max(((a != b).sum() for a, b in noise), default=0)
        if wide.dtype.kind in "iu" and wide.dtype.itemsize == 1 and largest_difference(wide, other) > 1:
            return bool(
                largest_difference(wide, other) <= NOISE * max((largest_difference(x, y) for x, y in noise), default=0)
            )
        return bool((wide != other).sum() <= max(NOISE * flips, FLIPPED * wide.size))
    a, b = plain(wide), plain(other)
    with np.errstate(all="ignore"):
        far, sizes = np.abs(a - b), np.abs(a)
        moves = [np.abs(plain(x) - plain(y)) for x, y in noise]
        if not np.isfinite(far).all():
            agree = (a == b) | (np.isnan(a) & np.isnan(b))
            finite = np.isfinite(a) & np.isfinite(b)
            if not (agree | finite | np.any([~np.isfinite(m) for m in moves] or [False], axis=0)).all():
                return False
            far, sizes = np.where(finite & ~agree, far, 0), np.where(finite, sizes, 0)
        allowed = EXACT * _rows(sizes) + share * sizes + 1e-300
        if moves:
            most = np.max([np.where(np.isfinite(m), m, 0) for m in moves], axis=0)
            allowed += NOISE * np.maximum(most, _rows(most))
        return bool((far <= allowed).all())


def largest_difference(a: Array, b: Array) -> float:
    """The largest difference of elements that are finite."""
    if a.shape != b.shape:
        return inf
    with np.errstate(all="ignore"):
        return float(np.nan_to_num(np.abs(plain(a) - plain(b)), posinf=0.0).max(initial=0))


def is_as_near(wide: Array, want: Array, made: Array) -> bool:
    """Whether one value is as near float64 as another."""
    if not is_inexact(want):
        return bool((made != wide).sum() <= NEARER * (want != wide).sum())
    with np.errstate(all="ignore"):
        errors = [np.nan_to_num(np.abs(plain(x) - wide), posinf=0.0) for x in (want, made)]
    return bool(errors[1].max(initial=0) <= NEARER * errors[0].max(initial=0))


def cancelled(wide: Array, moved: Array) -> Array:
    """What rounding made of rows of which nothing is left but that: no element is larger; other rows as they are."""
    if wide.shape != moved.shape:
        return wide
    with np.errstate(all="ignore"):
        far = np.abs(plain(moved) - plain(wide))
        return np.where(_rows(np.abs(plain(wide))) <= NOISE * _rows(far), moved, wide)


def is_seen(wide: Array, other: Array, made: Array) -> bool:
    """Whether float64 sees between two values any of what tells a result from the first."""
    with np.errstate(all="ignore"):
        far, own = np.abs(plain(made) - plain(wide)), np.abs(plain(other) - plain(wide))
        return bool((NOISE * own > far)[far > 0].any())


def is_within(wide: Array, made: Array, moved: Sequence[Array]) -> bool:
    """Whether each element that was made is as near one in float64 as others are that rounding leads to."""
    if any(other.shape != wide.shape for other in moved):
        return False
    if not is_inexact(wide):
        return bool(np.any([made == wide, *(made == other for other in moved)], axis=0).all())
    with np.errstate(all="ignore"):
        far = np.nan_to_num(np.abs(plain(made) - wide), nan=0.0, posinf=0.0)
        most = np.max([np.nan_to_num(np.abs(plain(other) - wide), posinf=0.0) for other in moved], axis=0)
    return bool((far <= NOISE * most).all())


def plain(array: Array) -> Array:
    """Floats of any kind as numpy's widest."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def epsilon(dtype: np.dtype[Any]) -> float:
    """The step between 1 and the next number of a dtype of floats."""
    if dtype.kind in "fc":
        return float(np.finfo(dtype).eps)
    return 2.0**-7 if dtype.name == "bfloat16" else 0.25


def in_words(want: Array, made: Array) -> str:
    """The largest difference, absolute and relative, and where."""
    if want.shape != made.shape:
        return f"its type: {list(made.shape)} instead of {list(want.shape)}"
    if not is_inexact(want) or want.size == 0:
        return f"{int((want != made).sum())} of {want.size} elements"
    a, b = plain(want), plain(made)
    with np.errstate(all="ignore"):
        far = np.abs(a - b)
        far = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.where(np.isnan(far), inf, far))
        at = np.unravel_index(int(far.argmax()), far.shape)
        share = far[at] / np.abs(a[at]) if a[at] else inf
    return f"{far[at]:.3g} ({share:.2g} of {a[at]:.3g}) at [{', '.join(map(str, map(int, at)))}]"
