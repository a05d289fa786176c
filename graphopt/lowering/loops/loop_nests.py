"""Loop nests as lists of loops: wrapping a statement in loops, and peeling loops off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from graphopt.frozen import dataclass
from graphopt.lowering.loops.expressions import Expr, Var
from graphopt.lowering.loops.nest import Axis, For, LoopKind, Stmt


@dataclass(frozen=True, slots=True)
class LoopSpec:
    """A loop to be created: its variable, extent and kind."""

    var: Var
    extent: Expr
    kind: LoopKind = "serial"


def loops_of(axes: Iterable[Axis]) -> list[LoopSpec]:
    """A loop with a fresh name for each axis of a block: a script with one name for both would not read back."""
    return [LoopSpec(Var(f"i_{a.var.name}"), a.extent) for a in axes]


def wrapped(loops: Sequence[LoopSpec | For], body: Stmt) -> Stmt:
    """The statement in loops, outermost first; loops taken from another nest lose their bodies."""
    for loop in reversed(loops):
        body = replace(loop, body=body) if isinstance(loop, For) else For(loop.var, loop.extent, body, loop.kind)
    return body


def peeled(stmt: Stmt) -> tuple[tuple[For, ...], Stmt]:
    """The perfectly nested loops, outermost first, and the innermost body."""
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    return tuple(loops), stmt
