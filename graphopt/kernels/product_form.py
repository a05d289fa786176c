"""Our own product of matrices: what its code is called and made for, and how its constant operands are laid out.

Its code serves products of every size; its tile fills the registers of this processor, and its blocks the caches.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.kernels import host
from graphopt.runtime import cpu

DTYPES = ("float32", "float64")
PANELS, PLAIN, TRANSPOSED = 0, 1, 2
"""How the second operand lies: in panels, by rows, by columns."""


def panel(dtype: str) -> int:
    """How many columns lie side by side in a panel: two vectors."""
    return 2 * host.lanes(dtype)


def rows() -> int:
    """How many rows a tile has at most: its sums take three quarters of the registers."""
    return host.registers() * 3 // 8


def depth(dtype: str, lanes: int) -> int:
    """How much of the sums is done at a time: of that, two vectors' columns stay in the first cache."""
    return cpu.cache_bytes(1) * 3 // 4 // (lanes * np.dtype(dtype).itemsize)


def height(dtype: str, rows: int, lanes: int) -> int:
    """How many rows are done between two readings of the second operand: they take a quarter of the second cache."""
    return max(cpu.cache_bytes(2) // 4 // (depth(dtype, lanes) * np.dtype(dtype).itemsize) // rows, 1) * rows


def near(dtype: str) -> int:
    """Elements of which it is taken that they stay in the second cache until they are read again: half of it."""
    return cpu.cache_bytes(2) // 2 // np.dtype(dtype).itemsize


def name(dtype: str) -> str:
    """What the product is called by kernels of this processor."""
    return f"graphopt_product_{dtype}_{rows()}x{host.lanes(dtype)}"


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
    text = (Path(__file__).parent / "product_loops.py").read_text(encoding="utf-8").replace("float32", dtype)
    for word, number in numbers.items():
        text = re.sub(rf"^{word} = .*$", f"{word} = {number}", text, flags=re.MULTILINE)
    return text
