"""Transforms of tiles against their matrices, inside of an image, at its edges and beyond them."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from graphopt.ir.minimal_filtering import FractionMatrix, filtering
from graphopt.kernels import vectors, winograd

NAMES = {"pointer": vectors.pointer, "float32": numba.float32, "float64": numba.float64}
"""What the functions below call."""
NORMAL = np.random.default_rng(0).standard_normal
TILES = (2, 4)


@cache
def kernels(tile: int) -> tuple[Callable[..., None], Callable[..., None]]:
    into, back = getattr(winograd, f"input_{tile}"), getattr(winograd, f"output_{tile}")

    def transform(v: Any, x: Any, row: Any, column: Any, height: Any, width: Any) -> None:
        p, q = pointer(v, float32), pointer(x, float32)  # type: ignore[name-defined]  # noqa: F821
        into(p, 0, 32, q, 0, width * 16, 16, row, column, height, width)

    def result(y: Any, m: Any) -> None:
        p, q = pointer(y, float32), pointer(m, float32)  # type: ignore[name-defined]  # noqa: F821
        back(p, 0, 16, q, 0, 32)

    transform.__globals__.update(NAMES)
    return njit(transform), njit(result)


def applied(matrix: FractionMatrix, x: np.ndarray) -> np.ndarray:
    """The matrix applied along both sides of a tile, in double precision."""
    floats = np.array([[float(c) for c in row] for row in matrix])
    return np.einsum("ai,bj,ijl->abl", floats, floats, x).reshape(-1, 16)


@pytest.mark.parametrize("tile", TILES)
def test_tiles_of_an_image_and_of_what_lies_around_it(tile: int) -> None:
    height, width, size = 9, 8, tile + 2
    x = NORMAL((height, width, 16)).astype(np.float32)
    around = np.pad(x, [(size, size + 2), (size, size + 2), (0, 0)])
    for row in range(-size, height + 2):
        for column in range(-size, width + 2):
            v = np.full((size * size, 2, 16), 7, np.float32)
            kernels(tile)[0](v.ctypes.data, x.ctypes.data, row, column, height, width)
            want = applied(filtering(tile).input, around[size + row :, size + column :][:size, :size])
            np.testing.assert_allclose(v[:, 0], want, rtol=1e-5, atol=1e-5)
            assert (v[:, 1] == 7).all()


@pytest.mark.parametrize("tile", TILES)
def test_results_of_a_tile(tile: int) -> None:
    size = tile + 2
    m, y = NORMAL((size * size, 2, 16)).astype(np.float32), np.zeros((tile * tile, 16), np.float32)
    kernels(tile)[1](y.ctypes.data, m.ctypes.data)
    want = applied(filtering(tile).output, m[:, 0].reshape(size, size, 16))
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)


def test_other_elements_are_refused() -> None:
    def wrong(v: Any) -> None:
        p = pointer(v, float64)  # type: ignore[name-defined]  # noqa: F821
        winograd.output_2(p, 0, 16, p, 0, 16)

    wrong.__globals__.update(NAMES)
    with pytest.raises(TypingError, match="pointers to float32"):
        njit(wrong)(0)
