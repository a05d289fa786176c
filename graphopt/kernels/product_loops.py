"""A product of matrices of any sizes and strides, in blocks that fit the caches; numbers are put in for a processor."""
# mypy: allow-untyped-calls, disable-error-code="misc, untyped-decorator"

from __future__ import annotations

from numba import float32, int64, njit

from graphopt.kernels.masks import stack
from graphopt.kernels.product_tiles import lay_turned, tile
from graphopt.kernels.vectors import load_masked, offset, store

DTYPE = float32
LANES = 16
PANEL = 32
ROWS = 12
DEPTH = 384
HEIGHT = 168
LEFT = 70000
RIGHT = 13000


@njit(error_model="numpy")
def _lay_rows(to, a, row, step, height, tall, depth):  # type: ignore[no-untyped-def]
    """Panels of rows of the first operand, each as a tile reads them: those of a step side by side."""
    for i in range(0, height, tall):
        own = offset(to, i // tall * ROWS * depth)
        count = min(tall, height - i)
        if step == 1:
            for p in range(0, depth, LANES):
                lay_turned(offset(own, p * ROWS), ROWS, offset(a, i * row + p), row, count, depth - p, LANES)
        else:
            for p in range(depth):
                for v in range(0, ROWS, LANES):
                    store(own, p * ROWS + v, load_masked(a, i * row + p * step + v, count - v, LANES))


@njit(error_model="numpy")
def _lay_columns(to, b, ldb, form, width, depth):  # type: ignore[no-untyped-def]
    """A panel of columns of the second operand."""
    if form == 1:
        for p in range(depth):
            for v in range(0, PANEL, LANES):
                store(to, p * PANEL + v, load_masked(b, p * ldb + v, width - v, LANES))
    else:
        for p in range(0, depth, LANES):
            lay_turned(offset(to, p * PANEL), PANEL, offset(b, p), ldb, width, depth - p, LANES)


def kernel(c, a, b, ldc, row, step, ldb, m, n, k, form):  # type: ignore[no-untyped-def]
    """``c[i, j]``, at ``i * ldc + j``, is the sum over ``p`` of ``a[i, p]``, at ``i * row + p * step``, by ``b[p, j]``.

    That lies, by its ``form``, in panels as far apart as ``ldb`` (0), or at ``p * ldb + j`` (1), or at ``j * ldb + p``.
    """
    left = stack(LEFT, DTYPE)
    right = stack(RIGHT, DTYPE)
    most = -(-m // (-(-m // HEIGHT) * ROWS)) * ROWS if m > 0 else 1
    deep = -(-k // -(-k // DEPTH)) if k > 0 else 1
    lays = n > PANEL  # else each element would be moved to be read once
    for top in range(0, m, most):
        height = min(most, m - top)
        panels = -(-height // ROWS)
        tall = -(-height // panels)
        for begin in range(0, max(k, 1), deep):
            depth = min(deep, k - begin)
            near = offset(a, top * row + begin * step)
            if lays:
                _lay_rows(left, near, row, step, height, tall, depth)
            for j in range(0, n, PANEL):
                width = min(PANEL, n - j)
                side, far = right, int64(PANEL)
                soon, pace = right, int64(0)
                if form == 0:
                    side = offset(b, j // PANEL * ldb + begin * PANEL)
                    if j + PANEL < n:  # what comes next is fetched meanwhile
                        soon, pace = offset(side, ldb), -(-PANEL // panels)
                elif form == 1 and panels < 6:  # it is not read often enough to be moved
                    side, far = offset(b, begin * ldb + j), ldb
                else:
                    _lay_columns(
                        right, offset(b, begin * ldb + j if form == 1 else j * ldb + begin), ldb, form, width, depth
                    )
                for i in range(0, height, tall):
                    at, own = offset(c, (top + i) * ldc + j), offset(left, i // tall * ROWS * depth)
                    ahead = offset(soon, i // tall * pace * depth)
                    count, adds = min(tall, height - i), begin > 0
                    if lays:
                        tile(at, ldc, own, 1, ROWS, side, far, count, width, depth, adds, ahead, pace, ROWS, LANES)
                    else:
                        own = offset(near, i * row)
                        tile(at, ldc, own, row, step, side, far, count, width, depth, adds, ahead, pace, ROWS, LANES)
    return 0
