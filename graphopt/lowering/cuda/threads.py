"""CUDA scheduling state: blocks of threads and shared memory that all CUDA schedules share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from graphopt.kernels.cuda.limits import WARP
from graphopt.lowering.analysis.access_analysis import known_size
from graphopt.lowering.cpu.scheduling import NONE, Choices, Scheduling
from graphopt.lowering.cuda.card import Card
from graphopt.lowering.loops.expressions import Const, Expr
from graphopt.lowering.loops.nest import Buffer, For, If, Nest, Stmt

AHEAD: Final = ("copies", "ahead")
"""The note of a phase whose copies to shared memory may be under way until threads wait for each other."""


class DeviceScheduling(Scheduling):
    """The scheduling of one nest for a card."""

    def __init__(self, nest: Nest, card: Card, choices: Choices = NONE) -> None:
        super().__init__(nest, choices)
        self.card = card

    def choose(self, name: str, candidates: Iterable[int], by_rule: int) -> int:
        """As ``Scheduling.choose``, by the name and a number: several kernels of a nest may have such a choice."""
        number = sum(other.rpartition(" ")[0] == name for other in self.offered)
        return super().choose(f"{name} {number}", candidates, by_rule)

    def shared(self, name: str, shape: Sequence[Expr], dtype: str, strides: Sequence[Expr] | None = None) -> Buffer:
        """A new buffer that the threads of a block share."""
        spaced = None if strides is None else tuple(strides)
        buffer = Buffer(f"{name}_s{next(self.numbers)}", tuple(shape), dtype, "shared", spaced)
        self.locals.append(buffer)
        return buffer

    def memory(self, name: str, shape: Sequence[Expr], dtype: str) -> Buffer:
        """A new buffer that all kernels of the nest reach."""
        buffer = Buffer(f"{name}_g{next(self.numbers)}", tuple(shape), dtype)
        self.locals.append(buffer)
        return buffer

    def over_blocks(self, count: Expr, body: Callable[[Expr], Stmt]) -> Stmt:
        """The body for each number below ``count``, each in a block of its own."""
        block = self.var("b")
        return For(block, count, body(block), "bound", "blockIdx.x")

    def by_threads(self, threads: int, body: Callable[[Expr], Stmt], axis: str = "x") -> Stmt:
        """The body for each number below ``threads``, by a thread of the block each: a phase of the block."""
        thread = self.var("t")
        return For(thread, Const(threads), body(thread), "bound", f"threadIdx.{axis}")

    def over_threads(self, count: Expr, body: Callable[[Expr], Stmt]) -> Stmt:
        """The body for each number below ``count``, by a thread each, in as many blocks as that takes."""
        extent = known_size([count])
        most = self.card.threads if extent is None else min(self.card.threads, -(-max(extent, 1) // WARP) * WARP)
        threads = self.choose("threads", powers(WARP, most), most)
        blocks = (count + (threads - 1)) // threads

        def step(block: Expr) -> Stmt:
            return self.by_threads(threads, lambda t: self.within(block * threads + t, count, threads, body))

        return self.over_blocks(blocks, step)

    def within(self, item: Expr, count: Expr, multiple: int, body: Callable[[Expr], Stmt]) -> Stmt:
        """The body for an item, where there is such a one: ``count`` may be no multiple of what threads take."""
        extent = known_size([count])
        done = body(item)
        return done if extent is not None and extent % multiple == 0 else If(item < count, done)


def powers(least: int, most: int) -> list[int]:
    """The powers of two from one, which is one of them, to another number."""
    return [least << n for n in range(max(most // least, 0).bit_length())]
