"""Values that are combined into an element: sums, products, largest and smallest ones."""

from __future__ import annotations

from graphopt.lowering.loops.compute import highest, lowest
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, const
from graphopt.lowering.loops.nest import Store

HORIZONTAL = {"add": "reduce_add", "mul": "reduce_mul", "max": "reduce_max", "min": "reduce_min"} | {
    "or": "reduce_or",
    "and": "reduce_and",
}
"""What combines the lanes of a vector, by the function that combines two values."""


def accumulated(target: Load, value: Expr) -> tuple[str, Expr] | None:
    """The function by which something is combined into the element, in an order that does not matter, and what that is;
    None where a value does anything else."""
    if isinstance(value, Apply) and value.fn in HORIZONTAL and target in value.args:
        other = value.args[1] if value.args[0] == target else value.args[0]
        return value.fn, other
    return None


def is_accumulation(store: Store) -> bool:
    """Whether a store combines a value into the element that it writes, in an order that does not matter."""
    return accumulated(Load(store.buffer, store.indices), store.value) is not None


def factors(target: Load, value: Expr) -> tuple[Expr, Expr] | None:
    """The two factors of the product that a value adds to the element; None where it does anything else."""
    match accumulated(target, value):
        case "add", Apply(fn="mul", args=(x, y)):
            return x, y
    return None


def identity(fn: str, dtype: str) -> Const:
    """What changes nothing when it is combined."""
    match fn:
        case "max":
            return lowest(dtype)
        case "min":
            return highest(dtype)
    return const(fn in ("mul", "and"), dtype)
