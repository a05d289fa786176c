"""Reduction lookup: the one reduction of a nest and its neighbours, for the tiling spaces."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import BlockRef, LoopRef
from graphopt.lowering.analysis.canonical_nest import Chain, chains
from graphopt.lowering.schedule.schedule import Schedule


def only_reduction(s: Schedule) -> Chain:
    """The reduction of a nest that has no other; else ScheduleError."""
    reductions = [c for c in chains(s.nest) or () if c.block.init is not None]
    if len(reductions) != 1 or not reductions[0].reduced or len(reductions[0].stores) != 1:
        raise ScheduleError(f"tiles: {s.nest.name} is not one reduction, with what is done to its elements")
    return reductions[0]


def followers_of(s: Schedule, name: str) -> list[BlockRef]:
    """The blocks behind the one of that name, which stand in loops of their own."""
    names = [c.block.name for c in chains(s.nest) or ()]
    return [BlockRef(other) for other in names[names.index(name) + 1 :]]


def after(loops: Sequence[LoopRef], loop: LoopRef) -> Sequence[LoopRef]:
    """The loops within one of them."""
    return loops[loops.index(loop) + 1 :]
