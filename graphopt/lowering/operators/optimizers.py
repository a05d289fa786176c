"""Training optimizers: one step of gradient descent for each tensor (ONNX's training domain)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphopt.lowering.loops.compute import Tensor, compute_several
from graphopt.lowering.loops.expressions import Const, Expr, apply, cast, select
from graphopt.lowering.operators.elements import label, number, text
from graphopt.lowering.operators.operation import LoweringTable, Operation, OperatorLowering

UpdateStep = Callable[..., Sequence[Expr]]
"""From an operation, the rate, the number of steps before, a parameter, its gradient and its states (all but the
operation as elements) to the new parameter and the new states."""


def _each(step: UpdateStep, states: int) -> OperatorLowering:
    """A step for each of several tensors: all parameters, all gradients, then all of each state."""

    def describe(op: Operation) -> Sequence[Tensor]:
        n = (len(op.inputs) - 2) // (2 + states)
        groups = []
        for i in range(n):
            group = [op.input(2 + i + n * part) for part in range(2 + states)]

            def element(*at: Expr, group: Sequence[Tensor] = group) -> Sequence[Expr]:
                dtype = group[0].dtype
                rate, count = cast(op.input(0)[()], dtype), cast(op.input(1)[()], dtype)
                return step(op, rate, count, *(x[at] for x in group))

            groups.append(compute_several(group[0].shape, element, [label(op), *(f"state{k}" for k in range(states))]))
        return [group[part] for part in range(1 + states) for group in groups]

    return describe


def _regularized(op: Operation, x: Expr, gradient: Expr) -> Expr:
    return x * number(op, "norm_coefficient") + gradient


def _momentum(op: Operation, rate: Expr, count: Expr, x: Expr, gradient: Expr, v: Expr) -> Sequence[Expr]:
    slope, alpha = _regularized(op, x, gradient), number(op, "alpha")
    after = v * alpha + slope * select(count > 0, Const(number(op, "beta"), x.dtype), 1)
    moved = after if text(op, "mode") == "standard" else slope + after * alpha
    return x - rate * moved, after


def _adagrad(op: Operation, rate: Expr, count: Expr, x: Expr, gradient: Expr, squares: Expr) -> Sequence[Expr]:
    slope = _regularized(op, x, gradient)
    after = squares + slope * slope
    scaled = rate / (count * number(op, "decay_factor") + 1)
    return x - scaled * slope / (apply("sqrt", after) + number(op, "epsilon")), after


def _adam(op: Operation, rate: Expr, count: Expr, x: Expr, gradient: Expr, mean: Expr, squares: Expr) -> Sequence[Expr]:
    slope = _regularized(op, x, gradient)
    alpha, beta = number(op, "alpha"), number(op, "beta")
    first = mean * alpha + slope * (1 - alpha)
    second = squares * beta + slope * slope * (1 - beta)
    unbiased = rate * apply("sqrt", 1 - apply("pow", beta, count)) / (1 - apply("pow", alpha, count))
    adjusted = select(count > 0, unbiased, rate)
    moved = x - adjusted * (first / (apply("sqrt", second) + number(op, "epsilon")))
    return moved * (1 - number(op, "norm_coefficient_post")), first, second


DOMAIN = "ai.onnx.preview.training::"
TABLE: LoweringTable = {
    DOMAIN + "Adagrad": _each(_adagrad, 1),
    DOMAIN + "Adam": _each(_adam, 2),
    DOMAIN + "Momentum": _each(_momentum, 1),
}
