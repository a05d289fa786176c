"""Default schedules for CUDA: rules by a nest's structure, without a search.

The blocks of a nest are taken from the first on: each rule in turn is asked for the kernels of as many of them as it
takes together.

- *Matmul*, *GEMV*, *Convolution*: a contraction by a function of a library, or tile by tile; that of a matrix and a
  vector row by row, too.
- *Reduction*, *GeneralReduction*: one or several blocks that work on the same rows, each of which is some threads'.
- *Transpose*, *ElementWise*: each thread computes a few elements, of a tile in shared memory, or neighbours.
- *Fallback*: each result is computed by a thread; statements of procedures are kernels, too.

Each is a module of its own, so that a schedule is found by the computation's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Final

from graphopt.lowering.analysis.block_kinds import BlockKind, kind_of, not_element_wise, unlike
from graphopt.lowering.analysis.canonical_nest import Chain, chain_of, chains
from graphopt.lowering.cpu.epilogue_fusion import finished
from graphopt.lowering.cpu.scheduling import (
    NONE,
    RULES,
    Answer,
    BlockRule,
    Choices,
    Scheduled,
    Taken,
    as_it_is,
    asked,
    refuse_unknown,
    refused,
)
from graphopt.lowering.cuda.card import CARD, Card
from graphopt.lowering.cuda.dispatch import DispatchChoice, multiplied
from graphopt.lowering.cuda.elements import by_rows, element_wise, result_wise
from graphopt.lowering.cuda.independence import uses
from graphopt.lowering.cuda.lookups import kept_inside
from graphopt.lowering.cuda.procedures import is_bound, opened, shared_out
from graphopt.lowering.cuda.products import moved_by, product, with_element
from graphopt.lowering.cuda.row_kernels import row_wise, together
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.cuda.transposes import turned_over
from graphopt.lowering.emit.pragmas import refuse_pragmas
from graphopt.lowering.loops.nest import Nest, Seq, Stmt, seq


def scheduled(nest: Nest, card: Card = CARD, library: DispatchChoice | None = None) -> Nest:
    """The nest in loops over blocks and threads; its statements are launched one after another. A nest with such loops
    stays as it is. ``library`` says what a library computes."""
    return chosen(nest, NONE, card, library).nest


def chosen(
    nest: Nest,
    choices: Choices,
    card: Card = CARD,
    library: DispatchChoice | None = None,
    rules: Sequence[str] = RULES,
    asks_all: bool = False,
) -> Scheduled:
    """The nest as ``scheduled`` gives it, but for what is chosen otherwise, or by other rules.

    ScheduleError where something is chosen that there is no choice of, or that is no candidate, and where none of the
    rules is for a block.
    """
    if is_bound(nest.body):
        made = Scheduled(nest, {}, (as_it_is(nest.body, rules, asks_all),))
    else:
        made = _scheduled(nest, choices, card, library, rules, asks_all)
    refuse_unknown(choices, made.offered)
    return made


def _scheduled(
    nest: Nest,
    choices: Choices,
    card: Card,
    library: DispatchChoice | None,
    rules: Sequence[str],
    asks_all: bool,
) -> Scheduled:
    nest = kept_inside(nest) if chains(nest) is not None else opened(finished(nest))
    parts = nest.body.stmts if isinstance(nest.body, Seq) else (nest.body,)
    part_chains = [chain_of(part) for part in parts]
    used = [{u.buffer for u in uses(part)} for part in parts]
    lasting = {b for buffers, chain in zip(used, part_chains, strict=True) if chain is None for b in buffers}
    private = replace(nest, allocs=tuple(b for b in nest.allocs if b not in lasting))
    owner = _Scheduler(private, card, choices, library)
    asking = {name: BY_NAME[name] for name in rules}
    kernels, at = list[Stmt](), 0
    while at < len(parts):
        first = [c for c in takewhile(lambda c: c is not None, part_chains[at:]) if c is not None]
        if first:
            refuse_pragmas(parts[at])
            taken = asked(owner, first, asking, asks_all)
            if isinstance(taken, Answer):
                raise refused(taken)
        else:
            owner.answers.append(as_it_is(parts[at], rules, asks_all))
            others = {b for k, buffers in enumerate(used) if k != at for b in buffers}
            taken = Taken(shared_out(owner, parts[at], [b for b in nest.allocs if b not in others]))
        kernels.append(taken.stmt)
        at += taken.count
    allocs = tuple(b for b in nest.allocs if b not in owner.gone)
    made = replace(nest, body=seq(*kernels), allocs=(*allocs, *owner.locals))
    return Scheduled(made, owner.offered, tuple(owner.answers))


class _Scheduler(DeviceScheduling):
    """Schedules one nest for a card and a library."""

    def __init__(self, nest: Nest, card: Card, choices: Choices, library: DispatchChoice | None) -> None:
        super().__init__(nest, card, choices)
        self.library = library

    def called(self, chains: Sequence[Chain]) -> Taken | None:
        """The first blocks by a function of the library."""
        return None if self.library is None else multiplied(self, chains, self.library)


# ---------------------------------------------------------------------- the rules


def _contraction(kind: BlockKind, owner: _Scheduler, chains: Sequence[Chain]) -> Taken | str:
    """A contraction of a kind, by a library or tile by tile; of a matrix and a vector row by row, too."""
    moved = moved_by(owner, chains)
    head = chains[0] if moved is None else with_element(chains[1], moved)
    if (reason := unlike([head], kind)) is not None:
        return reason
    taken = owner.called(chains) or product(owner, chains) or (row_wise(owner, chains) if kind == "GEMV" else None)
    return taken or f"no tiles of block {head.block.name!r}: it computes nothing, or its sums depend on each other"


def _reduction(owner: _Scheduler, chains: Sequence[Chain]) -> Taken | str:
    """A reduction, each row of which is some threads'."""
    name = chains[0].block.name
    if chains[0].block.init is None:
        return f"no reduction: block {name!r} has no reduction axis"
    if kind_of(chains[0]) == "Reduction" and (called := owner.called(chains)) is not None:
        return called
    count = together(owner, chains)
    if count > 1:
        return f"no plain reduction: {count} blocks from {name!r} on work on the same rows"
    return (row_wise(owner, chains) if count else None) or f"no rows: block {name!r} calls functions, or checks"


def _general_reduction(owner: _Scheduler, chains: Sequence[Chain]) -> Taken | str:
    """Several blocks on the same rows."""
    taken = row_wise(owner, chains) if together(owner, chains) > 1 else None
    return taken or f"no rows of several blocks: none behind {chains[0].block.name!r} works on the same rows"


def _transpose(owner: _Scheduler, chains: Sequence[Chain]) -> Taken | str:
    """A block of elements in tiles that are transposed in shared memory."""
    if (reason := not_element_wise(chains[0])) is not None:
        return reason
    stmt, name = turned_over(owner, chains), chains[0].block.name
    return Taken(stmt) if stmt else f"no transpose: what block {name!r} reads lies as it writes, or in short rows"


def _element_wise(owner: _Scheduler, chains: Sequence[Chain]) -> Taken | str:
    """A block of elements."""
    if (reason := not_element_wise(chains[0])) is not None:
        return reason
    return Taken(by_rows(owner, chains[0]) or element_wise(owner, chains[0]))


def _fallback(owner: _Scheduler, chains: Sequence[Chain]) -> Taken | str:
    """A block result by result."""
    chain = chains[0]
    return Taken(element_wise(owner, chain) if chain.block.init is None else result_wise(owner, chain))


BY_NAME: Final[Mapping[str, BlockRule[_Scheduler]]] = {
    "Matmul": partial(_contraction, "Matmul"),
    "GEMV": partial(_contraction, "GEMV"),
    "Convolution": partial(_contraction, "Convolution"),
    "Reduction": _reduction,
    "GeneralReduction": _general_reduction,
    "Transpose": _transpose,
    "ElementWise": _element_wise,
    "Fallback": _fallback,
}
