"""Our own product of float32 by weights in bfloat16 against numpy: any sizes, strides and vectors, to its bound."""

import ctypes
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from graphopt.kernels import host
from graphopt.kernels.compile import compile_kernels
from graphopt.kernels.kernel import SIZE, Kernel
from graphopt.kernels.product_form import BFLOAT, in_panels, panel
from graphopt.runtime.objects import Image

SIZES = [
    (0, 3, 5), (3, 0, 5), (3, 5, 0), (1, 1, 1), (1, 100, 71), (4, 33, 17), (12, 32, 16), (13, 31, 401), (40, 65, 9),
    (200, 40, 30), (90, 70, 800),
]  # fmt: skip
"""Rows, columns and products of each sum: none, one, more than a tile, a panel and a block of either kind have."""
SOURCE = '''"""products in vectors of {} bytes"""
from graphopt.kernels.products import bfloat_product


def kernel(c, a, b, ldc, lda, ldb, m, n, k, lo, hi):
    bfloat_product(c, 0, ldc, a, 0, lda, b, 0, ldb, 0, 0, m, n, k)
    return 0
'''


@cache
def entry(vector_bytes: int):
    """A kernel that makes the call, for vectors of so many bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "vector_bytes", lambda: vector_bytes)
        kernel = Kernel(SOURCE.format(vector_bytes), ("float32", "float32", "bfloat16") + (SIZE,) * 6)
        image = Image(compile_kernels([kernel], jobs=0))
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return function(image.entries[0]), image


def computed(a: np.ndarray, b: np.ndarray, vector_bytes: int) -> np.ndarray:
    """``a @ b`` by the kernel, the first operand and the result being part of larger arrays."""
    (m, k), n = a.shape, b.shape[1]
    left = np.full((m + 1, k + 3), np.nan, np.float32)
    left[:m, :k] = a
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "vector_bytes", lambda: vector_bytes)
        right = in_panels(b.astype(ml_dtypes.bfloat16))
    out = np.full((m + 1, n + 5), 7, np.float32)
    words = [out, left, right, out.shape[1], left.shape[1], int(np.prod(right.shape[1:])), m, n, k]
    args = np.array([w.ctypes.data if isinstance(w, np.ndarray) else w for w in words], np.int64)
    assert entry(vector_bytes)[0](args.ctypes.data, 0, 1) == 0
    assert (out[m:] == 7).all()
    assert (out[:, n:] == 7).all()
    return out[:m, :n]


@pytest.mark.parametrize("vector_bytes", [host.vector_bytes(), 32, 16])
def test_products_of_any_size(vector_bytes):
    rng = np.random.default_rng(0)
    for m, n, k in SIZES:
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        got, wide = computed(a, b, vector_bytes), a.astype(np.float64)
        terms = np.abs(wide) @ np.abs(b)
        sums = 2 * terms * np.finfo(np.float32).eps
        assert (np.abs(got - wide @ b.astype(ml_dtypes.bfloat16).astype(np.float64)) <= sums).all()
        assert (np.abs(got - wide @ b) <= terms * 2.0**-8 + sums).all()


def test_special_values_stay_in_their_rows_and_columns():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((30, 51), np.float32), rng.standard_normal((51, 70), np.float32)
    a[3, 7], a[29, 0], b[9, 69], b[0, 11], b[50, 3] = np.nan, np.inf, -np.inf, 0.0, np.nan
    with np.errstate(invalid="ignore"):
        want = a @ b.astype(ml_dtypes.bfloat16).astype(np.float32)
    got = computed(a, b, host.vector_bytes())
    assert np.isnan(want).any()
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert np.array_equal(np.isinf(got), np.isinf(want))
    finite = np.isfinite(want)
    assert np.allclose(got[finite], want[finite], atol=1e-4)


def test_pairs_of_neighbouring_columns():
    w = panel(BFLOAT)
    b = np.arange(3 * (w + 2), dtype=np.float32).reshape(3, w + 2).astype(ml_dtypes.bfloat16)
    laid = in_panels(b)
    assert laid.shape == (2, 2, w, 2)
    assert np.array_equal(laid[0, 0], b[:2, :w].T)
    assert np.array_equal(laid[1, 1, :2, 0], b[2, w:])
    assert not laid[1, :, 2:].any()
    assert not laid[:, 1, :, 1].any()
