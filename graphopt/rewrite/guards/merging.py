"""Merging guards: functions of rules for parallel work: embedded kernels and paired groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def kernel_growth(
    kernel: Sequence[int], pads: Sequence[int] | None, small: Sequence[int], small_pads: Sequence[int] | None
) -> tuple[int, ...]:
    """The zeros around a small kernel with which it does in the place of a larger one what it does in its own.

    As pads of the weights (outputs, inputs, then space). ValueError where it is no smaller, or would look elsewhere.
    """
    n = len(kernel)
    around, within = (tuple(p or ()) or (0,) * (2 * n) for p in (pads, small_pads))
    before = [around[i] - within[i] for i in range(n)]
    after = [around[n + i] - within[n + i] for i in range(n)]
    fits = all(b >= 0 and a >= 0 and b + a == k - s for b, a, k, s in zip(before, after, kernel, small, strict=True))
    if not fits or not any((*before, *after)):
        raise ValueError(f"a kernel of {tuple(small)} is not one of {tuple(kernel)} with zeros around it")
    return (0, 0, *before, 0, 0, *after)


def in_group(outputs: int, groups: int, half: int, rank: int) -> Any:
    """Ones for outputs of a convolution in the first (``half`` 0) or second group of each pair, zeros for others."""
    group = np.arange(outputs) // (outputs // groups)
    return (group % 2 == half).astype(np.float32).reshape(outputs, *[1] * (rank - 1))


def whole(numbers: Sequence[float]) -> bool:
    """Whether all of these are whole numbers, one or more."""
    return all(n >= 1 and n == int(n) for n in numbers)
