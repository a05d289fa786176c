"""Fair speed on CUDA without a search: how a nest is scheduled for blocks of threads by its shape alone.

The blocks of a nest are taken from the first on: each rule in turn is asked for the kernels of as many of them as it
takes together. Of what no rule takes each element is computed by a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from graphopt.lowering.chains import Chain, chains
from graphopt.lowering.cuda.card import CARD, Card
from graphopt.lowering.cuda.elements import element_wise, result_wise
from graphopt.lowering.cuda.products import product
from graphopt.lowering.cuda.row_kernels import row_wise
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.cuda.transposes import turned_over
from graphopt.lowering.loops import Nest, Stmt, seq

Rule: TypeAlias = Callable[[DeviceScheduling, Sequence[Chain]], "tuple[Stmt, int] | None"]
"""The kernels of the first of some blocks, and how many those are; None where the rule is for others."""

RULES: Final[tuple[Rule, ...]] = (product, row_wise, turned_over)


def scheduled(nest: Nest, card: Card = CARD, rules: Sequence[Rule] = RULES) -> Nest:
    """The nest in loops over blocks and threads; its statements are launched one after another."""
    found = chains(nest)
    if found is None:
        return nest
    owner = DeviceScheduling(nest, card)
    kernels = []
    while found:
        made = (rule(owner, found) for rule in rules)
        stmt, taken = next((m for m in made if m is not None), None) or (_alone(owner, found[0]), 1)
        kernels.append(stmt)
        found = found[taken:]
    allocs = tuple(b for b in nest.allocs if b not in owner.gone)
    return replace(nest, body=seq(*kernels), allocs=(*allocs, *owner.locals))


def _alone(owner: DeviceScheduling, chain: Chain) -> Stmt:
    """A block by itself."""
    return element_wise(owner, chain) if chain.block.init is None else result_wise(owner, chain)
