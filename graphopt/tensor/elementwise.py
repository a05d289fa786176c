"""Element-wise tensor functions: arithmetic, comparisons and activations, which broadcast as numpy does.

Operands are tensors, numbers and small arrays; a number takes the dtype of the first tensor.
"""

from __future__ import annotations

import numpy as np

from graphopt.ir.dtypes import CODES
from graphopt.ir.onnx_io.tensors import numpy_dtype
from graphopt.lowering.loops.compute import Tensor
from graphopt.tensor.application import Operand, op


def _one(name: str, x: Operand, **attrs: float | str) -> Tensor:
    return op(name, [x], **attrs)


def _two(name: str, a: Operand, b: Operand, **attrs: float | str) -> Tensor:
    return op(name, [a, b], **attrs)


def add(a: Operand, b: Operand) -> Tensor:
    """The sum.

    >>> tensor.add(x, 2.0)
    <Tensor add: float32[n, 8]>
    """
    return _two("Add", a, b)


def sub(a: Operand, b: Operand) -> Tensor:
    """The difference.

    >>> tensor.sub(x, 2.0)
    <Tensor sub: float32[n, 8]>
    """
    return _two("Sub", a, b)


def mul(a: Operand, b: Operand) -> Tensor:
    """The product, element by element.

    >>> tensor.mul(x, 2.0)
    <Tensor mul: float32[n, 8]>
    """
    return _two("Mul", a, b)


def div(a: Operand, b: Operand) -> Tensor:
    """The quotient; of integers, rounded toward zero.

    >>> tensor.div(x, 2.0)
    <Tensor div: float32[n, 8]>
    """
    return _two("Div", a, b)


def pow(a: Operand, b: Operand) -> Tensor:
    """The power, in the dtype of the base.

    >>> tensor.pow(x, 2.0)
    <Tensor pow: float32[n, 8]>
    """
    return _two("Pow", a, b)


def maximum(a: Operand, b: Operand) -> Tensor:
    """The larger of each two elements.

    >>> tensor.maximum(x, 2.0)
    <Tensor max: float32[n, 8]>
    """
    return _two("Max", a, b)


def minimum(a: Operand, b: Operand) -> Tensor:
    """The smaller of each two elements.

    >>> tensor.minimum(x, 2.0)
    <Tensor min: float32[n, 8]>
    """
    return _two("Min", a, b)


def equal(a: Operand, b: Operand) -> Tensor:
    """Whether elements are equal.

    >>> tensor.equal(x, 0.0)
    <Tensor equal: bool[n, 8]>
    """
    return _two("Equal", a, b)


def less(a: Operand, b: Operand) -> Tensor:
    """Whether elements of ``a`` are less.

    >>> tensor.less(x, 0.0)
    <Tensor less: bool[n, 8]>
    """
    return _two("Less", a, b)


def greater(a: Operand, b: Operand) -> Tensor:
    """Whether elements of ``a`` are greater.

    >>> tensor.greater(x, 0.0)
    <Tensor greater: bool[n, 8]>
    """
    return _two("Greater", a, b)


def logical_and(a: Operand, b: Operand) -> Tensor:
    """Logical and.

    >>> tensor.logical_and(tensor.less(x, 1.0), tensor.greater(x, 0.0))
    <Tensor and: bool[n, 8]>
    """
    return _two("And", a, b)


def logical_or(a: Operand, b: Operand) -> Tensor:
    """Logical or.

    >>> tensor.logical_or(tensor.less(x, 1.0), tensor.greater(x, 0.0))
    <Tensor or: bool[n, 8]>
    """
    return _two("Or", a, b)


def abs(x: Tensor) -> Tensor:
    """The absolute value.

    >>> tensor.abs(x)
    <Tensor abs: float32[n, 8]>
    """
    return _one("Abs", x)


def neg(x: Tensor) -> Tensor:
    """The negative.

    >>> tensor.neg(x)
    <Tensor neg: float32[n, 8]>
    """
    return _one("Neg", x)


def sign(x: Tensor) -> Tensor:
    """The sign: -1, 0 or 1.

    >>> tensor.sign(x)
    <Tensor sign: float32[n, 8]>
    """
    return _one("Sign", x)


def floor(x: Tensor) -> Tensor:
    """Rounded down.

    >>> tensor.floor(x)
    <Tensor floor: float32[n, 8]>
    """
    return _one("Floor", x)


def ceil(x: Tensor) -> Tensor:
    """Rounded up.

    >>> tensor.ceil(x)
    <Tensor ceil: float32[n, 8]>
    """
    return _one("Ceil", x)


def round(x: Tensor) -> Tensor:
    """Rounded to the nearest, ties to even.

    >>> tensor.round(x)
    <Tensor round: float32[n, 8]>
    """
    return _one("Round", x)


def sqrt(x: Tensor) -> Tensor:
    """The square root.

    >>> tensor.sqrt(x)
    <Tensor sqrt: float32[n, 8]>
    """
    return _one("Sqrt", x)


def reciprocal(x: Tensor) -> Tensor:
    """One over the elements.

    >>> tensor.reciprocal(x)
    <Tensor reciprocal: float32[n, 8]>
    """
    return _one("Reciprocal", x)


def exp(x: Tensor) -> Tensor:
    """The exponential.

    >>> tensor.exp(x)
    <Tensor exp: float32[n, 8]>
    """
    return _one("Exp", x)


def log(x: Tensor) -> Tensor:
    """The natural logarithm.

    >>> tensor.log(x)
    <Tensor log: float32[n, 8]>
    """
    return _one("Log", x)


def sin(x: Tensor) -> Tensor:
    """The sine.

    >>> tensor.sin(x)
    <Tensor sin: float32[n, 8]>
    """
    return _one("Sin", x)


def cos(x: Tensor) -> Tensor:
    """The cosine.

    >>> tensor.cos(x)
    <Tensor cos: float32[n, 8]>
    """
    return _one("Cos", x)


def tan(x: Tensor) -> Tensor:
    """The tangent.

    >>> tensor.tan(x)
    <Tensor tan: float32[n, 8]>
    """
    return _one("Tan", x)


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent.

    >>> tensor.tanh(x)
    <Tensor tanh: float32[n, 8]>
    """
    return _one("Tanh", x)


def erf(x: Tensor) -> Tensor:
    """The error function.

    >>> tensor.erf(x)
    <Tensor erf: float32[n, 8]>
    """
    return _one("Erf", x)


def sigmoid(x: Tensor) -> Tensor:
    """One over 1 + exp(-x).

    >>> tensor.sigmoid(x)
    <Tensor sigmoid: float32[n, 8]>
    """
    return _one("Sigmoid", x)


def relu(x: Tensor) -> Tensor:
    """The elements above 0, and 0.

    >>> tensor.relu(x)
    <Tensor relu: float32[n, 8]>
    """
    return _one("Relu", x)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)).

    >>> tensor.softplus(x)
    <Tensor softplus: float32[n, 8]>
    """
    return _one("Softplus", x)


def mish(x: Tensor) -> Tensor:
    """x times the hyperbolic tangent of softplus.

    >>> tensor.mish(x)
    <Tensor mish: float32[n, 8]>
    """
    return _one("Mish", x)


def hard_swish(x: Tensor) -> Tensor:
    """x times its hard sigmoid.

    >>> tensor.hard_swish(x)
    <Tensor hardswish: float32[n, 8]>
    """
    return _one("HardSwish", x)


def silu(x: Tensor) -> Tensor:
    """x times its sigmoid (also called swish).

    >>> tensor.silu(x)
    <Tensor swish: float32[n, 8]>
    """
    return _one("Swish", x)


def logical_not(x: Tensor) -> Tensor:
    """Logical not.

    >>> tensor.logical_not(tensor.less(x, 0.0))
    <Tensor not: bool[n, 8]>
    """
    return _one("Not", x)


def gelu(x: Tensor, approximate: bool = False) -> Tensor:
    """x times the normal distribution at x; approximately, by a hyperbolic tangent.

    >>> tensor.gelu(x)
    <Tensor gelu: float32[n, 8]>
    """
    return _one("Gelu", x, approximate="tanh" if approximate else "none")


def leaky_relu(x: Tensor, alpha: float = 0.01) -> Tensor:
    """x, times ``alpha`` where it is below 0.

    >>> tensor.leaky_relu(x, alpha=0.1)
    <Tensor leakyrelu: float32[n, 8]>
    """
    return _one("LeakyRelu", x, alpha=alpha)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x, and ``alpha`` times exp(x) - 1 where it is below 0.

    >>> tensor.elu(x, alpha=0.5)
    <Tensor elu: float32[n, 8]>
    """
    return _one("Elu", x, alpha=alpha)


def clip(x: Tensor, low: Operand = None, high: Operand = None) -> Tensor:
    """The elements moved to where they are from ``low`` to ``high`` (None: no bound).

    >>> tensor.clip(x, 0.0, 6.0)
    <Tensor clip: float32[n, 8]>
    """
    return op("Clip", [x, low, high])


def where(condition: Tensor, then: Operand, otherwise: Operand) -> Tensor:
    """Elements of ``then`` where the condition holds, of ``otherwise`` elsewhere.

    A number takes the dtype of the other, and is float32 beside a number.

    >>> tensor.where(tensor.less(x, 0.0), 0.0, x)
    <Tensor where: float32[n, 8]>
    """
    dtype = next((t.dtype for t in (then, otherwise) if isinstance(t, Tensor)), "float32")
    chosen = [np.asarray(t, numpy_dtype(dtype)) if isinstance(t, bool | int | float) else t for t in (then, otherwise)]
    return op("Where", [condition, *chosen])


def cast(x: Tensor, dtype: str) -> Tensor:
    """The elements as another dtype (``"float16"``), as ONNX casts.

    >>> tensor.cast(x, "int64")
    <Tensor cast: int64[n, 8]>
    """
    return _one("Cast", x, to=CODES[dtype])
