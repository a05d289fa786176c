"""A product of matrices of any sizes and strides, in blocks that fit the caches; numbers are put in for a processor."""
# mypy: allow-untyped-calls, disable-error-code="misc, untyped-decorator"

from __future__ import annotations

from numba import float32, int64, njit

from graphopt.kernels.masks import stack
from graphopt.kernels.product_tiles import lay_turned, tile
from graphopt.kernels.vectors import load, load_masked, offset, store

DTYPE = float32
LANES = 16
PANEL = 32
ROWS = 12
DEPTH = 384
HEIGHT = 168
LEFT = 70000
RIGHT = 13000
FEW = 4  # rows at most for which panels are read from end to end, once
AHEAD = 8  # steps of such a panel, of which memory is fetched meanwhile


@njit(error_model="numpy")
def _lay_rows(to, a, row, step, height, tall, tiles, depth):  # type: ignore[no-untyped-def]
    """Panels of rows of the first operand, each as a tile reads them: those of a step side by side."""
    for t in range(tiles):
        i = t * tall
        own = offset(to, t * ROWS * depth)
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
    if form == 1 and width == PANEL:
        for p in range(depth):
            for v in range(0, PANEL, LANES):
                store(to, p * PANEL + v, load(b, p * ldb + v, LANES))
    elif form == 1:
        for p in range(depth):
            for v in range(0, PANEL, LANES):
                store(to, p * PANEL + v, load_masked(b, p * ldb + v, width - v, LANES))
    else:
        for p in range(0, depth, LANES):
            lay_turned(offset(to, p * PANEL), PANEL, offset(b, p), ldb, width, depth - p, LANES)


def kernel(c, a, b, ldc, row, step, ldb, m, n, k, form, most_depth, most_height):  # type: ignore[no-untyped-def]
    """``c[i, j]``, at ``i * ldc + j``, is the sum over ``p`` of ``a[i, p]``, at ``i * row + p * step``, by ``b[p, j]``.

    That lies, by its ``form``, in panels as far apart as ``ldb`` (0), or at ``p * ldb + j`` (1), or at ``j * ldb + p``.
    At most so many steps of the sums, and rows, make a block, and as many as fit the caches where that is 0; of few
    rows, all steps.
    """
    left = stack(LEFT, DTYPE)
    right = stack(RIGHT, DTYPE)
    tallest = max(min(most_height, HEIGHT) // ROWS, 1) * ROWS if most_height > 0 else HEIGHT
    deepest = min(most_depth, DEPTH) if most_depth > 0 else DEPTH
    most = -(-m // (-(-m // tallest) * ROWS)) * ROWS if m > 0 else 1
    is_thin = form == 0 and step == 1 and m <= FEW and most_depth == 0
    deep = -(-k // (1 if is_thin else -(-k // deepest))) if k > 0 else 1
    for top in range(0, m, most):
        height = min(most, m - top)
        tiles = (height + (ROWS - 1)) // ROWS
        tall = -(-height // tiles)
        last = height - (tiles - 1) * tall
        full = tiles if last == tall else tiles - 1
        # what is not read often enough is not moved: rows by few panels of columns, columns by few tiles of rows
        is_near = form == 1 and tiles < 3
        lays = n > 2 * PANEL and not is_near and not is_thin
        for begin in range(0, max(k, 1), deep):
            depth = min(deep, k - begin)
            near = offset(a, top * row + begin * step)
            if lays:
                _lay_rows(left, near, row, step, height, tall, tiles, depth)
            for j in range(0, n, PANEL):
                width = min(PANEL, n - j)
                side, far = right, int64(PANEL)
                soon, pace = right, int64(0)
                if form == 0:
                    side = offset(b, j // PANEL * ldb + begin * PANEL)
                    if is_thin:  # nothing of it is read again
                        soon, pace = offset(side, AHEAD * PANEL), int64(PANEL)
                    elif j + PANEL < n:  # what comes next is fetched meanwhile
                        soon, pace = offset(side, ldb), -(-PANEL // tiles)
                elif is_near:
                    side, far = offset(b, begin * ldb + j), ldb
                else:
                    _lay_columns(
                        right, offset(b, begin * ldb + j if form == 1 else j * ldb + begin), ldb, form, width, depth
                    )
                at, adds = offset(c, top * ldc + j), begin > 0
                for part in range(2):  # whole tiles, and a last one of fewer rows
                    first, count = (full, last) if part else (0, tall)
                    number = tiles - full if part else full
                    to, ahead = offset(at, first * tall * ldc), offset(soon, first * pace * depth)
                    own = offset(near, first * tall * row)
                    if number == 0:
                        continue
                    if lays:
                        own = offset(left, first * ROWS * depth)
                        tile(
                            to, ldc, own, 1, ROWS, side, PANEL, count, width, depth, adds, ahead, pace, number,
                            ROWS * depth, ROWS, LANES,
                        )  # fmt: skip
                    elif step == 1:
                        tile(
                            to, ldc, own, row, 1, side, far, count, width, depth, adds, ahead, pace, number,
                            tall * row, ROWS, LANES,
                        )  # fmt: skip
                    else:
                        tile(
                            to, ldc, own, 1, step, side, far, count, width, depth, adds, ahead, pace, number,
                            tall, ROWS, LANES,
                        )  # fmt: skip
    return 0
