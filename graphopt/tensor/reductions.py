"""Reductions and products of tensors, softmax and normalizations among them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.lowering.loops.compute import Tensor
from graphopt.tensor.application import Operand, op
from graphopt.tensor.elementwise import add

Axes = int | Sequence[int] | None


def _reduce(name: str, x: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    axes = None if axis is None else [axis] if isinstance(axis, int) else list(axis)
    return op(name, [x, axes] if axes else [x], keepdims=keepdims, noop_with_empty_axes=axes == [])


def sum(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum over an axis or several (None: all).

    >>> tensor.sum(x, axis=1, keepdims=True)
    <Tensor reducesum: float32[n, 1]>
    """
    return _reduce("ReduceSum", x, axis, keepdims)


def mean(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean over an axis or several (None: all).

    >>> tensor.mean(x, axis=1, keepdims=True)
    <Tensor reducemean: float32[n, 1]>
    """
    return _reduce("ReduceMean", x, axis, keepdims)


def max(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element over an axis or several (None: all).

    >>> tensor.max(x, axis=1, keepdims=True)
    <Tensor reducemax: float32[n, 1]>
    """
    return _reduce("ReduceMax", x, axis, keepdims)


def min(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest element over an axis or several (None: all).

    >>> tensor.min(x, axis=1, keepdims=True)
    <Tensor reducemin: float32[n, 1]>
    """
    return _reduce("ReduceMin", x, axis, keepdims)


def prod(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The product over an axis or several (None: all).

    >>> tensor.prod(x, axis=1, keepdims=True)
    <Tensor reduceprod: float32[n, 1]>
    """
    return _reduce("ReduceProd", x, axis, keepdims)


def logsumexp(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials over an axis or several (None: all).

    >>> tensor.logsumexp(x, axis=1, keepdims=True)
    <Tensor reducelogsumexp: float32[n, 1]>
    """
    return _reduce("ReduceLogSumExp", x, axis, keepdims)


def argmax(x: Tensor, axis: int = 0, keepdims: bool = False) -> Tensor:
    """The index along an axis of the first largest element, as int64.

    >>> tensor.argmax(x, axis=1)
    <Tensor position: int64[n]>
    """
    return op("ArgMax", [x], axis=axis, keepdims=keepdims)


def argmin(x: Tensor, axis: int = 0, keepdims: bool = False) -> Tensor:
    """The index along an axis of the first smallest element, as int64.

    >>> tensor.argmin(x, axis=1)
    <Tensor position: int64[n]>
    """
    return op("ArgMin", [x], axis=axis, keepdims=keepdims)


def cumsum(x: Tensor, axis: int = 0) -> Tensor:
    """The sums of all elements along an axis up to each.

    >>> tensor.cumsum(x, axis=1)
    <Tensor cumsum: float32[n, 8]>
    """
    return op("CumSum", [x, np.array(axis, np.int64)])


def matmul(a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    """The product of matrices, of the last two axes; the axes before them broadcast. A vector is a row or a column.

    With ``transpose_a`` or ``transpose_b`` the last two axes of that operand are swapped first.

    >>> tensor.matmul(x, x, transpose_b=True)
    <Tensor matmul: float32[n, n]>
    """
    return op("MatMul", [_swapped(a) if transpose_a else a, _swapped(b) if transpose_b else b])


def dense(x: Tensor, weight: Tensor, bias: Operand = None, transpose_weight: bool = True) -> Tensor:
    """A dense layer: x of [..., k] times a weight of [n, k] (of [k, n] without ``transpose_weight``), plus the bias of
    [n].

    >>> tensor.dense(x, weight)
    <Tensor matmul: float32[n, 6]>
    """
    product = matmul(x, weight, transpose_b=transpose_weight)
    return product if bias is None else add(product, bias)


def _swapped(x: Tensor) -> Tensor:
    """The last two axes swapped."""
    return op("Transpose", [x], perm=(*range(x.rank - 2), x.rank - 1, x.rank - 2))


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The exponentials divided by their sum along an axis; no overflow.

    >>> tensor.softmax(x, axis=1)
    <Tensor softmax: float32[n, 8]>
    """
    return op("Softmax", [x], axis=axis)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of softmax.

    >>> tensor.log_softmax(x, axis=1)
    <Tensor logsoftmax: float32[n, 8]>
    """
    return op("LogSoftmax", [x], axis=axis)


def layer_norm(x: Tensor, scale: Operand, bias: Operand = None, axis: int = -1, epsilon: float = 1e-5) -> Tensor:
    """Rows with mean 0 and variance 1, scaled and shifted; a row is all axes from ``axis`` on.

    >>> tensor.layer_norm(x, np.ones(8, np.float32))
    <Tensor layernormalization: float32[n, 8]>
    """
    return op("LayerNormalization", [x, scale, bias], axis=axis, epsilon=epsilon)


def rms_norm(x: Tensor, scale: Operand, axis: int = -1, epsilon: float = 1e-5) -> Tensor:
    """Rows divided by the root of their mean square, scaled.

    >>> tensor.rms_norm(x, np.ones(8, np.float32))
    <Tensor rmsnormalization: float32[n, 8]>
    """
    return op("RMSNormalization", [x, scale], axis=axis, epsilon=epsilon)


def batch_norm(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Channels (axis 1) of x of [n, c, ...] with statistics that are given; each is of [c].

    >>> tensor.batch_norm(image, row, row, row, row)
    <Tensor batchnormalization: float32[1, 4, 8, 8]>
    """
    return op("BatchNormalization", [x, scale, bias, mean, variance], epsilon=epsilon)


def instance_norm(x: Tensor, scale: Tensor, bias: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Each image's channels with mean 0 and variance 1, scaled and shifted.

    >>> tensor.instance_norm(image, row, row)
    <Tensor instancenormalization: float32[1, 4, 8, 8]>
    """
    return op("InstanceNormalization", [x, scale, bias], epsilon=epsilon)


def group_norm(x: Tensor, scale: Tensor, bias: Tensor, groups: int, epsilon: float = 1e-5) -> Tensor:
    """Groups of channels of x of [n, c, ...] with mean 0 and variance 1; scale and bias are of [c].

    >>> tensor.group_norm(image, row, row, groups=2)
    <Tensor groupnormalization: float32[1, 4, 8, 8]>
    """
    return op("GroupNormalization", [x, scale, bias], num_groups=groups, epsilon=epsilon)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Attention: softmax(query keyᵀ · scale + mask) value, each of [batch, heads, length, width].

    ``scale`` is one over the root of the width where it is None.

    >>> q = te.placeholder((1, 2, n, 8), name="q")
    >>> tensor.attention(q, q, q, is_causal=True)
    <Tensor attention: float32[1, 2, n, 8]>
    """
    return op("Attention", [query, key, value, mask], is_causal=is_causal, scale=scale)
