"""Accumulation: sums, products, maxima and minima into an element."""

from __future__ import annotations

from graphopt.lowering.loops.compute import highest, lowest
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, const
from graphopt.lowering.loops.nest import Store

HORIZONTAL = {"add": "reduce_add", "mul": "reduce_mul", "max": "reduce_max", "min": "reduce_min"} | {
    "or": "reduce_or",
    "and": "reduce_and",
}
"""Reductions of a vector's lanes, by the function that combines two values."""


def accumulated(target: Load, value: Expr) -> tuple[str, Expr] | None:
    """The commutative function by which a store accumulates into its element, and the accumulated term; None for any
    other store."""
    if isinstance(value, Apply) and value.fn in HORIZONTAL and target in value.args:
        other = value.args[1] if value.args[0] == target else value.args[0]
        return value.fn, other
    return None


def is_accumulation(store: Store) -> bool:
    """Whether a store accumulates into its element by a commutative function."""
    return accumulated(Load(store.buffer, store.indices), store.value) is not None


def factors(target: Load, value: Expr) -> tuple[Expr, Expr] | None:
    """The two factors of a product that is added to the element; None for any other value."""
    match accumulated(target, value):
        case "add", Apply(fn="mul", args=(x, y)):
            return x, y
    return None


def identity(fn: str, dtype: str) -> Const:
    """The neutral element of an accumulation."""
    match fn:
        case "max":
            return lowest(dtype)
        case "min":
            return highest(dtype)
    return const(fn in ("mul", "and"), dtype)
