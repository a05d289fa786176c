"""Element-wise space: inlined blocks, in vectorized parallel chunks."""

from __future__ import annotations

from typing import Final

from graphopt.errors import ScheduleError
from graphopt.kernels.host import lanes as lanes_of
from graphopt.lowering.analysis.access_analysis import known_size
from graphopt.lowering.analysis.block_refs import INLINE, find_loop
from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.schedule.sampling import compute_locations
from graphopt.lowering.schedule.schedule import Schedule

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
