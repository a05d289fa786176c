"""One nest as several that run one after another, so that each has a parallel loop of its own."""

from __future__ import annotations

from collections.abc import Iterator

from graphopt.lowering.expressions import Var, variables
from graphopt.lowering.loops import (
    Block,
    Buffer,
    For,
    Invoke,
    Nest,
    Region,
    Seq,
    Stmt,
    Store,
    expressions,
    loads,
    statements,
)


def divided(nest: Nest) -> tuple[Nest, ...]:
    """The nest's statements as nests of their own where one of them is a parallel loop, else the nest itself.

    What one of them leaves to another in a buffer that was the nest's own becomes a parameter.
    """
    parts = nest.body.stmts if isinstance(nest.body, Seq) else ()
    if not any(isinstance(s, For) and s.kind == "parallel" for s in parts):
        return (nest,)
    used = [set(_buffers(s)) for s in parts]
    shared = [b for b in nest.allocs if sum(b in u for u in used) > 1]
    made = []
    for part, buffers in zip(parts, used, strict=True):
        params = [b for b in (*nest.buffers, *shared) if b in buffers]
        own = tuple(b for b in nest.allocs if b in buffers and b not in shared)
        names = _variables(part, (*params, *own))
        made.append(Nest(nest.name, (*params, *(v for v in nest.sizes if v in names)), part, own, nest.notes))
    return tuple(made)


def _buffers(stmt: Stmt) -> Iterator[Buffer]:
    yield from (load.buffer for load in loads(stmt))
    for s in statements(stmt):
        if isinstance(s, Store):
            yield s.buffer
        elif isinstance(s, Block):
            yield from (r.buffer for r in (*s.reads, *s.writes))
        elif isinstance(s, Invoke):
            yield from (a.buffer for a in s.args if isinstance(a, Region))


def _variables(stmt: Stmt, buffers: tuple[Buffer, ...]) -> set[Var]:
    found = {v for s in statements(stmt) for e in expressions(s) for v in variables(e)}
    for buffer in buffers:
        for extent in buffer.row_major + buffer.shape:
            found |= variables(extent)
    return found
