"""Cross-thread reduction: partial results of a row's threads, combined by warp shuffles or in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphopt.frozen import dataclass
from graphopt.kernels.cuda.limits import WARP
from graphopt.lowering.cuda.teams import Teams
from graphopt.lowering.loops.expressions import Const, Expr, Load, apply, equal
from graphopt.lowering.loops.nest import Buffer, BufferRegion, If, Invoke, Range, Stmt, Store

EXCHANGED: Final = ("add", "max", "min")
"""By what the threads of a warp can combine what they have."""
IN_TURN: Final = 8
"""How many values one thread combines one after another."""


@dataclass(frozen=True, slots=True)
class PartialResult:
    """A partial result of a row: each thread's element in a local buffer, and the function that combines two."""

    buffer: Buffer
    fn: str


def combined(teams: Teams, parts: Sequence[PartialResult]) -> list[Stmt]:
    """Statements after which every thread has its row's whole result in place of its part."""
    stmts: list[Stmt] = []
    for part in parts:
        left = teams.lanes
        if teams.exchanges and left % WARP == 0 and part.fn in EXCHANGED and "float16" not in part.buffer.dtype:
            stmts.append(_in_warps(teams, part))
            left //= WARP
        if left > 1:
            stmts += _on_board(teams, part, left)
    return stmts


def _in_warps(teams: Teams, part: PartialResult) -> Stmt:
    def call(row: Expr) -> Stmt:
        lanes = BufferRegion(part.buffer, (Range(row), Range(Const(0), Const(teams.width))))
        return Invoke(f"warp_{part.fn}_{part.buffer.dtype}", (lanes, Const(teams.width)))

    return teams.by_rows(call)


def _on_board(teams: Teams, part: PartialResult, left: int) -> list[Stmt]:
    """The threads' parts, or those of their warps, ``left`` of them, combined in memory that the block shares."""
    board = teams.owner.shared(part.buffer.name, teams.arranged(Const(teams.rows), Const(left)), part.buffer.dtype)
    step = teams.lanes // left

    def at(row: Expr, lane: Expr) -> Load:
        return Load(board, tuple(teams.arranged(row, lane)))

    def put(row: Expr, lane: Expr) -> Stmt:
        target = at(row, lane // step)
        store = Store(board, target.indices, Load(part.buffer, teams.arranged(row, lane)))
        return store if step == 1 else If(equal(lane % step, 0), store)

    stmts = [teams.phase(put)]
    while left > IN_TURN:
        count = left // IN_TURN

        def gather(row: Expr, lane: Expr, count: int = count) -> Stmt:
            total: Expr = at(row, lane)
            for k in range(1, IN_TURN):
                total = apply(part.fn, total, at(row, lane + k * count))
            return If(lane < count, Store(board, at(row, lane).indices, total))

        stmts.append(teams.phase(gather))
        left = count

    def take(row: Expr, lane: Expr) -> Stmt:
        total: Expr = at(row, Const(0))
        for k in range(1, left):
            total = apply(part.fn, total, at(row, Const(k)))
        return Store(part.buffer, teams.arranged(row, lane), total)

    return [*stmts, teams.phase(take)]
