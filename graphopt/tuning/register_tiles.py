"""Register tiling space: contraction results in vector registers, in cache tiles, in parallel pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from graphopt.errors import ScheduleError
from graphopt.kernels.host import lanes as lanes_of
from graphopt.kernels.host import vector_bytes
from graphopt.kernels.product_form import near
from graphopt.lowering.analysis.access_analysis import REGISTERS, known_size, vector_axis
from graphopt.lowering.analysis.block_refs import BlockRef, LoopRef
from graphopt.lowering.analysis.canonical_nest import Access
from graphopt.lowering.loops.expressions import Const, Var
from graphopt.lowering.loops.nest import Axis
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.tuning.reductions import after, followers_of, only_reduction

TILES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
"""How many results along an axis a tile may have."""
TIMES: Final = (1, 2, 4, 8, 16, 32)
"""How many tiles along an axis may be done before those along others."""
STEPS: Final = 8
"""How many steps of a loop of a reduction may be written out, at most."""
WRITTEN: Final = 64
"""Vectors of products that may be written out, at most: of more, code takes long to be made, and no less to run."""


def register_tiles(s: Schedule) -> None:
    """A contraction in tiles of three levels: pieces that are shared out, tiles in caches, and a tile of results that
    stays in vector registers while the reduction runs. What is done to its elements is done before the next tile."""
    contraction = _Contraction.of(s)
    widths = contraction.widths(s)
    split = [_Split.drawn(s, axis, loop, width) for axis, loop, width in widths]
    reduced = _unrolled(
        s, contraction.reduced, WRITTEN * contraction.lanes // prod(prod(width) for _, _, width in widths)
    )
    outer, middle = [p.outer for p in split], [p.middle for p in split]
    turned = s.sample_categorical([0, 1])
    s.reorder(
        *outer,
        *(middle[::-1] if turned else middle),
        *(loop for pair in reduced for loop in pair[:1]),
        *(loop for pair in reduced for loop in pair[1:]),
        *(loop for p in split for loop in p.inner),
    )
    at_loop = middle[0] if turned else middle[-1]
    sizes = {axis.var: p.size for (axis, _, _), p in zip(widths, split, strict=True)}
    packed = [*contraction.compute_producers(s, outer[-1]), *contraction.packed(s, sizes, widths[-1][-1], outer[-1])]
    followers = contraction.followers
    if followers:
        s.set_scope(contraction.block, "local")
    else:
        followers = [s.cache_write(contraction.block, "local")]
    for block in followers:
        s.reverse_compute_at(block, at_loop)
    started = s.decompose_reduction(contraction.block, reduced[0][0]) if reduced else None
    for pair in reduced:
        for loop in pair[1:]:
            s.unroll(loop)
    _in_registers(s, [loop for p in split for loop in p.inner])
    if started is not None:  # a loop of one step is not among its loops
        _in_registers(s, after(s.get_loops(started), at_loop))
    for block in followers:
        _in_registers(s, _with_lanes(s, after(s.get_loops(block), at_loop), contraction.lanes))
    for loop in packed:
        s.vectorize(loop)
    s.parallel(s.fuse(*outer))


@dataclass(frozen=True)
class _Split:
    """An axis in three levels; the innermost is that of the register tile, along vectors two."""

    outer: LoopRef
    middle: LoopRef
    inner: tuple[LoopRef, ...]
    size: int
    """Results along the axis in a piece."""

    @staticmethod
    def drawn(s: Schedule, axis: Axis, loop: LoopRef, width: Sequence[int]) -> _Split:
        extent = known_size([axis.extent])
        most = None if extent is None else -(-extent // prod(width))
        times = s.sample_categorical([n for n in TIMES if most is None or n <= most])
        outer, middle, *inner = s.split(loop, [None, times, *width])
        return _Split(outer, middle, tuple(inner), times * prod(width))


@dataclass(frozen=True)
class _Contraction:
    """The reduction of a nest, with its loops, and the blocks that take what it makes."""

    block: BlockRef
    spatial: tuple[tuple[LoopRef, Axis], ...]
    reduced: tuple[tuple[LoopRef, Axis], ...]
    vector: Axis
    lanes: int
    reads: tuple[Access, ...]
    producers: tuple[BlockRef, ...]
    """What is made beside each piece of results, for that piece."""
    followers: list[BlockRef]

    @staticmethod
    def of(s: Schedule) -> _Contraction:
        """The contraction of a schedule's nest. Earlier blocks are inlined in it, or computed for each piece, such as a
        padded image, of which elements need not be told from padding then. ScheduleError where there is none."""
        chain = only_reduction(s)
        producers = s.get_producers(chain.block.name)
        is_made = s.sample_categorical([0, 1]) if producers else 0
        for before in () if is_made else producers:
            s.compute_inline(before)
        chain = only_reduction(s)
        block = s.get_block(chain.block.name)
        loops = s.get_loops(block)
        pairs = list(zip(loops, chain.axes, strict=True))
        vector = vector_axis(chain)
        if vector is None:
            raise ScheduleError(f"register_tiles: results of {chain.block.name} do not lie side by side")
        return _Contraction(
            block,
            tuple((loop, a) for loop, a in pairs if a.kind == "spatial"),
            tuple((loop, a) for loop, a in pairs if a.kind == "reduce" and a.extent != Const(1)),
            vector,
            min(lanes_of(chain.stores[0].buffer.dtype), known_size([vector.extent]) or 1 << 10),
            tuple(a for a in chain.accesses if not a.is_write and a.buffer != chain.stores[0].buffer),
            tuple(producers) if is_made else (),
            followers_of(s, chain.block.name),
        )

    def widths(self, s: Schedule) -> list[tuple[Axis, LoopRef, tuple[int, ...]]]:
        """Each spatial axis with its loop and how many results along it the register tile has."""
        extent = known_size([self.vector.extent]) or 1 << 10
        most = -(-extent // self.lanes)
        vectors = s.sample_categorical([n for n in (1, 2, 3, 4) if n <= most])
        left = max(REGISTERS[vector_bytes()] // int(vectors) - 1, 1)  # for the sums, beside what they are made of
        widths: dict[str, tuple[int, ...]] = {self.vector.var.name: (vectors, self.lanes)}
        for _, axis in reversed(self.spatial):
            if axis is self.vector:
                continue
            size = known_size([axis.extent])
            width = s.sample_categorical([n for n in TILES if n <= left and (size is None or n <= size)] or [1])
            widths[axis.var.name] = (width,)
            left = max(left // int(width), 1)
        ordered = [(a, loop) for loop, a in self.spatial if a is not self.vector]
        ordered += [(a, loop) for loop, a in self.spatial if a is self.vector]
        return [(a, loop, widths[a.var.name]) for a, loop in ordered]

    def compute_producers(self, s: Schedule, at_loop: LoopRef) -> list[LoopRef]:
        """Has what is not written out in the reduction made for each piece; gives the loops over vectors of it."""
        lane_loops: list[LoopRef] = []
        for before in self.producers:
            s.set_scope(before, "local")
            s.compute_at(before, at_loop)
            lane_loops += _with_lanes(s, after(s.get_loops(before), at_loop), self.lanes)[-1:]
        return lane_loops

    def packed(
        self, s: Schedule, sizes: Mapping[Var, int], width: Sequence[int], at_loop: LoopRef
    ) -> Sequence[LoopRef]:
        """Draws an operand, or none, whose part that a piece reads is copied beside it, columns of a vector side by
        side; gives the loop over the copy's vectors. Of those that are drawn the copies stay in the second cache."""
        within = {**{a.var: known_size([a.extent]) for _, a in self.reduced}, **sizes}
        fits = [a for a in self.reads if _is_within(a, within, near(a.buffer.dtype))]
        drawn = s.sample_categorical([*range(len(fits) + 1)]) if fits else 0
        if not drawn:
            return ()
        chosen, others = fits[drawn - 1], set(s.nest.allocs)
        copy = s.cache_read(self.block, chosen.buffer.name, "local")
        if chosen.indices[-1] == self.vector.var:
            (name,) = (b.name for b in s.nest.allocs if b not in others)
            s.transform_layout(copy, name, _in_panels(len(chosen.indices), width[-1]), pad=True)
        s.compute_at(copy, at_loop)
        loops = after(s.get_loops(copy), at_loop)
        return s.split(loops[-1], [None, *width])[-1:] if loops else ()


def _unrolled(s: Schedule, reduced: Sequence[tuple[LoopRef, Axis]], most: int) -> list[tuple[LoopRef, ...]]:
    """The loops of a reduction, each with some steps that are written out, together at most so many."""
    splits = []
    for loop, axis in reversed(reduced):
        extent = known_size([axis.extent])
        possible = [n for n in range(2, STEPS + 1) if n <= most and extent is not None and extent % n == 0]
        steps = s.sample_categorical([1, *possible])
        most //= int(steps)
        splits.append(s.split(loop, [None, steps]))
    return splits[::-1]


def _is_within(access: Access, sizes: Mapping[Var, int | None], most: int) -> bool:
    """Whether an element is found by axes alone, and at most so many elements are within them."""
    extents = [sizes.get(i, 1) if isinstance(i, Var) else None for i in access.indices]
    constants = [n for n in extents if n is not None]
    return bool(extents) and len(constants) == len(extents) and prod(constants) <= most


def _in_panels(rank: int, width: int) -> str:
    """The map of indices by which so many elements along the last axis lie together, in those along the others."""
    *names, last = (f"i{k}" for k in range(rank))
    return f"lambda {', '.join([*names, last])}: ({last} // {width}, {', '.join([*names, f'{last} % {width}'])})"


def _in_registers(s: Schedule, loops: Sequence[LoopRef]) -> None:
    """Loops over a tile in registers: the last along vectors, the others written out."""
    for loop in loops[:-1]:
        s.unroll(loop)
    for loop in loops[-1:]:
        s.vectorize(loop)


def _with_lanes(s: Schedule, loops: Sequence[LoopRef], lanes: int) -> list[LoopRef]:
    """The loops with the last in vectors; none where what is left of a tile is one element."""
    return [*loops[:-1], *(part for loop in loops[-1:] for part in s.split(loop, [None, lanes]))]
