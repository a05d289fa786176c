"""A blocked product of matrices of any sizes and strides; constants are put in for a kind of products and a processor.

The second operand of bytes may be an image over which windows slide: then columns are what pixels of the result see,
and the rows of the first operand hold the channels for each place in the window, one place after another.
"""
# mypy: allow-untyped-calls, disable-error-code="misc, untyped-decorator"

from __future__ import annotations

from numba import int32, int64, njit

from graphopt.kernels.masks import first_lanes, gather_where, load_where, stack
from graphopt.kernels.product_form import beside
from graphopt.kernels.product_tiles import DTYPES, TILES, lay_turned
from graphopt.kernels.quads import (
    add_quads,
    as_quads,
    lay_bytes,
    load_pairs,
    load_quads,
    load_rows,
    store_quads,
    turn_quads,
)
from graphopt.kernels.vectors import iota, load, load_masked, offset, reduce_add, splat, store, store_masked

KIND = "float32"
GROUP = 1  # neighbouring products of a sum that a lane does
SIGNED = 0
OTHER = 1
DOT = 0
LANES = 16
BYTES = 64
PANEL = 32
SLICE = 32  # elements of a panel that a step reads
ROWS = 12
DEPTH = 384
HEIGHT = 168
STRIDE = 0
LEFT = 70000
RIGHT = 13000
WIDE = 2  # panels up to which rows are not read often enough to be moved
FEW = 4  # rows at most for which panels are read from end to end, once
AHEAD = 32  # steps of such a panel, of which memory is fetched meanwhile: half a page of the widest vectors
LEFT_DTYPE, RIGHT_DTYPE = DTYPES[KIND]
tile = TILES[KIND]
side_by_side = njit(error_model="numpy")(beside)


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


# ------------------------------------------------------------------ bytes, and what they add up to


@njit(error_model="numpy")
def _lay_bytes(to, stride, sums, a, row, flip, height, taps, k, depth):  # type: ignore[no-untyped-def]
    """Rows of the first operand: some channels of each of some places in the window."""
    each, whole = -(-depth // 4) * 4, depth // BYTES * BYTES
    for i in range(height):
        total = splat(int32(0), LANES)
        for t in range(taps):
            at, place = i * stride + t * each, i * row + t * k
            for p in range(0, whole, BYTES):
                total = lay_bytes(total, to, at + p, a, place + p, BYTES, flip, LANES, OTHER, DOT)
            if whole < depth:
                total = lay_bytes(total, to, at + whole, a, place + whole, depth - whole, flip, LANES, OTHER, DOT)
        store(sums, i, reduce_add(total))


@njit(error_model="numpy")
def _lay_quads(to, sums, b, form, ldb, width, depth):  # type: ignore[no-untyped-def]
    """A panel of columns of the second operand, of which the rows (1) or the columns (2) lie side by side."""
    for v in range(0, PANEL, LANES):
        total = splat(int32(0), LANES)
        if v < width:
            if form == 1:
                for p in range(0, depth, 4):
                    quad = load_rows(b, p * ldb + v, ldb, depth - p, width - v, LANES)
                    store_quads(to, p * PANEL + 4 * v, quad)
                    total = add_quads(total, to, p * PANEL + 4 * v, LANES, SIGNED, DOT)
            else:
                for p in range(0, depth, BYTES):
                    place = offset(to, (p * PANEL) + 4 * v)
                    turn_quads(place, 4 * PANEL, b, v * ldb + p, ldb, width - v, depth - p, LANES)
                for p in range(0, depth, 4):
                    total = add_quads(total, to, p * PANEL + 4 * v, LANES, SIGNED, DOT)
        store(sums, v, total)


@njit(error_model="numpy")
def _lay_windows(  # type: ignore[no-untyped-def]
    to, b, ldb, line, pixel, count, tap, taps, start, depth, kernel_x, wide, step_y, step_x, apart_y, apart_x, is_summed
):
    """A vector of columns of the second operand: some quads of channels of what pixels see at some places in their
    windows; and what they add up to, where that is asked for."""
    total, at, end = splat(int32(0), LANES), 0, 4 * PANEL * depth
    first_y, first_x, down, across = pixel // wide, pixel % wide, tap // kernel_x, tap % kernel_x
    for _ in range(taps):
        base = start * ldb + down * apart_y * line + across * apart_x
        y, x, done = first_y, first_x, 0
        while done < count:  # pixels of one line after another
            many = min(count - done, wide - x)
            mask = first_lanes(done + many, LANES) & ~first_lanes(done, LANES)
            place = base + y * step_y * line + (x - done) * step_x
            far = iota(LANES) * step_x + place
            for q in range(depth):
                here = at + 4 * PANEL * q
                if step_x == 1:
                    quad = load_where(b, place + q * ldb, LANES, mask)
                elif step_x == 2:
                    quad = load_pairs(b, place + q * ldb, done, done + many, LANES)
                else:
                    quad = gather_where(b, far + q * ldb, mask)
                store_quads(to, here, quad if done == 0 else quad | load_quads(to, here, LANES))
            x, y, done = 0, y + 1, done + many
        for p in range(at, at + end if is_summed else at, 4 * PANEL):
            total = add_quads(total, to, p, LANES, SIGNED, DOT)
        at += end
        across += 1
        if across == kernel_x:
            down, across = down + 1, 0
    return total


# ------------------------------------------------------------------ blocks


def kernel(  # type: ignore[no-untyped-def]
    c, a, b, za, zb, ldc, row, step, ldb, m, n, k, form, most_depth, most_height, na, nb, shift, line, pixel, kernel_y,
    kernel_x, wide, step_y, step_x, apart_y, apart_x,
):  # fmt: skip
    """``c[i, j]``, at ``i * ldc + j``, is the sum over ``p`` of ``a[i, p]``, at ``i * row + p * step``, by ``b[p, j]``.

    That lies, by its ``form``, in panels as far apart as ``ldb`` (0), or at ``p * ldb + j`` (1), or at ``j * ldb + p``
    (2). At most so many steps of the sums, and rows, make a block, and as many as fit the caches where that is 0; of
    few rows, all steps. Bytes are counted from ``za[i * na]`` and ``zb[j * nb]``; with ``shift`` added, ``a`` has signs
    where ``b`` has none. Then ``b`` may be an image of quads of channels (3), which are as far apart as ``ldb``, and
    its lines ``line``: a column is what a pixel sees, from ``pixel`` on, of which a line has as many as it is ``wide``.
    """
    # Loops about a microkernel (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008): blocks
    # of rows, blocks of the sums (depth), panels of columns, and tiles of rows, which ``tile`` keeps in registers. An
    # operand is packed only where it is read often enough. Constants decide most branches; ``specialized`` drops those.
    left = stack(LEFT, LEFT_DTYPE)
    right = stack(RIGHT, RIGHT_DTYPE)
    tallest = max(min(most_height, HEIGHT) // ROWS, 1) * ROWS if most_height > 0 else HEIGHT
    deepest = (min(most_depth, DEPTH) if most_depth > 0 else DEPTH) // GROUP
    most = -(-m // (-(-m // tallest) * ROWS)) * ROWS if m > 0 else 1
    is_thin = form == 0 and step == 1 and m <= FEW and most_depth == 0
    panels = side_by_side(max(m, 1), ROWS)
    groups = max(-(-k // GROUP), 1)
    deep = -(-groups // (1 if is_thin else -(-groups // deepest))) * GROUP
    taps = together = 1
    if GROUP == 4:
        taps, together = kernel_y * kernel_x, deepest // min(deep // 4, deepest)
        row_sums, row_terms = stack(HEIGHT, int32), stack(HEIGHT, int32)
        column_sums, column_terms = stack(PANEL, int32), stack(PANEL, int32)
        # what is the same for all rows, or columns, of the zero points is a matter of terms, the rest one of products
        left_zero = load(za, 0, 1) + shift if na == 0 else int64(0)
        right_zero = int64(load(zb, 0, 1)) if nb == 0 else int64(0)
        # rows are read where they are, unless they have to be changed, or would meet in the caches
        is_ready = shift == 0 and k % 4 == 0 and row % 1024 != 0
    for top in range(0, m, most):
        height = min(most, m - top)
        tiles = (height + (ROWS - 1)) // ROWS
        tall = -(-height // tiles)
        last = height - (tiles - 1) * tall
        full = tiles if last == tall else tiles - 1
        # what is not read often enough is not moved: rows by few panels of columns, columns by few tiles of rows
        is_near = form == 1 and tiles < 3
        lays = n > WIDE * PANEL and not is_near and not is_thin
        for tap in range(0, taps, together):
            for begin in range(0, max(k, 1), deep):
                depth, adds = min(deep, k - begin), tap + begin > 0
                steps = -(-depth // GROUP)
                near = offset(a, top * row + tap * k + begin * step)
                if GROUP == 4:
                    many, apart = min(together, taps - tap), row
                    whole, steps = int64(0) if adds else k * taps, steps * many
                    if not is_ready or right_zero != 0 or nb > 0:
                        stride = int64(0) if is_ready else int64(STRIDE)  # where they are ready, for their sums alone
                        _lay_bytes(left, stride, row_sums, near, row, shift & 128, height, many, k, depth)
                    if not is_ready:
                        near, apart = left, int64(STRIDE)
                    for i in range(height):
                        zero = load(za, (top + i) * na, 1) + shift
                        store(row_terms, i, right_zero * (whole * zero - load(row_sums, i, 1)))
                elif lays:
                    _lay_rows(left, near, row, step, height, tall, tiles, depth)
                begun = 0
                if GROUP < 4:
                    begun = n // (panels * PANEL) * panels * PANEL if is_thin and panels > 1 else 0
                    for j in range(0, begun, panels * PANEL):
                        tile(
                            offset(c, j), ldc, near, row, 1, offset(b, j // PANEL * ldb), SLICE, m, panels * PANEL, k,
                            adds, right, 0, ldb, 1, 0, ROWS, LANES,
                        )  # fmt: skip
                for j in range(begun, n, PANEL):
                    width = min(PANEL, n - j)
                    side, far = right, int64(SLICE)
                    soon, pace = right, int64(0)
                    if form == 0:
                        side = soon = offset(b, j // PANEL * ldb + begin * PANEL)
                        if is_thin:  # nothing of it is read again
                            soon, pace = offset(side, AHEAD * SLICE), int64(SLICE)
                        elif j + PANEL < n:  # what comes next is fetched meanwhile
                            soon, pace = offset(side, ldb), -(-SLICE // tiles)
                        if GROUP == 4:
                            for v in range(0, PANEL, LANES):
                                own = splat(int32(0), LANES)
                                if not adds:
                                    own = load_quads(b, j // PANEL * ldb + 4 * (-(-k // 4) * PANEL + v), LANES)
                                store(column_sums, v, own)
                    elif GROUP == 4:
                        if form == 3:
                            for v in range(0, width, LANES):
                                own = _lay_windows(
                                    offset(right, 4 * v), as_quads(b), ldb, line, pixel + j + v, min(LANES, width - v),
                                    tap, many, begin // 4, -(-depth // 4), kernel_x, wide, step_y, step_x, apart_y,
                                    apart_x, left_zero != 0 or na > 0,
                                )  # fmt: skip
                                store(column_sums, v, own)
                        else:
                            place = begin * ldb + j if form == 1 else j * ldb + begin
                            _lay_quads(right, column_sums, offset(b, place), form, ldb, width, depth)
                    elif is_near:
                        side, far = offset(b, begin * ldb + j), ldb
                    else:
                        place = begin * ldb + j if form == 1 else j * ldb + begin
                        _lay_columns(right, offset(b, place), ldb, form, width, depth)
                    if GROUP == 4:
                        for v in range(0, width, LANES):
                            own = load(column_sums, v, LANES) * -left_zero
                            if nb > 0:
                                own = own + load_masked(zb, j + v, width - v, LANES) * (whole * left_zero)
                            store(column_terms, v, own)
                    at = offset(c, top * ldc + j)
                    for part in range(2):  # whole tiles, and a last one of fewer rows
                        first, count = (full, last) if part else (0, tall)
                        number = tiles - full if part else full
                        to, ahead = offset(at, first * tall * ldc), offset(soon, first * pace * steps)
                        if number == 0:
                            continue
                        if GROUP == 4:
                            tile(
                                to, ldc, offset(near, first * tall * apart), apart, 1, side, SLICE, count, width,
                                4 * steps, adds, ahead, pace, 0, number, tall * apart, ROWS, LANES,
                                offset(row_terms, first * tall), column_terms,
                            )  # fmt: skip
                        elif lays:
                            tile(
                                to, ldc, offset(left, first * ROWS * depth), 1, ROWS, side, SLICE, count, width, depth,
                                adds, ahead, pace, 0, number, ROWS * depth, ROWS, LANES,
                            )  # fmt: skip
                        elif step == 1:
                            tile(
                                to, ldc, offset(near, first * tall * row), row, 1, side, far, count, width, depth, adds,
                                ahead, pace, 0, number, tall * row, ROWS, LANES,
                            )  # fmt: skip
                        else:
                            tile(
                                to, ldc, offset(near, first * tall * row), 1, step, side, far, count, width, depth,
                                adds, ahead, pace, 0, number, tall, ROWS, LANES,
                            )  # fmt: skip
                    if GROUP == 4:
                        for v in range(0, width if na + nb > 0 else 0, LANES):
                            own, zeros = load(column_sums, v, LANES), splat(int32(0), LANES)
                            if nb > 0:
                                zeros = load_masked(zb, j + v, width - v, LANES)
                                own = own - zeros * whole
                            for i in range(height):
                                place = (top + i) * ldc + j + v
                                zero = (load(za, (top + i) * na, 1) + shift) * na
                                x = load_masked(c, place, width - v, LANES) - zeros * load(row_sums, i, 1) - own * zero
                                store_masked(c, place, x, width - v)
    return 0
