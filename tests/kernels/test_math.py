"""Polynomials against numpy in higher precision."""

from __future__ import annotations

import numpy as np
from numba import float32, njit

from graphopt.kernels.math import exp
from graphopt.kernels.vectors import load, pointer, store


@njit
def exp_of(a, b, n):
    p, q = pointer(a, float32), pointer(b, float32)
    for i in range(0, n, 8):
        store(q, i, exp(load(p, i, 8)))


def test_exp_is_within_an_ulp() -> None:
    x = np.linspace(-104, 89, 80_000, dtype=np.float32)
    y = np.empty_like(x)
    exp_of(x.ctypes.data, y.ctypes.data, x.size)
    with np.errstate(over="ignore"):
        want = np.exp(x.astype(np.float64)).astype(np.float32)
    assert np.abs(y.view(np.int32) - want.view(np.int32)).max() <= 1
