"""Lanes that a mask chooses: what it leaves out is zero, and is not touched in memory."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import pytest
from numba import njit

from graphopt.kernels import masks, vectors

Array = np.ndarray[Any, Any]
PAGE = mmap.PAGESIZE


@pytest.fixture(scope="module")
def fenced() -> Iterator[Array]:
    """A page of memory between two of which nothing may be read."""
    library, whole = ctypes.CDLL(None, use_errno=True), mmap.mmap(-1, 3 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(whole))
    for page in (0, 2):
        assert library.mprotect(ctypes.c_void_p(start + page * PAGE), PAGE, 0) == 0
    yield np.frombuffer(whole, np.uint8, PAGE, PAGE)
    for page in (0, 2):
        library.mprotect(ctypes.c_void_p(start + page * PAGE), PAGE, mmap.PROT_READ | mmap.PROT_WRITE)


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint16", "int64"])
@pytest.mark.parametrize("stride", [-1, 2, 3, 4])
@pytest.mark.parametrize("lanes", [2, 8, 16])
def test_what_is_masked_between_strided_elements_is_not_read(
    lanes: int, stride: int, dtype: str, fenced: Array
) -> None:
    names = {**vars(numba), **vars(vectors), **vars(masks)}
    exec(
        f"""
def kernel(at, chosen, out, i):
    p, w, q = pointer(at, {dtype}), pointer(chosen, uint8), pointer(out, {dtype})
    store(q, 0, load_strided_where(p, i, {stride}, {lanes}, load(w, 0, {lanes}) != uint8(0)))
""",
        names,
    )
    kernel = njit(names["kernel"])
    elements = fenced.view(dtype)
    elements[:] = np.arange(1, elements.size + 1)
    random, size, reach = np.random.default_rng(0), elements.size, (lanes - 1) * abs(stride)
    for first in (-1, 0, size // 2, size - reach, size - 1 - reach // 2, size - 1, size):
        places = first + stride * np.arange(lanes)
        for chosen in (random.random(lanes) < 0.5, np.ones(lanes, bool), np.zeros(lanes, bool)):
            held = (chosen & (places >= 0) & (places < size)).astype(np.uint8)
            out = np.full(lanes, 7, dtype)
            kernel(elements.ctypes.data, held.ctypes.data, out.ctypes.data, first)
            np.testing.assert_array_equal(out, np.where(held, elements[places % size], 0))
