"""Scheduling state: names, local buffers and parallel loops that all CPU schedules share, and the order of rules.

A rule of default schedules is asked for blocks that follow each other: it gives their loops, or says why it is not for
them. The first that takes them schedules them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import field
from itertools import count
from math import prod
from typing import Final, NamedTuple, Self, TypeAlias, TypeVar

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.lowering.analysis.access_analysis import decomposed, known_size, point_of, total_size
from graphopt.lowering.analysis.canonical_nest import Chain, exchange
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, minimum, substitute
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import Block, Buffer, For, Nest, Stmt, Store, seq, statements
from graphopt.runtime.steps import SHARED

ITEMS: Final = 64
"""Work items that are enough to share out."""
CHUNK: Final = 1 << 12
"""Elements of a flat loop that make one work item,"""
CHUNKS: Final = tuple(1 << n for n in range(9, 17))
"""and what else may be tried."""
Choices: TypeAlias = Mapping[str, int]
"""What is chosen instead of what the rules would choose, by name."""
NONE: Final[Choices] = {}
RULES: Final = (
    "Matmul",
    "GEMV",
    "Convolution",
    "Reduction",
    "GeneralReduction",
    "Transpose",
    "ElementWise",
    "Fallback",
)
"""The rules of default schedules, by name, in the order in which they are asked, for the CPU and for CUDA."""
S = TypeVar("S", bound="Scheduling")


@dataclass(frozen=True, slots=True)
class Taken:
    """The loops that a rule gives the first of some blocks, and how many blocks these are."""

    stmt: Stmt
    count: int = 1


BlockRule: TypeAlias = Callable[[S, Sequence[Chain]], Taken | str]
"""What a rule makes of the first of some blocks; a reason where it is not for them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What rules answered for some blocks: why each is not for them, or None where it is; which one took them, and what
    it decided. Rules behind that one have an answer only where all were asked."""

    blocks: tuple[str, ...]
    reasons: Mapping[str, str | None]
    rule: str | None = None
    decided: Mapping[str, int] = field(default_factory=dict)


class Scheduled(NamedTuple):
    """A nest with its loops scheduled, all that there was to choose, by name, and what rules answered."""

    nest: Nest
    offered: Mapping[str, tuple[int, ...]]
    answers: tuple[Answer, ...]


def refuse_unknown(choices: Choices, offered: Collection[str]) -> None:
    """Raises ScheduleError where something is chosen that there was no choice of."""
    if others := [name for name in choices if name not in offered]:
        raise ScheduleError(
            f"there is no choice of {', '.join(others)}: there is one of {', '.join(offered) or 'nothing'}"
        )


class Scheduling:
    """The scheduling of one nest: hands out names, and collects the local buffers that it makes.

    ``choices`` are what others chose; ``offered`` says among which numbers there was a choice, by its name.
    """

    def __init__(self, nest: Nest, choices: Choices = NONE) -> None:
        self.nest, self.choices = nest, choices
        self.offered: dict[str, tuple[int, ...]] = {}
        self.decided: list[tuple[str, int]] = []
        self.answers: list[Answer] = []
        self.numbers = count()
        self.locals: list[Buffer] = []
        self.gone: set[Buffer] = set()

    def choose(self, name: str, candidates: Iterable[int], by_rule: int) -> int:
        """The chosen value, else the rules' default. ScheduleError for a value that is neither that nor a candidate."""
        self.offered[name] = tuple(sorted({*candidates, by_rule}))
        chosen = self.choices.get(name, by_rule)
        if chosen not in self.offered[name]:
            raise ScheduleError(f"{name} is one of {', '.join(map(str, self.offered[name]))}, and not {chosen}")
        self.decided.append((name, int(chosen)))
        return chosen

    def apart(self) -> Self:
        """The scheduling as it is now, for a rule whose loops are not kept."""
        other = copy(self)
        other.offered, other.decided, other.answers = dict(self.offered), [], []
        other.numbers, other.locals, other.gone = copy(self.numbers), list(self.locals), set(self.gone)
        return other

    def var(self, letter: str) -> Var:
        """A variable that nothing has yet."""
        return Var(f"{letter}{next(self.numbers)}")

    def local(self, name: str, shape: Sequence[Expr], dtype: str) -> Buffer:
        """A new buffer beside the loops."""
        buffer = Buffer(f"{name}_l{next(self.numbers)}", tuple(shape), dtype, "local")
        self.locals.append(buffer)
        return buffer

    def accumulated(
        self, chain: Chain, values: Mapping[Var, Expr], reduce_loops: Sequence[LoopSpec], *each: Stmt
    ) -> Stmt:
        """One element's reduction in variables of its own: start, steps, each after what makes what it reads, and the
        result written once."""
        targets = {s.buffer: tuple(substitute(i, values) for i in s.indices) for s in chain.stores}
        registers = {b: (self.local(b.name, (), b.dtype), ()) for b in targets}
        start, step = decomposed(chain, values)
        written = [Store(b, where, Load(*registers[b])) for b, where in targets.items()]
        return seq(exchange(start, registers), wrapped(reduce_loops, seq(*each, exchange(step, registers))), *written)

    def shared_out(self, axes: Sequence[LoopSpec], steps: Expr, body: Callable[[Mapping[Var, Expr]], Stmt]) -> Stmt:
        """The body in the given outer loops: the first of them, as one loop, are the work items, the others serial.

        ``body`` gets what each loop's variable is; ``steps`` is how much is done within.
        """
        extents = [a.extent for a in axes]
        total = known_size([*extents, steps])
        if not axes or (total is not None and total < SHARED):
            return wrapped(axes, body({a.var: a.var for a in axes}))
        # an outermost size that is not known is taken for a batch of one, any other for many
        counts = [int(e.value) if isinstance(e, Const) else ITEMS if k else 1 for k, e in enumerate(extents)]
        cut = next((k for k in range(1, len(axes)) if prod(counts[:k]) >= ITEMS), len(axes))
        work = known_size([steps])
        if cut == len(axes) and work is not None and 0 < work < CHUNK:
            axes, body = self.chunked(axes, max(self.choose("chunk", CHUNKS, CHUNK) // work, 1), body)
            cut = len(axes)
        item = self.var("t")
        extents = [a.extent for a in axes[:cut]]
        values = dict(zip((a.var for a in axes[:cut]), point_of(item, extents), strict=True))
        inner = wrapped(axes[cut:], body({**{a.var: a.var for a in axes[cut:]}, **values}))
        return For(item, total_size(extents), inner, "parallel")

    def chunked(
        self, axes: Sequence[LoopSpec], size: int, body: Callable[[Mapping[Var, Expr]], Stmt]
    ) -> tuple[list[LoopSpec], Callable[[Mapping[Var, Expr]], Stmt]]:
        """The loops with the last one in chunks of about a size, which makes finding out where one is worth while, and
        the body in them."""
        last, length = axes[-1], known_size([axes[-1].extent])
        if length is not None:
            size = -(-length // -(-max(length, 1) // size))
        outer, step = LoopSpec(self.var("o"), (last.extent + (size - 1)) // size), self.var("i")

        def inner(at: Mapping[Var, Expr]) -> Stmt:
            start = at[outer.var] * size
            part = body({**at, last.var: start + step})
            return For(step, minimum(size, last.extent - start), part)

        return [*axes[:-1], outer], inner


def asked(
    owner: S, chains: Sequence[Chain], rules: Mapping[str, BlockRule[S]], asks_all: bool = False
) -> Taken | Answer:
    """What the first of the rules that takes some blocks makes of them; else why none does. Rules behind it are asked
    for their reasons alone, where ``asks_all``."""
    taken: Taken | None = None
    reasons, by, decided = dict[str, str | None](), None, dict[str, int]()
    for name, rule in rules.items():
        if taken is not None and not asks_all:
            break
        before, kept = len(owner.decided), owner.apart()
        made = rule(owner if taken is None else kept, chains)
        reasons[name] = made if isinstance(made, str) else None
        if taken is None and isinstance(made, Taken):
            taken, by, decided = made, name, dict(owner.decided[before:])
        elif taken is None:  # nothing of what it tried is left, but what there was to choose
            owner.numbers, owner.locals, owner.gone = kept.numbers, kept.locals, kept.gone
    count = len(chains) if taken is None else taken.count
    owner.answers.append(Answer(tuple(c.block.name for c in chains[:count]), reasons, by, decided))
    return owner.answers[-1] if taken is None else taken


def refused(answer: Answer) -> ScheduleError:
    """The error that no rule takes some blocks."""
    reasons = "; ".join(f"{name}: {reason}" for name, reason in answer.reasons.items())
    if len(answer.reasons) == 1:
        reasons = str(next(iter(answer.reasons.values())))
    return ScheduleError(reasons or f"there are no rules for {', '.join(answer.blocks)}")


def as_it_is(stmt: Stmt, rules: Collection[str], asks_all: bool = False) -> Answer:
    """The answer for what is no block in loops of its own: only ``Fallback`` takes it. ScheduleError where that is not
    among the rules."""
    names = dict.fromkeys(s.name for s in statements(stmt) if isinstance(s, Block))
    reasons: dict[str, str | None] = {}
    for name in rules:
        reasons[name] = None if name == "Fallback" else "it is a procedure, is scheduled already, or computes nothing"
        if name == "Fallback" and not asks_all:
            break
    answer = Answer(tuple(names), reasons, "Fallback" if "Fallback" in rules else None)
    if answer.rule is None:
        raise refused(answer)
    return answer
