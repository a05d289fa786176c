"""A product of matrices of bytes of any sizes, in blocks that fit the caches; numbers are put in for a processor.

The second operand may be an image over which windows slide: then columns are what pixels of the result see, and the
rows of the first operand hold the channels for each place in the window, one place after another.
"""
# mypy: allow-untyped-calls, disable-error-code="misc, untyped-decorator"

from __future__ import annotations

from numba import int32, int64, njit, uint8

from graphopt.kernels.integer_tiles import (
    add_quads,
    as_quads,
    lay_bytes,
    load_pairs,
    load_quads,
    load_rows,
    store_quads,
    tile,
    turn_quads,
)
from graphopt.kernels.masks import first_lanes, gather_where, load_where, stack
from graphopt.kernels.vectors import iota, load, load_masked, offset, reduce_add, splat, store, store_masked

LANES = 16
BYTES = 64
PANEL = 32
ROWS = 12
DEPTH = 384
HEIGHT = 168
STRIDE = 1600
LEFT = 268864
RIGHT = 51200
SIGNED = 1
OTHER = 0
DOT = 1


@njit(error_model="numpy")
def _lay_rows(to, stride, sums, a, row, flip, height, taps, k, start, depth):  # type: ignore[no-untyped-def]
    """Rows of the first operand: some channels of each of some places in the window; and what they add up to."""
    each, whole = -(-depth // 4) * 4, depth // BYTES * BYTES
    for i in range(height):
        total = splat(int32(0), LANES)
        for t in range(taps):
            at, place = i * stride + t * each, i * row + t * k + start
            for p in range(0, whole, BYTES):
                total = lay_bytes(total, to, at + p, a, place + p, BYTES, flip, LANES, OTHER, DOT)
            if whole < depth:
                total = lay_bytes(total, to, at + whole, a, place + whole, depth - whole, flip, LANES, OTHER, DOT)
        store(sums, i, reduce_add(total))


@njit(error_model="numpy")
def _lay_turned(to, sums, b, start, ldb, width, depth):  # type: ignore[no-untyped-def]
    """A panel of columns of the second operand, each of which lies side by side; and what they add up to."""
    for v in range(0, PANEL, LANES):
        total = splat(int32(0), LANES)
        if v < width:
            for p in range(0, depth, BYTES):
                place = offset(to, (p * PANEL) + 4 * v)
                turn_quads(place, 4 * PANEL, b, start + v * ldb + p, ldb, width - v, depth - p, LANES)
            for p in range(0, depth, 4):
                total = add_quads(total, to, p * PANEL + 4 * v, LANES, SIGNED, DOT)
        store(sums, v, total)


@njit(error_model="numpy")
def _lay_lines(to, sums, b, start, ldb, width, depth):  # type: ignore[no-untyped-def]
    """A panel of columns of the second operand, whose rows lie side by side; and what they add up to."""
    for v in range(0, PANEL, LANES):
        total = splat(int32(0), LANES)
        if v < width:
            for p in range(0, depth, 4):
                quad = load_rows(b, start + p * ldb + v, ldb, depth - p, width - v, LANES)
                store_quads(to, p * PANEL + 4 * v, quad)
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


def kernel(  # type: ignore[no-untyped-def]
    c, a, b, za, zb, ldc, row, ldb, na, nb, shift, m, n, k, form, line, pixel, kernel_y, kernel_x, wide, step_y, step_x,
    apart_y, apart_x,
):  # fmt: skip
    """``c[i, j]``, at ``i * ldc + j``, is the sum over ``p`` of ``a[i, p] - za[i * na]`` by ``b[p, j] - zb[j * nb]``.

    With ``shift`` added, ``a`` has signs where ``b`` has none. By its ``form``, the second operand lies in panels as
    far apart as ``ldb`` (0), at ``p * ldb + j`` (1), at ``j * ldb + p`` (2), or is an image of quads of channels, which
    are that far apart, and its lines ``line``; then a column is what a pixel sees, from ``pixel`` on, of which a line
    has as many as it is ``wide``.
    """
    left, right = stack(LEFT, uint8), stack(RIGHT, uint8)
    row_sums, row_terms = stack(HEIGHT, int32), stack(HEIGHT, int32)
    column_sums, column_terms = stack(PANEL, int32), stack(PANEL, int32)
    taps = kernel_y * kernel_x
    quads = max(-(-k // 4), 1)
    deep = -(-quads // -(-quads // DEPTH)) * 4
    together = DEPTH // min(deep // 4, DEPTH)
    most = -(-m // (-(-m // HEIGHT) * ROWS)) * ROWS if m > 0 else 1
    # what is the same for all rows, or columns, of the zero points is a matter of terms, the rest one of products
    left_zero = load(za, 0, 1) + shift if na == 0 else int64(0)
    right_zero = int64(load(zb, 0, 1)) if nb == 0 else int64(0)
    # rows are read where they are, unless they have to be changed, or would meet in the caches
    is_ready = shift == 0 and k % 4 == 0 and row % 1024 != 0
    for top in range(0, m, most):
        high = min(most, m - top)
        tall = -(-high // -(-high // ROWS))
        for tap in range(0, taps, together):
            for start in range(0, max(k, 1), deep):
                depth, many = min(deep, k - start), min(together, taps - tap)
                groups, adds = -(-depth // 4) * many, tap + start > 0
                whole = int64(0) if adds else k * taps
                begin = offset(a, top * row + tap * k)
                if not is_ready or right_zero != 0 or nb > 0:
                    stride = int64(0) if is_ready else int64(STRIDE)  # where they are ready, for their sums alone
                    _lay_rows(left, stride, row_sums, begin, row, shift & 128, high, many, k, start, depth)
                near, far = (offset(begin, start), row) if is_ready else (left, int64(STRIDE))
                for i in range(high):
                    zero = load(za, (top + i) * na, 1) + shift
                    store(row_terms, i, right_zero * (whole * zero - load(row_sums, i, 1)))
                for j in range(0, n, PANEL):
                    count, side = min(PANEL, n - j), right
                    if form == 0:
                        side = offset(b, j // PANEL * ldb + start * PANEL)
                        for v in range(0, PANEL, LANES):
                            own = splat(int32(0), LANES)
                            if not adds:
                                own = load_quads(b, j // PANEL * ldb + 4 * (-(-k // 4) * PANEL + v), LANES)
                            store(column_sums, v, own)
                    elif form == 1:
                        _lay_lines(right, column_sums, b, start * ldb + j, ldb, count, depth)
                    elif form == 3:
                        for v in range(0, count, LANES):
                            own = _lay_windows(
                                offset(right, 4 * v), as_quads(b), ldb, line, pixel + j + v, min(LANES, count - v), tap,
                                many, start // 4, -(-depth // 4), kernel_x, wide, step_y, step_x, apart_y, apart_x,
                                left_zero != 0 or na > 0,
                            )  # fmt: skip
                            store(column_sums, v, own)
                    else:
                        _lay_turned(right, column_sums, b, j * ldb + start, ldb, count, depth)
                    for v in range(0, count, LANES):
                        own = load(column_sums, v, LANES) * -left_zero
                        if nb > 0:
                            own = own + load_masked(zb, j + v, count - v, LANES) * (whole * left_zero)
                        store(column_terms, v, own)
                    for i in range(0, high, tall):
                        at, lines = offset(c, (top + i) * ldc + j), min(tall, high - i)
                        tile(
                            at, ldc, offset(near, i * far), far, side, offset(row_terms, i), column_terms, lines, count,
                            groups, adds, ROWS, LANES, SIGNED, DOT,
                        )  # fmt: skip
                    if na + nb > 0:
                        for v in range(0, count, LANES):
                            own, zeros = load(column_sums, v, LANES), splat(int32(0), LANES)
                            if nb > 0:
                                zeros = load_masked(zb, j + v, count - v, LANES)
                                own = own - zeros * whole
                            for i in range(high):
                                place = (top + i) * ldc + j + v
                                zero = (load(za, (top + i) * na, 1) + shift) * na
                                x = load_masked(c, place, count - v, LANES) - zeros * load(row_sums, i, 1) - own * zero
                                store_masked(c, place, x, count - v)
    return 0
