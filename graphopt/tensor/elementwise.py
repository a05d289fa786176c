"""Element-wise tensor functions: arithmetic, comparisons and activations, which broadcast as numpy does.

Operands are tensors, numbers and small arrays; a number takes the dtype of the first tensor.
"""

from __future__ import annotations

from graphopt.ir.dtypes import CODES
from graphopt.lowering.loops.compute import Tensor
from graphopt.tensor.application import Operand, op


def _one(name: str, x: Operand, **attrs: float | str) -> Tensor:
    return op(name, [x], **attrs)


def _two(name: str, a: Operand, b: Operand, **attrs: float | str) -> Tensor:
    return op(name, [a, b], **attrs)


def add(a: Operand, b: Operand) -> Tensor:
    """The sum."""
    return _two("Add", a, b)


def sub(a: Operand, b: Operand) -> Tensor:
    """The difference."""
    return _two("Sub", a, b)


def mul(a: Operand, b: Operand) -> Tensor:
    """The product, element by element."""
    return _two("Mul", a, b)


def div(a: Operand, b: Operand) -> Tensor:
    """The quotient; of integers, rounded toward zero."""
    return _two("Div", a, b)


def pow(a: Operand, b: Operand) -> Tensor:
    """The power, in the dtype of the base."""
    return _two("Pow", a, b)


def maximum(a: Operand, b: Operand) -> Tensor:
    """The larger of each two elements."""
    return _two("Max", a, b)


def minimum(a: Operand, b: Operand) -> Tensor:
    """The smaller of each two elements."""
    return _two("Min", a, b)


def equal(a: Operand, b: Operand) -> Tensor:
    """Whether elements are equal."""
    return _two("Equal", a, b)


def less(a: Operand, b: Operand) -> Tensor:
    """Whether elements of ``a`` are less."""
    return _two("Less", a, b)


def greater(a: Operand, b: Operand) -> Tensor:
    """Whether elements of ``a`` are greater."""
    return _two("Greater", a, b)


def logical_and(a: Operand, b: Operand) -> Tensor:
    """Logical and."""
    return _two("And", a, b)


def logical_or(a: Operand, b: Operand) -> Tensor:
    """Logical or."""
    return _two("Or", a, b)


def abs(x: Tensor) -> Tensor:
    """The absolute value."""
    return _one("Abs", x)


def neg(x: Tensor) -> Tensor:
    """The negative."""
    return _one("Neg", x)


def sign(x: Tensor) -> Tensor:
    """The sign: -1, 0 or 1."""
    return _one("Sign", x)


def floor(x: Tensor) -> Tensor:
    """Rounded down."""
    return _one("Floor", x)


def ceil(x: Tensor) -> Tensor:
    """Rounded up."""
    return _one("Ceil", x)


def round(x: Tensor) -> Tensor:
    """Rounded to the nearest, ties to even."""
    return _one("Round", x)


def sqrt(x: Tensor) -> Tensor:
    """The square root."""
    return _one("Sqrt", x)


def reciprocal(x: Tensor) -> Tensor:
    """One over the elements."""
    return _one("Reciprocal", x)


def exp(x: Tensor) -> Tensor:
    """The exponential."""
    return _one("Exp", x)


def log(x: Tensor) -> Tensor:
    """The natural logarithm."""
    return _one("Log", x)


def sin(x: Tensor) -> Tensor:
    """The sine."""
    return _one("Sin", x)


def cos(x: Tensor) -> Tensor:
    """The cosine."""
    return _one("Cos", x)


def tan(x: Tensor) -> Tensor:
    """The tangent."""
    return _one("Tan", x)


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return _one("Tanh", x)


def erf(x: Tensor) -> Tensor:
    """The error function."""
    return _one("Erf", x)


def sigmoid(x: Tensor) -> Tensor:
    """One over 1 + exp(-x)."""
    return _one("Sigmoid", x)


def relu(x: Tensor) -> Tensor:
    """The elements above 0, and 0."""
    return _one("Relu", x)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x))."""
    return _one("Softplus", x)


def mish(x: Tensor) -> Tensor:
    """x times the hyperbolic tangent of softplus."""
    return _one("Mish", x)


def hard_swish(x: Tensor) -> Tensor:
    """x times its hard sigmoid."""
    return _one("HardSwish", x)


def silu(x: Tensor) -> Tensor:
    """x times its sigmoid (also called swish)."""
    return _one("Swish", x)


def logical_not(x: Tensor) -> Tensor:
    """Logical not."""
    return _one("Not", x)


def gelu(x: Tensor, approximate: bool = False) -> Tensor:
    """x times the normal distribution at x; approximately, by a hyperbolic tangent."""
    return _one("Gelu", x, approximate="tanh" if approximate else "none")


def leaky_relu(x: Tensor, alpha: float = 0.01) -> Tensor:
    """x, times ``alpha`` where it is below 0."""
    return _one("LeakyRelu", x, alpha=alpha)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x, and ``alpha`` times exp(x) - 1 where it is below 0."""
    return _one("Elu", x, alpha=alpha)


def clip(x: Tensor, low: Operand = None, high: Operand = None) -> Tensor:
    """The elements moved to where they are from ``low`` to ``high`` (None: no bound)."""
    return op("Clip", [x, low, high])


def where(condition: Tensor, then: Operand, otherwise: Operand) -> Tensor:
    """Elements of ``then`` where the condition holds, of ``otherwise`` elsewhere."""
    return op("Where", [condition, then, otherwise])


def cast(x: Tensor, dtype: str) -> Tensor:
    """The elements as another dtype (``"float16"``), as ONNX casts."""
    return _one("Cast", x, to=CODES[dtype])
