"""Schedules drawn from a search space, and what is unrolled in them."""

from __future__ import annotations

from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.nest import Block, For, Nest, Seq, Stmt, statements
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.tuning.spaces import Space
from tests.lowering.native import check


def drawn(space: Space, nest: Nest, seed: int) -> Schedule:
    """What a seed draws from the space."""
    s = Schedule(nest, seed)
    space(s)
    return s


def check_draw(space: Space, nest: Nest, seed: int, pieces: int = 1) -> Schedule:
    """What a seed draws computes what the nest says, and its trace makes it again."""
    made = drawn(space, nest, seed)
    check(nest, made.nest, [7] * len(nest.sizes), pieces=pieces)
    assert made.trace.replay(nest).nest == made.nest
    assert made.trace.decisions
    return made


def written_out(stmt: Stmt) -> int:
    """How often the innermost statement is written out that is written out most."""
    if isinstance(stmt, Seq):
        return max(map(written_out, stmt.stmts))
    if isinstance(stmt, Block):
        return written_out(stmt.body)
    if not isinstance(stmt, For):
        return 1
    times = stmt.extent.value if isinstance(stmt.extent, Const) and stmt.kind == "unrolled" else 1
    return int(times) * written_out(stmt.body)


def kinds(nest: Nest) -> set[str]:
    """The kinds of its loops."""
    return {s.kind for s in statements(nest.body) if isinstance(s, For)}
