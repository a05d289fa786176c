"""Rows of every form that schedules for CUDA tell apart, by name: what tests run beside the nests of all schedules."""

from __future__ import annotations

from collections.abc import Callable

from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.expressions import Expr, Var, apply, cast, select
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.operators.normalizations import inverse_root, moments
from graphopt.lowering.operators.softmax import log_softmax
from graphopt.lowering.operators.softmax import softmax as softmax_of

N = Var("n")


def softmax(*shape: Expr | int, axis: int = -1, dtype: str = "float32", name: str = "softmax") -> Nest:
    x = t.placeholder(shape, dtype)
    return t.nest(name, [x], [softmax_of(x, axis, dtype, "y")], _sizes(shape))


def _sizes(shape: tuple[Expr | int, ...]) -> list[Var]:
    return [n for n in dict.fromkeys(shape) if isinstance(n, Var)]


def channel_softmax() -> Nest:
    """Along the middle axis: neighbouring rows lie side by side."""
    return softmax(2, 21, 37, axis=1)


def short_rows() -> Nest:
    return softmax(9, 12)


def one_warp() -> Nest:
    return softmax(5, 100)


def several_warps() -> Nest:
    return softmax(3, 1024)


def odd_rows() -> Nest:
    """Rows whose ends are not aligned."""
    return softmax(3, 131)


def halves() -> Nest:
    return softmax(3, 200, dtype="float16")


def too_long_to_hold() -> Nest:
    return softmax(600, 2051)


def any_softmax() -> Nest:
    return softmax(3, 2, N, N)


def any_channels() -> Nest:
    return softmax(N, 5, N + 1, axis=1)


def log_of_softmax() -> Nest:
    x = t.placeholder((4, 33))
    return t.nest("log_of_softmax", [x], [log_softmax(x, -1, "float32", "y")])


def layer_norm(rows: Expr | int = 5, length: Expr | int = 96, added: bool = True) -> Nest:
    """Of a sum of two, which is a result of its own."""
    x, r = t.placeholder((2, rows, length)), t.placeholder((2, rows, length), name="r")
    scale, shift = t.placeholder((length,), name="scale"), t.placeholder((length,), name="shift")
    total = t.compute(x.shape, lambda *at: x[at] + r[at], name="total")
    mean, variance = moments(x.shape, (2,), lambda *at: total[at])
    inverse = inverse_root(variance, 1e-5)

    def normal(i: Expr, j: Expr, k: Expr) -> Expr:
        return (total[i, j, k] - mean[i, j]) * inverse[i, j] * scale[k] + shift[k]

    y = t.compute(x.shape, normal, name="y")
    outputs = [y, t.compute((2, rows, 1), lambda i, j, _: mean[i, j], name="kept"), *([total] if added else [])]
    return t.nest("layer_norm", [x, r, scale, shift], outputs, _sizes((rows, length)))


def long_layer_norm() -> Nest:
    """What lies between is not held, and one of it is a result."""
    return layer_norm(260, 2051)


def any_layer_norm() -> Nest:
    return layer_norm(N, N + 1, added=False)


def over_two_axes() -> Nest:
    """Instance normalization: rows of images."""
    x, scale = t.placeholder((2, 3, 5, 20)), t.placeholder((3,), name="scale")
    mean, variance = moments(x.shape, (2, 3), lambda *at: x[at])
    inverse = inverse_root(variance, 1e-5)
    y = t.compute(x.shape, lambda *at: (x[at] - mean[at[:2]]) * inverse[at[:2]] * scale[at[1]], name="y")
    return t.nest("over_two_axes", [x, scale], [y])


def of_groups() -> Nest:
    """Group normalization: what is read of a group stands at a quotient."""
    x, scale = t.placeholder((2, 6, 20)), t.placeholder((6,), name="scale")
    mean, variance = moments((2, 2, 3, 20), (2, 3), lambda n, g, c, i: x[n, g * 3 + c, i])
    inverse = inverse_root(variance, 1e-5)
    normal = lambda n, c, i: (x[n, c, i] - mean[n, c // 3]) * inverse[n, c // 3] * scale[c]  # noqa: E731
    return t.nest("of_groups", [x, scale], [t.compute(x.shape, normal, name="y")])


def of_channels() -> Nest:
    """Batch normalization in training: rows apart in memory."""
    x = t.placeholder((4, 3, 50))
    mean, variance = moments(x.shape, (0, 2), lambda *at: x[at])
    y = t.compute(x.shape, lambda n, c, i: (x[n, c, i] - mean[c]) / apply("sqrt", variance[c] + 1e-5), name="y")
    return t.nest("of_channels", [x], [y])


def squares(rows: int = 2, length: int = 4100) -> Nest:
    """Few long rows, each of several blocks of threads, and what becomes of the results."""
    x, k = t.placeholder((rows, length)), t.reduce_axis(length)
    total = t.compute((rows,), lambda i: t.sum(x[i, k.var] * x[i, k.var], k), name="total")
    return t.nest("squares", [x], [t.compute((rows,), lambda i: apply("sqrt", total[i]), name="y")])


def whole() -> Nest:
    x, axes = t.placeholder((N, 3, N)), (t.reduce_axis(N), t.reduce_axis(3), t.reduce_axis(N))
    element = lambda: t.max(x[tuple(a.var for a in axes)], *axes)  # noqa: E731
    return t.nest("whole", [x], [t.compute((), element, name="y")], [N])


def down() -> Nest:
    """Over an outer axis, long enough for several threads for each result."""
    x, k = t.placeholder((700, 33)), t.reduce_axis(700)
    return t.nest("down", [x], [t.compute((33,), lambda i: t.prod(1.0 + x[k.var, i] * 1e-3, k), name="y")])


def truths() -> Nest:
    x, k, s = t.placeholder((3, 90), "bool"), t.reduce_axis(90), t.reduce_axis(90)
    y = t.compute((3,), lambda i: t.all(x[i, k.var], k), "bool", name="y")
    z = t.compute((3,), lambda i: t.any(x[i, s.var] & y[i], s), "bool", name="z")
    return t.nest("truths", [x], [y, z])


def numbers() -> Nest:
    x, k = t.placeholder((3, 90), "int64"), t.reduce_axis(90)
    return t.nest("numbers", [x], [t.compute((3,), lambda i: t.min(x[i, k.var] * 3, k), "int64", name="y")])


def both_ends() -> Nest:
    """Two results of each row at once."""
    x, k = t.placeholder((3, 90)), t.reduce_axis(90)

    def element(i: Var) -> t.ReduceStage:
        lowest, highest = t.lowest("float32"), t.highest("float32")
        made = lambda a, b: [apply("max", a[0], b[0]), apply("min", a[1], b[1])]  # noqa: E731
        return t.reduction([k], [x[i, k.var], x[i, k.var]], [lowest, highest], made)

    return t.nest("both_ends", [x], list(t.compute_several((3,), element, ("most", "least"))))


def masked() -> Nest:
    """Elements that are there only where a condition says so."""
    x, k = t.placeholder((3, 70)), t.reduce_axis(72)
    y = t.compute((3,), lambda i: t.sum(select(k.var < 70, x[i, k.var], 0.0), k), name="y")
    return t.nest("masked", [x], [y])


def no_steps() -> Nest:
    x, k = t.placeholder((3, N)), t.reduce_axis(N)
    y = t.compute((3,), lambda i: t.sum(cast(x[i, k.var], "float32"), k), name="y")
    return t.nest("no_steps", [x], [t.compute((3,), lambda i: y[i] / cast(N, "float32"), name="z")], [N])


def vector(transposed: bool = False) -> Nest:
    """A matrix times a vector, and a bias."""
    a = t.placeholder((70, 96) if transposed else (96, 70), name="a")
    x, b, k = t.placeholder((96,)), t.placeholder((70,), name="b"), t.reduce_axis(96)
    y = t.compute((70,), lambda i: t.sum((a[i, k.var] if transposed else a[k.var, i]) * x[k.var], k), name="p")
    return t.nest("vector", [a, x, b], [t.compute((70,), lambda i: y[i] + b[i], name="y")])


def transposed_vector() -> Nest:
    return vector(transposed=True)


ROWS: dict[str, Callable[[], Nest]] = {
    f.__name__: f
    for f in (
        *(channel_softmax, short_rows, one_warp, several_warps, odd_rows, halves, log_of_softmax, layer_norm),
        *(
            over_two_axes,
            of_groups,
            of_channels,
            squares,
            down,
            truths,
            numbers,
            both_ends,
            masked,
            vector,
            transposed_vector,
        ),
    )
}
ANY_ROWS: dict[str, Callable[[], Nest]] = {
    f.__name__: f for f in (any_softmax, any_channels, any_layer_norm, whole, no_steps)
}
LONG_ROWS: dict[str, Callable[[], Nest]] = {f.__name__: f for f in (too_long_to_hold, long_layer_norm)}
"""For which no interpreter has the time."""
