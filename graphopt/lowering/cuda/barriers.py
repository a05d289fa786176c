"""Where the threads of a block have to wait for each other.

The loops over ``threadIdx`` of a kernel are its *phases*: each is done by all threads, and means that all of it is done
before the next one begins. Threads only have to wait for that where one of them needs what another one did: before a
phase that reads, or writes over, what an earlier one wrote, or writes over what it read. Of a buffer whose slots the
steps of a loop take in turn, a step does not meet what the step before did to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from graphopt.lowering.dataflow import accesses_in
from graphopt.lowering.expressions import Expr, Load, walk
from graphopt.lowering.loops import (
    Block,
    Buffer,
    For,
    If,
    Invoke,
    Region,
    Seq,
    Stmt,
    Store,
    expressions,
    inner,
    seq,
    statements,
)

BARRIER: Final = Invoke("barrier", ())
"""All threads of a block wait here for each other."""


def synchronized(stmt: Stmt) -> Stmt:
    """The statement with barriers between its phases."""
    return _with_barriers(stmt, _NOTHING)[0]


@dataclass(frozen=True, slots=True)
class _Pending:
    """What was read and written since threads waited last."""

    read: frozenset[Buffer] = frozenset()
    written: frozenset[Buffer] = frozenset()

    def __or__(self, other: _Pending) -> _Pending:
        return _Pending(self.read | other.read, self.written | other.written)

    def without(self, buffers: frozenset[Buffer]) -> _Pending:
        """What is pending apart from what was done to some buffers."""
        return _Pending(self.read - buffers, self.written - buffers)

    def meets(self, later: _Pending) -> bool:
        """Whether what comes later has to wait."""
        return bool(self.written & (later.read | later.written) or self.read & later.written)


_NOTHING: Final = _Pending()


def is_phase(stmt: Stmt) -> bool:
    """Whether no loop over threads lies within a statement: it is one, or is done by every thread."""
    return is_over_threads(stmt) or not any(map(is_over_threads, statements(stmt)))


def is_over_threads(stmt: Stmt) -> bool:
    """Whether each iteration of a loop is a thread's."""
    return isinstance(stmt, For) and stmt.thread is not None and stmt.thread.startswith("threadIdx")


def _with_barriers(stmt: Stmt, before: _Pending) -> tuple[Stmt, _Pending]:
    """The statement with barriers, and what is pending behind it."""
    if stmt == BARRIER:
        return stmt, _NOTHING
    if is_phase(stmt):
        own = _Pending(frozenset(_read(stmt)), frozenset(_written(stmt)))
        return (seq(BARRIER, stmt), own) if before.meets(own) else (stmt, before | own)
    match stmt:
        case Seq():
            done = []
            for part in stmt.stmts:
                part, before = _with_barriers(part, before)
                done.append(part)
            return seq(*done), before
        case For(thread=None):
            # what the first round has to wait for is what came before the loop, or the round before
            first, around = _with_barriers(stmt.body, before)
            if _waits(first):  # so no thread is two rounds ahead of another
                around = around.without(_taken_in_turn(stmt))
            body, after = _with_barriers(stmt.body, before | around)
            return replace(stmt, body=body), before | after
        case For() | Block():
            body, after = _with_barriers(stmt.body, before)
            return replace(stmt, body=body), after
        case If():
            then, after = _with_barriers(stmt.then, before)
            otherwise, other = (None, before) if stmt.otherwise is None else _with_barriers(stmt.otherwise, before)
            return replace(stmt, then=then, otherwise=otherwise), after | other
    return stmt, before


def _waits(stmt: Stmt) -> bool:
    """Whether threads wait for each other within a statement, whatever is chosen."""
    return stmt == BARRIER or (isinstance(stmt, Seq | Block) and any(map(_waits, inner(stmt))))


def _taken_in_turn(loop: For) -> frozenset[Buffer]:
    """The shared buffers of which the steps of a loop use one half each, in turn."""
    turn, indices = loop.var % 2, dict[Buffer, list[Expr]]()
    for access in accesses_in(loop.body):
        if access.buffer.scope == "shared" and access.indices:
            indices.setdefault(access.buffer, []).append(access.indices[0])
    return frozenset(b for b, found in indices.items() if all(i == turn for i in found))


def _read(stmt: Stmt) -> Iterator[Buffer]:
    for s in statements(stmt):
        own = (*s.values, s.predicate) if isinstance(s, Block) else expressions(s)
        yield from (e.buffer for expr in own for e in walk(expr) if isinstance(e, Load) and _is_common(e.buffer))
        if isinstance(s, Invoke):
            yield from (a.buffer for a in s.args if isinstance(a, Region) and _is_common(a.buffer))


def _written(stmt: Stmt) -> Iterator[Buffer]:
    for s in statements(stmt):
        if isinstance(s, Store) and _is_common(s.buffer):
            yield s.buffer
        elif isinstance(s, Invoke):
            yield from (a.buffer for a in s.args if isinstance(a, Region) and _is_common(a.buffer))


def _is_common(buffer: Buffer) -> bool:
    return buffer.scope != "local"
