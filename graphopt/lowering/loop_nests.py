"""Loops that are yet to be written around a statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphopt.lowering.expressions import Expr, Var
from graphopt.lowering.loops import For, LoopKind, Stmt


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop to be written: its variable, how often it runs, and how."""

    var: Var
    extent: Expr
    kind: LoopKind = "serial"


def wrapped(loops: Sequence[Loop], body: Stmt) -> Stmt:
    """The statement in loops, outermost first."""
    for loop in reversed(loops):
        body = For(loop.var, loop.extent, body, loop.kind)
    return body
