"""Loops around a statement: those that are yet to be written, and those that stand there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from graphopt.lowering.loops.expressions import Expr, Var
from graphopt.lowering.loops.nest import Axis, For, LoopKind, Stmt


@dataclass(frozen=True, slots=True)
class LoopSpec:
    """A loop to be written: its variable, how often it runs, and how."""

    var: Var
    extent: Expr
    kind: LoopKind = "serial"


def loops_of(axes: Iterable[Axis]) -> list[LoopSpec]:
    """A loop for each of a block's axes, of another name: a script that gave both one would not read back."""
    return [LoopSpec(Var(f"i_{a.var.name}"), a.extent) for a in axes]


def wrapped(loops: Sequence[LoopSpec | For], body: Stmt) -> Stmt:
    """The statement in loops, outermost first; of such as stand around another statement it takes the place."""
    for loop in reversed(loops):
        body = replace(loop, body=body) if isinstance(loop, For) else For(loop.var, loop.extent, body, loop.kind)
    return body


def peeled(stmt: Stmt) -> tuple[tuple[For, ...], Stmt]:
    """The loops that stand directly in one another, outermost first, and what is in the innermost."""
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    return tuple(loops), stmt
