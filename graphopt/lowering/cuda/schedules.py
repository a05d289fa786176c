"""Fair speed on CUDA without a search: how a nest is scheduled for blocks of threads by its shape alone."""

from __future__ import annotations

from dataclasses import replace

from graphopt.lowering.chains import chains
from graphopt.lowering.cuda.card import CARD, Card
from graphopt.lowering.cuda.elements import element_wise
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.loops import Nest, seq


def scheduled(nest: Nest, card: Card = CARD) -> Nest:
    """The nest in loops over blocks and threads; its statements are launched one after another."""
    found = chains(nest)
    if found is None:
        return nest
    owner = DeviceScheduling(nest, card)
    body = seq(*(element_wise(owner, c) for c in found))
    allocs = tuple(b for b in nest.allocs if b not in owner.gone)
    return replace(nest, body=body, allocs=(*allocs, *owner.locals))
