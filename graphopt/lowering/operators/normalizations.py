"""What normalizations compute: elements moved and scaled by the mean and the spread of those around them."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.lowering import compute as t
from graphopt.lowering.compute import Tensor, compute
from graphopt.lowering.expressions import Expr, apply, cast
from graphopt.lowering.operators.elements import integer, number, operand, widened
from graphopt.lowering.operators.operation import Operation, Table
from graphopt.lowering.operators.reductions import At, count, normalized, over, without


def mean_of(shape: Sequence[Expr], axes: Sequence[int], element: At, name: str = "mean") -> Tensor:
    """The means over the axes, which are dropped."""
    total = over(shape, axes, element, t.sum, "total")
    return compute(total.shape, lambda *at: total[at] / cast(count(shape, axes), total.dtype), name=name)


def moments(shape: Sequence[Expr], axes: Sequence[int], element: At) -> tuple[Tensor, Tensor]:
    """The means and the variances over the axes, which are dropped. Two passes: one would cancel."""
    mean = mean_of(shape, axes, element)

    def squared(*at: Expr) -> Expr:
        distance = element(*at) - mean[without(at, axes)]
        return distance * distance

    return mean, mean_of(shape, axes, squared, "variance")


def inverse_deviation(variance: Tensor, epsilon: float) -> Tensor:
    """1 / sqrt(variance + epsilon)."""
    return compute(variance.shape, lambda *at: 1.0 / apply("sqrt", variance[at] + epsilon), name="inverse_deviation")


def _layer(op: Operation) -> Sequence[Tensor]:
    x, shape, dtype = op.input(0), op.input(0).shape, op.dtype()
    first = normalized(integer(op, "axis"), x.rank)
    axes = range(first, x.rank)

    def element(*at: Expr) -> Expr:
        return widened(x[at])

    mean, variance = moments(shape, axes, element)
    inverse = inverse_deviation(variance, number(op, "epsilon"))

    def normal(*at: Expr) -> Expr:
        row = at[:first]
        value = (element(*at) - mean[row]) * inverse[row] * widened(operand(op, 1, shape, at))
        return cast(value + widened(operand(op, 2, shape, at)) if op.has(2) else value, dtype)

    y = compute(shape, normal, dtype, "layer_normalization")
    return [y, *(_kept(op, k, s) for k, s in enumerate((mean, inverse), 1) if k < len(op.outputs))]


def _kept(op: Operation, k: int, statistic: Tensor) -> Tensor:
    """A statistic as the k-th output: the axes that it lacks are 1."""
    shape, dtype = op.shape(k), op.dtype(k)
    return compute(shape, lambda *at: cast(statistic[at[: statistic.rank]], dtype), dtype, statistic.name)


TABLE: Table = {"LayerNormalization": _layer}
