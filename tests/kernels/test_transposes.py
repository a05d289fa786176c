"""Matrices turned over in registers against numpy."""

import numba
import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from graphopt.kernels import vectors
from graphopt.kernels.transposes import transpose


def turned(array: np.ndarray, m: int, n: int) -> np.ndarray:
    """The first n rows and m columns of a matrix, transposed, within a larger matrix."""
    source = f"def kernel(at, to, width):\n    p, q = pointer(at, {array.dtype}), pointer(to, {array.dtype})\n"
    source += f"    transpose(q, 3, {n + 2}, p, 1, width, {m}, {n})\n"
    names = {**vars(numba), **vars(vectors), "transpose": transpose}
    exec(source, names)
    out = np.zeros((m + 2) * (n + 2), array.dtype)
    njit(names["kernel"])(array.ctypes.data, out.ctypes.data, array.shape[1])
    return out[3 : 3 + m * (n + 2)].reshape(m, n + 2)


@pytest.mark.parametrize(("m", "n"), [(2, 2), (4, 16), (16, 4), (8, 8), (16, 16), (2, 16), (8, 4)])
def test_a_transpose_of_any_shape(m: int, n: int) -> None:
    array = np.arange(20 * 19, dtype=np.float32).reshape(20, 19)
    got = turned(array, m, n)
    np.testing.assert_array_equal(got[:, :n], array[:n, 1 : m + 1].T)
    assert not got[:-1, n:].any()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int64", "float64"])
def test_elements_of_any_size(dtype: str) -> None:
    array = np.arange(20 * 19).astype(dtype).reshape(20, 19)
    np.testing.assert_array_equal(turned(array, 8, 8)[:, :8], array[:8, 1:9].T)


def test_what_is_no_power_of_two_is_refused() -> None:
    with pytest.raises(TypingError, match="powers of two"):
        turned(np.zeros((8, 8), np.float32), 3, 4)
