"""A product of float32 by weights in bfloat16 of any sizes, in blocks that fit the caches; numbers are put in for a
processor."""
# mypy: allow-untyped-calls, disable-error-code="misc, untyped-decorator"

from __future__ import annotations

from numba import float32, int64, njit

from graphopt.kernels.bfloat_tiles import tile
from graphopt.kernels.masks import stack
from graphopt.kernels.vectors import load_masked, offset, store

LANES = 16
PANEL = 32
ROWS = 12
DEPTH = 384
HEIGHT = 168
STRIDE = 400
LEFT = 67200


@njit(error_model="numpy")
def _lay_rows(to, a, row, height, depth):  # type: ignore[no-untyped-def]
    """Rows of the first operand, so far apart that they do not meet in the caches."""
    for i in range(height):
        for p in range(0, depth, LANES):
            store(to, i * STRIDE + p, load_masked(a, i * row + p, depth - p, LANES))


def kernel(c, a, b, ldc, row, ldb, m, n, k):  # type: ignore[no-untyped-def]
    """``c[i, j]``, at ``i * ldc + j``, is the sum over ``p`` of ``a[i, p]``, at ``i * row + p``, by ``b[p, j]``, which
    lies in panels of pairs as far apart as ``ldb``."""
    left = stack(LEFT, float32)
    most = -(-m // (-(-m // HEIGHT) * ROWS)) * ROWS if m > 0 else 1
    for top in range(0, m, most):
        height = min(most, m - top)
        tall = -(-height // -(-height // ROWS))
        for begin in range(0, max(k, 1), DEPTH):
            depth = min(DEPTH, k - begin)
            near, far = offset(a, top * row + begin), int64(row)
            if tall < height and n > 2 * PANEL:  # rows are read again for each panel
                _lay_rows(left, near, row, height, depth)
                near, far = left, int64(STRIDE)
            for j in range(0, n, PANEL):
                side = offset(b, j // PANEL * ldb + begin * PANEL)
                for i in range(0, height, tall):
                    tile(
                        offset(c, (top + i) * ldc + j), ldc, offset(near, i * far), far, side, min(tall, height - i),
                        min(PANEL, n - j), depth, begin > 0, ROWS, LANES,
                    )  # fmt: skip
    return 0
