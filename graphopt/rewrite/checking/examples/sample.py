"""Samples: one call of an example while it is drawn: what its result should be, and what is known of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from graphopt.frozen import dataclass

StaticShape = tuple[int, ...]


class Misfit(Exception):  # noqa: N818 - drawn again, no error
    """What was drawn does not fit together."""


@dataclass(frozen=True, slots=True)
class Want:
    """What a value should be, as far as it matters: None leaves it open. ``value`` are the elements of a constant."""

    shape: StaticShape | None = None
    dtype: str | None = None
    value: Any = None
    low: float | None = None
    high: float | None = None


ANY = Want()


@dataclass(frozen=True, slots=True)
class SampleOperand:
    """What is known of an input before it is drawn: its elements, its shape and dtype where it is bound already."""

    value: Any = None
    shape: StaticShape | None = None
    dtype: str | None = None
    op: str = ""
    """What makes it, in the pattern."""


@dataclass(slots=True)
class Sample:
    """One call that is being drawn: the op, what its result should be, and its inputs (None: absent).

    ``attr`` gives the value of an attribute: what the pattern says where it says so, a draw where it may be any.
    """

    random: Random
    op: str
    want: Want
    inputs: Sequence[SampleOperand | None]
    attr: Callable[..., Any]
    ranks: Sequence[int] = ()
    strings: Sequence[str] = ()
    port: int = 0
    n_outputs: int = 1
    even: int | None = None
    """All axes are this long: so that a result with its axes mixed up has the right shape, and is seen to be wrong."""

    def chance(self, p: float) -> bool:
        """True with this probability."""
        return self.random.random() < p

    def pick(self, options: Sequence[Any]) -> Any:
        """One of the options."""
        return self.random.choice(list(options))

    def number(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return self.random.randint(low, high)

    def size(self) -> int:
        """A size of an axis."""
        return self.even or self.random.choice((1, 2, 2, 3, 3, 4))

    def shape(self, rank: int | None = None, least: int = 0) -> StaticShape:
        """The shape of the result: the wanted one where its rank fits, else a new one."""
        wanted = self.want.shape
        if wanted is not None and (rank is None or len(wanted) == rank) and len(wanted) >= least:
            return wanted
        return self.new_shape(rank, least)

    def new_shape(self, rank: int | None = None, least: int = 0) -> StaticShape:
        """Any small shape."""
        if rank is None:
            options = [r for r in (*self.ranks, 0, 1, 2, 2, 3, 3, 4) if r >= least]
            rank = self.pick(options or [least])
        return tuple(self.size() for _ in range(rank))

    def perm(self, rank: int) -> StaticShape:
        """A permutation."""
        order = list(range(rank))
        self.random.shuffle(order)
        if rank >= 2 and self.chance(0.3):
            order = [*range(rank - 2), rank - 1, rank - 2]
        return tuple(order)

    def axis(self, rank: int) -> int:
        """An axis, sometimes counted from the end."""
        if not rank:
            raise Misfit("no axis")
        axis = self.random.randrange(rank)
        return axis - rank if self.chance(0.3) else axis

    def axes(self, rank: int, least: int = 1) -> StaticShape:
        """Some axes."""
        if rank < least:
            raise Misfit("too few axes")
        chosen = self.random.sample(range(rank), self.number(least, max(least, min(rank, 2))))
        chosen = sorted(chosen)
        return tuple(a - rank if self.chance(0.2) else a for a in chosen)

    def has(self, index: int) -> bool:
        """Whether an input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def value(self, index: int, draw: Callable[[], Any]) -> Any:
        """The elements of a constant input: its own where it has some, else drawn."""
        operand = self.inputs[index] if index < len(self.inputs) else None
        elements = None if operand is None else operand.value
        return draw() if elements is None else elements

    def op_of(self, index: int) -> str:
        """The op of which an input comes in the pattern; empty where the pattern leaves it open."""
        operand = self.inputs[index] if index < len(self.inputs) else None
        return "" if operand is None else operand.op

    def bound(self, index: int) -> StaticShape | None:
        """The shape of an input that is bound already."""
        operand = self.inputs[index] if index < len(self.inputs) else None
        return None if operand is None else operand.shape


Sampler = Callable[[Sample], "list[Want]"]
"""What the inputs of a call should be."""


def ints(value: Any) -> StaticShape:
    """Elements as a sequence."""
    return tuple(value) if isinstance(value, tuple | list) else (int(value),)


def normal(axes: Sequence[int], rank: int) -> list[int]:
    """Axes counted from the front."""
    if any(not -rank <= a < rank for a in axes):
        raise Misfit("axis out of range")
    return [a % rank for a in axes]
