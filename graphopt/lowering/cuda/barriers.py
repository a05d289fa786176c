"""Barrier insertion: synchronization between threads of a block that share memory.

The loops over ``threadIdx`` of a kernel are its *phases*: each is done by all threads, and means that all of it is done
before the next one begins. Threads only have to wait for that where one of them needs what another one did: before a
phase that reads, or writes over, what an earlier one wrote, or writes over what it read. Of a buffer that has slots,
which the steps of a loop take in turn, only uses of one slot meet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Final

from graphopt.frozen import dataclass
from graphopt.lowering.analysis.dataflow import AccessSet, accesses_in
from graphopt.lowering.index.arithmetic import polynomial
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Var, substitute, variables
from graphopt.lowering.loops.nest import (
    Block,
    Buffer,
    For,
    If,
    Invoke,
    Seq,
    Stmt,
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
class _Use:
    """A buffer that threads have in common, and which of its slots is used, where it has some that are taken in turn:
    an index along its first axis that is a number, or what is left of something by a division."""

    buffer: Buffer
    slot: Expr | None = None

    def meets(self, other: _Use) -> bool:
        """Whether both may be of one element."""
        if self.buffer != other.buffer:
            return False
        match self.slot, other.slot:
            case Const(), Const():
                return self.slot == other.slot
            case Apply(args=(a, n)), Apply(args=(b, m)) if isinstance(n, Const) and n == m:
                apart = polynomial(a - b).number
                return apart is None or apart % int(n.value) == 0
        return True


@dataclass(frozen=True, slots=True)
class _Pending:
    """Reads and writes since the last barrier."""

    read: frozenset[_Use] = frozenset()
    written: frozenset[_Use] = frozenset()

    def __or__(self, other: _Pending) -> _Pending:
        return _Pending(self.read | other.read, self.written | other.written)

    def __le__(self, other: _Pending) -> bool:
        return self.read <= other.read and self.written <= other.written

    def meets(self, later: _Pending) -> bool:
        """Whether what comes later has to wait."""
        pairs = [*product(self.written, later.read | later.written), *product(self.read, later.written)]
        return any(a.meets(b) for a, b in pairs)

    def mapped(self, slot: Callable[[Expr], Expr | None]) -> _Pending:
        """The same with other slots."""
        read, written = (
            frozenset(replace(u, slot=None if u.slot is None else slot(u.slot)) for u in uses)
            for uses in (self.read, self.written)
        )
        return _Pending(read, written)


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
        accesses = _done_in(stmt)
        return (seq(BARRIER, stmt), accesses) if before.meets(accesses) else (stmt, before | accesses)
    match stmt:
        case Seq():
            done = []
            for part in stmt.stmts:
                part, before = _with_barriers(part, before)
                done.append(part)
            return seq(*done), before
        case For(thread=None):
            return _around(stmt, before)
        case For() | Block():
            body, after = _with_barriers(stmt.body, before)
            return replace(stmt, body=body), after
        case If():
            then, after = _with_barriers(stmt.then, before)
            otherwise, other = (None, before) if stmt.otherwise is None else _with_barriers(stmt.otherwise, before)
            return replace(stmt, then=then, otherwise=otherwise), after | other
    return stmt, before


def _around(loop: For, before: _Pending) -> tuple[Stmt, _Pending]:
    """The loop with barriers: what a round has to wait for is what came before the loop, or the round before."""
    around, var = _NOTHING, loop.var
    while True:
        body, after = _with_barriers(loop.body, before | around)
        # where threads wait in each round, what is pending behind it is of this round alone
        carried = after.mapped(partial(_of_round_before, var) if _waits(body) else lambda slot: None)
        if carried <= around:
            break
        around = around | carried
    outside = (before | after).mapped(lambda slot: None if var in variables(slot) else slot)
    return replace(loop, body=body), outside


def _of_round_before(var: Var, slot: Expr) -> Expr:
    return substitute(slot, {var: var - 1})


def _waits(stmt: Stmt) -> bool:
    """Whether threads wait for each other within a statement, whatever is chosen."""
    return stmt == BARRIER or (isinstance(stmt, Seq | Block) and any(map(_waits, inner(stmt))))


def _done_in(phase: Stmt) -> _Pending:
    """Reads and writes of a phase in memory that threads share."""
    accesses: tuple[set[_Use], set[_Use]] = set(), set()
    for access in accesses_in(phase):
        if access.buffer.scope != "local":
            accesses[access.is_write].add(_Use(access.buffer, _slot(access)))
    read, written = map(frozenset, accesses)
    return _Pending(read, written)


def _slot(access: AccessSet) -> Expr | None:
    """The slot of its buffer that an access is to; None where it is not the same for all of the phase."""
    single = {v: Const(0) for v, extent in access.extents.items() if extent == Const(1)}
    index = substitute(access.indices[0], single) if access.indices else Const(0)
    is_slot = isinstance(index, Const) or (isinstance(index, Apply) and index.fn == "mod")
    return index if is_slot and variables(index).isdisjoint(access.extents) else None
