"""Default schedules for CUDA: rules by a nest's structure, without a search.

The blocks of a nest are taken from the first on: each rule in turn is asked for the kernels of as many of them as it
takes together. Of what no rule takes each element is computed by a thread. Statements of procedures are kernels too.
Each rule is a module of its own, so that a schedule is found by the computation's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Final, TypeAlias

from graphopt.lowering.analysis.canonical_nest import Chain, chain_of, chains
from graphopt.lowering.cpu.epilogue_fusion import finished
from graphopt.lowering.cpu.scheduling import NONE, Choices, refuse_unknown
from graphopt.lowering.cuda.card import CARD, Card
from graphopt.lowering.cuda.dispatch import DispatchMode, choice, multiplied
from graphopt.lowering.cuda.elements import by_rows, element_wise, result_wise
from graphopt.lowering.cuda.independence import uses
from graphopt.lowering.cuda.lookups import kept_inside
from graphopt.lowering.cuda.procedures import is_bound, opened, shared_out
from graphopt.lowering.cuda.products import product
from graphopt.lowering.cuda.row_kernels import row_wise
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.cuda.transposes import turned_over
from graphopt.lowering.emit.pragmas import refuse_pragmas
from graphopt.lowering.loops.nest import Nest, Seq, Stmt, seq
from graphopt.target import ProductPrices

DeviceScheduleRule: TypeAlias = Callable[[DeviceScheduling, Sequence[Chain]], "tuple[Stmt, int] | None"]
"""The kernels of the first of some blocks, and how many those are; None where the rule is for others."""

RULES: Final[tuple[DeviceScheduleRule, ...]] = (product, row_wise, turned_over, by_rows)


def scheduled(nest: Nest, card: Card = CARD, rules: Sequence[DeviceScheduleRule] = RULES) -> Nest:
    """The nest in loops over blocks and threads; its statements are launched one after another. A nest with such loops
    stays as it is."""
    return chosen(nest, NONE, card, rules)[0]


def rules_beside(prices: Mapping[str, ProductPrices], way: DispatchMode = "auto") -> tuple[DeviceScheduleRule, ...]:
    """The rules beside a library of products at such prices."""
    return (partial(multiplied, chosen=choice(way, prices)), *RULES)


def chosen(
    nest: Nest, choices: Choices, card: Card = CARD, rules: Sequence[DeviceScheduleRule] = RULES
) -> tuple[Nest, Mapping[str, tuple[int, ...]]]:
    """The nest as ``scheduled`` gives it, but for what is chosen otherwise; and all that there was to choose, by name.

    ScheduleError where something is chosen that there is no choice of, or that is no candidate.
    """
    scheduled_nest, offered = (nest, {}) if is_bound(nest.body) else _scheduled(nest, choices, card, rules)
    refuse_unknown(choices, offered)
    return scheduled_nest, offered


def _scheduled(
    nest: Nest, choices: Choices, card: Card, rules: Sequence[DeviceScheduleRule]
) -> tuple[Nest, Mapping[str, tuple[int, ...]]]:
    nest = kept_inside(nest) if chains(nest) is not None else opened(finished(nest))
    parts = nest.body.stmts if isinstance(nest.body, Seq) else (nest.body,)
    part_chains = [chain_of(part) for part in parts]
    used = [{u.buffer for u in uses(part)} for part in parts]
    lasting = {b for buffers, chain in zip(used, part_chains, strict=True) if chain is None for b in buffers}
    owner = DeviceScheduling(replace(nest, allocs=tuple(b for b in nest.allocs if b not in lasting)), card, choices)
    kernels, at = list[Stmt](), 0
    while at < len(parts):
        first = [c for c in takewhile(lambda c: c is not None, part_chains[at:]) if c is not None]
        if first:
            refuse_pragmas(parts[at])
            stmt, consumed = _first(owner, first, rules)
        else:
            others = {b for k, buffers in enumerate(used) if k != at for b in buffers}
            private = [b for b in nest.allocs if b not in others]
            stmt, consumed = shared_out(owner, parts[at], private), 1
        kernels.append(stmt)
        at += consumed
    allocs = tuple(b for b in nest.allocs if b not in owner.gone)
    return replace(nest, body=seq(*kernels), allocs=(*allocs, *owner.locals)), owner.offered


def _first(owner: DeviceScheduling, chains: Sequence[Chain], rules: Sequence[DeviceScheduleRule]) -> tuple[Stmt, int]:
    """The kernels of the first blocks, and how many those are."""
    schedules = (rule(owner, chains) for rule in rules)
    return next((m for m in schedules if m is not None), None) or (_alone(owner, chains[0]), 1)


def _alone(owner: DeviceScheduling, chain: Chain) -> Stmt:
    """A block by itself."""
    return element_wise(owner, chain) if chain.block.init is None else result_wise(owner, chain)
