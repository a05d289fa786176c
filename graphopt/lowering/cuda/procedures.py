"""Procedures on CUDA: independent loops become threads; all others keep their order.

Loops that stand directly in one another change places for that. Where there are few iterations for threads, each of
them is a block, whose threads share out the loops within. What has no such loops one thread does alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from graphopt.frozen import dataclass
from graphopt.lowering.analysis.access_analysis import bytes_of, known_size, point_of, total_size
from graphopt.lowering.cuda.independence import is_independent, own_buffers, uses
from graphopt.lowering.cuda.lookups import inside_buffers
from graphopt.lowering.cuda.row_plans import at_least
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.intrinsics.tensor_intrin import find_intrinsic, placed
from graphopt.lowering.loops.expressions import Expr, loads_in, variables
from graphopt.lowering.loops.loop_nests import peeled, wrapped
from graphopt.lowering.loops.nest import (
    Block,
    Buffer,
    Check,
    For,
    If,
    Invoke,
    Nest,
    Seq,
    Stmt,
    mutate,
    rename_buffers,
    seq,
    statements,
    substitute_in,
)


def opened(nest: Nest) -> Nest:
    """The nest with the statements of its procedures one after another, each of which may be a kernel: what several of
    them use lies in memory."""
    parts = [p for part in _parts(mutate(nest.body, _written_out)) for p in _checked_first(part)]
    apart = [{u.buffer for u in uses(part)} for part in parts]
    common = {b for b in nest.allocs if b.scope != "global" and sum(b in used for used in apart) > 1}
    moved = {b: replace(b, scope="global") for b in common}
    body = rename_buffers(seq(*parts), moved)
    return replace(nest, body=body, allocs=tuple(moved.get(b, b) for b in nest.allocs))


def _parts(stmt: Stmt) -> list[Stmt]:
    if isinstance(stmt, Block) and not stmt.axes and stmt.init is None:
        return _parts(stmt.body)
    return [p for s in stmt.stmts for p in _parts(s)] if isinstance(stmt, Seq) else [stmt]


def _written_out(stmt: Stmt) -> Stmt | None:
    """A call as its description's loops, of which each iteration may be a thread's; None where it has none."""
    if not isinstance(stmt, Invoke):
        return None
    description = find_intrinsic(stmt.intrinsic).description
    return None if description.allocs else placed(description, stmt)


def _checked_first(stmt: Stmt) -> list[Stmt]:
    """A statement as two, where its loops begin with checks of what they do not change: first all is checked."""
    loops, body = peeled(stmt)
    if not loops or not isinstance(body, Seq):
        return [stmt]
    checks = list(takewhile(lambda s: isinstance(s, Check), body.stmts))
    written = {u.buffer for u in uses(body) if u.is_write}
    if not checks or any(u.buffer in written for check in checks for u in uses(check)):
        return [stmt]
    return [wrapped(loops, seq(*checks)), wrapped(loops, inside_buffers(seq(*body.stmts[len(checks) :])))]


def is_bound(stmt: Stmt) -> bool:
    """Whether some loop in a statement is a block's or a thread's already."""
    return any(isinstance(s, For) and s.thread is not None for s in statements(stmt))


def shared_out(owner: DeviceScheduling, stmt: Stmt, scratch: Sequence[Buffer]) -> Stmt:
    """The statement of a procedure as a kernel; ``scratch`` are the buffers that no other statement uses."""
    if isinstance(stmt, If) and stmt.otherwise is None and not loads_in(stmt.condition):
        return replace(stmt, then=shared_out(owner, stmt.then, scratch))
    nested = _thread_loops(stmt, [b for b in scratch if b.scope == "local"])
    count = known_size([f.extent for f in nested.free]) if nested.free else 1
    few = (count if count is not None else at_least([f.extent for f in nested.free])) < owner.card.threads
    if few and (inside := _Inside(owner, nested).body()) is not None:
        return owner.over_blocks(total_size([f.extent for f in nested.free]), lambda b: nested.at(b, inside))
    if not nested.free:
        return stmt
    return owner.over_threads(total_size([f.extent for f in nested.free]), lambda item: nested.at(item, nested.rest))


@dataclass(frozen=True)
class _ThreadLoops:
    """The loops of a statement that are free to run at once, and what is left when they are taken out, with its
    scratch memory."""

    free: tuple[For, ...]
    rest: Stmt
    scratch: tuple[Buffer, ...]

    def at(self, item: Expr, body: Stmt) -> Stmt:
        """The body in one iteration of all of the free loops together."""
        places = point_of(item, [f.extent for f in self.free])
        return substitute_in(body, dict(zip((f.var for f in self.free), places, strict=True)))


def _thread_loops(stmt: Stmt, scratch: Sequence[Buffer]) -> _ThreadLoops:
    loops, body = peeled(stmt)
    private, bound = own_buffers(body, scratch), {f.var for f in loops}
    free: list[For] = []
    for k, f in enumerate(loops):
        is_told = f.kind == "parallel" and len(free) == k  # not that it may change places with others
        if not variables(f.extent) & bound and (is_told or is_independent(f, stmt, private)):
            free.append(f)
    return _ThreadLoops(tuple(free), wrapped([f for f in loops if f not in free], body), tuple(scratch))


class _Inside:
    """Shares out the loops within a statement to the threads of a block."""

    def __init__(self, owner: DeviceScheduling, nested: _ThreadLoops) -> None:
        self.owner, self.nested = owner, nested
        self.is_shared_out = False

    def body(self) -> Stmt | None:
        """The statement with loops over threads; None where there are none, or what an iteration has for itself is more
        than a block can share."""
        rest, scratch = self.nested.rest, self.nested.scratch
        if any(known_size(b.shape) is None for b in scratch) or not _is_open(rest):
            return None
        if sum(bytes_of(b.shape, b.dtype) for b in scratch) > self.owner.card.shared:
            return None
        stmt = self.shared_out(rest)
        if not self.is_shared_out:
            return None
        boards: Mapping[Buffer, Buffer] = {b: self.owner.shared(b.name, b.shape, b.dtype, b.strides) for b in scratch}
        self.owner.gone |= boards.keys()
        return rename_buffers(stmt, boards)

    def shared_out(self, stmt: Stmt) -> Stmt:
        """The statement, its outermost loops that are independent shared out."""
        match stmt:
            case Seq():
                return seq(*(self.shared_out(s) for s in stmt.stmts))
            case For():
                nested = _thread_loops(stmt, ())
                if nested.free:
                    self.is_shared_out = True
                    return self.by_threads(nested)
                if not loads_in(stmt.extent):
                    return replace(stmt, body=self.shared_out(stmt.body))
        return stmt

    def by_threads(self, nested: _ThreadLoops) -> Stmt:
        """Loops whose iterations are the threads' in turn."""
        threads, step = self.owner.card.threads, self.owner.var("k")
        total = total_size([f.extent for f in nested.free])

        def of_thread(thread: Expr) -> Stmt:
            rounds = (total - thread + (threads - 1)) // threads
            return For(step, rounds, nested.at(step * threads + thread, nested.rest))

        return self.owner.by_threads(threads, of_thread)


def _is_open(stmt: Stmt) -> bool:
    """Whether threads can do a statement together: none of them ends before the others, and all is written out."""
    return not any(isinstance(s, Check | Invoke) for s in statements(stmt))
