"""A product of matrices of bytes of any sizes, in blocks that fit the caches; numbers are put in for a processor.

The second operand may be an image over which windows slide: then columns are pixels of the result, and the rows of the
first operand hold the channels for each place in the window, one place after another.
"""
# mypy: allow-untyped-calls, disable-error-code="misc, untyped-decorator"

from __future__ import annotations

from numba import int32, int64, njit, uint8

from graphopt.kernels.integer_tiles import (
    add_quads,
    lay_bytes,
    load_quads,
    load_windows,
    store_quads,
    tile,
    turn_quads,
)
from graphopt.kernels.masks import stack
from graphopt.kernels.vectors import load, load_masked, offset, reduce_add, splat, store, store_masked

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
def _lay_rows(to, sums, a, row, flip, height, taps, k, start, depth):  # type: ignore[no-untyped-def]
    """Rows of the first operand: some channels of each of some places in the window; and what they add up to."""
    each, whole = -(-depth // 4) * 4, depth // BYTES * BYTES
    for i in range(height):
        total = splat(int32(0), LANES)
        for t in range(taps):
            at, place = i * STRIDE + t * each, i * row + t * k + start
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
def _far_apart(b, base, ldb, rest, runs, starts, lows, highs, step, other):  # type: ignore[no-untyped-def]
    """The quads of pixels that lie several bytes apart, one by one."""
    spare = stack(LANES, int32)
    store(spare, 0, other)
    for r in range(runs):
        for i in range(load(lows, r, 1), load(highs, r, 1)):
            quad, place = int64(0), base + load(starts, r, 1) + i * step
            for d in range(rest):
                quad |= int64(load(b, place + d * ldb, 1)) << (8 * d)
            store(spare, i, quad)
    return load(spare, 0, LANES)


@njit(error_model="numpy")
def _lay_any(to, at, total, b, ldb, start, depth, runs, starts, lows, highs, step, other):  # type: ignore[no-untyped-def]
    """Channels of a vector of pixels that lie in any number of runs; and what they add up to."""
    for c in range(0, depth, 4):
        base, rest, quad = start + c * ldb, min(depth - c, 4), other
        if step > 2:
            quad = _far_apart(b, base, ldb, rest, runs, starts, lows, highs, step, other)
        else:
            for r in range(runs):
                low, high, place = load(lows, r, 1), load(highs, r, 1), base + load(starts, r, 1)
                if step == 1:
                    quad = load_windows(b, place, ldb, rest, low, high, quad, 1, LANES)
                else:
                    quad = load_windows(b, place, ldb, rest, low, high, quad, 2, LANES)
        store_quads(to, at + c * PANEL, quad & int32((1 << (8 * rest)) - 1))
        total = add_quads(total, to, at + c * PANEL, LANES, SIGNED, DOT)
    return total


@njit(error_model="numpy")
def _lay_run(to, at, total, b, ldb, place, depth, low, high, step, other):  # type: ignore[no-untyped-def]
    """Channels of a vector of pixels that lie in one run; and what they add up to."""
    for c in range(0, depth, 4):
        rest = min(depth - c, 4)
        if step == 1:
            quad = load_windows(b, place + c * ldb, ldb, rest, low, high, other, 1, LANES)
        else:
            quad = load_windows(b, place + c * ldb, ldb, rest, low, high, other, 2, LANES)
        store_quads(to, at + c * PANEL, quad & int32((1 << (8 * rest)) - 1))
        total = add_quads(total, to, at + c * PANEL, LANES, SIGNED, DOT)
    return total


@njit(error_model="numpy")
def _lay_runs(to, at, total, b, ldb, start, depth, starts, lows, highs, step, other):  # type: ignore[no-untyped-def]
    """The same for pixels that lie in two runs."""
    low, high, place = load(lows, 0, 1), load(highs, 0, 1), start + load(starts, 0, 1)
    begin, end, there = load(lows, 1, 1), load(highs, 1, 1), start + load(starts, 1, 1)
    for c in range(0, depth, 4):
        rest = min(depth - c, 4)
        if step == 1:
            quad = load_windows(b, place + c * ldb, ldb, rest, low, high, other, 1, LANES)
            quad = load_windows(b, there + c * ldb, ldb, rest, begin, end, quad, 1, LANES)
        else:
            quad = load_windows(b, place + c * ldb, ldb, rest, low, high, other, 2, LANES)
            quad = load_windows(b, there + c * ldb, ldb, rest, begin, end, quad, 2, LANES)
        store_quads(to, at + c * PANEL, quad & int32((1 << (8 * rest)) - 1))
        total = add_quads(total, to, at + c * PANEL, LANES, SIGNED, DOT)
    return total


@njit(error_model="numpy")
def _lay_windows(  # type: ignore[no-untyped-def]
    to, b, ldb, line, fill, pixel, count, tap, taps, start, depth, starts, lows, highs,
    kernel_x, height, width, wide, step_y, step_x, apart_y, apart_x, before_y, before_x,
):  # fmt: skip
    """A vector of columns of the second operand: some channels of what pixels see at some places in their windows; and
    what they add up to."""
    total, other = splat(int32(0), LANES), splat(int32(fill * 0x01010101), LANES)
    at = 0
    for t in range(tap, tap + taps):
        over, down = t % kernel_x * apart_x - before_x, t // kernel_x * apart_y - before_y
        y, x, lane, runs = pixel // wide, pixel % wide, 0, 0
        while lane < count:
            many = min(count - lane, wide - x)
            row, column = y * step_y + down, x * step_x + over
            low = lane + max(-(column // step_x), 0)
            high = lane + min(-((column - width) // step_x), many)
            if row >= 0 and row < height and low < high:
                store(starts, runs, row * line + column - lane * step_x)
                store(lows, runs, low)
                store(highs, runs, high)
                runs += 1
            x, y, lane = 0, y + 1, lane + many
        first = start * ldb
        if runs == 1 and step_x <= 2:
            first += load(starts, 0, 1)
            total = _lay_run(to, at, total, b, ldb, first, depth, load(lows, 0, 1), load(highs, 0, 1), step_x, other)
        elif runs == 2 and step_x <= 2:
            total = _lay_runs(to, at, total, b, ldb, first, depth, starts, lows, highs, step_x, other)
        else:
            total = _lay_any(to, at, total, b, ldb, first, depth, runs, starts, lows, highs, step_x, other)
        at += -(-depth // 4) * 4 * PANEL
    return total


def kernel(  # type: ignore[no-untyped-def]
    c, a, b, za, zb, ldc, row, ldb, na, nb, shift, m, n, k, form, line, pixel, kernel_y, kernel_x, height, width, wide,
    step_y, step_x, apart_y, apart_x, before_y, before_x,
):  # fmt: skip
    """``c[i, j]``, at ``i * ldc + j``, is the sum over ``p`` of ``a[i, p] - za[i * na]`` by ``b[p, j] - zb[j * nb]``.

    With ``shift`` added, ``a`` has signs where ``b`` has none. By its ``form``, the second operand lies in panels as
    far apart as ``ldb`` (0), or in an image whose channels are that far apart, and its lines ``line`` (1), of which the
    columns from the one of ``pixel`` on are computed, or at ``j * ldb + p`` (2).
    """
    left, right = stack(LEFT, uint8), stack(RIGHT, uint8)
    row_sums, row_terms = stack(HEIGHT, int32), stack(HEIGHT, int32)
    column_sums, column_terms = stack(PANEL, int32), stack(PANEL, int32)
    starts, lows, highs = stack(LANES, int64), stack(LANES, int64), stack(LANES, int64)
    taps = kernel_y * kernel_x
    if taps == 1 and max(step_y, step_x) == 1 and max(before_y, before_x) == 0 and line == width and wide == width:
        wide, width, height = height * width, height * width, int64(1)  # all lines are one
    quads = max(-(-k // 4), 1)
    deep = -(-quads // -(-quads // DEPTH)) * 4
    together = DEPTH // min(deep // 4, DEPTH)
    most = -(-m // (-(-m // HEIGHT) * ROWS)) * ROWS if m > 0 else 1
    # what is the same for all rows, or columns, of the zero points is a matter of terms, the rest one of products
    left_zero = load(za, 0, 1) + shift if na == 0 else int64(0)
    right_zero = int64(load(zb, 0, 1)) if nb == 0 else int64(0)
    for top in range(0, m, most):
        high = min(most, m - top)
        tall = -(-high // -(-high // ROWS))
        for tap in range(0, taps, together):
            for start in range(0, max(k, 1), deep):
                depth, many = min(deep, k - start), min(together, taps - tap)
                groups, adds = -(-depth // 4) * many, tap + start > 0
                whole = int64(0) if adds else k * taps
                _lay_rows(left, row_sums, offset(a, top * row + tap * k), row, shift & 128, high, many, k, start, depth)
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
                        for v in range(0, min(PANEL, count), LANES):
                            own = _lay_windows(
                                offset(right, 4 * v), b, ldb, line, right_zero & 255, pixel + j + v,
                                min(LANES, count - v), tap, many, start, depth, starts, lows, highs, kernel_x,
                                height, width, wide, step_y, step_x, apart_y, apart_x, before_y, before_x,
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
                            at, ldc, offset(left, i * STRIDE), side, offset(row_terms, i), column_terms, lines, count,
                            groups, adds, STRIDE, ROWS, LANES, SIGNED, DOT,
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
