"""Index arithmetic: what can be said of integer expressions over variables of known extents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from graphopt.lowering.expressions import Expr, Var, rewrite

Extents: TypeAlias = Mapping[Var, Expr | int]


def simplify(expr: Expr, extents: Extents) -> Expr:
    """An equal expression that is shorter."""
    return rewrite(expr, lambda e: None)
