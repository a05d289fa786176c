"""Functions of tensors: each makes the node, or the few nodes, of ONNX that compute it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.errors import UsageError
from graphopt.ir.types import Size
from graphopt.nn.indexing import axis_of, shape_tensor
from graphopt.nn.scope import Operand, current, emit, one
from graphopt.nn.tensor import Tensor

# ------------------------------------------------------------------ activations


def relu(x: Tensor) -> Tensor:
    """max(x, 0)."""
    return one("Relu", [x])


def relu6(x: Tensor) -> Tensor:
    """x between 0 and 6."""
    return clip(x, 0.0, 6.0)


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """x, and slope * x where it is negative."""
    return one("LeakyRelu", [x], alpha=float(slope))


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x, and alpha * (exp(x) - 1) where it is negative."""
    return one("Elu", [x], alpha=float(alpha))


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution's share below x; ``approximate="tanh"`` computes it by tanh."""
    return one("Gelu", [x], approximate=approximate)


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def mish(x: Tensor) -> Tensor:
    """x * tanh(softplus(x))."""
    return one("Mish", [x])


def hardswish(x: Tensor) -> Tensor:
    """x * relu6(x + 3) / 6."""
    return one("HardSwish", [x])


def hardsigmoid(x: Tensor) -> Tensor:
    """relu6(x + 3) / 6."""
    return one("HardSigmoid", [x], alpha=1 / 6, beta=0.5)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x))."""
    return one("Softplus", [x])


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return one("Sigmoid", [x])


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x) as shares of their sum along an axis."""
    return one("Softmax", [x], axis=axis)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of softmax."""
    return one("LogSoftmax", [x], axis=axis)


# ------------------------------------------------------------------ element by element


def exp(x: Tensor) -> Tensor:
    """e to the power of x."""
    return one("Exp", [x])


def log(x: Tensor) -> Tensor:
    """The natural logarithm."""
    return one("Log", [x])


def sqrt(x: Tensor) -> Tensor:
    """The square root."""
    return one("Sqrt", [x])


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return one("Tanh", [x])


def erf(x: Tensor) -> Tensor:
    """The error function."""
    return one("Erf", [x])


def sin(x: Tensor) -> Tensor:
    """The sine."""
    return one("Sin", [x])


def cos(x: Tensor) -> Tensor:
    """The cosine."""
    return one("Cos", [x])


def minimum(a: Operand, b: Operand) -> Tensor:
    """The lesser of two, element by element."""
    return one("Min", [a, b])


def maximum(a: Operand, b: Operand) -> Tensor:
    """The larger of two, element by element."""
    return one("Max", [a, b])


def clip(x: Tensor, low: Operand = None, high: Operand = None) -> Tensor:
    """x between two bounds, each of which may be left out."""
    return one("Clip", [x, low, high])


def where(condition: Tensor, a: Operand, b: Operand) -> Tensor:
    """a where the condition holds, and b elsewhere; a number is of the other's dtype, and float32 beside another."""
    dtypes = [t.dtype for t in (a, b) if isinstance(t, Tensor)]
    dtype = dtypes[0] if dtypes else "float32"
    chosen = [np.asarray(t, dtype) if isinstance(t, bool | int | float) else t for t in (a, b)]
    return one("Where", [condition, *chosen])


# ------------------------------------------------------------------ products


def matmul(a: Operand, b: Operand) -> Tensor:
    """The product of matrices, as numpy's ``@``."""
    return one("MatMul", [a, b])


def einsum(equation: str, *inputs: Operand) -> Tensor:
    """Einstein's sum, as numpy writes it."""
    return one("Einsum", list(inputs), equation=equation)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x times the transpose of a weight of [out, in], and a bias."""
    if x.rank == 2:
        return one("Gemm", [x, weight, bias], transB=1)
    product = matmul(x, weight.T)
    return product if bias is None else product + bias


def embedding(weight: Tensor, ids: Tensor) -> Tensor:
    """The rows of a weight that integers number."""
    return one("Gather", [weight, ids], axis=0)


# ------------------------------------------------------------------ shapes


def concat(tensors: Sequence[Operand], axis: int = 0) -> Tensor:
    """Tensors one behind the other along an axis."""
    return one("Concat", list(tensors), axis=axis)


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors side by side along a new axis."""
    return concat([t.unsqueeze(axis) for t in tensors], axis)


def split(x: Tensor, parts: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """A tensor in so many equal parts along an axis, or in parts of these sizes."""
    if isinstance(parts, int):
        size = x.shape[axis_of(x, axis)]
        if parts < 1 or (isinstance(size, int) and size % parts):
            raise UsageError(f"an axis of {size} cannot be split into {parts} equal parts")
        pieces = emit("Split", [x], {"axis": axis, "num_outputs": parts}, n_outputs=parts)
    else:
        pieces = emit("Split", [x, np.array(parts, np.int64)], {"axis": axis}, n_outputs=len(parts))
    return pieces if isinstance(pieces, tuple) else (pieces,)


def broadcast_to(x: Tensor, shape: Sequence[Size]) -> Tensor:
    """A tensor repeated along axes of size 1, and new ones before them, to a shape."""
    return one("Expand", [x, shape_tensor(x, shape)])


def flatten(x: Tensor, start: int = 1) -> Tensor:
    """All axes from one on as one."""
    return x.reshape(*x.shape[: axis_of(x, start, extra=1)], -1)


def arange(stop: Size) -> Tensor:
    """The int64 numbers from 0 to before a size, which may be open."""
    scope = current()
    end = scope.tensor(scope.shape([stop])).squeeze(0)
    return one("Range", [np.int64(0), end, np.int64(1)])


# ------------------------------------------------------------------ attention


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
) -> Tensor:
    """Attention of queries [batch, length, heads * size] to keys and values [batch, length, kv_heads * size].

    Where there are fewer heads of keys and values, each serves as many neighbouring ones of queries. ``mask``
    broadcasts to [batch, heads, queries, keys]: True where a query sees a key, or floats that are added to the scores.
    ``causal``: no query sees keys behind its own place. ``scale`` of the scores is 1 / sqrt(size) if not given.
    """
    attrs: dict[str, float] = {"q_num_heads": heads, "kv_num_heads": kv_heads or heads, "is_causal": int(causal)}
    if scale is not None:
        attrs["scale"] = float(scale)
    return one("Attention", [query, key, value, mask], **attrs)


def rotary(x: Tensor, positions: Tensor, *, heads: int, base: float = 10000.0) -> Tensor:
    """Queries or keys [batch, length, heads * size] turned by their positions [batch, length] (RoPE, arXiv:2104.09864):
    the halves of each head are the two coordinates that are turned, by base^(-2k / size) for a step."""
    size = x.shape[-1]
    if not isinstance(size, int) or size % (2 * heads):
        raise UsageError(f"{x!r} cannot be split into {heads} heads of an even size")
    half = size // heads // 2
    speeds = np.power(base, -np.arange(half) / half).astype(np.float32)
    angles = positions.astype("float32").unsqueeze(-1) * speeds
    return one("RotaryEmbedding", [x, cos(angles).astype(x.dtype), sin(angles).astype(x.dtype)], num_heads=heads)
