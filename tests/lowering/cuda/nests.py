"""Contractions of every form that tiles are made for, by name: what tests of schedules for CUDA run beside those that
tests of all schedules have."""

from __future__ import annotations

from collections.abc import Callable

from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.expressions import Expr, Var, cast, maximum, select
from graphopt.lowering.loops.nest import Nest
from tests.lowering.described import convolution

N = Var("n")


def matrices(
    m: Expr | int, n: Expr | int, k: Expr | int, ways: str = "nn", dtype: str = "float32", batch: int | None = None
) -> Nest:
    """``relu(a @ b + bias)``; an operand marked ``t`` is given transposed, and sums are of float32 at least."""
    stack = () if batch is None else (batch,)
    a = t.placeholder((*stack, *((k, m) if ways[0] == "t" else (m, k))), dtype, name="a")
    b = t.placeholder((*stack, *((n, k) if ways[1] == "t" else (k, n))), dtype, name="b")
    bias, s = t.placeholder((n,), "float32", name="bias"), t.reduce_axis(k)

    def element(*at: Expr) -> t.ReduceStage:
        *rest, i, j = at
        x = a[(*rest, *((s.var, i) if ways[0] == "t" else (i, s.var)))]
        y = b[(*rest, *((j, s.var) if ways[1] == "t" else (s.var, j)))]
        return t.sum(cast(x, "float32") * cast(y, "float32"), s)

    c = t.compute((*stack, m, n), element, name="c")
    y = t.compute(c.shape, lambda *at: cast(maximum(c[at] + bias[at[-1]], 0.0), dtype), name="y")
    sizes = [v for v in dict.fromkeys((m, n, k)) if isinstance(v, Var)]
    return t.nest("matrices", [a, b, bias], [y], sizes)


def window(size: int = 7, stride: int = 2, dilation: int = 2, pad: int = 2, groups: int = 1) -> Nest:
    """A convolution with steps, gaps and padding, its bias and what follows."""
    channels, out, kernel = 2 * groups, 6 * groups, 3
    places = (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    x, w = t.placeholder((2, channels, size, size)), t.placeholder((out, 2, kernel, kernel), name="w")
    bias = t.placeholder((out,), name="bias")
    c, h, v = (t.reduce_axis(n) for n in (2, kernel, kernel))

    def element(n: Var, o: Var, i: Var, j: Var) -> t.ReduceStage:
        y, z = i * stride + h.var * dilation - pad, j * stride + v.var * dilation - pad
        inside = (y >= 0) & (y < size) & (z >= 0) & (z < size)
        channel = c.var if groups == 1 else o // 6 * 2 + c.var
        return t.sum(select(inside, x[n, channel, y, z], 0.0) * w[o, c.var, h.var, v.var], c, h, v)

    made = t.compute((2, out, places, places), element, name="y")
    z = t.compute(made.shape, lambda *at: maximum(made[at] + bias[at[1]], 0.0), name="z")
    return t.nest("window", [x, w, bias], [z])


def einsum() -> Nest:
    """``bihk,bjkh->hbij``: several axes of each kind, in another order in the result."""
    a, b = t.placeholder((2, 5, 3, 4), name="a"), t.placeholder((2, 7, 4, 3), name="b")
    k, q = t.reduce_axis(4), t.reduce_axis(2)

    def element(h: Var, i: Var, j: Var) -> t.ReduceStage:
        return t.sum(a[q.var, i, h, k.var] * b[q.var, j, k.var, h], k, q)

    return t.nest("einsum", [a, b], [t.compute((3, 5, 7), element, name="y")])


def columns_first() -> Nest:
    """A product whose result is written transposed."""
    a, b, k = t.placeholder((14, 6), name="a"), t.placeholder((6, 20), name="b"), t.reduce_axis(6)
    return t.nest("columns", [a, b], [t.compute((20, 14), lambda j, i: t.sum(a[i, k.var] * b[k.var, j], k), name="y")])


def twice_needed() -> Nest:
    """A product that is also turned over, for which it has to be in memory."""
    a, b, k = t.placeholder((20, 9), name="a"), t.placeholder((9, 24), name="b"), t.reduce_axis(9)
    c = t.compute((20, 24), lambda i, j: t.sum(a[i, k.var] * b[k.var, j], k), name="c")
    y = t.compute(c.shape, lambda *at: maximum(c[at], 0.0), name="y")
    return t.nest("twice", [a, b], [y, t.compute((24, 20), lambda j, i: c[i, j] * 2.0, name="z")])


def integers() -> Nest:
    """A product of bytes, in int32."""
    a, b, k = t.placeholder((18, 20), "uint8", name="a"), t.placeholder((20, 24), "int8", name="b"), t.reduce_axis(20)

    def element(i: Var, j: Var) -> t.ReduceStage:
        return t.sum(cast(a[i, k.var], "int32") * cast(b[k.var, j], "int32"), k)

    return t.nest("integers", [a, b], [t.compute((18, 24), element, "int32", name="y")])


CONTRACTIONS: dict[str, Callable[[], Nest]] = {
    "even": lambda: matrices(64, 32, 8),
    "odd": lambda: matrices(19, 21, 11),
    "left_transposed": lambda: matrices(20, 36, 12, "tn"),
    "right_transposed": lambda: matrices(20, 12, 20, "nt"),
    "both_transposed": lambda: matrices(12, 20, 8, "tt", batch=2),
    "one_step": lambda: matrices(20, 24, 1),
    "long": lambda: matrices(5, 8, 520),
    "halves": lambda: matrices(12, 20, 16, "nt", "float16"),
    "bfloats": lambda: matrices(12, 20, 10, "nn", "bfloat16"),
    "spread_windows": window,
    "dense_windows": lambda: window(size=5, stride=1, dilation=1, pad=0),
    "groups_of_windows": lambda: window(size=5, groups=2),
    "padded_windows": convolution,
    **{f.__name__: f for f in (einsum, columns_first, twice_needed, integers)},
}
OPEN: dict[str, Callable[[], Nest]] = {
    "open_rows": lambda: matrices(N, 20, 12),
    "open_columns": lambda: matrices(9, N, 8, "nt"),
    "open_steps": lambda: matrices(9, 12, N, "nn", batch=2),
    "open": lambda: matrices(N, N, N),
}
"""Those with a size that any number may be."""
