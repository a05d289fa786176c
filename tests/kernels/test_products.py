"""Our own product of matrices against numpy: any sizes, strides, layouts and vectors."""

import ctypes
from functools import cache

import numpy as np
import pytest

from graphopt.kernels import host
from graphopt.kernels.compile import compile_kernels
from graphopt.kernels.kernel import SIZE, Kernel
from graphopt.kernels.product_form import PANELS, PLAIN, TRANSPOSED, in_panels, panel
from graphopt.runtime.objects import Image

SIZES = [
    (0, 3, 5), (3, 0, 5), (3, 5, 0), (1, 1, 1), (1, 100, 70), (4, 33, 17), (12, 32, 16), (13, 31, 400), (40, 65, 9),
    (200, 40, 30), (90, 70, 800), (1, 70, 1000), (4, 100, 800),
]  # fmt: skip
"""Rows, columns and products of each sum: none, one, more than a tile, a panel and a block of either kind have."""


WAYS = ("np", "nn", "nt", "tp", "tn", "tt")
"""The six calls, in the order of whether the first operand is transposed, and of the form of the second."""


@cache
def entry(dtype: str, vector_bytes: int):
    """A kernel that makes any of the calls, for vectors of so many bytes."""
    operands = "c, 0, ldc, a, 0, lda, b, 0, ldb"
    lines = [
        f"    if way == {number}:\n"
        f"        product_{way}({operands}{', 0' if way[1] == 'p' else ''}, m, n, k, depth, height)"
        for number, way in enumerate(WAYS)
    ]
    body = "\n".join(lines)
    names = ", ".join(f"product_{w}" for w in WAYS)
    source = f'''"""products in vectors of {vector_bytes} bytes"""
from graphopt.kernels.products import {names}


def kernel(c, a, b, ldc, lda, ldb, m, n, k, depth, height, way, lo, hi):
{body}
    return 0
'''
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "vector_bytes", lambda: vector_bytes)
        image = Image(compile_kernels([Kernel(source, (dtype,) * 3 + (SIZE,) * 9)], jobs=0))
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return function(image.entries[0]), image


def computed(a: np.ndarray, b: np.ndarray, form: int, transpose: bool, vector_bytes: int, *blocks: int):
    """``a @ b`` by the kernel, each operand being part of a larger array whose other elements are not numbers."""
    (m, k), n = a.shape, b.shape[1]
    left = np.full((k + 1, m + 3) if transpose else (m + 1, k + 3), np.nan, a.dtype)
    left[: k if transpose else m, : m if transpose else k] = a.T if transpose else a
    if form == PANELS:
        w = 2 * vector_bytes // a.itemsize
        filled = np.zeros((k, -(-n // w) * w), b.dtype)
        filled[:, :n] = b
        right = np.ascontiguousarray(filled.reshape(k, -(-n // w), w).swapaxes(0, 1))
        ldb = k * w
    else:
        given = b.T if form == TRANSPOSED else b
        right = np.full((given.shape[0] + 1, given.shape[1] + 2), np.nan, b.dtype)
        right[: given.shape[0], : given.shape[1]] = given
        ldb = right.shape[1]
    out = np.full((m + 1, n + 5), 7, a.dtype)
    words = [out, left, right, out.shape[1], left.shape[1], ldb, m, n, k, *(blocks or (0, 0)), 3 * transpose + form]
    args = np.array([w.ctypes.data if isinstance(w, np.ndarray) else w for w in words], np.int64)
    assert entry(a.dtype.name, vector_bytes)[0](args.ctypes.data, 0, 1) == 0
    assert (out[m:] == 7).all()
    assert (out[:, n:] == 7).all()
    return out[:m, :n]


def close(got: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = np.abs(a).astype(np.float64) @ np.abs(b) * np.finfo(a.dtype).eps * 2
    assert (np.abs(got - exact) <= bound).all()


@pytest.mark.parametrize("form", [PANELS, PLAIN, TRANSPOSED])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(
    ("dtype", "vector_bytes"),
    [("float32", host.vector_bytes()), ("float32", 32), ("float32", 16), ("float64", host.vector_bytes())],
)
def test_products_of_any_size(dtype, vector_bytes, transpose, form):
    rng = np.random.default_rng(0)
    for m, n, k in SIZES:
        a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n)))
        close(computed(a, b, form, transpose, vector_bytes), a, b)


@pytest.mark.parametrize("form", [PANELS, PLAIN, TRANSPOSED])
@pytest.mark.parametrize("blocks", [(1, 1), (7, 24), (64, 30), (1 << 40, 1 << 40)])
def test_blocks_of_any_size(form, blocks):
    """Those that are larger than what is laid out has room for are not taken at their word."""
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((200, 450), np.float32), rng.standard_normal((450, 70), np.float32)
    close(computed(a, b, form, False, host.vector_bytes(), *blocks), a, b)


@pytest.mark.parametrize("form", [PANELS, PLAIN, TRANSPOSED])
def test_special_values_stay_in_their_rows_and_columns(form):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((30, 50), np.float32), rng.standard_normal((50, 70), np.float32)
    a[3, 7], a[29, 0], b[9, 69], b[0, 11] = np.nan, np.inf, -np.inf, 0.0
    with np.errstate(invalid="ignore"):
        want = a @ b
    got = computed(a, b, form, False, host.vector_bytes())
    assert np.isnan(want).any()
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert np.array_equal(np.isinf(got), np.isinf(want))
    finite = np.isfinite(want)
    assert np.allclose(got[finite], want[finite], atol=1e-4)


def test_panels_hold_neighbouring_columns():
    w = panel("float32")
    b = np.arange(3 * (w + 2), dtype=np.float32).reshape(3, w + 2)
    laid = in_panels(b)
    assert laid.shape == (2, 3, w)
    assert np.array_equal(laid[0], b[:, :w])
    assert np.array_equal(laid[1, :, :2], b[:, w:])
    assert not laid[1, :, 2:].any()
