"""Where a statement stands when a nest is written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from graphopt.lowering.emit.statement_text import Lanes
from graphopt.lowering.loops.expressions import Expr, Var, substitute

Env: TypeAlias = Mapping[Var, Expr]


@dataclass(frozen=True, slots=True)
class EmitContext:
    """Where a statement stands: what its variables are, and the vectorized loop that it is in."""

    env: Env
    lanes: Lanes | None = None

    def of(self, expr: Expr) -> Expr:
        """The expression over loop variables alone."""
        return substitute(expr, self.env) if self.env else expr

    def bind(self, more: Env) -> EmitContext:
        """The place where more variables are known."""
        return replace(self, env={**self.env, **more})
