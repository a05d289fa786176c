"""Reductions, arg-reductions and cumulative sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from graphopt.frozen import dataclass
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.compute import Reduced, ReduceStage, Requirement, Tensor, compute
from graphopt.lowering.loops.expressions import (
    INDEX,
    Const,
    Expr,
    apply,
    as_expr,
    cast,
    const,
    equal,
    maximum,
    minimum,
    select,
)
from graphopt.lowering.loops.nest import Buffer, Stmt, Store
from graphopt.lowering.operators.elements import integer, is_float, label, required, wide, widened
from graphopt.lowering.operators.operation import LoweringTable, Operation

FEW = 8
"""As many elements at most are compared one after another to find where the largest stands."""

At = Callable[..., Expr]
"""From indices to the element there."""


def normalized(axis: int, rank: int) -> int:
    """The axis counted from the front."""
    return axis + rank if axis < 0 else axis


def count(shape: Sequence[Expr], axes: Sequence[int]) -> Expr:
    """The number of elements along the axes."""
    return reduce(lambda a, b: a * b, (shape[k] for k in axes), as_expr(1))


def without(at: Sequence[Expr], axes: Sequence[int]) -> tuple[Expr, ...]:
    """The indices or sizes of the other axes."""
    return tuple(i for k, i in enumerate(at) if k not in axes)


def over(
    shape: Sequence[Expr],
    axes: Sequence[int],
    element: At,
    combine: Callable[..., ReduceStage],
    name: str,
    keepdims: bool = False,
) -> Tensor:
    """Reduces ``element(*indices)`` by ``combine`` over some axes of a shape, which are dropped or become 1."""
    kept = tuple(as_expr(1) if k in axes else s for k, s in enumerate(shape) if keepdims or k not in axes)

    def remaining(*at: Expr) -> Expr | ReduceStage:
        steps = {k: t.reduce_axis(shape[k]) for k in axes}
        free = iter(at if not keepdims else without(at, axes))
        indices = [steps[k].var if k in steps else next(free) for k in range(len(shape))]
        value = element(*indices)
        if not steps:
            return value
        reduction = combine(value, *steps.values())
        # Where there are no steps nothing starts an accumulator.
        return reduction.identities[0] if Const(0) in (s.extent for s in steps.values()) else reduction

    return compute(kept, remaining, name=name)


def started(total: Tensor, n: Expr) -> At:
    """The elements of a reduction of n each. Nothing has been written where n turns out to be 0 at run time."""
    if isinstance(n, Const) or not isinstance(total.stage, Reduced):
        return lambda *at: total[at]
    identity = total.stage.reduction.identities[total.port]
    return lambda *at: select(equal(n, 0), identity, total[at])


# -- Reduce*


@dataclass(frozen=True)
class ReductionKind:
    """A reduction: of what of each element, combined how, and what becomes of the result."""

    combine: Callable[..., ReduceStage]
    value: Callable[[Expr], Expr] | None = None
    finish: Callable[[Expr, Expr], Expr] | None = None
    """Of what remains and how many elements there were."""
    in_floats: bool = False
    """Integers become float64 on the way."""


def _squared(x: Expr) -> Expr:
    return x * x


KINDS: dict[str, ReductionKind] = {
    "ReduceL1": ReductionKind(t.sum, lambda x: apply("abs", x)),
    "ReduceL2": ReductionKind(t.sum, _squared, lambda total, n: apply("sqrt", total), in_floats=True),
    "ReduceLogSum": ReductionKind(t.sum, None, lambda total, n: apply("log", total), in_floats=True),
    "ReduceMax": ReductionKind(t.max),
    "ReduceMean": ReductionKind(t.sum, None, lambda total, n: total / cast(n, total.dtype)),
    "ReduceMin": ReductionKind(t.min),
    "ReduceProd": ReductionKind(t.prod),
    "ReduceSum": ReductionKind(t.sum),
    "ReduceSumSquare": ReductionKind(t.sum, _squared),
}


def reduced_axes(op: Operation, rank: int) -> tuple[int, ...]:
    """The axes that a Reduce op names in its second input: all where it names none, unless that means none."""
    named = op.known(1).reshape(-1).tolist() if op.has(1) else []
    if not named and integer(op, "noop_with_empty_axes"):
        return ()
    return tuple(sorted({normalized(int(a), rank) for a in named})) or tuple(range(rank))


def _accumulated(dtype: str, kind: ReductionKind) -> str:
    """The dtype of the accumulator."""
    return "float64" if kind.in_floats and "int" in dtype else wide(dtype)


def _reduce(op: Operation) -> Tensor:
    kind, x = KINDS[op.op], op.input(0)
    axes, keepdims, dtype = reduced_axes(op, x.rank), bool(integer(op, "keepdims")), op.dtype()
    inner = _accumulated(x.dtype, kind)

    def element(*at: Expr) -> Expr:
        element = cast(x[at], inner)
        return element if kind.value is None else kind.value(element)

    logical: dict[Callable[..., ReduceStage], Callable[..., ReduceStage]] = {t.max: t.any, t.min: t.all}
    combine = logical.get(kind.combine, kind.combine) if dtype == "bool" else kind.combine
    total = over(x.shape, axes, element, combine, label(op), keepdims)
    n = count(x.shape, axes)
    if kind.finish is None and total.dtype == dtype and isinstance(n, Const):
        return total
    finish = kind.finish or (lambda total, n: total)
    return compute(total.shape, lambda *at: cast(finish(started(total, n)(*at), n), dtype), dtype, label(op))


def _log_sum_exp(op: Operation) -> Tensor:
    x, dtype = op.input(0), op.dtype()
    axes, keepdims = reduced_axes(op, x.rank), bool(integer(op, "keepdims"))
    inner, n = ("float64" if "int" in x.dtype else wide(x.dtype)), count(x.shape, axes)
    largest = started(over(x.shape, axes, lambda *at: cast(x[at], inner), t.max, "largest"), n)

    def offset(at: Sequence[Expr]) -> Expr:
        """The largest; 0 where that is infinite, and infinities shall come out as they are."""
        maximum = largest(*at)
        return select(apply("isinf", maximum), 0.0, maximum)

    def exponential(*at: Expr) -> Expr:
        return apply("exp", cast(x[at], inner) - offset(without(at, axes)))

    total = started(over(x.shape, axes, exponential, t.sum, "total"), n)

    def element(*at: Expr) -> Expr:
        kept = without(at, axes) if keepdims else at
        return cast(apply("log", total(*kept)) + offset(kept), dtype)

    return compute(op.shape(), element, dtype, label(op))


# -- where the largest or smallest stands


def position(
    x: Tensor,
    axis: int,
    largest: bool = True,
    last: bool = False,
    keepdims: bool = False,
    requirements: Sequence[Requirement] = (),
) -> Tensor:
    """The index along an axis of the first (or last) element that is largest (or smallest); NaN is beyond all.

    First the element is found, then where it stands, for both can be done in many lanes at once.
    """

    def element(*at: Expr) -> Expr:
        return widened(x[at])

    size = x.shape[axis]
    if isinstance(size, Const) and 0 < size.value <= FEW:
        return _position_of_few(x, axis, int(size.value), largest, last, keepdims)
    best = over(x.shape, [axis], element, t.max if largest else t.min, "best")
    is_short = isinstance(size, Const) and size.value < 1 << 31
    shape = [as_expr(1) if k == axis else s for k, s in enumerate(x.shape) if keepdims or k != axis]
    inner = "int32" if is_short else INDEX

    def remaining(*at: Expr) -> ReduceStage:
        step, others = t.reduce_axis(size), without(at, [axis]) if keepdims else at
        value, wanted = element(*others[:axis], step.var, *others[axis:]), best[tuple(others)]
        matches = equal(value, wanted)
        if is_float(value):
            matches = matches | (apply("isnan", value) & apply("isnan", wanted))
        nowhere = const(-1, inner) if last else t.highest(inner)
        return (t.max if last else t.min)(select(matches, cast(step.var, inner), nowhere), step)

    positions = compute(shape, remaining, name="place", requirements=requirements)
    return compute(shape, lambda *at: cast(positions[at], INDEX), name="position") if is_short else positions


def _position_of_few(x: Tensor, axis: int, count: int, largest: bool, last: bool, keepdims: bool) -> Tensor:
    """The same of so few elements that they are compared one after another, in many rows at once."""
    shape = [as_expr(1) if k == axis else s for k, s in enumerate(x.shape) if keepdims or k != axis]

    def place(*at: Expr) -> Expr:
        others = without(at, [axis]) if keepdims else at
        values = [widened(x[(*others[:axis], as_expr(k), *others[axis:])]) for k in range(count)]
        best: Expr = values[0]
        found: Expr = const(0, "int32")
        for k, value in enumerate(values[1:], 1):
            first, second = (value, best) if largest else (best, value)
            beats = first >= second if last else first > second
            if is_float(value):  # of what is compared with NaN nothing holds
                beats = beats | (apply("isnan", value) if last else apply("isnan", value) & ~apply("isnan", best))
            best = maximum(best, value) if largest else minimum(best, value)
            found = select(beats, const(k, "int32"), found)
        return cast(found, INDEX)

    return compute(shape, place, name="position")


def _arg(op: Operation) -> Tensor:
    x = op.input(0)
    axis, keepdims = normalized(integer(op, "axis"), x.rank), bool(integer(op, "keepdims"))
    size = x.shape[axis]
    is_any = required(size > 0, f"{op.op}: an axis of size 0 has no largest or smallest element")
    return position(x, axis, op.op == "ArgMax", bool(integer(op, "select_last_index")), keepdims, is_any)


def _hardmax(op: Operation) -> Tensor:
    x, dtype = op.input(0), op.dtype()
    axis = normalized(integer(op, "axis"), x.rank)
    positions = position(x, axis)

    def element(*at: Expr) -> Expr:
        return select(equal(positions[without(at, [axis])], at[axis]), const(1, dtype), const(0, dtype))

    return compute(x.shape, element, dtype, label(op))


# -- running sums and products


def _running(op: Operation) -> Tensor:
    """Each element from the one before it: one thread, in order; those side by side along the last axis at once, where
    the sums go along another."""
    x, dtype = op.input(0), op.dtype()
    axis = normalized(int(op.known(1).reshape(())), x.rank)
    exclusive, reverse = integer(op, "exclusive"), integer(op, "reverse")
    fn, inner = ("add" if op.op == "CumSum" else "mul"), wide(dtype)
    nothing = const(0 if op.op == "CumSum" else 1, inner)

    def build(y: Buffer) -> Stmt:
        def along(at: tuple[Expr, ...]) -> Stmt:
            if len(at) < x.rank:
                stmt = t.loop(x.shape[len(at)], lambda i: along((*at, i)))
                is_across = op.is_for_host and len(at) == x.rank - 1 != axis
                return replace(stmt, kind="vectorized") if is_across else stmt
            first = equal(at[axis], 0)
            index = x.shape[axis] - 1 - at[axis] if reverse else at[axis]
            here = (*at[:axis], index, *at[axis + 1 :])
            before = (*at[:axis], index + 1 if reverse else index - 1, *at[axis + 1 :])
            if exclusive:
                return Store(y, here, select(first, nothing, apply(fn, y[before], cast(x[before], inner))))
            return Store(y, here, apply(fn, select(first, nothing, y[before]), cast(x[here], inner)))

        return along(())

    (total,) = t.procedure([(label(op), x.shape, inner)], [x], build)
    return total if inner == dtype else compute(x.shape, lambda *at: cast(total[at], dtype), dtype, label(op))


TABLE: LoweringTable = {
    **dict.fromkeys(KINDS, _reduce),
    "ArgMax": _arg,
    "ArgMin": _arg,
    "CumProd": _running,
    "CumSum": _running,
    "Hardmax": _hardmax,
    "ReduceLogSumExp": _log_sum_exp,
}
