"""What a nest requires of sizes alone, taken out of it: a program sees to that before anything runs."""

from __future__ import annotations

from dataclasses import replace

from graphopt.lowering.loops.nest import Block, Check, Nest, Seq, Stmt, seq
from graphopt.lowering.loops.sizes import size_of


def without_conditions(nest: Nest) -> tuple[Nest, tuple[Check, ...]]:
    """The nest without those checks, and they: each is of sizes alone, and every run of the nest comes to it."""
    checks: dict[Check, None] = {}
    names = {v: v.name for v in nest.sizes}

    def left(stmt: Stmt) -> Stmt:
        match stmt:
            case Seq():
                return seq(*map(left, stmt.stmts))
            case Block(axes=(), init=None):
                body = left(stmt.body)
                return body if body == Seq(()) else replace(stmt, body=body)
            case Check():
                try:
                    size_of(stmt.condition, names)
                except ValueError:  # it is of elements too
                    return stmt
                checks[stmt] = None
                return Seq(())
        return stmt

    body = left(nest.body)
    return (replace(nest, body=body), tuple(checks)) if checks else (nest, ())
