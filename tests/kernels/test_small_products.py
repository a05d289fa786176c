"""Products in blocks against numpy, for sizes that a compiled kernel is given when it runs."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
import pytest
from numba import njit

from graphopt.kernels import vectors
from graphopt.kernels.host import block_tile
from graphopt.kernels.small_products import blocked_product

NAMES = {"pointer": vectors.pointer, "float32": numba.float32, "float64": numba.float64}
"""What the functions below call."""
NORMAL = np.random.default_rng(0).standard_normal


@cache
def kernel() -> Callable[..., None]:
    def product(c: Any, a: Any, b: Any, steps: Any, rows: Any, columns: Any, depth: Any) -> None:
        p, q, r = pointer(c, float32), pointer(a, float32), pointer(b, float32)  # type: ignore[name-defined]  # noqa: F821
        blocked_product(p, 16, steps[0], 16, q, 0, steps[1], 16, r, 0, steps[2], 256, 16, rows, columns, depth)

    product.__globals__.update(NAMES)
    return njit(product)  # type: ignore[no-any-return]


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("columns", [1, 2, 3])
def test_products_of_every_height(columns: int, depth: int) -> None:
    for rows in range(0, 2 * block_tile()[0] + 6, 2):
        a, b = (NORMAL(s).astype(np.float32) for s in ((depth, rows + 2, 16), (columns, depth + 1, 16, 16)))
        c = np.full((1 + columns * (rows + 1), 16), 7, np.float32)
        steps = np.array([16 * (rows + 1), 16 * (rows + 2), 256 * (depth + 1)])
        kernel()(c.ctypes.data, a.ctypes.data, b.ctypes.data, steps, rows, columns, depth)
        made = c[1:].reshape(columns, rows + 1, 16)
        want = np.einsum("krp,ckpl->crl", a[:, :rows], b[:, :depth])
        np.testing.assert_allclose(made[:, :rows], want, rtol=1e-4, atol=1e-4)
        assert (made[:, rows:] == 7).all()
        assert (c[0] == 7).all()
