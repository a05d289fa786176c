"""What arithmetic, comparisons, logic and casts compute: each element by itself, inputs broadcast to each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from graphopt.lowering.expressions import Expr, apply, maximum, minimum
from graphopt.lowering.operators.elements import Formula, elementwise
from graphopt.lowering.operators.operation import Table


def _function(name: str) -> Formula:
    return lambda op, *elements: apply(name, *elements)


def _folded(combine: Callable[[Expr, Expr], Expr]) -> Formula:
    return lambda op, *elements: reduce(combine, elements)


FORMULAS: dict[str, Formula] = {
    "Add": _function("add"),
    "Max": _folded(maximum),
    "Min": _folded(minimum),
    "Mul": _function("mul"),
    "Sub": _function("sub"),
    "Sum": _folded(lambda a, b: a + b),
}

TABLE: Table = {op: elementwise(formula) for op, formula in FORMULAS.items()}
