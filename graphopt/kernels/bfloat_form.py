"""Our own product of float32 by weights in bfloat16: what its code is called and made for, and how weights lie.

Two neighbouring weights of a column lie in one lane of a vector, so that each is made a float32 by one instruction; the
sums are those of float32. A weight is off by 2^-8 of itself at most, and so is each product of a sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.kernels import blocking, host, product_form
from graphopt.kernels.product_form import panel as panel_of

DTYPE = "bfloat16"
SUMS = "float32"
PAIR = 2
"""Weights in a lane."""
_BYTES = np.dtype(SUMS).itemsize


def panel() -> int:
    """How many columns lie side by side in a panel: two vectors of sums."""
    return panel_of(SUMS)


def pairs(depth: int) -> int:
    """How many pairs so many products of a sum make up."""
    return -(-depth // PAIR)


def name() -> str:
    """What the product is called by kernels of this processor."""
    return f"graphopt_bfloat_product_{blocking.rows()}x{host.lanes(SUMS)}"


def in_pairs(b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A matrix ``[k, n]`` in panels ``[ceil(n / w), ceil(k / 2), w, 2]`` of neighbouring columns; missing elements are
    zeros."""
    (k, n), w = b.shape, panel()
    panels, depth = -(-n // w), pairs(k)
    filled = np.zeros((depth * PAIR, panels * w), b.dtype)
    filled[:k, :n] = b
    return np.ascontiguousarray(filled.reshape(depth, PAIR, panels, w).transpose(2, 0, 3, 1))


def source(rows: int, lanes: int) -> str:
    """The loops of the product, for tiles of so many rows of two vectors of so many lanes."""
    depth = product_form.depth(SUMS, lanes) // PAIR * PAIR
    height = product_form.height(SUMS, rows, lanes)
    stride = blocking.stride(depth * _BYTES) // _BYTES
    numbers = {
        "LANES": lanes,
        "PANEL": 2 * lanes,
        "ROWS": rows,
        "DEPTH": depth,
        "HEIGHT": height,
        "STRIDE": stride,
        "LEFT": height * stride,
    }
    return blocking.loops("bfloat_loops.py", numbers)
