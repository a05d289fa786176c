"""Activation functions: formulas that neither overflow nor cancel."""

from __future__ import annotations

from math import pi, sqrt

from graphopt.ir.graph import NO_ATTRS
from graphopt.ir.op_table import OPS, Row, interpret
from graphopt.lowering.loops.compute import Tensor, compute
from graphopt.lowering.loops.expressions import Expr, apply, cast, maximum, minimum, select
from graphopt.lowering.operators.elements import Formula, elementwise, is_float, number, text, widened
from graphopt.lowering.operators.elementwise import FORMULAS as FUNCTIONS
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x))."""
    return maximum(x, 0) + apply("log1p", apply("exp", -apply("abs", x)))


def gelu(x: Expr, approximate: bool = False) -> Expr:
    """x times the normal distribution at x; approximately, by a hyperbolic tangent."""
    if approximate:
        return x * apply("sigmoid", x * (1.0 + x * x * 0.044715) * (2 * sqrt(2 / pi)))
    return x * 0.5 * (1.0 + apply("erf", x * sqrt(0.5)))


def _biased(x: Expr, bias: Expr | None) -> Expr:
    return x if bias is None else x + bias


def _leaky(x: Expr, slope: Expr | float) -> Expr:
    return select(x < 0, x * slope, x)


def _elu(x: Expr, alpha: float, scale: float = 1.0) -> Expr:
    negative = apply("expm1", minimum(x, 0)) * (alpha * scale)
    return select(x > 0, x if scale == 1.0 else x * scale, negative)


def _celu(op: Operation, x: Expr) -> Expr:
    alpha = number(op, "alpha")
    return maximum(x, 0) + apply("expm1", minimum(x, 0) / alpha) * alpha


def _shrink(op: Operation, x: Expr) -> Expr:
    threshold, bias = number(op, "lambd"), number(op, "bias")
    value = x if is_float(x) else cast(x, "float64")  # the attributes are no integers
    return cast(select(value < -threshold, value + bias, select(value > threshold, value - bias, 0)), x.dtype)


def _hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    return maximum(minimum(x * alpha + beta, 1), 0)


def _swish(x: Expr, alpha: float) -> Expr:
    return x * apply("sigmoid", x if alpha == 1.0 else x * alpha)


_OWN: dict[str, Formula] = {
    "Celu": _celu,
    "Elu": lambda op, x: _elu(x, number(op, "alpha")),
    "Gelu": lambda op, x: gelu(x, text(op, "approximate") == "tanh"),
    "HardSigmoid": lambda op, x: _hard_sigmoid(x, number(op, "alpha"), number(op, "beta")),
    "HardSwish": lambda op, x: x * _hard_sigmoid(x, 1 / 6, 0.5),
    "LeakyRelu": lambda op, x: _leaky(x, number(op, "alpha")),
    "Mish": lambda op, x: x * apply("tanh", softplus(x)),
    "PRelu": lambda op, x, slope: _leaky(x, slope),
    "Relu": lambda op, x: maximum(x, 0),
    "Selu": lambda op, x: _elu(x, number(op, "alpha"), number(op, "gamma")),
    "Shrink": _shrink,
    "Softplus": lambda op, x: softplus(x),
    "Softsign": lambda op, x: x / (apply("abs", x) + 1),
    "SwiGLU": lambda op, a, b: _swish(a, number(op, "alpha")) * b,
    "Swish": lambda op, x: _swish(x, number(op, "alpha")),
    "ThresholdedRelu": lambda op, x: select(x > number(op, "alpha"), x, 0),
    "com.microsoft::FastGelu": lambda op, x, bias=None: gelu(_biased(x, bias), True),
    "com.microsoft::QuickGelu": lambda op, x: _swish(x, number(op, "alpha")),
}


def _said(row: Row) -> Formula:
    """The formula that the row of an op states."""
    schema = row.schema
    assert schema is not None

    def formula(op: Operation, *elements: Expr | None) -> Expr:
        values: dict[str, Expr | float | None] = {name: number(op, name) for name in schema.attributes}
        values |= zip(schema.inputs.split(), elements, strict=True)

        def call(name: str, operands: list[Expr | float | None]) -> Expr:
            return FORMULAS[name](Operation(name, NO_ATTRS, (), (), (), op.opset), *operands)

        expr = interpret(row.means, values, call)
        assert isinstance(expr, Expr)
        return expr

    return formula


FORMULAS: dict[str, Formula] = {
    **FUNCTIONS,
    **_OWN,
    **{op: _said(row) for op, row in OPS.items() if row.means and op not in _OWN},
}
"""By op: what makes an element of its output of elements of its inputs."""


def _slopes_of_channels(op: Operation) -> Tensor:
    """Before opset 7 slopes go along the second axis, whatever comes behind it."""
    x, slope = op.input(0), op.input(1)
    if slope.rank != 1:
        raise NotLowered(f"{op.op} with slopes of rank {slope.rank}")

    def element(*at: Expr) -> Expr:
        value = widened(x[at])
        return cast(_leaky(value, widened(slope[at[min(1, len(at) - 1)]])), op.dtype())

    return compute(x.shape, element, op.dtype(), "prelu")


TABLE: LoweringTable = {
    **{op: elementwise(formula) for op, formula in FORMULAS.items() if op not in FUNCTIONS},
    "PRelu@6": _slopes_of_channels,
}
