"""Our own product of integers of 8 bits: what its code is called and made for, and how its constant operands are laid
out.

Four neighbouring products of a sum are done by one lane: processors have an instruction for it, which takes an operand
without signs and one with signs. The second operand stays as it is, and the first is moved by 128 to the other kind
where both are of one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.kernels import blocking, host
from graphopt.runtime import cpu

DTYPES = ("uint8", "int8")
QUAD = 4
"""Products of a sum that one lane does at once."""
QUADS, ROWS, COLUMNS, WINDOWS = 0, 1, 2, 3
"""How the second operand lies: in panels of quads, by rows, by columns, or as an image of quads of channels, over which
windows slide."""
_EVEN = 16
"""Quads of a sum are done so many at a time, but for the last."""


def panel() -> int:
    """How many columns lie side by side in a panel: two vectors of sums."""
    return 2 * host.lanes("int32")


def instruction() -> str:
    """Whether the processor multiplies quads at once (``dot``), in vectors of the host's lanes, or not (``plain``)."""
    features, lanes = cpu.features(), host.lanes("int32")
    wanted = "avx512_vnni" if lanes == 16 else "avx_vnni"
    return "dot" if lanes > 4 and wanted in features else "plain"


def name(right: str) -> str:
    """What the product is called by kernels of this processor, whose second operand is of that dtype."""
    return f"graphopt_integer_product_{right}_{blocking.rows()}x{host.lanes('int32')}_{instruction()}"


def shift(left: str, right: str) -> int:
    """What is added to the first operand, so that one of the two has signs."""
    return 0 if left != right else 128 if left == "int8" else -128


def groups(depth: int) -> int:
    """How many quads so many products of a sum make up."""
    return -(-depth // QUAD)


def in_quads(b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A matrix ``[k, n]`` in panels ``[ceil(n / w), ceil(k / 4) + 1, w, 4]`` of neighbouring columns; missing elements
    are zeros. The last of the groups holds the sums of the columns, as the bytes of an int32 each."""
    (k, n), w = b.shape, panel()
    panels, depth = -(-n // w), groups(k)
    filled = np.zeros((depth * QUAD, panels * w), b.dtype)
    filled[:k, :n] = b
    laid = np.empty((panels, depth + 1, w, QUAD), b.dtype)
    laid[:, :-1] = filled.reshape(depth, QUAD, panels, w).transpose(2, 0, 3, 1)
    sums = np.ascontiguousarray(filled.sum(0, dtype=np.int64).astype("<i4"))
    laid[:, -1] = sums.view(b.dtype).reshape(panels, w, QUAD)
    return laid


def source(right: str, rows: int, lanes: int, instruction: str) -> str:
    """The loops of the product, for tiles of so many rows of two vectors of so many lanes."""
    depth = blocking.depth(2 * lanes * QUAD) // _EVEN * _EVEN
    height = blocking.height(depth * QUAD, rows)
    stride = blocking.stride(depth * QUAD)
    numbers = {
        "LANES": lanes,
        "BYTES": QUAD * lanes,
        "PANEL": 2 * lanes,
        "ROWS": rows,
        "DEPTH": depth,
        "HEIGHT": height,
        "STRIDE": stride,
        "LEFT": height * stride + 4 * lanes,
        "RIGHT": 2 * lanes * QUAD * (depth + lanes),
        "SIGNED": int(right == "int8"),
        "OTHER": int(right != "int8"),
        "DOT": int(instruction == "dot"),
    }
    return blocking.loops("integer_loops.py", numbers)
