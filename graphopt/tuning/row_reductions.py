"""Row reduction space: softmax and normalizations, row by row with local intermediates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphopt.errors import ScheduleError
from graphopt.kernels.host import lanes as lanes_of
from graphopt.lowering.analysis.access_analysis import known_size, lies_along, shared_axes
from graphopt.lowering.analysis.block_refs import BlockRef, LoopRef, find_block, find_loop
from graphopt.lowering.analysis.canonical_nest import Chain, chains
from graphopt.lowering.loops.expressions import variables
from graphopt.lowering.loops.nest import blocks
from graphopt.lowering.schedule.schedule import Schedule

SUMS: Final = 8
"""Vectors of partial results that a row may be reduced to, at most, before those are combined."""
ROWS: Final = 64
"""Rows that may be one work item, at most."""
UNROLLED: Final = (1, 2, 4)
"""Vectors of elements that may be written out."""
ELEMENTS: Final = 1 << 15
"""What may be kept of a row, of one block."""


def row_reductions(s: Schedule) -> None:
    """Blocks that share their rows, some of them reductions, run row by row; rows are shared out. A reduction is one of
    vectors first. Elements are made where a row of them is read, or again for each that reads them."""
    for chain in _rows_of(s)[:-1]:
        if chain.block.init is None and s.sample_categorical([0, 1]):
            s.compute_inline(chain.block.name)
    rows = _rows_of(s)
    shared = shared_axes(rows)
    partial = {_in_vectors_first(s, c) for c in rows if c.block.init is not None}
    last = BlockRef(rows[-1].block.name)
    item, row = _tiled(s, s.fuse(*s.get_loops(last)[:shared]), ROWS)
    order = [b for block in blocks(s.nest.body) if (b := BlockRef(block.name)) != last]
    for block in reversed(order):
        s.compute_at(block, row)
        s.set_scope(block, "local")
    map_blocks = {c.block.name for c in rows if c.block.init is None}
    lanes = lanes_of(rows[-1].stores[0].buffer.dtype)
    for block in [*order, last]:
        loops = s.get_loops(block)
        loops = loops[loops.index(row) + 1 :]
        if block in partial:
            _sum_up(s, block, loops, lanes)
        elif block.name in map_blocks and loops:
            _in_vectors(s, s.split(loops[-1], [None, s.sample_categorical(UNROLLED), lanes])[1:])
    s.parallel(item)


def _rows_of(s: Schedule) -> list[Chain]:
    """The blocks of a nest, where they share rows of a known length; ScheduleError where they do not."""
    rows = list(chains(s.nest) or ())
    shared = shared_axes(rows) if rows else 0
    reductions = [c for c in rows if c.block.init is not None]
    if not shared or not reductions or any(not _is_of_rows(c, shared) for c in reductions):
        raise ScheduleError(f"row_reductions: {s.nest.name} is no reduction of rows")
    sizes = [known_size([a.extent for a in c.axes[shared:]]) for c in rows]
    if any(n is None or n > ELEMENTS for n in sizes):
        raise ScheduleError(f"row_reductions: a row of {s.nest.name} is too long to be kept, or of no known length")
    return rows


def _is_of_rows(chain: Chain, shared: int) -> bool:
    """Whether a reduction makes one result of a row, whose elements lie side by side."""
    return len(chain.spatial) == shared and lies_along(chain, chain.reduced[-1])


def _in_vectors_first(s: Schedule, chain: Chain) -> BlockRef:
    """The block of a reduction's partial results, of which there are as many as a draw says."""
    most = SUMS * lanes_of(chain.stores[0].buffer.dtype)
    _, step = _tiled(s, s.get_loops(chain.block.name)[-1], most)
    return s.rfactor(step, len(chain.spatial))


def _tiled(s: Schedule, loop: LoopRef, most: int) -> tuple[LoopRef, ...]:
    """A loop as two, the inner of at most so many steps; of one whose extent is not known, of one."""
    extent = known_size([find_loop(s.nest, loop).stmt.extent])
    return s.split(loop, [None, 1] if extent is None else s.sample_perfect_tile(loop, 2, most))


def _sum_up(s: Schedule, block: BlockRef, loops: tuple[LoopRef, ...], lanes: int) -> None:
    """Vectors of partial results, which stay in registers while a row is gone through."""
    sums = [loop for loop in loops if _is_spatial(s, block, loop)]
    steps = [loop for loop in loops if loop not in sums]
    s.reorder(*steps, *sums)
    parts: Sequence[LoopRef] = sums
    if sums and (known_size([find_loop(s.nest, sums[-1]).stmt.extent]) or 0) > lanes:
        parts = s.split(sums[-1], [None, lanes])
    if steps and parts:
        started = s.decompose_reduction(block, steps[0])
        started_loops = s.get_loops(started)
        _in_vectors(s, started_loops[len(s.get_loops(block)) - len(parts) - len(steps) :])
    _in_vectors(s, parts)


def _in_vectors(s: Schedule, loops: Sequence[LoopRef]) -> None:
    """Loops of which the last is done in vectors, and the others are written out."""
    for loop in loops[:-1]:
        s.unroll(loop)
    for loop in loops[-1:]:
        s.vectorize(loop)


def _is_spatial(s: Schedule, block: BlockRef, loop: LoopRef) -> bool:
    """Whether a loop moves the results of a block, and is none of its reduction."""
    stmt, var = find_block(s.nest, block).stmt, find_loop(s.nest, loop).stmt.var
    values = zip(stmt.axes, stmt.values, strict=True)
    return any(a.kind == "spatial" and var in variables(v) for a, v in values)
