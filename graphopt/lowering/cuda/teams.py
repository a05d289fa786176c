"""Thread teams: blocks of threads with some threads for each row and some rows for each block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from graphopt.frozen import dataclass
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.loops.expressions import Const, Expr
from graphopt.lowering.loops.nest import Buffer, Stmt

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Teams:
    """``lanes`` threads for each of ``rows`` rows of a block; neighbouring threads share a row where they go ``along``
    it, else they have neighbouring rows."""

    owner: DeviceScheduling
    rows: int
    lanes: int
    along: bool

    @property
    def width(self) -> int:
        """The number of threads along x."""
        return self.lanes if self.along else self.rows

    @property
    def height(self) -> int:
        """The number of threads along y."""
        return self.rows if self.along else self.lanes

    @property
    def exchanges(self) -> bool:
        """Whether the warps are of threads that share a row, and may exchange what they have."""
        return self.along and self.owner.card.has_exchange

    def arranged(self, row: T, lane: T) -> tuple[T, T]:
        """Of a thread what says where it is along y and along x, from its row's number and its own in the row."""
        return (row, lane) if self.along else (lane, row)

    def phase(self, body: Callable[[Expr, Expr], Stmt]) -> Stmt:
        """The body, of a row's number within the block and of a thread's within the row, by each thread."""

        def at(y: Expr) -> Stmt:
            return self.owner.by_threads(self.width, lambda x: body(*self.arranged(y, x)))

        return at(Const(0)) if self.height == 1 else self.owner.by_threads(self.height, at, "y")

    def by_rows(self, body: Callable[[Expr], Stmt]) -> Stmt:
        """The loop over the rows of a block, one for each thread along y; ``body`` has the threads of a row."""
        return body(Const(0)) if self.height == 1 else self.owner.by_threads(self.height, body, "y")

    def local(self, name: str, shape: Sequence[Expr], dtype: str) -> Buffer:
        """A new buffer that every thread has of its own."""
        return self.owner.local(name, (Const(self.height), Const(self.width), *shape), dtype)
