"""Grid sampling: images read at coordinates that a tensor holds; AffineGrid computes such coordinates."""

from __future__ import annotations

from functools import reduce

from graphopt.lowering.loops.compute import Tensor, compute
from graphopt.lowering.loops.expressions import (
    FLOATS,
    INDEX,
    Const,
    Expr,
    apply,
    cast,
    conjunction,
    const,
    maximum,
    minimum,
    select,
)
from graphopt.lowering.operators.coordinates import DOUBLE, cubic_weights
from graphopt.lowering.operators.elements import integer, label, text, wide
from graphopt.lowering.operators.indices import clamped, matching
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation

CUBIC = -0.75
"""The parameter of Keys' cubic convolution."""


def as_float(size: Expr, dtype: str) -> Expr:
    """A size as a float."""
    return const(float(size.value), dtype) if isinstance(size, Const) else cast(size, dtype)


def grid_sample(op: Operation) -> Tensor:
    """Each image at the coordinates of the grid, of which -1 and 1 are the borders and the first runs along rows."""
    x, grid, mode, padding = op.input(0), op.input(1), text(op, "mode"), text(op, "padding_mode")
    if mode not in ("nearest", "linear", "cubic") or (x.dtype not in FLOATS and mode != "nearest"):
        raise NotLowered(f"GridSample of {x.dtype} in the mode {mode}")
    if padding not in ("zeros", "border", "reflection"):
        raise NotLowered(f"GridSample has no padding {padding}")
    aligned, sizes, inner = bool(integer(op, "align_corners")), x.shape[2:], wide(x.dtype)
    checked = matching(op, (grid.shape[0], grid.shape[-1]), (x.shape[0], Const(len(sizes))))
    points = [_coordinates(grid, k, sizes, mode, padding, aligned) for k in range(len(sizes))]

    def pixel(n: Expr, c: Expr, where: tuple[Expr, ...]) -> Expr:
        if padding == "zeros":
            inside = conjunction(*(c for i, size in zip(where, sizes, strict=True) for c in (i >= 0, i < size)))
            return select(inside, x[(n, c, *where)], const(0, x.dtype))
        places = [i if padding == "border" else _reflected(i, s, aligned) for i, s in zip(where, sizes, strict=True)]
        return x[(n, c, *(clamped(i, size) for i, size in zip(places, sizes, strict=True)))]

    def element(n: Expr, c: Expr, *at: Expr) -> Expr:
        coordinates = [p[(n, *at)] for p in points]
        if mode == "nearest":
            return pixel(n, c, tuple(cast(p, INDEX) for p in coordinates))
        below = [apply("floor", p) for p in coordinates]
        parts = [cast(p - b, inner) for p, b in zip(coordinates, below, strict=True)]
        weights = [[1.0 - p, p] if mode == "linear" else cubic_weights(p, CUBIC) for p in parts]
        first = [cast(b, INDEX) + (1 - len(w) // 2) for b, w in zip(below, weights, strict=True)]

        def along(where: tuple[Expr, ...]) -> Expr:
            k = len(where)
            if k == len(sizes):
                return cast(pixel(n, c, where), inner)
            terms = [along((*where, first[k] + tap)) * weight for tap, weight in enumerate(weights[k])]
            return reduce(lambda a, b: a + b, terms)

        return cast(along(()), x.dtype)

    return compute(op.shape(), element, x.dtype, label(op), checked)


def _coordinates(grid: Tensor, axis: int, sizes: tuple[Expr, ...], mode: str, padding: str, aligned: bool) -> Tensor:
    """The coordinates along one axis of the images, in elements, brought back over the border where that is asked."""
    inner = wide(grid.dtype)
    size = as_float(sizes[axis], inner)

    def coordinate(*at: Expr) -> Expr:
        given = cast(grid[(*at, len(sizes) - 1 - axis)], inner)
        x = (given + 1.0) / 2.0 * (size - 1.0) if aligned else ((given + 1.0) * size - 1.0) / 2.0
        x = apply("round", x) if mode == "nearest" else x
        if padding == "border":
            low, high = (const(0, inner), size - 1.0) if aligned else (const(-0.5, inner), size - 0.5)
            return select((x < low) | (x > high), minimum(maximum(x, const(0, inner)), size - 1.0), x)
        return x if padding == "zeros" else _folded(x, size, aligned)

    return compute(grid.shape[:-1], coordinate, inner, f"along{axis}")


def _folded(x: Expr, size: Expr, aligned: bool) -> Expr:
    """A coordinate reflected at the borders until it lies between them."""
    low, length = (const(0, x.dtype), size - 1.0) if aligned else (const(-0.5, x.dtype), size)
    away = apply("abs", x - low)
    turns = apply("floor", away / (length * 2.0))
    rest = away - turns * (length * 2.0)
    inside = (x >= low) & (x <= low + length)
    return select(inside, x, select(length > 0.0, low + minimum(rest, length * 2.0 - rest), low))


def _reflected(index: Expr, size: Expr, aligned: bool) -> Expr:
    """An index reflected at the borders until it lies between them."""
    if aligned:
        turn = (size - 1) * 2
        rest = index % maximum(turn, 1)
        return minimum(rest, turn - rest)
    rest = index % (size * 2)
    return minimum(rest, size * 2 - 1 - rest)


def affine_grid(op: Operation) -> Tensor:
    """AffineGrid: the coordinates to which affine maps take the points of a grid, for GridSample."""
    theta, shape, dtype = op.input(0), op.shape(), op.dtype()
    aligned, rank = bool(integer(op, "align_corners")), len(op.shape()) - 2

    def base(index: Expr, size: Expr) -> Expr:
        i, n = cast(index, DOUBLE), as_float(size, DOUBLE)
        if not aligned:
            return i * (2.0 / n) + (2.0 / n / 2.0 - 1.0)
        return i * (2.0 / maximum(n - 1.0, const(1, DOUBLE))) - 1.0

    def element(n: Expr, *at: Expr) -> Expr:
        *where, row = at
        points = [base(i, size) for i, size in zip(where, shape[1:-1], strict=True)]
        terms = [cast(theta[n, row, k], DOUBLE) * points[rank - 1 - k] for k in range(rank)]
        return cast(reduce(lambda a, b: a + b, terms) + cast(theta[n, row, rank], DOUBLE), dtype)

    checked = matching(op, theta.shape, (shape[0], Const(rank), Const(rank + 1)))
    return compute(shape, element, dtype, label(op), checked)


TABLE: LoweringTable = {"AffineGrid": affine_grid, "GridSample": grid_sample}
