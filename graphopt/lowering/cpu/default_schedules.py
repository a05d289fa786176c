"""Default schedules for the CPU: rules by a nest's structure, without a search.

One list of rules, tried in order on a nest as it was first written (a chain of loops for each block); each is a module
of its own, so that a schedule is found by the computation's name:

- *called*: a product of matrices that is worth a call, of BLAS or of our own kernel; what is done to the result follows
  by parts. Products of bytes always go to a kernel of their own.
- *convolved*: a convolution by a function that sums a tile of results, over images in blocks of channels or into them.
- *tiles*: another contraction (a convolution, windows, a small product) with what is done to its result element by
  element. A tile of results stays in registers while the reduction runs; the outer loops are parallel. Windows over
  images in blocks go row by row (``sliding``).
- *rows*: blocks that share their outer axes (softmax, normalization) run row by row, what passes between them staying
  close; the rows are parallel.
- *alone*: each block by itself: element by element, or a reduction along or across the vectors.

What none of them fits (procedures) stays as it is, but for what is done to each element that a procedure stores: that
is done there.

Loops are written anew, and are not steps of a ``Schedule``, of which a trace could be shown: tuning chooses in
``by_rule`` what these rules would decide. Those of elements can be steps: of 308 such nests (models, single ops, rows)
steps give 304 kernels that are equal but for the names of loops, and 4 with sums in another order, but take twice as
long (0.64 s for 0.32 s), half of it for the simplification of indices after each ``split`` and ``fuse``. Nor would it
be enough for others to simplify once for each schedule. Of 78 nests of rows, steps take 2.3 times as long (geometric
mean; 0.53 s for 0.20 s) without any simplification, with a ``vectorize`` that lets reductions pass, and before loops
are joined that stand side by side. Of 12 contractions in register tiles, steps take 9.0 times as long, a fifth of it
for simplification and the rest mostly to check that each step is legal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from graphopt.lowering.analysis.access_analysis import (
    bytes_of,
    collapsed,
    is_follower,
    lies_along,
    made_from,
    shared_axes,
    taken_apart,
    total_size,
    with_buffers,
)
from graphopt.lowering.analysis.axis_transforms import following, with_axes_redrawn
from graphopt.lowering.analysis.canonical_nest import Chain, chains
from graphopt.lowering.cpu.called_gemm import called
from graphopt.lowering.cpu.convolution_tiles import convolution_of, convolved
from graphopt.lowering.cpu.element_loops import element_loops
from graphopt.lowering.cpu.epilogue_fusion import finished
from graphopt.lowering.cpu.integer_schedules import multiplied
from graphopt.lowering.cpu.library_dispatch import LibraryPrices, panels_made
from graphopt.lowering.cpu.register_tiles import (
    IN_REGISTERS,
    dots,
    shared_operands,
    tile_plan,
    tiled,
    tiling,
    vector_axis,
)
from graphopt.lowering.cpu.scheduling import Choices, Scheduling, refuse_unknown
from graphopt.lowering.cpu.sliding import Sliding, SlidingRowWriter, sliding
from graphopt.lowering.cpu.weight_packing import with_rows_stacked
from graphopt.lowering.emit.pragmas import refuse_pragmas
from graphopt.lowering.loops.accumulation import is_accumulation
from graphopt.lowering.loops.expressions import Const, Expr, Var, substitute
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import (
    Nest,
    Stmt,
    seq,
)
from graphopt.target import CPU

ROW_BYTES: Final = 1 << 17
"""What may lie on the stack for a row."""


def scheduled(nest: Nest, prices: LibraryPrices = CPU.prices.products) -> Nest:
    """The nest in loops that are fast on a CPU with vectors; statements that are parallel loops may stand in a row.
    ``prices`` say which function computes a product."""
    return chosen(nest, {}, prices)[0]


def chosen(
    nest: Nest, choices: Choices, prices: LibraryPrices = CPU.prices.products
) -> tuple[Nest, Mapping[str, tuple[int, ...]]]:
    """The nest as ``scheduled`` gives it, but for what is chosen otherwise; and all that there was to choose, by name.

    ScheduleError where something is chosen that there is no choice of, or that is no candidate.
    """
    nest_chains = chains(nest)
    if nest_chains is not None and len(nest_chains) > 1 and panels_made(nest_chains[0], nest_chains[1], nest):
        nest = with_rows_stacked(nest)
    scheduled_nest, offered = where_offered(nest, choices, prices)
    refuse_unknown(choices, offered)
    return scheduled_nest, offered


def where_offered(
    nest: Nest, choices: Choices, prices: LibraryPrices = CPU.prices.products
) -> tuple[Nest, Mapping[str, tuple[int, ...]]]:
    """As ``chosen``, but parameters keep their shapes, and choices that there are none of do nothing."""
    nest_chains = chains(nest)
    if nest_chains is None or any(axis.extent == Const(0) for chain in nest_chains for axis in chain.spatial):
        return nest if nest_chains else finished(nest), {}
    refuse_pragmas(nest.body)
    scheduler = _Scheduler(nest, choices, prices)
    return scheduler.scheduled(nest_chains), scheduler.offered


class _Scheduler(Scheduling):
    """Schedules one nest by the first of the rules that fits."""

    def __init__(self, nest: Nest, choices: Choices, prices: LibraryPrices) -> None:
        super().__init__(nest, choices)
        self.prices = prices

    def scheduled(self, chains: Sequence[Chain]) -> Nest:
        body = self.tiles(chains) if self.is_tiled else self.by_function(chains) or self.tiles(chains)
        if body is None:
            chains = self.merged(chains)
            body = self.rows(chains) or seq(*(self.alone(c) for c in chains))
        allocs = tuple(b for b in self.nest.allocs if b not in self.gone)
        return replace(self.nest, body=body, allocs=(*allocs, *self.locals))

    @property
    def is_tiled(self) -> bool:
        """Whether register tiles are chosen."""
        return self.choices.get(IN_REGISTERS) == 1

    def instead_of_tiles(self, stmt: Stmt) -> Stmt:
        """What a rule makes of a contraction that register tiles may be chosen for."""
        self.choose(IN_REGISTERS, (0, 1), 0)
        return stmt

    def by_function(self, chains: Sequence[Chain]) -> Stmt | None:
        """A product by a function."""
        stmt = called(self, chains, self.prices) or multiplied(self, chains)
        return None if stmt is None else self.instead_of_tiles(stmt)

    # ------------------------------------------------------------------ one block

    def alone(self, chain: Chain) -> Stmt:
        """One block by itself, its work shared out."""
        if chain.block.init is None:
            return element_loops(self, chain, {}, shared=True)
        return self.contraction(chain, ()) or self.reduction(chain, {}, shared=True)

    def reduction(self, chain: Chain, bound: Mapping[Var, Expr], shared: bool = False) -> Stmt:
        """A reduction: along the vectors where what it reads lies side by side that way, else across them."""
        bound = {**{a.var: Const(0) for a in chain.spatial if a.extent == Const(1)}, **bound}
        free = [a for a in chain.spatial if a.var not in bound]
        groups = collapsed(chain, list(chain.reduced))
        along = groups[-1] if groups else []
        steps = LoopSpec(self.var("r"), total_size([a.extent for a in along])) if along else None
        is_along = bool(along) and lies_along(chain, along[-1]) and not (free and lies_along(chain, free[-1]))
        is_along = is_along and all(is_accumulation(s) for s in chain.stores)
        reduce_loops = [LoopSpec(self.var("r"), total_size([a.extent for a in g])) for g in groups[:-1]]
        if steps is not None:
            reduce_loops.append(replace(steps, kind="vectorized") if is_along else steps)
        across = [] if is_along or not free or not lies_along(chain, free[-1]) else [free[-1]]
        outer = [LoopSpec(self.var("i"), a.extent) for a in free[: len(free) - len(across)]]
        vector = [LoopSpec(self.var("c"), a.extent, "vectorized") for a in across]

        def body(at: Mapping[Var, Expr]) -> Stmt:
            values = dict(bound)
            for axis, loop in zip(free, [*outer, *vector], strict=True):
                values[axis.var] = at.get(loop.var, loop.var)
            for group, loop in zip(groups, reduce_loops, strict=True):
                values.update(taken_apart(loop.var, group))
            return wrapped(vector, self.accumulated(chain, values, reduce_loops))

        size = total_size([loop.extent for loop in (*vector, *reduce_loops)])
        if shared:
            return self.shared_out(outer, size, body)
        return wrapped(outer, body({a.var: a.var for a in outer}))

    def with_elements(self, chain: Chain, first: Chain, bound: Mapping[Var, Expr]) -> Stmt | None:
        """A reduction along a row in one loop with the block before it, which makes the elements that it reads; None
        where it is no such block."""
        free = [a for a in first.axes if a.var not in bound]
        if first.block.init is not None or len(first.stores) != 1 or len(free) != 1 or len(chain.reduced) != 1:
            return None
        (lane,), (axis,), (store,) = free, chain.reduced, first.stores
        if lane.extent != axis.extent or any(a.var not in bound for a in chain.spatial):
            return None
        if not (all(map(is_accumulation, chain.stores)) and lies_along(chain, axis) and lies_along(first, lane)):
            return None
        loop = LoopSpec(self.var("r"), axis.extent, "vectorized")
        here, there = {**bound, lane.var: loop.var}, {**bound, axis.var: loop.var}
        indices = [substitute(i, here) for i in store.indices]
        read = [[substitute(i, there) for i in a.indices] for a in chain.accesses if a.buffer == store.buffer]
        if not read or any(at != indices for at in read):
            return None
        return self.accumulated(chain, there, [loop], first.with_values([here[a.var] for a in first.axes]))

    # ------------------------------------------------------------------ rows

    def merged(self, chains: Sequence[Chain]) -> Sequence[Chain]:
        """The blocks with what one of them computes in place kept in the result itself, where that is of its kind."""
        for k, chain in enumerate(chains):
            buffer = made_from(chain, self.nest)
            if buffer is None or any(
                a.buffer == chain.stores[0].buffer for c in chains if c is not chain for a in c.accesses
            ):
                continue
            if any(a.buffer == buffer for c in chains[k + 1 :] for a in c.accesses):
                continue
            self.gone.add(buffer)
            chains = [with_buffers(c, {buffer: chain.stores[0].buffer}, 0) for c in chains]
        return chains

    def rows(self, chains: Sequence[Chain]) -> Stmt | None:
        """Several blocks within the outer axes that they share, what passes between them kept beside them."""
        shared = shared_axes(chains)
        if len(chains) < 2 or not shared or any(map(_is_tiled_alone, chains)):
            return None
        if any(_is_across(chain, shared - 1) for chain in chains):  # rows would be read in steps: columns go together
            shared -= 1
            if all(chain.axes[k].extent == Const(1) for chain in chains for k in range(shared)):
                return None
        buffers = [b for b in self.nest.allocs if b not in self.gone]
        for buffer in buffers:
            rest = buffer.shape[shared:]
            if not all(isinstance(e, Const) for e in rest) or bytes_of(rest, buffer.dtype) > ROW_BYTES:
                return None
        outer = [LoopSpec(self.var("i"), a.extent) for a in chains[0].axes[:shared]]
        small = {b: self.local(b.name, b.shape[shared:], b.dtype) for b in buffers}
        self.gone |= small.keys()

        def row(at: Mapping[Var, Expr]) -> Stmt:
            inside = [with_buffers(chain, small, shared) for chain in chains]
            bound = {a.var: at[loop.var] for c in inside for a, loop in zip(c.axes, outer, strict=False)}
            parts: list[Stmt] = []
            for k, chain in enumerate(inside):
                if chain.block.init is None:
                    parts.append(element_loops(self, chain, bound))
                elif k and (both := self.with_elements(chain, inside[k - 1], bound)) is not None:
                    parts[-1] = both
                else:
                    parts.append(self.reduction(chain, bound))
            return seq(*parts)

        steps = total_size([total_size([a.extent for a in c.axes[shared:]]) for c in chains])
        return self.shared_out(outer, steps, row)

    # ------------------------------------------------------------------ tiles

    def tiles(self, chains: Sequence[Chain]) -> Stmt | None:
        """A contraction and what is done to its elements, tile by tile, after what it needs."""
        number = next((k for k, c in enumerate(chains) if c.block.init is not None), None)
        if number is None:
            return None
        before, first = chains[:number], chains[number]
        rest = [following(c, first) for c in chains[number + 1 :]]
        written = zip(rest, chains[number + 1 :], strict=True)
        if not all(is_follower(c, first, self.nest, original) for c, original in written):
            return None
        stmt: Stmt | None
        layout = None if self.is_tiled else convolution_of(first, [*before, *rest])
        if layout is not None:
            self.gone |= layout.unneeded
            before = [c for c in before if not layout.unneeded & {s.buffer for s in c.stores}]
            stmt = self.instead_of_tiles(convolved(self, layout, first, rest))
        else:
            stmt = self.contraction(first, rest)
        return None if stmt is None else seq(*(self.alone(c) for c in before), stmt)

    def contraction(self, first: Chain, rest: Sequence[Chain]) -> Stmt | None:
        """A contraction and what is done to its elements, several at a time; None where that does not pay."""
        if len(first.stores) != 1 or not is_accumulation(first.stores[0]):
            return None
        if not self.is_tiled and (windows := sliding(first)) is not None:
            return self.instead_of_tiles(self.row_of_windows(windows, rest))
        first, rest = with_axes_redrawn(first, rest)
        tiles = tiling(self, first, rest)
        return dots(self, first, rest) if tiles is None else tiled(self, first, rest, tiles)

    def row_of_windows(self, windows: Sliding, rest: Sequence[Chain]) -> Stmt:
        """Windows that slide along rows."""
        row = SlidingRowWriter(self, windows, rest)
        if rest:
            self.gone.add(windows.first.stores[0].buffer)
        outer = [LoopSpec(self.var("i"), a.extent) for a in row.outer]

        def body(at: Mapping[Var, Expr]) -> Stmt:
            return row.at({a.var: at[loop.var] for a, loop in zip(row.outer, outer, strict=True)})

        sizes = [windows.along.extent, windows.vector.extent, *(a.extent for a in windows.first.reduced)]
        return self.shared_out(outer, total_size(sizes), body)


def _is_across(chain: Chain, position: int) -> bool:
    """Whether a reduction reads what lies side by side along a spatial axis, and not along any that it reduces."""
    if chain.block.init is None or chain.axes[position].extent == Const(1):
        return False
    return lies_along(chain, chain.axes[position]) and not any(lies_along(chain, axis) for axis in chain.reduced)


def _is_tiled_alone(chain: Chain) -> bool:
    """Whether a chain is a contraction whose operands are each read for several results: a row of them alone would read
    them anew."""
    if chain.block.init is None or len(chain.stores) != 1 or not is_accumulation(chain.stores[0]):
        return False
    first, _ = with_axes_redrawn(chain, ())
    vector = vector_axis(first, ())
    return vector is not None and len(shared_operands(first)) == 2 and tile_plan(first, vector) is not None
