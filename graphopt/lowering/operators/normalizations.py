"""Normalization by mean and variance, or by a norm: batch, instance, group, local response, Lp."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.compute import Requirement, Tensor, compute
from graphopt.lowering.loops.expressions import Const, Expr, apply, as_expr, cast, equal, select
from graphopt.lowering.operators.elements import integer, label, number, wide, widened
from graphopt.lowering.operators.elementwise import power
from graphopt.lowering.operators.indices import matching
from graphopt.lowering.operators.operation import LoweringTable, Operation
from graphopt.lowering.operators.reductions import At, count, normalized, over, without

# -- statistics


def mean_of(shape: Sequence[Expr], axes: Sequence[int], element: At, name: str = "mean") -> Tensor:
    """The means over the axes, which are dropped."""
    total = over(shape, axes, element, t.sum, "total")
    return compute(total.shape, lambda *at: total[at] / cast(count(shape, axes), total.dtype), name=name)


def moments(shape: Sequence[Expr], axes: Sequence[int], element: At) -> tuple[Tensor, Tensor]:
    """The means and the variances over the axes, which are dropped. In two passes: in one the digits cancel."""
    mean = mean_of(shape, axes, element)

    def squared(*at: Expr) -> Expr:
        distance = element(*at) - mean[without(at, axes)]
        return distance * distance

    return mean, mean_of(shape, axes, squared, "variance")


def inverse_root(variance: Tensor, epsilon: float) -> Tensor:
    """1 / sqrt(variance + epsilon)."""
    return compute(variance.shape, lambda *at: 1.0 / apply("sqrt", variance[at] + epsilon), name="inverse")


# -- channel by channel


def _batch(op: Operation) -> Sequence[Tensor]:
    x, dtype, epsilon = op.input(0), op.dtype(), number(op, "epsilon")
    inner = wide(dtype)
    training = integer(op, "training_mode")

    def element(*at: Expr) -> Expr:
        return cast(x[at], inner)

    axes = [k for k in range(x.rank) if k != 1]
    mean, variance = moments(x.shape, axes, element) if training else (op.input(3), op.input(4))

    def normal(*at: Expr) -> Expr:
        scale, shift, center, spread = (cast(p[at[1]], inner) for p in (op.input(1), op.input(2), mean, variance))
        return cast((element(*at) - center) * (scale / apply("sqrt", spread + epsilon)) + shift, dtype)

    y = compute(x.shape, normal, dtype, label(op), _by_channel(op, (1, 2, 3, 4)))
    if not training:
        return [y]
    momentum = number(op, "momentum")

    def running(k: int, statistic: Tensor, name: str) -> Tensor:
        before, kind = op.input(k + 2), op.dtype(k)

        def moved(c: Expr) -> Expr:
            return cast(cast(before[c], inner) * momentum + statistic[c] * (1 - momentum), kind)

        return compute(before.shape, moved, kind, name)

    results = [y, running(1, mean, "running_mean"), running(2, variance, "running_variance")]
    return results[: len(op.outputs)]


def _scaled(op: Operation, value: Expr, channel: Expr) -> Expr:
    """The normalized value with its channel's scale and shift."""
    scale, shift = (cast(op.input(k)[channel], value.dtype) for k in (1, 2))
    return value * scale + shift


def _by_channel(op: Operation, inputs: Sequence[int]) -> list[Requirement]:
    """The requirements that inputs hold a number for each channel."""
    return [r for k in inputs for r in matching(op, op.input(k).shape, op.input(0).shape[1:2])]


def _instance(op: Operation) -> Tensor:
    x, dtype = op.input(0), op.dtype()

    def element(*at: Expr) -> Expr:
        return widened(x[at])

    mean, variance = moments(x.shape, range(2, x.rank), element)
    inverse = inverse_root(variance, number(op, "epsilon"))

    def normal(*at: Expr) -> Expr:
        return cast(_scaled(op, (element(*at) - mean[at[:2]]) * inverse[at[:2]], at[1]), dtype)

    return compute(x.shape, normal, dtype, label(op), _by_channel(op, (1, 2)))


def _group(op: Operation) -> Tensor:
    """As if each group of channels were an axis of its own."""
    x, dtype, groups = op.input(0), op.dtype(), integer(op, "num_groups")
    within = x.shape[1] // groups
    grouped = (x.shape[0], as_expr(groups), within, *x.shape[2:])

    def element(n: Expr, group: Expr, c: Expr, *at: Expr) -> Expr:
        return widened(x[(n, group * within + c, *at)])

    mean, variance = moments(grouped, range(2, len(grouped)), element)
    inverse = inverse_root(variance, number(op, "epsilon"))

    def normal(*at: Expr) -> Expr:
        row = (at[0], at[1] // within)
        return cast(_scaled(op, (widened(x[at]) - mean[row]) * inverse[row], at[1]), dtype)

    return compute(x.shape, normal, dtype, label(op), _by_channel(op, (1, 2)))


def _mean_variance(op: Operation) -> Tensor:
    x, dtype, given = op.input(0), op.dtype(), op.attr("axes")
    named = given if isinstance(given, tuple) else ()
    axes = sorted(normalized(a, x.rank) for a in named if isinstance(a, int))

    def element(*at: Expr) -> Expr:
        return widened(x[at])

    mean, variance = moments(x.shape, axes, element)

    def normal(*at: Expr) -> Expr:
        row = without(at, axes)
        return cast((element(*at) - mean[row]) / (apply("sqrt", variance[row]) + 1e-9), dtype)

    return compute(x.shape, normal, dtype, label(op))


# -- by magnitude


def _lp(op: Operation) -> Tensor:
    """Vectors of length one; those of zeros stay as they are."""
    x, dtype, p = op.input(0), op.dtype(), integer(op, "p")
    axes = (normalized(integer(op, "axis"), x.rank),)

    def measure(*at: Expr) -> Expr:
        value = widened(x[at])
        return value * value if p == 2 else apply("abs", value)

    total = over(x.shape, axes, measure, t.sum, "total")

    def normal(*at: Expr) -> Expr:
        size = total[without(at, axes)]
        length = apply("sqrt", size) if p == 2 else size
        return cast(select(equal(size, 0), 0, widened(x[at]) / length), dtype)

    return compute(x.shape, normal, dtype, label(op))


def _response(op: Operation) -> Tensor:
    """Local response normalization: by the squares of the channels around."""
    x, dtype, size = op.input(0), op.dtype(), integer(op, "size")
    before = (size - 1) // 2
    near = (*x.shape, as_expr(size))

    def squared(*at: Expr) -> Expr:
        channel = at[1] - before + at[-1]
        value = widened(x[(at[0], channel, *at[2:-1])])
        inside = (channel >= 0) & (channel < x.shape[1])
        return select(inside, value * value, 0)

    total = over(near, (x.rank,), squared, t.sum, "squares")
    share, bias, beta = number(op, "alpha") / size, number(op, "bias"), number(op, "beta")

    def normal(*at: Expr) -> Expr:
        base = total[at] * share + bias
        return cast(widened(x[at]) / power(base, Const(beta, base.dtype)), dtype)

    return compute(x.shape, normal, dtype, label(op))


TABLE: LoweringTable = {
    "BatchNormalization": _batch,
    "GroupNormalization": _group,
    "InstanceNormalization": _instance,
    "LRN": _response,
    "LpNormalization": _lp,
    "MeanVarianceNormalization": _mean_variance,
}
