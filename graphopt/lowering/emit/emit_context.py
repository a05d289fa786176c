"""Context of a statement in code generation: bound axes and lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.lowering.emit.statement_text import Lanes
from graphopt.lowering.loops.expressions import Expr, Var, substitute

Env: TypeAlias = Mapping[Var, Expr]


@dataclass(frozen=True, slots=True)
class EmitContext:
    """The context of a statement: the values of its variables, and the vectorized loop around it."""

    env: Env
    lanes: Lanes | None = None

    def of(self, expr: Expr) -> Expr:
        """The expression over loop variables alone."""
        return substitute(expr, self.env) if self.env else expr

    def bind(self, more: Env) -> EmitContext:
        """The context with more variables bound."""
        return replace(self, env={**self.env, **more})
