"""Values that are combined into an element: sums, products, largest and smallest ones."""

from __future__ import annotations

from graphopt.lowering.compute import highest, lowest
from graphopt.lowering.expressions import Apply, Const, Expr, Load, const

HORIZONTAL = {"add": "reduce_add", "mul": "reduce_mul", "max": "reduce_max", "min": "reduce_min"} | {
    "or": "reduce_or",
    "and": "reduce_and",
}
"""What combines the lanes of a vector, by the function that combines two values."""


def accumulated(target: Load, value: Expr) -> tuple[str | None, Expr | None]:
    """The function by which a value is combined into the element, and that value."""
    if isinstance(value, Apply) and value.fn in HORIZONTAL and target in value.args:
        other = value.args[1] if value.args[0] == target else value.args[0]
        return value.fn, other
    return None, None


def identity(fn: str, dtype: str) -> Const:
    """What changes nothing when it is combined."""
    match fn:
        case "max":
            return lowest(dtype)
        case "min":
            return highest(dtype)
    return const(fn in ("mul", "and"), dtype)
