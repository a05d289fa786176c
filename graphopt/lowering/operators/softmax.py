"""Softmax, and the cross-entropy losses that use it."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.compute import Requirement, Tensor, compute
from graphopt.lowering.loops.expressions import INDEX, Const, Expr, apply, cast, equal, select
from graphopt.lowering.operators.elements import decayed, integer, label, text, wide, widened
from graphopt.lowering.operators.operation import LoweringTable, Operation
from graphopt.lowering.operators.reductions import At, normalized, over, without


def exponentials(x: Tensor, axes: Sequence[int]) -> tuple[At, Tensor, Tensor, Tensor]:
    """The widened elements, their largest along the axes, exp(element - largest), and the sum of those."""

    def element(*at: Expr) -> Expr:
        return widened(x[at])

    largest = over(x.shape, axes, element, t.max, "largest")
    powers = compute(x.shape, lambda *at: decayed(element(*at) - largest[without(at, axes)]), name="powers")
    return element, largest, powers, over(x.shape, axes, lambda *at: powers[at], t.sum, "total")


def softmax(x: Tensor, axis: int, dtype: str, name: str) -> Tensor:
    """exp(x), divided by the sum of them along the axis."""
    axes = (normalized(axis, x.rank),)
    _, _, powers, total = exponentials(x, axes)
    share = compute(total.shape, lambda *at: 1.0 / total[at], name="share")
    return compute(x.shape, lambda *at: cast(powers[at] * share[without(at, axes)], dtype), dtype, name)


def log_softmax(x: Tensor, axis: int, dtype: str, name: str) -> Tensor:
    """The logarithms of the softmax along the axis."""
    axes = (normalized(axis, x.rank),)
    element, largest, _, total = exponentials(x, axes)

    def logarithms(*at: Expr) -> Expr:
        row = without(at, axes)
        return cast(element(*at) - largest[row] - apply("log", total[row]), dtype)

    return compute(x.shape, logarithms, dtype, name)


# -- losses


def _loss(op: Operation, logarithms: Tensor) -> Tensor:
    """Minus the logarithms at the targets, weighed: each, their sum, or their mean."""
    target, dtype, inner = op.input(1), op.dtype(), wide(op.dtype())
    ignored, reduction = op.attr("ignore_index"), text(op, "reduction")

    def class_of(at: Sequence[Expr]) -> Expr:
        return cast(target[tuple(at)], INDEX)

    def counted(at: Sequence[Expr], value: Expr) -> Expr:
        return select(equal(class_of(at), ignored), 0, value) if isinstance(ignored, int) else value

    def weight(*at: Expr) -> Expr:
        return counted(at, cast(op.input(2)[class_of(at)], inner) if op.has(2) else Const(1.0, inner))

    def weighed(*at: Expr) -> Expr:
        loss = -cast(logarithms[(at[0], class_of(at), *at[1:])], inner)
        return counted(at, loss * cast(op.input(2)[class_of(at)], inner) if op.has(2) else loss)

    inside = _inside(op, target, logarithms.shape[1])
    each = compute(target.shape, lambda *at: cast(weighed(*at), dtype), dtype, label(op), [inside])
    if reduction == "none":
        return each
    axes = range(target.rank)
    exact = compute(target.shape, weighed, inner, "losses", [inside])
    total = over(target.shape, axes, lambda *at: exact[at], t.sum, "total")
    if reduction == "sum":
        return compute((), lambda: cast(total[()], dtype), dtype, label(op))
    share = over(target.shape, axes, weight, t.sum, "weights")
    return compute((), lambda: cast(total[()] / share[()], dtype), dtype, label(op))


def _inside(op: Operation, target: Tensor, classes: Expr) -> Requirement:
    ignored = op.attr("ignore_index")

    def holds(*at: Expr) -> Expr:
        class_index = cast(target[at], INDEX)
        inside = (class_index >= 0) & (class_index < classes)
        return equal(class_index, ignored) | inside if isinstance(ignored, int) else inside

    return t.require(target.shape, holds, f"{op.op}: a target is not the number of a class")


def _likelihood(op: Operation) -> Tensor:
    return _loss(op, op.input(0))


def _cross_entropy(op: Operation) -> Sequence[Tensor]:
    logarithms = log_softmax(op.input(0), 1, op.dtype(), "log_prob")
    loss = _loss(op, logarithms)
    return [loss, logarithms] if len(op.outputs) > 1 else [loss]


TABLE: LoweringTable = {
    "LogSoftmax": lambda op: log_softmax(op.input(0), integer(op, "axis"), op.dtype(), label(op)),
    "NegativeLogLikelihoodLoss": _likelihood,
    "Softmax": lambda op: softmax(op.input(0), integer(op, "axis"), op.dtype(), label(op)),
    "SoftmaxCrossEntropyLoss": _cross_entropy,
}
