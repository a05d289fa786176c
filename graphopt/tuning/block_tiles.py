"""Block tiling space for GPUs: result tiles for blocks and threads, operands in shared memory (the ladder of
docs/cuda.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphopt.errors import ScheduleError
from graphopt.ir.constants import BITS
from graphopt.kernels.cuda.limits import WARP
from graphopt.lowering.analysis.access_analysis import known_size
from graphopt.lowering.analysis.block_refs import BlockRef, LoopRef
from graphopt.lowering.cuda.card import Card
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.tuning.reductions import after, followers_of, only_reduction

THREADS: Final = (2, 4, 8, 16, 32)
"""How many threads a block may have along an axis."""
OWN: Final = (1, 2, 4, 8)
"""How many results along an axis a thread may have."""
DEPTHS: Final = (1, 2, 4, 8, 16, 32)
"""How many steps of a reduction may be fetched together."""
VECTORS: Final = (1, 2, 4)
"""How many neighbours a thread may fetch at once."""


def block_tiles(s: Schedule, card: Card) -> None:
    """A contraction in tiles for the blocks of threads of a card: its last two axes are the rows and columns of
    tiles. What is done to its elements is done before the tile is left."""
    for before in s.get_producers(only_reduction(s).block.name):
        s.compute_inline(before)
    chain = only_reduction(s)
    reads = {a.buffer for a in chain.accesses if a.buffer != chain.stores[0].buffer}
    if len(chain.spatial) < 2 or not reads:
        raise ScheduleError(f"block_tiles: {chain.block.name} is no contraction with rows and columns")
    block, done = s.get_block(chain.block.name), followers_of(s, chain.block.name)
    loops = dict(zip((a.var for a in chain.axes), s.get_loops(block), strict=True))
    *outer, row, column = (loops[a.var] for a in chain.spatial)
    *around, step = (loops[a.var] for a in chain.reduced)
    threads = _threads(s, card)
    per_thread = [s.sample_categorical(OWN) for _ in threads]
    depth = _depth(s, card, known_size([chain.reduced[-1].extent]), threads, per_thread, [b.dtype for b in reads])
    by, i = s.split(row, [None, threads[0] * per_thread[0]])
    bx, j = s.split(column, [None, threads[1] * per_thread[1]])
    ko, ki = s.split(step, [None, depth])
    s.reorder(*outer, by, bx, *around, ko, ki, i, j)
    if done:
        s.set_scope(block, "local")
    else:
        done = [s.cache_write(block, "local")]
    for follower in done:
        s.reverse_compute_at(follower, bx, preserve_unit_loops=True)
    start = s.decompose_reduction(block, (*around, ko)[0])
    fetched = [s.cache_read(block, b.name, "shared") for b in sorted(reads, key=lambda b: b.name)]
    for copy in fetched:
        s.compute_at(copy, ko)
        _fetch(s, copy, ko, threads, s.sample_categorical(VECTORS))
    for part in (start, *done):
        _own_part(s, after(s.get_loops(part), bx)[-2:], (), threads, per_thread)
    _own_part(s, (i, j), (ki,), threads, per_thread)
    if outer:
        s.bind(s.fuse(*outer), "blockIdx.z")
    s.bind(by, "blockIdx.y")
    s.bind(bx, "blockIdx.x")


def _threads(s: Schedule, card: Card) -> tuple[int, int]:
    """Threads of a block along rows and along columns: at least a warp of them, and no more than a block may have."""
    down = s.sample_categorical(THREADS)
    return down, s.sample_categorical([n for n in THREADS if WARP <= int(down) * n <= card.threads])


def _depth(
    s: Schedule, card: Card, steps: int | None, threads: Sequence[int], per_thread: Sequence[int], dtypes: Sequence[str]
) -> int:
    """Steps that are fetched together: what they read fits into the memory that a block shares."""
    size = max(BITS[dtype] for dtype in dtypes) // 8
    step = sum(t * n for t, n in zip(threads, per_thread, strict=True)) * size
    fits = [n for n in DEPTHS if n * step <= card.shared and (steps is None or n <= steps)]
    return s.sample_categorical(fits or [1])


def _fetch(s: Schedule, copy: BlockRef, at_loop: LoopRef, threads: Sequence[int], vector: int) -> None:
    """All threads of a block fetch a shared tile together, so many neighbours at once."""
    inside = after(s.get_loops(copy), at_loop)
    if not inside:
        inside = [s.add_unit_loop(copy)]
    rounds, ty, tx, lane = s.split(s.fuse(*inside), [None, *threads, vector])
    s.reorder(ty, tx, rounds, lane)
    s.bind(ty, "threadIdx.y")
    s.bind(tx, "threadIdx.x")
    s.vectorize(lane)


def _own_part(
    s: Schedule, loops: Sequence[LoopRef], inside: Sequence[LoopRef], threads: Sequence[int], per_thread: Sequence[int]
) -> None:
    """A thread's own rows and columns of a tile, written out; ``inside`` are loops that stand around them."""
    (ty, yi), (tx, xi) = (s.split(loop, [t, n]) for loop, t, n in zip(loops, threads, per_thread, strict=True))
    s.reorder(ty, tx, *inside, yi, xi)
    s.bind(ty, "threadIdx.y")
    s.bind(tx, "threadIdx.x")
    s.unroll(yi)
    s.unroll(xi)
