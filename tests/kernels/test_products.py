"""Our own products of matrices against numpy, for any sizes, strides, layouts and vectors: of floats; of float32 by
weights in half precision, to its bound; of bytes, bit by bit, for any signs, zero points and instructions."""

import ctypes
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from graphopt.kernels import host, product_form
from graphopt.kernels.compile import compile_kernels
from graphopt.kernels.kernel import SIZE, Kernel
from graphopt.kernels.product_form import BFLOAT, PANELS, PLAIN, TRANSPOSED, WINDOWS, groups, in_panels, panel
from graphopt.runtime.objects import Image

SIZES = [
    (0, 3, 5), (3, 0, 5), (3, 5, 0), (1, 1, 1), (1, 100, 70), (4, 33, 17), (12, 32, 16), (13, 31, 400), (40, 65, 9),
    (200, 40, 30), (90, 70, 800), (1, 70, 1000), (4, 100, 800), (1, 300, 33), (2, 330, 9), (3, 290, 70), (4, 290, 41),
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


HALF_SIZES = [
    (0, 3, 5), (3, 0, 5), (3, 5, 0), (1, 1, 1), (1, 100, 71), (4, 33, 17), (12, 32, 16), (13, 31, 401), (40, 65, 9),
    (200, 40, 30), (90, 70, 800), (1, 300, 33), (2, 330, 9), (3, 290, 71),
]  # fmt: skip
"""Rows, columns and products of each sum: none, one, more than a tile, a panel and a block of either kind have."""
HALF_SOURCE = '''"""products in vectors of {bytes} bytes"""
from graphopt.kernels.products import {name}


def kernel(c, a, b, ldc, lda, ldb, m, n, k, lo, hi):
    {name}(c, 0, ldc, a, 0, lda, b, 0, ldb, {strides}, m, n, k)
    return 0
'''
HALVES = {"bfloat16": ("bfloat_product", "0, 0", 2.0**-8), "float16": ("half_product", "0", 2.0**-11)}
"""By the dtype of weights: the product, distances that it takes beside those of panels, and by what share of itself a
weight is off at most."""


@cache
def half_entry(dtype: str, vector_bytes: int):
    """A kernel that makes the call, for vectors of so many bytes."""
    name, strides, _ = HALVES[dtype]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "vector_bytes", lambda: vector_bytes)
        source = HALF_SOURCE.format(bytes=vector_bytes, name=name, strides=strides)
        kernel = Kernel(source, ("float32", "float32", dtype) + (SIZE,) * 6)
        image = Image(compile_kernels([kernel], jobs=0))
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return function(image.entries[0]), image


def half_computed(a: np.ndarray, b: np.ndarray, dtype: str, vector_bytes: int) -> np.ndarray:
    """``a @ b`` by the kernel, the first operand and the result being part of larger arrays."""
    (m, k), n = a.shape, b.shape[1]
    left = np.full((m + 1, k + 3), np.nan, np.float32)
    left[:m, :k] = a
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "vector_bytes", lambda: vector_bytes)
        right = in_panels(rounded(b, dtype))
    out = np.full((m + 1, n + 5), 7, np.float32)
    words = [out, left, right, out.shape[1], left.shape[1], int(np.prod(right.shape[1:])), m, n, k]
    args = np.array([w.ctypes.data if isinstance(w, np.ndarray) else w for w in words], np.int64)
    assert half_entry(dtype, vector_bytes)[0](args.ctypes.data, 0, 1) == 0
    assert (out[m:] == 7).all()
    assert (out[:, n:] == 7).all()
    return out[:m, :n]


def rounded(b: np.ndarray, dtype: str) -> np.ndarray:
    return b.astype(getattr(ml_dtypes, dtype, dtype))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("vector_bytes", [host.vector_bytes(), 32, 16])
def test_half_products_of_any_size(dtype, vector_bytes):
    rng = np.random.default_rng(0)
    for m, n, k in HALF_SIZES:
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        got, wide = half_computed(a, b, dtype, vector_bytes), a.astype(np.float64)
        terms = np.abs(wide) @ np.abs(b)
        sums = 2 * terms * np.finfo(np.float32).eps
        assert (np.abs(got - wide @ rounded(b, dtype).astype(np.float64)) <= sums).all()
        assert (np.abs(got - wide @ b) <= terms * HALVES[dtype][2] + sums).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_special_values_of_half_products_stay_in_their_rows_and_columns(dtype):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((30, 51), np.float32), rng.standard_normal((51, 70), np.float32)
    a[3, 7], a[29, 0], b[9, 69], b[0, 11], b[50, 3] = np.nan, np.inf, -np.inf, 0.0, np.nan
    b[1, 20], b[2, 21] = 6e-8, 1e-7  # subnormal numbers of float16
    with np.errstate(invalid="ignore"):
        want = a @ rounded(b, dtype).astype(np.float32)
    got = half_computed(a, b, dtype, host.vector_bytes())
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


INTEGER_SIZES = [
    (0, 3, 5), (3, 0, 5), (3, 5, 0), (1, 1, 1), (1, 100, 70), (4, 33, 17), (12, 32, 16), (13, 31, 1702), (40, 65, 9),
    (200, 40, 30), (5, 17, 64), (26, 16, 127),
]  # fmt: skip
"""Rows, columns and products of each sum: none, one, more than a tile, a panel and a block of either kind have."""
SIGNS = [("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8"), ("int8", "int8")]
HOST = (host.vector_bytes(), product_form.instruction())
PIXELS = 4
CALLS = {
    PANELS: "integer_product_q(c, 0, ldc, a, 0, lda, b, 0, ldb, 0, 0, {rest})",
    PLAIN: "integer_product_n(c, 0, ldc, a, 0, lda, b, 0, ldb, {rest})",
    TRANSPOSED: "integer_product_t(c, 0, ldc, a, 0, lda, b, 0, ldb, {rest})",
    WINDOWS: "integer_windows_{right}(c, 0, ldc, a, 0, lda, q, 0, line, ldb, {rest}, pixel, kernel_0, kernel_1, wide, "
    "step_0, step_1, dilation_0, dilation_1, 0, 0, 0)",
    PIXELS: "integer_pixels(c, 0, ldc, a, 0, lda, b, 0, ldb, line, {rest}, pixel, 0, 0)",
}
MORE = "line, pixel, kernel_0, kernel_1, wide, step_0, step_1, dilation_0, dilation_1"


@cache
def integer_entry(signs: tuple[str, str], vector_bytes: int, instruction: str):
    """A kernel that makes any of the calls, for vectors of so many bytes."""
    rest = "za, 0, zb, 0, m, n, k, n_za, n_zb"
    lines = [f"    if way == {way}:\n        {call.format(rest=rest, right=signs[1])}" for way, call in CALLS.items()]
    body = "\n".join(lines)
    source = f'''"""products of {signs} in vectors of {vector_bytes} bytes"""
from graphopt.kernels.products import integer_pixels, integer_product_n, integer_product_q, integer_product_t
from graphopt.kernels.products import integer_windows_{signs[1]}


def kernel(c, a, b, q, za, zb, ldc, lda, ldb, m, n, k, n_za, n_zb, way, {MORE}, lo, hi):
{body}
    return 0
'''
    kinds = ("int32", *signs, *("int32",) * 3) + (SIZE,) * (9 + len(MORE.split(",")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "vector_bytes", lambda: vector_bytes)
        patch.setattr(product_form, "instruction", lambda: instruction)
        image = Image(compile_kernels([Kernel(source, kinds)], jobs=0))
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return function(image.entries[0]), image


def called(signs, vectors, arrays, words) -> None:
    args = [a.ctypes.data for a in arrays] + list(words)
    table = np.array(args + [0] * (6 + 9 + len(MORE.split(",")) - len(args)), np.int64)
    assert integer_entry(signs, *vectors)[0](table.ctypes.data, 0, 1) == 0


def integer_computed(a: np.ndarray, b: np.ndarray, za: np.ndarray, zb: np.ndarray, form: int, vectors: tuple[int, str]):
    """``(a - za) @ (b - zb)`` by the kernel, each operand being part of a larger array of other numbers."""
    (m, k), n = a.shape, b.shape[1]
    left = np.full((m + 1, k + 3), 77, a.dtype)
    left[:m, :k] = a
    if form == PANELS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(host, "vector_bytes", lambda: vectors[0])
            right = in_panels(b)
        ldb = int(np.prod(right.shape[1:]))
    else:
        given = b.T if form == TRANSPOSED else b
        right = np.full((given.shape[0] + 1, given.shape[1] + 2), 55, b.dtype)
        right[: given.shape[0], : given.shape[1]] = given
        ldb = right.shape[1]
    out = np.full((m + 1, n + 5), 7, np.int32)
    words = [out.shape[1], left.shape[1], ldb, m, n, k, za.size, zb.size, form]
    called((a.dtype.name, b.dtype.name), vectors, [out, left, right, za, za, zb], words)
    assert (out[m:] == 7).all()
    assert (out[:, n:] == 7).all()
    return out[:m, :n]


def bytes_(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    """Bytes, every fourth of which is an extreme or zero."""
    info = np.iinfo(dtype)
    found = rng.integers(info.min, info.max + 1, shape)
    return np.where(rng.random(shape) < 0.25, rng.choice([info.min, info.max, 0], shape), found).astype(dtype)


def exact(a: np.ndarray, b: np.ndarray, za: np.ndarray, zb: np.ndarray) -> np.ndarray:
    return (a.astype(np.int64) - za.reshape(-1, 1)) @ (b.astype(np.int64) - zb)


INTEGER_WAYS = [(HOST, signs) for signs in SIGNS] + [((32, "plain"), ("uint8", "int8"))]


@pytest.mark.parametrize("form", [PANELS, PLAIN, TRANSPOSED])
@pytest.mark.parametrize(("vectors", "signs"), INTEGER_WAYS)
def test_integer_products_of_any_size(vectors, signs, form):
    rng = np.random.default_rng(0)
    for m, n, k in INTEGER_SIZES:
        a, b = bytes_(rng, signs[0], m, k), bytes_(rng, signs[1], k, n)
        for rows, columns in ((1, 1), (max(m, 1), 1), (1, max(n, 1)), (max(m, 1), max(n, 1))):
            za, zb = (bytes_(rng, s, c).astype(np.int32) for s, c in zip(signs, (rows, columns), strict=True))
            got = integer_computed(a, b, za, zb, form, vectors)
            assert np.array_equal(got, exact(a, b, za, zb)), (m, n, k, rows, columns)


@pytest.mark.parametrize("signs", SIGNS)
def test_sums_of_extremes(signs):
    k = 4000
    zero = np.zeros(1, np.int32)
    for x in (np.iinfo(signs[0]).min, np.iinfo(signs[0]).max):
        for y in (np.iinfo(signs[1]).min, np.iinfo(signs[1]).max):
            a, b = np.full((2, k), x, signs[0]), np.full((k, 3), y, signs[1])
            assert (integer_computed(a, b, zero, zero, PANELS, HOST) == k * x * y).all()


IMAGES = [  # channels, height, width, kernel, steps, dilations, before, after
    (3, 7, 9, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    (5, 40, 41, (3, 3), (1, 1), (1, 1), (0, 2), (1, 0)),
    (6, 9, 30, (3, 2), (2, 2), (1, 1), (1, 0), (1, 1)),
    (4, 12, 50, (1, 1), (2, 2), (1, 1), (0, 0), (0, 0)),
    (2, 11, 70, (2, 5), (3, 3), (2, 3), (2, 5), (3, 7)),
    (1, 1, 3, (1, 9), (1, 4), (1, 1), (0, 9), (0, 20)),
    (700, 3, 3, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
]


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize(("vectors", "signs"), [INTEGER_WAYS[1], INTEGER_WAYS[3], INTEGER_WAYS[4]])
def test_windows_over_images(vectors, image, signs):
    channels, height, width, kernel, steps, dilations, before, after = image
    rng = np.random.default_rng(2)
    x = bytes_(rng, signs[1], channels, height, width)
    m, taps = 5, kernel[0] * kernel[1]
    w = bytes_(rng, signs[0], m, taps * channels)
    za, zb = (bytes_(rng, s, 1).astype(np.int32) for s in signs)
    padded = np.full((channels, *(s + p + q for s, p, q in zip((height, width), before, after, strict=True))), zb[0])
    padded[:, before[0] : before[0] + height, before[1] : before[1] + width] = x
    high, wide = ((padded.shape[1 + i] - (kernel[i] - 1) * dilations[i] - 1) // steps[i] + 1 for i in range(2))
    columns = np.empty((taps, channels, high, wide), np.int64)
    for t in range(taps):
        y, z = t // kernel[1] * dilations[0], t % kernel[1] * dilations[1]
        columns[t] = padded[:, y : y + high * steps[0] : steps[0], z : z + wide * steps[1] : steps[1]][:, :high, :wide]
    want = exact(w, columns.reshape(taps * channels, -1), za, zb)
    filled = np.zeros((groups(channels, "int8") * 4, *padded.shape[1:]), signs[1])
    filled[:channels] = padded
    quads = np.ascontiguousarray(filled.reshape(-1, 4, *padded.shape[1:]).transpose(2, 0, 3, 1)).view(np.int32)[..., 0]
    for pixel, count in ((0, high * wide), (min(5, high * wide - 1), max(high * wide - 7, 1))):
        out = np.full((m + 1, count + 5), 7, np.int32)
        words = [out.shape[1], w.shape[1], quads.shape[2], m, count, channels, 1, 1, WINDOWS]
        words += [quads[0].size, pixel, *kernel, wide, *steps, *dilations]
        called(signs, vectors, [out, w, x, quads, za, zb], words)
        assert np.array_equal(out[:m, :count], want[:, pixel : pixel + count])
        assert (out[m:] == 7).all()
        assert (out[:, count:] == 7).all()


def test_pixels_of_an_image():
    rng, signs = np.random.default_rng(2), ("int8", "uint8")
    w, x, zero = bytes_(rng, "int8", 5, 6), bytes_(rng, "uint8", 6, 7, 9), np.array([3], np.int32)
    out = np.zeros((5, 40), np.int32)
    called(signs, HOST, [out, w, x, zero, zero, zero], [40, 6, 63, 5, 40, 6, 1, 1, PIXELS, 9, 20])
    assert np.array_equal(out, exact(w, x.reshape(6, -1)[:, 20:60], zero, zero))


def test_quads_hold_neighbouring_columns_and_their_sums():
    w = panel("int8")
    b = (np.arange(6 * (w + 2)) % 251).astype(np.uint8).reshape(6, w + 2)
    laid = in_panels(b)
    assert laid.shape == (2, groups(6, "int8") + 1, w, 4)
    assert np.array_equal(laid[0, 0].T, b[:4, :w])
    assert np.array_equal(laid[1, 1, :2, :2].T, b[4:, w:])
    assert not laid[1, :, 2:].any()
    assert np.array_equal(laid[0, -1].reshape(-1).view("<i4"), b[:, :w].sum(0))
