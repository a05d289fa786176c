"""Tensors of every shape that default schedules tell apart, by name: what tests of schedules and sources run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.expressions import Expr, Var, apply, cast, maximum, minimum, select
from graphopt.lowering.loops.nest import Nest

N = Var("n")


def broadcast() -> Nest:
    x, y = t.placeholder((5, 7, 19)), t.placeholder((7, 1), name="y")
    return t.nest("broadcast", [x, y], [t.compute((5, 7, 19), lambda i, j, k: x[i, j, k] + y[j, 0], name="z")])


def flat() -> Nest:
    x = t.placeholder((3, 7, 1000))
    return t.nest("flat", [x], [t.compute(x.shape, lambda *at: apply("exp", x[at]), name="y")])


def transposed() -> Nest:
    x = t.placeholder((6, 35))
    return t.nest("transposed", [x], [t.compute((35, 6), lambda i, j: x[j, i], name="y")])


def turned() -> Nest:
    x, y = t.placeholder((2, 21, 5, 9)), t.placeholder((2, 45, 21), name="y")
    z = t.compute((2, 45, 21), lambda n, i, c: x[n, c, i // 9, i % 9] + y[n, i, c], name="z")
    return t.nest("turned", [x, y], [z])


def turned_halves() -> Nest:
    x = t.placeholder((6, 35), "float16")
    return t.nest("turned_halves", [x], [t.compute((35, 6), lambda i, j: x[j, i], "float16", name="y")])


def colours_last() -> Nest:
    x = t.placeholder((2, 3, 70))
    return t.nest("colours_last", [x], [t.compute((2, 70, 3), lambda n, i, c: x[n, c, i] * 2.0, name="y")])


def enlarged() -> Nest:
    x = t.placeholder((3, 5, 25))
    return t.nest("enlarged", [x], [t.compute((3, 10, 50), lambda c, i, j: x[c, i // 2, j // 2] + 1.0, name="y")])


def padded() -> Nest:
    x = t.placeholder((4, 50))
    inside = lambda j: (j >= 2) & (j < 52)  # noqa: E731
    y = t.compute((4, 54), lambda i, j: select(inside(j), x[i, j - 2], 0.0), name="y")
    return t.nest("padded", [x], [y])


def joined() -> Nest:
    x, y = t.placeholder((3, 20)), t.placeholder((3, 13), name="y")
    z = t.compute((3, 33), lambda i, j: select(j < 20, x[i, j], y[i, j - 20]), name="z")
    return t.nest("joined", [x, y], [z])


def softmax() -> Nest:
    x = t.placeholder((5, 7, 19))
    k, s = t.reduce_axis(19), t.reduce_axis(19)
    largest = t.compute((5, 7), lambda i, j: t.max(x[i, j, k.var], k), name="largest")
    e = t.compute((5, 7, 19), lambda i, j, q: apply("exp", x[i, j, q] - largest[i, j]), name="e")
    total = t.compute((5, 7), lambda i, j: t.sum(e[i, j, s.var], s), name="total")
    return t.nest("softmax", [x], [t.compute((5, 7, 19), lambda i, j, q: e[i, j, q] / total[i, j], name="y")])


def along() -> Nest:
    x, k = t.placeholder((40, 3, 70)), t.reduce_axis(70)
    return t.nest("along", [x], [t.compute((40, 3), lambda i, j: t.sum(x[i, j, k.var], k), name="y")])


def across() -> Nest:
    x, k = t.placeholder((5, 7, 19)), t.reduce_axis(5)
    return t.nest("across", [x], [t.compute((7, 19), lambda i, j: t.max(x[k.var, i, j], k), name="y")])


def largest_of() -> Nest:
    x, k = t.placeholder((9, 33)), t.reduce_axis(33)

    def combined(best: tuple[Var, ...], new: tuple[Var, ...]) -> list[object]:
        return [maximum(best[0], new[0]), select(new[0] > best[0], new[1], best[1])]

    def element(i: Var) -> t.ReduceStage:
        return t.reduction([k], [x[i, k.var], k.var], [t.lowest("float32"), t.lowest("int64")], combined)  # type: ignore[arg-type]

    return t.nest("largest", [x], list(t.compute_several((9,), element, ("value", "place"))))


def small_product() -> Nest:
    a, b, bias = t.placeholder((20, 33), name="a"), t.placeholder((33, 50), name="b"), t.placeholder((50,), name="bias")
    k = t.reduce_axis(33)
    c = t.compute((20, 50), lambda i, j: t.sum(a[i, k.var] * b[k.var, j], k), name="c")
    y = t.compute((20, 50), lambda i, j: maximum(c[i, j] + bias[j], 0.0), name="y")
    return t.nest("small_product", [a, b, bias], [y])


def product(transposed: bool = False) -> Nest:
    rows, columns, steps = 40, 300, 33
    a = t.placeholder((2, rows, steps), name="a")
    b = t.placeholder((columns, steps) if transposed else (steps, columns), name="b")
    bias, k = t.placeholder((columns,), name="bias"), t.reduce_axis(steps)

    def element(n: Var, i: Var, j: Var) -> t.ReduceStage:
        return t.sum(a[n, i, k.var] * (b[j, k.var] if transposed else b[k.var, j]), k)

    c = t.compute((2, rows, columns), element, name="c")
    y = t.compute((2, rows, columns), lambda n, i, j: maximum(c[n, i, j] + bias[j], 0.0), name="y")
    return t.nest("product", [a, b, bias], [y])


def few_rows(transposed: bool = False) -> Nest:
    a = t.placeholder((3, 70), name="a")
    b = t.placeholder((200, 70) if transposed else (70, 200), name="b")
    bias, k = t.placeholder((200,), name="bias"), t.reduce_axis(70)
    c = t.compute((3, 200), lambda i, j: t.sum(a[i, k.var] * (b[j, k.var] if transposed else b[k.var, j]), k), name="c")
    y = t.compute((3, 200), lambda i, j: maximum(c[i, j] + bias[j], 0.0), name="y")
    return t.nest("few_rows", [a, b, bias], [y])


def few_transposed_rows() -> Nest:
    return few_rows(transposed=True)


def transposed_product() -> Nest:
    return product(transposed=True)


def pointwise_convolution() -> Nest:
    x, w = t.placeholder((2, 40, 3, 30)), t.placeholder((50, 40, 1, 1), name="w")
    c, h, v = t.reduce_axis(40), t.reduce_axis(1), t.reduce_axis(1)

    def element(n: Var, o: Var, i: Var, j: Var) -> t.ReduceStage:
        return t.sum(x[n, c.var, i + h.var, j + v.var] * w[o, c.var, h.var, v.var], c, h, v)

    return t.nest("pointwise", [x, w], [t.compute((2, 50, 3, 30), element, name="y")])


def convolution() -> Nest:
    x, w = t.placeholder((1, 3, 9, 20)), t.placeholder((8, 3, 3, 3), name="w")
    c, h, v = (t.reduce_axis(3) for _ in range(3))
    inside = lambda i, j: (i >= 1) & (i < 10) & (j >= 1) & (j < 21)  # noqa: E731

    def pad(n: Var, k: Var, i: Var, j: Var) -> object:
        return select(inside(i, j), x[n, k, i - 1, j - 1], 0.0)

    p = t.compute((1, 3, 11, 22), pad, name="p")  # type: ignore[arg-type]

    def element(n: Var, o: Var, i: Var, j: Var) -> t.ReduceStage:
        return t.sum(p[n, c.var, i + h.var, j + v.var] * w[o, c.var, h.var, v.var], c, h, v)

    y = t.compute((1, 8, 9, 20), element, name="y")
    z = t.compute((1, 8, 9, 20), lambda *at: maximum(y[0, at[1], at[2], at[3]], 0.0), name="z")
    return t.nest("convolution", [x, w], [z])


def strided_pool() -> Nest:
    x, h, v = t.placeholder((3, 9, 70)), t.reduce_axis(3), t.reduce_axis(3)

    def element(c: Var, i: Var, j: Var) -> t.ReduceStage:
        y, z = i * 2 + h.var - 1, j * 2 + v.var - 1
        inside = (y >= 0) & (y < 9) & (z >= 0) & (z < 70)
        return t.max(select(inside, x[c, y, z], t.lowest("float32")), h, v)

    return t.nest("strided_pool", [x], [t.compute((3, 5, 35), element, name="y")])


def half() -> Nest:
    x = t.placeholder((6, 21), "float16")
    y = t.compute(x.shape, lambda *at: cast(apply("exp", cast(x[at], "float32")), "float16"), name="y")
    return t.nest("half", [x], [y])


def bytes_and_truths() -> Nest:
    x = t.placeholder((6, 21), "int8")
    y = t.compute(x.shape, lambda *at: x[at] > cast(3, "int8"), name="y")
    z = t.compute(x.shape, lambda *at: select(y[at], x[at] * 2, x[at] + 1), name="z")
    return t.nest("bytes", [x], [y, z])


def scalar() -> Nest:
    x = t.placeholder(())
    return t.nest("scalar", [x], [t.compute((), lambda: x[()] * 2.0, name="y")])


def empty() -> Nest:
    x = t.placeholder((3, 0))
    return t.nest("empty", [x], [t.compute((3, 0), lambda *at: x[at] * 2.0, name="y")])


def rows_of_any_length() -> Nest:
    x, k = t.placeholder((4, N)), t.reduce_axis(N)
    total = t.compute((4,), lambda i: t.sum(x[i, k.var], k), name="total")
    return t.nest("any_rows", [x], [total], [N])


def any_elements() -> Nest:
    x = t.placeholder((N, 13))
    return t.nest("any_elements", [x], [t.compute((N, 13), lambda *at: apply("tanh", x[at]), name="y")], [N])


def any_matrices() -> Nest:
    x, k = t.placeholder((2, 3, N, N)), t.reduce_axis(N)
    total = t.compute((2, 3, N), lambda b, h, i: t.max(x[b, h, i, k.var], k), name="total")
    y = t.compute((2, 3, N, N), lambda b, h, i, j: x[b, h, i, j] - total[b, h, i], name="y")
    return t.nest("any_matrices", [x], [y], [N])


def one_row_of_any_length() -> Nest:
    """Between its parallel loops there are sums, each kept in registers from its init to its end."""
    x, k, s = t.placeholder((N,)), t.reduce_axis(N), t.reduce_axis(N)
    largest = t.compute((), lambda: t.max(x[k.var], k), name="largest")
    total = t.compute((), lambda: t.sum(apply("exp", x[s.var] - largest[()]), s), name="total")
    y = t.compute((N,), lambda i: x[i] - largest[()] - apply("log", total[()]), name="y")
    return t.nest("one_row_of_any_length", [x], [y], [N])


def grouped_convolution() -> Nest:
    x, w, b = t.placeholder((2, 12, 5, 9)), t.placeholder((15, 4), name="w"), t.placeholder((15,), name="b")
    k = t.reduce_axis(4)

    def element(n: Var, o: Var, i: Var, j: Var) -> t.ReduceStage:
        return t.sum(x[n, o // 5 * 4 + k.var, i, j] * w[o, k.var], k)

    y = t.compute((2, 15, 5, 9), element, name="y")
    z = t.compute(y.shape, lambda *at: maximum(y[at] + b[at[1]], 0.0), name="z")
    return t.nest("grouped_convolution", [x, w, b], [z])


def any_across() -> Nest:
    x, k = t.placeholder((N, 13)), t.reduce_axis(N)
    return t.nest("any_across", [x], [t.compute((13,), lambda i: t.sum(x[k.var, i], k), name="y")], [N])


def any_convolution() -> Nest:
    x, w = t.placeholder((1, 2, 3, N + 2, 16)), t.placeholder((2, 3, 3, 16), name="w")
    h, v, k = (t.reduce_axis(n) for n in (3, 3, 2))

    def element(n: Var, o: Var, i: Var, j: Var, c: Var) -> t.ReduceStage:
        return t.sum(x[n, k.var, i + h.var, j + v.var, 0] * w[o, h.var, v.var, c], h, v, k)

    return t.nest("any_convolution", [x, w], [t.compute((1, 2, 1, N, 16), element, name="y")], [N])


def over_windows(
    size: tuple[Expr | int, Expr | int],
    kernel: tuple[int, int],
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilations: tuple[int, int] = (1, 1),
    largest: bool = False,
) -> Nest:
    """The largest of windows over an image in blocks, or a convolution of each channel, with a bias."""
    (height, width), (down, across_) = size, strides
    x, w = t.placeholder((1, 2, height, width, 16)), t.placeholder((2, *kernel, 16), name="w")
    bias, steps = t.placeholder((2, 16), name="bias"), [t.reduce_axis(k) for k in kernel]
    shape = [
        (n + pads[k] + pads[k + 2] - (dilations[k] * (kernel[k] - 1) + 1)) // strides[k] + 1 for k, n in enumerate(size)
    ]

    def element(n: Var, c: Var, i: Var, j: Var, lane: Var) -> t.ReduceStage:
        y = i * down + steps[0].var * dilations[0] - pads[0]
        z = j * across_ + steps[1].var * dilations[1] - pads[1]
        inside = (y >= 0) & (y < height) & (z >= 0) & (z < width)
        if largest:
            return t.max(select(inside, x[n, c, y, z, lane], t.lowest("float32")), *steps)
        return t.sum(select(inside, x[n, c, y, z, lane], 0.0) * w[c, steps[0].var, steps[1].var, lane], *steps)

    sizes = [n for n in dict.fromkeys(size) if isinstance(n, Var)]
    made = t.compute((1, 2, *shape, 16), element, name="y")
    if largest:
        return t.nest("largest", [x], [made], sizes)
    result = t.compute(made.shape, lambda n, c, *at: maximum(made[n, c, *at] + bias[c, at[-1]], 0.0), name="z")
    return t.nest("depthwise", [x, w, bias], [result], sizes)


def blocked_pool() -> Nest:
    return over_windows((9, 25), (3, 3), (2, 2), (1, 1, 1, 1), largest=True)


def any_depthwise() -> Nest:
    return over_windows((N, N), (3, 3), pads=(1, 1, 1, 1))


def joined_in_blocks(first: int = 24, second: int = 24, block: int = 16) -> Nest:
    """Two images in blocks, the second of which is enlarged and made larger, as one image in blocks."""
    blocks = lambda channels: -(-channels // block)  # noqa: E731
    x = t.placeholder((blocks(first), N * 2, block))
    y = t.placeholder((blocks(second), N, block), name="y")

    def element(b: Var, i: Var, lane: Var) -> object:
        channel = b * block + lane
        behind = channel - first
        right = y[behind // block, i // 2, behind % block] * 3.0
        both = select(channel < first, x[channel // block, i, channel % block], right)
        return select(channel < first + second, both, 0.0)

    z = t.compute((blocks(first + second), N * 2, block), element, name="z")  # type: ignore[arg-type]
    return t.nest("joined_in_blocks", [x, y], [z], [N])


def side_by_side(widths: Sequence[int]) -> Nest:
    """Rows of several arrays, one behind the other."""
    parts = [t.placeholder((N, width), name=f"x{k}") for k, width in enumerate(widths)]

    def element(i: Var, j: Var) -> Expr:
        begin, chosen = 0, parts[0][i, j]
        for part, width in zip(parts[1:], widths, strict=False):
            begin += width
            chosen = select(j < begin, chosen, part[i, j - begin])
        return chosen

    z = t.compute((N, sum(widths)), element, name="z")
    return t.nest("side_by_side", parts, [z], [N])


def tiled(width: int, times: int) -> Nest:
    """Rows of so many elements, twice below one another and so many times side by side."""
    x = t.placeholder((N, width))
    z = t.compute((N * 2, width * times), lambda i, j: x[i % N, j % width], name="z")
    return t.nest("tiled", [x], [z], [N])


def padded_by_itself(size: int, front: int, behind: int, mode: str, rows: Expr | int = N) -> Nest:
    """Rows with elements in front and behind that are their own: by reflection, of the edge, or around."""
    x = t.placeholder((rows, size))

    def element(i: Var, j: Var) -> Expr:
        at = j - front
        away = apply("abs", at)
        bent = {
            "reflect": minimum(away, (size - 1) * 2 - away),
            "edge": minimum(maximum(at, 0), size - 1),
            "wrap": at % size,
        }
        return x[i, bent[mode]]

    return t.nest(
        "padded_by_itself",
        [x],
        [t.compute((rows, front + size + behind), element, name="z")],
        [rows] if rows == N else [],
    )


def any_turned() -> Nest:
    x = t.placeholder((N + 2, N))
    return t.nest("any_turned", [x], [t.compute((N, N + 2), lambda i, j: x[j, i] * 2.0, name="y")], [N])


def into_blocks(channels: int = 24) -> Nest:
    x, blocks = t.placeholder((channels, N)), -(-channels // 16)

    def element(b: Var, i: Var, lane: Var) -> object:
        return select(b * 16 + lane < channels, x[b * 16 + lane, i], 0.0)

    return t.nest("into_blocks", [x], [t.compute((blocks, N, 16), element, name="y")], [N])  # type: ignore[arg-type]


def out_of_blocks(channels: int = 24) -> Nest:
    x, y = t.placeholder((-(-channels // 16), N, 16)), t.placeholder((channels, N), name="y")
    z = t.compute((channels, N), lambda c, i: x[c // 16, i, c % 16] + y[c, i], name="z")
    return t.nest("out_of_blocks", [x, y], [z], [N])


def depth_to_space() -> Nest:
    """A product for each point, whose results are spread out over space, above zero."""
    x, w = t.placeholder((N, N, 5)), t.placeholder((2, 3, 5, 16), name="w")
    k = t.reduce_axis(5)

    def element(i: Var, p: Var, j: Var, q: Var, lane: Var) -> t.ReduceStage:
        return t.sum(x[i, j, k.var] * w[p, q, k.var, lane], k)

    y = t.compute((N, 2, N, 3, 16), element, name="y")
    z = t.compute((N * 2, N * 3, 16), lambda i, j, lane: maximum(y[i // 2, i % 2, j // 3, j % 3, lane], 0.0), name="z")
    return t.nest("depth_to_space", [x, w], [z], [N])


FIXED: dict[str, Callable[[], Nest]] = {
    f.__name__: f
    for f in (
        *(
            broadcast,
            flat,
            transposed,
            turned,
            turned_halves,
            colours_last,
            enlarged,
            padded,
            joined,
            softmax,
            along,
            across,
        ),
        *(largest_of, small_product, product, few_rows, few_transposed_rows),
        *(transposed_product, pointwise_convolution, convolution, strided_pool, half, bytes_and_truths, scalar, empty),
        grouped_convolution,
        blocked_pool,
    )
}
SYMBOLIC: dict[str, Callable[[], Nest]] = {
    f.__name__: f
    for f in (
        *(rows_of_any_length, one_row_of_any_length, any_elements, any_matrices, any_across),
        *(any_convolution, any_depthwise, joined_in_blocks, any_turned, into_blocks, out_of_blocks, depth_to_space),
    )
}
