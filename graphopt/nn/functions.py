"""Functions of tensors: each makes the node, or the few nodes, of ONNX that compute it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, overload

import numpy as np

from graphopt.errors import UsageError
from graphopt.ir.types import Size
from graphopt.nn.indexing import axis_of, shape_tensor
from graphopt.nn.scope import Operand, current, emit, one
from graphopt.nn.tensor import Tensor

Past: TypeAlias = tuple[Tensor, Tensor]
"""Keys and values of tokens, [batch, heads, tokens, size]."""

# ------------------------------------------------------------------ activations


def relu(x: Tensor) -> Tensor:
    """max(x, 0).

    >>> print(nn.export(nn.relu, X))
    graph ...
    %0: float32[n, 8] = Relu(x)
    return %0 as y
    """
    return one("Relu", [x])


def relu6(x: Tensor) -> Tensor:
    """x between 0 and 6.

    >>> print(nn.export(nn.relu6, X))
    graph ...
    %0: float32[n, 8] = Clip(x, 0.0, 6.0)
    return %0 as y
    """
    return clip(x, 0.0, 6.0)


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """x, and slope * x where it is negative.

    >>> print(nn.export(nn.leaky_relu, X))
    graph ...
    %0: float32[n, 8] = LeakyRelu(x, alpha=0.01)
    return %0 as y
    """
    return one("LeakyRelu", [x], alpha=float(slope))


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x, and alpha * (exp(x) - 1) where it is negative.

    >>> print(nn.export(nn.elu, X))
    graph ...
    %0: float32[n, 8] = Elu(x, alpha=1.0)
    return %0 as y
    """
    return one("Elu", [x], alpha=float(alpha))


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution's share below x; ``approximate="tanh"`` computes it by tanh.

    >>> print(nn.export(nn.gelu, X))
    graph ...
    %0: float32[n, 8] = Gelu(x, approximate="none")
    return %0 as y
    """
    return one("Gelu", [x], approximate=approximate)


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x).

    >>> print(nn.export(nn.silu, X))
    graph ...
    %0: float32[n, 8] = Sigmoid(x)
    %1: float32[n, 8] = Mul(x, %0)
    return %1 as y
    """
    return x * sigmoid(x)


def mish(x: Tensor) -> Tensor:
    """x * tanh(softplus(x)).

    >>> print(nn.export(nn.mish, X))
    graph ...
    %0: float32[n, 8] = Mish(x)
    return %0 as y
    """
    return one("Mish", [x])


def hardswish(x: Tensor) -> Tensor:
    """x * relu6(x + 3) / 6.

    >>> print(nn.export(nn.hardswish, X))
    graph ...
    %0: float32[n, 8] = HardSwish(x)
    return %0 as y
    """
    return one("HardSwish", [x])


def hardsigmoid(x: Tensor) -> Tensor:
    """relu6(x + 3) / 6.

    >>> print(nn.export(nn.hardsigmoid, X))
    graph ...
    %0: float32[n, 8] = HardSigmoid(x, alpha=0.16666666666666666, beta=0.5)
    return %0 as y
    """
    return one("HardSigmoid", [x], alpha=1 / 6, beta=0.5)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)).

    >>> print(nn.export(nn.softplus, X))
    graph ...
    %0: float32[n, 8] = Softplus(x)
    return %0 as y
    """
    return one("Softplus", [x])


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)).

    >>> print(nn.export(nn.sigmoid, X))
    graph ...
    %0: float32[n, 8] = Sigmoid(x)
    return %0 as y
    """
    return one("Sigmoid", [x])


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x) as shares of their sum along an axis.

    >>> print(nn.export(nn.softmax, X))
    graph ...
    %0: float32[n, 8] = Softmax(x, axis=-1)
    return %0 as y
    """
    return one("Softmax", [x], axis=axis)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of softmax.

    >>> print(nn.export(nn.log_softmax, X))
    graph ...
    %0: float32[n, 8] = LogSoftmax(x, axis=-1)
    return %0 as y
    """
    return one("LogSoftmax", [x], axis=axis)


# ------------------------------------------------------------------ element by element


def exp(x: Tensor) -> Tensor:
    """e to the power of x.

    >>> print(nn.export(nn.exp, X))
    graph ...
    %0: float32[n, 8] = Exp(x)
    return %0 as y
    """
    return one("Exp", [x])


def log(x: Tensor) -> Tensor:
    """The natural logarithm.

    >>> print(nn.export(nn.log, X))
    graph ...
    %0: float32[n, 8] = Log(x)
    return %0 as y
    """
    return one("Log", [x])


def sqrt(x: Tensor) -> Tensor:
    """The square root.

    >>> print(nn.export(nn.sqrt, X))
    graph ...
    %0: float32[n, 8] = Sqrt(x)
    return %0 as y
    """
    return one("Sqrt", [x])


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent.

    >>> print(nn.export(nn.tanh, X))
    graph ...
    %0: float32[n, 8] = Tanh(x)
    return %0 as y
    """
    return one("Tanh", [x])


def erf(x: Tensor) -> Tensor:
    """The error function.

    >>> print(nn.export(nn.erf, X))
    graph ...
    %0: float32[n, 8] = Erf(x)
    return %0 as y
    """
    return one("Erf", [x])


def sin(x: Tensor) -> Tensor:
    """The sine.

    >>> print(nn.export(nn.sin, X))
    graph ...
    %0: float32[n, 8] = Sin(x)
    return %0 as y
    """
    return one("Sin", [x])


def cos(x: Tensor) -> Tensor:
    """The cosine.

    >>> print(nn.export(nn.cos, X))
    graph ...
    %0: float32[n, 8] = Cos(x)
    return %0 as y
    """
    return one("Cos", [x])


def minimum(a: Operand, b: Operand) -> Tensor:
    """The lesser of two, element by element.

    >>> print(nn.export(lambda x: nn.minimum(x, 0.5), X))
    graph ...
    %0: float32[n, 8] = Min(x, 0.5)
    return %0 as y
    """
    return one("Min", [a, b])


def maximum(a: Operand, b: Operand) -> Tensor:
    """The larger of two, element by element.

    >>> print(nn.export(lambda x: nn.maximum(x, 0.5), X))
    graph ...
    %0: float32[n, 8] = Max(x, 0.5)
    return %0 as y
    """
    return one("Max", [a, b])


def clip(x: Tensor, low: Operand = None, high: Operand = None) -> Tensor:
    """x between two bounds, each of which may be left out.

    >>> print(nn.export(lambda x: nn.clip(x, 0.0, 6.0), X))
    graph ...
    %0: float32[n, 8] = Clip(x, 0.0, 6.0)
    return %0 as y
    """
    return one("Clip", [x, low, high])


def where(condition: Tensor, a: Operand, b: Operand) -> Tensor:
    """a where the condition holds, and b elsewhere; a number is of the other's dtype, and float32 beside another.

    >>> print(nn.export(lambda x: nn.where(x > 0.0, x, 0.0), X))
    graph ...
    %0: bool[n, 8] = Greater(x, 0.0)
    %1: float32[n, 8] = Where(%0, x, 0.0)
    return %1 as y
    """
    dtypes = [t.dtype for t in (a, b) if isinstance(t, Tensor)]
    dtype = dtypes[0] if dtypes else "float32"
    chosen = [np.asarray(t, dtype) if isinstance(t, bool | int | float) else t for t in (a, b)]
    return one("Where", [condition, *chosen])


# ------------------------------------------------------------------ products


def matmul(a: Operand, b: Operand) -> Tensor:
    """The product of matrices, as numpy's ``@``.

    >>> print(nn.export(nn.matmul, X | {"w": "float32[8, 4]"}))
    graph ...
    %0: float32[n, 4] = MatMul(x, w)
    return %0 as y
    """
    return one("MatMul", [a, b])


def einsum(equation: str, *inputs: Operand) -> Tensor:
    """Einstein's sum, as numpy writes it.

    >>> print(nn.export(lambda x: nn.einsum("ij,kj->ik", x, x), X))
    graph ...
    %0: float32[n, n] = Einsum(x, x, equation="ij,kj->ik")
    return %0 as y
    """
    return one("Einsum", list(inputs), equation=equation)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x times the transpose of a weight of [out, in], and a bias.

    >>> print(nn.export(nn.linear, X | {"weight": "float32[4, 8]", "bias": "float32[4]"}))
    graph ...
    %0: float32[n, 4] = Gemm(x, weight, bias, transB=1)
    return %0 as y
    """
    if x.rank == 2:
        return one("Gemm", [x, weight, bias], transB=1)
    product = matmul(x, weight.T)
    return product if bias is None else product + bias


def embedding(weight: Tensor, ids: Tensor) -> Tensor:
    """The rows of a weight that integers number.

    >>> print(nn.export(nn.embedding, {"weight": "float32[10, 4]", "ids": "int64[n]"}))
    graph ...
    %0: float32[n, 4] = Gather(weight, ids, axis=0)
    return %0 as y
    """
    return one("Gather", [weight, ids], axis=0)


# ------------------------------------------------------------------ shapes


def concat(tensors: Sequence[Operand], axis: int = 0) -> Tensor:
    """Tensors one behind the other along an axis.

    >>> print(nn.export(lambda x: nn.concat([x, x], axis=1), X))
    graph ...
    %0: float32[n, 16] = Concat(x, x, axis=1)
    return %0 as y
    """
    return one("Concat", list(tensors), axis=axis)


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors side by side along a new axis.

    >>> print(nn.export(lambda x: nn.stack([x, x]), X))
    graph ...
    %0: float32[1, n, 8] = Unsqueeze(x, [0])
    %1: float32[1, n, 8] = Unsqueeze(x, [0])
    %2: float32[2, n, 8] = Concat(%0, %1, axis=0)
    return %2 as y
    """
    return concat([t.unsqueeze(axis) for t in tensors], axis)


def split(x: Tensor, parts: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """A tensor in so many equal parts along an axis, or in parts of these sizes.

    >>> print(nn.export(lambda x: nn.split(x, 2, axis=1), X))
    graph ...
    %0: float32[n, 4], %1: float32[n, 4] = Split(x, axis=1, num_outputs=2)
    return %0 as y0, %1 as y1
    """
    if isinstance(parts, int):
        size = x.shape[axis_of(x, axis)]
        if parts < 1 or (isinstance(size, int) and size % parts):
            raise UsageError(f"an axis of {size} cannot be split into {parts} equal parts")
        pieces = emit("Split", [x], {"axis": axis, "num_outputs": parts}, n_outputs=parts)
    else:
        pieces = emit("Split", [x, np.array(parts, np.int64)], {"axis": axis}, n_outputs=len(parts))
    return pieces if isinstance(pieces, tuple) else (pieces,)


def broadcast_to(x: Tensor, shape: Sequence[Size]) -> Tensor:
    """A tensor repeated along axes of size 1, and new ones before them, to a shape.

    >>> print(nn.export(lambda x: nn.broadcast_to(x[:, :1], x.shape), X))
    graph ...
    %3: float32[n, 8] = Expand(%0, %2)
    return %3 as y
    """
    return one("Expand", [x, shape_tensor(x, shape)])


def flatten(x: Tensor, start: int = 1) -> Tensor:
    """All axes from one on as one.

    >>> print(nn.export(nn.flatten, X))
    graph ...
    %0: float32[n, 8] = Reshape(x, [0, -1])
    return %0 as y
    """
    return x.reshape(*x.shape[: axis_of(x, start, extra=1)], -1)


def arange(stop: Size, *, start: Size = 0) -> Tensor:
    """The int64 numbers from 0, or from ``start``, to before a size; both may be open.

    >>> print(nn.export(lambda x: nn.arange(x.shape[0]), X))
    graph ...
    %0: int64[1] = Shape(x, end=1, start=0)
    %1: int64[] = Squeeze(%0, [0])
    %2: int64[n] = Range(0, %1, 1)
    return %2 as y
    """
    scope = current()
    first = np.int64(0) if start == 0 else scope.tensor(scope.shape([start])).squeeze(0)
    end = scope.tensor(scope.shape([stop])).squeeze(0)
    return one("Range", [first, end, np.int64(1)])


# ------------------------------------------------------------------ attention


@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Operand = None,
    *,
    heads: int,
    kv_heads: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    past: None = None,
) -> Tensor: ...
@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Operand = None,
    *,
    heads: int,
    kv_heads: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    past: Past,
) -> tuple[Tensor, Past]: ...
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Operand = None,
    *,
    heads: int,
    kv_heads: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    past: Past | None = None,
) -> Tensor | tuple[Tensor, Past]:
    """Attention of queries [batch, length, heads * size] to keys and values [batch, length, kv_heads * size].

    Where there are fewer heads of keys and values, each serves as many neighbouring ones of queries. ``mask``
    broadcasts to [batch, heads, queries, keys]: True where a query sees a key, or floats that are added to the scores.
    ``causal``: no query sees keys behind its own place. ``scale`` of the scores is 1 / sqrt(size) if not given.

    ``past`` are keys and values [batch, kv_heads, tokens, size] that come before: they are attended to as well, and
    given back with the new ones behind them.

    >>> print(nn.export(lambda x: nn.attention(x, x, x, heads=2, causal=True), WORDS))
    graph ...
    %0: float32[n, words, 8] = Attention(x, x, x, is_causal=1, kv_num_heads=2, q_num_heads=2)
    return %0 as y
    """
    attrs: dict[str, float] = {"q_num_heads": heads, "kv_num_heads": kv_heads or heads, "is_causal": int(causal)}
    if scale is not None:
        attrs["scale"] = float(scale)
    if past is None:
        return one("Attention", [query, key, value, mask], **attrs)
    attended, keys, values = emit("Attention", [query, key, value, mask, *past], attrs, n_outputs=3)
    return attended, (keys, values)


def rotary(x: Tensor, positions: Tensor, *, heads: int, base: float = 10000.0) -> Tensor:
    """Queries or keys [batch, length, heads * size] turned by their positions [batch, length] (RoPE, arXiv:2104.09864):
    the halves of each head are the two coordinates that are turned, by base^(-2k / size) for a step.

    >>> print(nn.export(lambda x: nn.rotary(x, nn.arange(x.shape[1]).reshape(1, -1), heads=2), WORDS))
    graph ...
    %9: float32[n, words, 8] = RotaryEmbedding(x, %7, %8, num_heads=2)
    return %9 as y
    """
    size = x.shape[-1]
    if not isinstance(size, int) or size % (2 * heads):
        raise UsageError(f"{x!r} cannot be split into {heads} heads of an even size")
    half = size // heads // 2
    speeds = np.power(base, -np.arange(half) / half).astype(np.float32)
    angles = positions.astype("float32").unsqueeze(-1) * speeds
    return one("RotaryEmbedding", [x, cos(angles).astype(x.dtype), sin(angles).astype(x.dtype)], num_heads=heads)
