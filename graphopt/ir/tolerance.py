"""Tolerances: how far apart two results may be and still be the same; the one table of them.

A float may differ by a share of its tensor's largest magnitude, by dtype; everything else is equal
or wrong. No policy loosens the table.
"""

from __future__ import annotations

from math import inf

import numpy as np

from graphopt.ir.constants import Array

RELATIVE = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2, "complex64": 1e-4, "complex128": 1e-9}
"""The share of the tensor's largest magnitude, by dtype; others (8-bit floats and narrower) get 0.3."""


def error(want: Array, got: Array, coarsest: float = 0.0) -> float:
    """How far ``got`` is from ``want``, in units of the tolerance: up to 1 is right, inf is wrong in kind.

    ``coarsest`` is the largest share among the dtypes in which something on the way was computed. Wrong in kind:
    another dtype or shape, NaN or infinity elsewhere, any difference in what is not a float.
    """
    if want.dtype != got.dtype or want.shape != got.shape:
        return inf
    if want.size == 0:
        return 0.0
    if not is_inexact(want):
        return 0.0 if np.array_equal(want, got) else inf
    share = max(RELATIVE.get(want.dtype.name, 0.3), coarsest)
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = want.astype(wide), got.astype(wide)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return inf
    if not finite.any():
        return 0.0
    a, b = a[finite], b[finite]
    scale = float(np.abs(a).max())
    difference = float(np.abs(a - b).max())
    return difference / (share * scale + 1e-30) if difference else 0.0


def deviation(a: Array, b: Array) -> Array:
    """For each of the floats of two arrays of one shape, how far they are apart, in units of the tolerance of ``a``."""
    share = RELATIVE.get(a.dtype.name, 0.3)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    scale = float(np.abs(a).max(initial=0.0, where=np.isfinite(a)))
    with np.errstate(invalid="ignore"):
        units: Array = np.abs(a - b) / (share * scale + 1e-30)
    return units


def is_inexact(array: Array) -> bool:
    """Whether the elements are floats or complex numbers, the 8-bit and bfloat16 kinds included."""
    return array.dtype.kind in "fc" or "float" in array.dtype.name
