"""Our own product of matrices: what its code is called and made for, and how its constant operands are laid out.

Its code serves products of every size; its tile fills the registers of this processor, and its blocks the caches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.kernels import blocking, host
from graphopt.runtime import cpu

DTYPES = ("float32", "float64")
PANELS, PLAIN, TRANSPOSED = 0, 1, 2
"""How the second operand lies: in panels, by rows, by columns."""
BLOCKS = ("depth", "height")
"""What a call says beyond sizes: how many steps of the sums, and rows, make a block at most; 0 is what fits caches."""


def panel(dtype: str) -> int:
    """How many columns lie side by side in a panel: two vectors."""
    return 2 * host.lanes(dtype)


def depth(dtype: str, lanes: int) -> int:
    """How many steps of the sums are done at a time: of a panel's columns, half of that stays in the first cache."""
    return blocking.depth(lanes * np.dtype(dtype).itemsize)


def height(dtype: str, rows: int, lanes: int) -> int:
    """How many rows are done between two readings of the second operand."""
    return blocking.height(depth(dtype, lanes) * np.dtype(dtype).itemsize, rows)


def near(dtype: str) -> int:
    """Elements of which it is taken that they stay in the second cache until they are read again: half of it."""
    return cpu.cache_bytes(2) // 2 // np.dtype(dtype).itemsize


def name(dtype: str) -> str:
    """What the product is called by kernels of this processor."""
    return f"graphopt_product_{dtype}_{blocking.rows()}x{host.lanes(dtype)}"


def in_panels(b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A matrix ``[k, n]`` in panels ``[ceil(n / w), k, w]`` of neighbouring columns; missing ones are zeros."""
    k, n = b.shape
    w = panel(b.dtype.name)
    filled = np.zeros((-(-n // w), k, w), b.dtype)
    whole = n // w * w
    filled[: n // w] = b[:, :whole].reshape(k, n // w, w).swapaxes(0, 1)
    filled[n // w :, :, : n - whole] = b[:, whole:]
    return filled


def source(dtype: str, rows: int, lanes: int) -> str:
    """The loops of the product, for tiles of so many rows of two vectors of so many lanes."""
    deep, tall = depth(dtype, lanes), height(dtype, rows, lanes)
    numbers = {
        "LANES": lanes,
        "PANEL": 2 * lanes,
        "ROWS": rows,
        "DEPTH": deep,
        "HEIGHT": tall,
        "LEFT": deep * tall + lanes * (rows + 2 * lanes),
        "RIGHT": (deep + lanes) * 2 * lanes,
    }
    return blocking.loops("product_loops.py", numbers).replace("float32", dtype)
