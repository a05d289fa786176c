"""Loop independence: loops of a procedure whose iterations touch disjoint elements and can be threads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from graphopt.frozen import dataclass
from graphopt.lowering.analysis.dependence import at, owner
from graphopt.lowering.index.arithmetic import ranges_over
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, loads_in, substitute, walk
from graphopt.lowering.loops.nest import (
    Block,
    Buffer,
    BufferRegion,
    For,
    If,
    Invoke,
    Seq,
    Stmt,
    Store,
    expressions,
    inner,
    statements,
)


@dataclass(frozen=True, slots=True)
class Use:
    """An element that is read or written, by its indices over the loops around it."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_write: bool


def uses(stmt: Stmt, env: Mapping[Var, Expr] | None = None) -> Iterator[Use]:
    """Reads and writes of a statement, in the order of its text."""
    env = env or {}

    def over_loops(expr: Expr) -> Expr:
        return substitute(expr, env) if env else expr

    if isinstance(stmt, Block):
        for expr in (*stmt.values, stmt.predicate):
            yield from _read(over_loops(expr))
        env = {**env, **{a.var: over_loops(v) for a, v in zip(stmt.axes, stmt.values, strict=True)}}
    else:
        for expr in expressions(stmt):
            yield from _read(over_loops(expr))
    if isinstance(stmt, Store):
        yield Use(stmt.buffer, tuple(map(over_loops, stmt.indices)), True)
    elif isinstance(stmt, Invoke):
        regions = (a for a in stmt.args if isinstance(a, BufferRegion))
        yield from (Use(r.buffer, tuple(over_loops(side.start) for side in r.ranges), True) for r in regions)
    for child in inner(stmt):
        yield from uses(child, env)


def _read(expr: Expr) -> Iterator[Use]:
    for e in walk(expr):
        if isinstance(e, Load):
            yield Use(e.buffer, e.indices, False)


def is_independent(loop: For, within: Stmt, private: Collection[Buffer]) -> bool:
    """Whether the iterations of a loop may run at once, of all the statement that it is part of: each uses of what is
    written only what it writes itself. ``own`` are buffers that each iteration may have for itself."""
    if any(isinstance(s, Invoke) for s in statements(within)) or loads_in(loop.extent):
        return False
    running = {s.var: s.extent for s in statements(within) if isinstance(s, For)}
    facts = ranges_over({v: e for v, e in running.items() if not loads_in(e)})
    accesses = list(uses(within))
    for buffer in dict.fromkeys(u.buffer for u in accesses if u.is_write):
        if buffer in private:
            continue
        mine = [u for u in accesses if u.buffer == buffer]
        owner_index = owner(loop.var, mine[0].indices, running, facts)
        if owner_index is None:
            return False
        if any(
            facts.simplified(substitute(owner_index, {at(k): e for k, e in enumerate(u.indices)})) != loop.var
            for u in mine
        ):
            return False
    return True


def own_buffers(body: Stmt, scratch: Sequence[Buffer]) -> set[Buffer]:
    """Private buffers of a loop's body: those in which each iteration writes, at known places, all that it reads
    later."""
    buffers = set()
    for buffer in scratch:
        mine = [u for u in uses(body) if u.buffer == buffer]
        places = {u.indices for u in mine}
        is_plain = all(isinstance(i, Const) for indices in places for i in indices)
        if is_plain and all(_begins_with(body, buffer, indices) is True for indices in places):
            buffers.add(buffer)
    return buffers


def _begins_with(stmt: Stmt, buffer: Buffer, indices: tuple[Expr, ...]) -> bool | None:
    """Whether a statement writes an element before it reads it; None where it may do neither."""
    element = Load(buffer, indices)
    if any(element in loads_in(e) for e in expressions(stmt)):
        return False
    match stmt:
        case Store():
            return True if Load(stmt.buffer, stmt.indices) == element else None
        case Seq():
            return next((first for s in stmt.stmts if (first := _begins_with(s, buffer, indices)) is not None), None)
        case For():
            first = _begins_with(stmt.body, buffer, indices)
            runs = isinstance(stmt.extent, Const) and stmt.extent.value > 0
            return first if runs or first is False else None
        case Block():
            parts = [_begins_with(s, buffer, indices) for s in inner(stmt)]
            return next((first for first in parts if first is not None), None)
        case If():
            sides = [_begins_with(s, buffer, indices) for s in inner(stmt)]
            if False in sides:
                return False
            return True if len(sides) == 2 and all(sides) else None
    return None
