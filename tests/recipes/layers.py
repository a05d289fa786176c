"""Recipes of what layers of networks are made of: reductions, normalizations, products, convolutions."""

from __future__ import annotations

from typing import Any

from graphopt.ir.graph import Value
from tests.recipes.maker import FLOATS, Maker, Misfit

REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare", "ReduceL1")


def reduce(m: Maker) -> None:
    x = m.pick(*FLOATS, least=1)
    op = m.random.choice(REDUCTIONS)
    rank = len(m.shape(x))
    if op in ("ReduceMax", "ReduceMin", "ReduceMean") and not all(isinstance(s, int) and s for s in m.shape(x)):
        raise Misfit("of nothing there is no mean")
    axes = m.random.choice(([-1], [0], [1 % rank], list(range(rank)), list(range(2, rank)) or [0]))
    m.call(op, (x, m.constant(axes)), keepdims=m.random.choice((0, 1, None)))


def softmax(m: Maker) -> None:
    x = m.pick(*FLOATS, least=1)
    m.call(m.random.choice(("Softmax", "Softmax", "LogSoftmax")), (x,), axis=m.axis(x))


def arg(m: Maker) -> None:
    x = m.pick(*FLOATS, "int64", least=1, static=True)
    if 0 in m.shape(x):
        raise Misfit("of nothing there is no largest")
    m.call(m.random.choice(("ArgMax", "ArgMin")), (x,), axis=m.axis(x), keepdims=m.random.choice((0, 1)))


def layer_norm(m: Maker) -> None:
    """A layer normalization as torch exports it for old opsets."""
    x = m.pick(*FLOATS, least=2, static=True)
    n = m.shape(x)[-1]
    assert isinstance(n, int)
    dtype = m.dtype(x)
    centred = m.call("Sub", (x, m.call("ReduceMean", (x, m.constant([-1])))))
    if m.random.random() < 0.5:
        squares = m.call("Pow", (centred, m.constant(2.0, dtype)))
    else:
        squares = m.call("Mul", (centred, centred))
    variance = m.call("ReduceMean", (squares, m.constant([-1])))
    deviation = m.call("Sqrt", (m.call("Add", (variance, m.constant(m.random.choice((1e-5, 1e-3)), dtype))),))
    y = m.call("Div", (centred, deviation))
    if m.random.random() < 0.7:
        m.call("Add", (m.call("Mul", (y, m.weight([n], dtype))), m.weight([n], dtype)))


def matmul(m: Maker) -> None:
    x = m.pick("float32", "float64", least=1)
    k = m.shape(x)[-1]
    if not isinstance(k, int):
        raise Misfit("an open inner size")
    dtype = m.dtype(x)
    for _ in range(m.random.choice((1, 1, 1, 2, 3))):
        n = m.random.choice((1, 2, 4, 5))
        y = m.call("MatMul", (x, m.weight([k, n], dtype)))
        if m.random.random() < 0.6:
            m.call("Add", (y, m.weight([n], dtype)))


def matmul_of_two(m: Maker) -> None:
    x = m.pick("float32", "float64", least=2)
    y = m.pick(m.dtype(x), least=2)
    a, b = m.shape(x), m.shape(y)
    if a[-1] == b[-2] and m.joins(a[:-2], b[:-2]):
        m.call("MatMul", (x, y))
    elif a[-1] == b[-1] and m.joins(a[:-2], b[:-2]):
        perm = (*range(len(b) - 2), len(b) - 1, len(b) - 2)
        m.call("MatMul", (x, m.call("Transpose", (y,), perm=perm)))
    else:
        raise Misfit("does not multiply")


def gemm(m: Maker) -> None:
    x = m.pick("float32", "float64", rank=2)
    flip, twin = m.random.choice((0, 0, 1)), m.random.choice((0, 1))
    k = m.shape(x)[0 if flip else 1]
    if not isinstance(k, int):
        raise Misfit("an open inner size")
    n = m.random.choice((1, 2, 4))
    dtype = m.dtype(x)
    bias = () if m.random.random() < 0.3 else (m.weight(m.random.choice(([n], [1, n], [])), dtype),)
    attrs: dict[str, Any] = {"transA": flip or None, "transB": twin or None}
    if m.random.random() < 0.3:
        attrs |= {"alpha": m.random.choice((0.5, 1.0, 2.0)), "beta": m.random.choice((0.0, 1.0, 0.5))}
    m.call("Gemm", (x, m.weight([n, k] if twin else [k, n], dtype), *bias), **attrs)


def image(m: Maker) -> Value:
    x = m.pick("float32", rank=4)
    if not isinstance(m.shape(x)[1], int):
        raise Misfit("an open number of channels")
    return x


def convolution(m: Maker) -> None:
    """A convolution and what tends to follow one."""
    x = image(m)
    channels = m.shape(x)[1]
    assert isinstance(channels, int)
    if not channels:
        raise Misfit("no channels")
    group = m.random.choice((1, 1, 1, channels))
    out = m.random.choice((1, 2, 4)) * group
    kernel = m.random.choice((1, 1, 3))
    around = kernel // 2
    if m.random.random() < 0.2:
        x = m.call("Pad", (x, m.constant([0, 0, 1, 1, 0, 0, 1, 1])))
    pads = m.random.choice((None, (around,) * 4)) if kernel == 1 else (around,) * 4
    weights = m.weight([out, channels // group, kernel, kernel], "float32")
    bias = (m.weight([out], "float32"),) if m.random.random() < 0.5 else ()
    strides = m.random.choice((None, None, (2, 2)))
    y = m.call("Conv", (x, weights, *bias), group=group, pads=pads, strides=strides, kernel_shape=(kernel, kernel))
    if m.random.random() < 0.5:
        y = batch_norm_of(m, y)
    if m.random.random() < 0.3:
        y = m.call("Mul", (y, m.weight([out, 1, 1], "float32")))
    if m.random.random() < 0.3:
        y = m.call("Add", (y, m.weight([1, out, 1, 1], "float32")))
    if m.random.random() < 0.5:
        hard_swish_of(m, y) if m.random.random() < 0.4 else m.call("Relu", (y,))


def batch_norm_of(m: Maker, x: Value) -> Value:
    channels = m.shape(x)[1]
    assert isinstance(channels, int)
    numbers = [m.weight([channels], "float32", positive=i == 3) for i in range(4)]
    return m.call("BatchNormalization", (x, *numbers), epsilon=m.random.choice((None, 0.125, 2.0**-10)))


def batch_norm(m: Maker) -> None:
    batch_norm_of(m, image(m))


def hard_swish_of(m: Maker, x: Value) -> Value:
    dtype = m.dtype(x)
    three, six, zero = (m.constant(n, dtype) for n in (3.0, 6.0, 0.0))
    y = m.call("Mul", (x, m.call("Clip", (m.call("Add", (x, three)), zero, six))))
    return m.call("Div", (y, six))


def pool(m: Maker) -> None:
    x = image(m)
    op = m.random.choice(("MaxPool", "AveragePool", "GlobalAveragePool"))
    attrs = {} if op.startswith("Global") else {"kernel_shape": (2, 2), "pads": (0, 0, 1, 1)}
    m.call(op, (x,), **attrs)


def squeeze_and_excite(m: Maker) -> None:
    x = image(m)
    channels = m.shape(x)[1]
    assert isinstance(channels, int)
    y = m.call("GlobalAveragePool", (x,))
    y = m.call("Conv", (y, m.weight([channels, channels, 1, 1], "float32")), kernel_shape=(1, 1))
    m.call("Mul", (x, m.call(m.random.choice(("Sigmoid", "HardSigmoid")), (y,))))
