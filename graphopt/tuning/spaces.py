"""Search spaces: schedules with sampled decisions. A nest of another kind raises ScheduleError.

A space is any function of a ``Schedule`` that calls its ``sample_`` methods; here are those that graphopt tries by
itself; those of rows and of GPUs are long, and modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Final, TypeAlias

from graphopt.errors import ScheduleError
from graphopt.kernels.host import lanes as lanes_of
from graphopt.lowering.analysis.access_analysis import known_size
from graphopt.lowering.analysis.block_refs import INLINE, LoopRef, find_block, find_loop
from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.cpu.register_tiles import IN_REGISTERS, TIMES_ALONG
from graphopt.lowering.schedule.by_rule import card, chosen_for
from graphopt.lowering.schedule.sampling import compute_locations
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.target import CPU
from graphopt.target import target as target_named
from graphopt.tuning.block_tiles import block_tiles
from graphopt.tuning.reductions import after, only_reduction
from graphopt.tuning.row_reductions import row_reductions

Space: TypeAlias = Callable[[Schedule], object]


def by_rule(s: Schedule, target: str = CPU.name) -> None:
    """The default schedule for a target, with other tiles, pieces and functions than it would choose by itself."""
    choices = _drawn(s, target, {})
    if not choices:
        raise ScheduleError(f"by_rule: there is nothing to choose for {s.nest.name}")
    scheduled_by_rule(s, target, tuple(choices.items()))


def _drawn(s: Schedule, target: str, choices: dict[str, int]) -> dict[str, int]:
    """What there is to choose in a default schedule, drawn; but whether tiles are in registers, as given."""
    while True:
        offered = chosen_for(target, s.nest, choices).offered
        name = next((n for n in offered if n not in choices and n != IN_REGISTERS), None)
        if name is None:
            return choices
        choices[name] = s.sample_categorical(offered[name])


def register_tiles(s: Schedule) -> None:
    """A contraction in tiles of three levels: pieces that are shared out, tiles in caches, and a tile of results that
    stays in vector registers while the reduction runs. Earlier blocks, such as one that pads an image, are inlined in
    it, or computed for each piece."""
    block = only_reduction(s).block.name
    producers = s.get_producers(block)
    is_made = s.sample_categorical([0, 1]) if producers and not s.nest.sizes else 0
    for before in () if is_made else producers:
        s.compute_inline(before)
    choices = _drawn(s, CPU.name, {IN_REGISTERS: 1})
    scheduled_by_rule(s, CPU.name, tuple(choices.items()))
    if is_made:
        tiles = sum(n > 1 for name, n in choices.items() if name.startswith(TIMES_ALONG))
        around = [loop for loop in find_block(s.nest, f"{block}_init").loops if loop.kind in ("serial", "parallel")]
        piece = LoopRef(around[-1 - tiles].var.name)
        for before in producers:
            s.set_scope(before, "local")
            s.compute_at(before, piece)
            for loop in after(s.get_loops(before), piece)[-1:]:
                s.vectorize(loop)


def scheduled_by_rule(s: Schedule, target: str, choices: tuple[tuple[str, int], ...] = ()) -> None:
    """Schedules by rule for a target; a step for the CPU does not name it."""
    if target_named(target).device.is_host:
        s.by_rule(choices) if choices else s.by_rule()
    else:
        s.by_rule(choices, target=target)


VECTORS: Final = (1, 2, 4)
"""Vectors that may be written out."""
CHUNKS: Final = tuple(1 << n for n in range(9))
"""How often that may be done by one work item."""


def elements(s: Schedule) -> None:
    """Blocks that make elements: each is written out where it is read, as far as that may be, or has loops of its own;
    those are fused or not, and shared out in chunks of vectors."""
    nest_chains = chains(s.nest)
    if not nest_chains or any(c.block.init is not None for c in nest_chains):
        raise ScheduleError(f"elements: {s.nest.name} does more than make elements one by one")
    for block in [c.block.name for c in nest_chains[:-1]]:
        if INLINE in compute_locations(s.nest, block) and s.sample_categorical([0, 1]):
            s.compute_inline(block)
    for chain in chains(s.nest) or ():
        _in_chunks(s, chain.block.name, lanes_of(chain.stores[0].buffer.dtype))


def _in_chunks(s: Schedule, block: str, lanes: int) -> None:
    """The loops of a block: items shared out, chunks, and vectors that are written out."""
    *outer, last = s.get_loops(block)
    if outer and s.sample_categorical([0, 1]):
        outer, last = [], s.fuse(*outer, last)
    extent = known_size([find_loop(s.nest, last).stmt.extent])
    width = lanes * s.sample_categorical([n for n in VECTORS if extent is None or n == 1 or n * lanes <= extent])
    most = None if extent is None else -(-extent // width)
    times = s.sample_categorical([n for n in CHUNKS if most is None or n <= most])
    item, _, vectors, lane = s.split(last, [None, times, width // lanes, lanes])
    s.unroll(vectors)
    s.vectorize(lane)
    s.parallel(s.fuse(*outer, item))


SPACES: Final[tuple[Space, ...]] = (by_rule, register_tiles, row_reductions, elements)
"""The spaces that are tried on the CPU: to add one, add it here."""


@cache
def spaces_for(target: str) -> tuple[Space, ...]:
    """The spaces that are tried for a target. UsageError where there is none of this name."""
    device = target_named(target).device
    if not device.has_blocks:
        return SPACES
    return partial(by_rule, target=target), partial(block_tiles, card=card(device))
