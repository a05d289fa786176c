"""Comparisons of index expressions: those in a condition, and when they hold, as polynomials."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from graphopt.lowering.index.arithmetic import polynomial
from graphopt.lowering.index.polynomials import Polynomial
from graphopt.lowering.loops.expressions import INDEX, Apply, Expr

INEQUALITIES = ("lt", "le", "gt", "ge")


def comparisons(condition: Expr) -> Iterator[Apply]:
    """The comparisons of indices in a conjunction."""
    if isinstance(condition, Apply) and condition.fn == "and":
        for arg in condition.args:
            yield from comparisons(arg)
    elif is_inequality(condition):
        yield condition


def is_inequality(condition: Expr) -> TypeGuard[Apply]:
    """Whether a condition orders two indices: by ``<``, ``<=``, ``>`` or ``>=``."""
    return isinstance(condition, Apply) and condition.fn in INEQUALITIES and condition.args[0].dtype == INDEX


def positive(condition: Apply) -> Polynomial:
    """An expression that is non-negative just where the condition holds."""
    a, b = (polynomial(x) for x in condition.args)
    if condition.fn in ("lt", "le"):
        a, b = b, a
    return a - b - (condition.fn in ("lt", "gt"))
