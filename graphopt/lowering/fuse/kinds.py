"""Fusion kinds of nodes: how each output element depends on the inputs' elements, from their tensor expressions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

from graphopt.lowering.loops.compute import ComputeStage, ElementwiseStage, Procedure, Reduced, Tensor, producers_first
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, Var, variables, walk
from graphopt.lowering.loops.nest import Axis


class FusionKind(IntEnum):
    """Fusion kinds, from element-wise, which fuses with most, to opaque, which fuses with nothing (Chen et al., TVM,
    OSDI 2018).

    >>> passes.FusionKind.ELEMENTWISE < passes.FusionKind.ANCHOR
    True
    """

    ELEMENTWISE = 0
    """Each element comes from the inputs' elements at the same place."""
    BROADCAST = 1
    """The same, but some inputs are repeated along some axes."""
    INJECTIVE = 2
    """Each element comes from one element of each input, wherever it lies."""
    REDUCTION = 3
    """Elements come from many elements, each of which is used for few of them."""
    ANCHOR = 4
    """Sums of products in which elements are used many times: what a program spends its time on."""
    OPAQUE = 5
    """Anything else."""


_CIRCULAR = ["sin", "cos", "tan", "asin", "acos", "atan", "atan2"]
_HYPERBOLIC = ["sinh", "cosh", "tanh", "asinh", "acosh", "atanh"]
TRANSCENDENTAL = frozenset(["exp", "log", "log1p", "expm1", "sigmoid", "erf", "pow", *_CIRCULAR, *_HYPERBOLIC])
DIVISIONS = frozenset(["div", "sqrt", "floordiv", "mod", "fmod"])


def kind_of(tensors: Sequence[Tensor]) -> FusionKind:
    """The fusion kind of tensors with all their producers."""
    stages = [t.stage for t in producers_first(tensors) if t.stage is not None]
    return max((_kind(t, s) for t, s in zip(_computed(tensors), stages, strict=True)), default=FusionKind.OPAQUE)


def _computed(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [t for t in producers_first(tensors) if t.stage is not None]


def _kind(tensor: Tensor, stage: ComputeStage) -> FusionKind:
    if isinstance(stage, Procedure):
        return FusionKind.ANCHOR if stage.stores_once else FusionKind.OPAQUE
    if isinstance(stage, Reduced):
        return FusionKind.ANCHOR if any(_is_product(v, stage) for v in stage.reduction.values) else FusionKind.REDUCTION
    axes = tuple(a.var for a in stage.axes)
    kind = FusionKind.ELEMENTWISE
    for load in loads_of(stage):
        if load.indices != axes or load.buffer.shape != tensor.shape:
            kind = max(kind, FusionKind.BROADCAST if _is_broadcast(load, axes) else FusionKind.INJECTIVE)
    return kind


def _is_broadcast(load: Load, axes: tuple[Var, ...]) -> bool:
    """Whether the indices are the axes' own, in order, some left out or held at the first element."""
    rest = list(axes)
    for index in load.indices:
        if index == Const(0):
            continue
        if index not in rest:
            return False
        del rest[: rest.index(index) + 1]
    return True


def _is_product(value: Expr, stage: Reduced) -> bool:
    """Whether the value multiplies what is loaded from two tensors, and elements of one serve several results."""
    results = {a.var for a in stage.axes if a.extent != Const(1)}
    return any(
        isinstance(e, Apply)
        and e.fn == "mul"
        and all(any(isinstance(x, Load) for x in walk(a)) for a in e.args)
        and any(isinstance(x, Load) and not results <= _used(x) for x in walk(e))
        for e in walk(value)
    )


def _used(load: Load) -> frozenset[Var]:
    """The variables on which it depends what is loaded."""
    return frozenset(v for i in load.indices for v in variables(i))


def loads_of(stage: ElementwiseStage | Reduced) -> Iterator[Load]:
    """Every load of a stage, with repetitions."""
    values = stage.values if isinstance(stage, ElementwiseStage) else stage.reduction.values
    return (e for v in values for e in walk(v) if isinstance(e, Load))


def work(expr: Expr) -> float:
    """The approximate cost of an expression in multiplications, index arithmetic apart."""
    total = 0.0
    for e in walk(expr):
        if isinstance(e, Apply) and e.fn not in ("cast", "select"):
            total += 12 if e.fn in TRANSCENDENTAL else 4 if e.fn in DIVISIONS else 1
    return total


def size(expr: Expr) -> int:
    """The number of parts of an expression."""
    return sum(1 for _ in walk(expr))


def points(stage: ComputeStage) -> tuple[Axis, ...]:
    """The axes of a stage, reduction axes included, with an extent other than 1."""
    axes: tuple[Axis, ...] = ()
    if isinstance(stage, ElementwiseStage):
        axes = stage.axes
    elif isinstance(stage, Reduced):
        axes = (*stage.axes, *stage.reduction.axes)
    return tuple(a for a in axes if a.extent != Const(1))


def is_repeated(load: Load, stage: ComputeStage) -> bool:
    """Whether several points of a stage load the same element."""
    return not {a.var for a in points(stage)} <= _used(load)
