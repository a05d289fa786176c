"""Default schedules for the CPU: rules by a nest's structure, without a search.

One list of rules, tried in order on a nest as it was first written (a chain of loops for each block): first on all of
its blocks together, else on each block by itself.

- *Matmul*, *GEMV*, *Convolution*: a contraction with what is done to its result element by element. A product of
  matrices that is worth a call is one, of BLAS or of our own kernel, and what follows is done by parts; products of
  bytes always go to a kernel of their own. A convolution over images in blocks of channels, or into them, is done by a
  function that sums a tile of results; other windows over such images go row by row (``sliding``). Of all others a tile
  of results stays in registers while the reduction runs.
- *Reduction*: any other reduction, in tiles as well, or along or across the vectors.
- *GeneralReduction*: blocks that share their outer axes (softmax, normalization) run row by row, what passes between
  them staying close; the rows are parallel.
- *Transpose*, *ElementWise*: element by element, in tiles that are transposed in registers, or along the vectors.
- *Fallback*: result by result. Procedures stay as they are, but for what is done to each element that a procedure
  stores: that is done there.

Loops are written anew, and are not steps of a ``Schedule``: in its trace, ``by_rule`` names the rules, and what they
decided. Those of elements can be steps, and are told so (``schedule.element_steps``): of 308 such nests (models,
single ops, rows) steps give 304 kernels that are equal but for the names of loops, and 4 with sums in another order,
but take twice as long (0.64 s for 0.32 s), half of it for the simplification of indices after each ``split`` and
``fuse``. Nor would it be enough for others to simplify once for each schedule. Of 78 nests of rows, steps take 2.3
times as long (geometric mean; 0.53 s for 0.20 s) without any simplification, with a ``vectorize`` that lets
reductions pass, and before loops are joined that stand side by side. Of 12 contractions in register tiles, steps take
9.0 times as long, a fifth of it for simplification and the rest mostly to check that each step is legal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from graphopt.lowering.analysis.access_analysis import (
    as_they_lie,
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
from graphopt.lowering.analysis.block_kinds import BlockKind, head_of, not_element_wise, unlike
from graphopt.lowering.analysis.canonical_nest import Chain, chains
from graphopt.lowering.cpu.called_gemm import called
from graphopt.lowering.cpu.convolution_tiles import convolution_of, convolved
from graphopt.lowering.cpu.element_loops import element_loops, transposed
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
from graphopt.lowering.cpu.scheduling import (
    RULES,
    Answer,
    BlockRule,
    Choices,
    Scheduled,
    Scheduling,
    Taken,
    as_it_is,
    asked,
    refuse_unknown,
    refused,
)
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
    return chosen(nest, {}, prices).nest


def chosen(
    nest: Nest,
    choices: Choices,
    prices: LibraryPrices = CPU.prices.products,
    rules: Sequence[str] = RULES,
    asks_all: bool = False,
) -> Scheduled:
    """The nest as ``scheduled`` gives it, but for what is chosen otherwise, or by other rules.

    ScheduleError where something is chosen that there is no choice of, or that is no candidate, and where none of the
    rules is for a block.
    """
    nest_chains = chains(nest)
    if nest_chains is not None and len(nest_chains) > 1 and panels_made(nest_chains[0], nest_chains[1], nest):
        nest = with_rows_stacked(nest)
    made = where_offered(nest, choices, prices, rules, asks_all)
    refuse_unknown(choices, made.offered)
    return made


def where_offered(
    nest: Nest,
    choices: Choices,
    prices: LibraryPrices = CPU.prices.products,
    rules: Sequence[str] = RULES,
    asks_all: bool = False,
) -> Scheduled:
    """As ``chosen``, but parameters keep their shapes, and choices that there are none of do nothing."""
    nest_chains = chains(nest)
    if nest_chains is None or any(axis.extent == Const(0) for chain in nest_chains for axis in chain.spatial):
        answer = as_it_is(nest.body, rules, asks_all)
        return Scheduled(nest if nest_chains else finished(nest), {}, (answer,))
    refuse_pragmas(nest.body)
    scheduler = _Scheduler(nest, choices, prices)
    made = scheduler.scheduled(nest_chains, {name: BY_NAME[name] for name in rules}, asks_all)
    return Scheduled(made, scheduler.offered, tuple(scheduler.answers))


class _Scheduler(Scheduling):
    """Schedules one nest by the first of the rules that is for it."""

    def __init__(self, nest: Nest, choices: Choices, prices: LibraryPrices) -> None:
        super().__init__(nest, choices)
        self.prices = prices

    def scheduled(self, chains: Sequence[Chain], rules: Mapping[str, BlockRule[_Scheduler]], asks_all: bool) -> Nest:
        """The nest: all of its blocks by one rule, or each by itself."""
        taken = asked(self, chains, rules, asks_all)
        if isinstance(taken, Taken):
            body = taken.stmt
        elif len(chains) == 1:
            raise refused(taken)
        else:
            body = seq(*(self.alone(c, rules, asks_all, taken) for c in self.merged(chains)))
        allocs = tuple(b for b in self.nest.allocs if b not in self.gone)
        return replace(self.nest, body=body, allocs=(*allocs, *self.locals))

    def alone(self, chain: Chain, rules: Mapping[str, BlockRule[_Scheduler]], asks_all: bool, together: Answer) -> Stmt:
        """One block by itself, where no rule takes all ``together``."""
        taken = asked(self, [chain], rules, asks_all)
        if isinstance(taken, Taken):
            return taken.stmt
        several = {name: reason for name, reason in together.reasons.items() if reason != _several(together.blocks)}
        raise refused(replace(taken, reasons={**taken.reasons, **several}))

    @property
    def is_tiled(self) -> bool:
        """Whether register tiles are chosen."""
        return self.choices.get(IN_REGISTERS) == 1

    def instead_of_tiles(self, stmt: Stmt) -> Stmt:
        """What a rule makes of a contraction that register tiles may be chosen for."""
        self.choose(IN_REGISTERS, (0, 1), 0)
        return stmt

    def contracted(self, chains: Sequence[Chain]) -> Stmt | None:
        """A contraction with what is done to its result, by a function or in tiles; None where neither pays."""
        if self.is_tiled:
            return self.tiles(chains)
        stmt = called(self, chains, self.prices) or multiplied(self, chains)
        return self.tiles(chains) if stmt is None else self.instead_of_tiles(stmt)

    # ------------------------------------------------------------------ one block

    def reduction(self, chain: Chain, bound: Mapping[Var, Expr], shared: bool = False) -> Stmt:
        """A reduction: along the vectors where what it reads lies side by side that way, else across them."""
        bound = {**{a.var: Const(0) for a in chain.spatial if a.extent == Const(1)}, **bound}
        free = [a for a in chain.spatial if a.var not in bound]
        reduced = list(chain.reduced)
        if all(map(is_accumulation, chain.stores)) and not (free and lies_along(chain, free[-1])):
            reduced = as_they_lie(chain, reduced)
        groups = collapsed(chain, reduced)
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

    def rows(self, chains: Sequence[Chain]) -> Stmt | str:
        """Several blocks within the outer axes that they share, what passes between them kept beside them."""
        if len(chains) < 2:
            return f"no rows of several blocks: {chains[0].block.name!r} is the only one"
        shared = shared_axes(chains)
        if not shared:
            return "no rows: the blocks have no outer axis in common"
        if (contraction := next(filter(_is_tiled_alone, chains), None)) is not None:
            return f"no rows: contraction {contraction.block.name!r} would read its operands anew for each"
        if any(_is_across(chain, shared - 1) for chain in chains):  # rows would be read in steps: columns go together
            shared -= 1
            if all(chain.axes[k].extent == Const(1) for chain in chains for k in range(shared)):
                return "no rows: the blocks reduce across the only outer axis that they have in common"
        buffers = [b for b in self.nest.allocs if b not in self.gone]
        for buffer in buffers:
            rest = buffer.shape[shared:]
            if not all(isinstance(e, Const) for e in rest) or bytes_of(rest, buffer.dtype) > ROW_BYTES:
                return f"no rows: a row of {buffer.name!r} does not stay close, for it is long, or of open length"
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
        made = (element_loops(self, c, {}, shared=True) for c in before)
        return None if stmt is None else seq(*made, stmt)

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


# ---------------------------------------------------------------------- the rules


def _contraction(kind: BlockKind, owner: _Scheduler, chains: Sequence[Chain]) -> Taken | str:
    """A contraction of a kind, with what is done to its result."""
    if (reason := unlike(chains, kind)) is not None:
        return reason
    stmt = owner.contracted(chains)
    return _no_tiles(chains) if stmt is None else Taken(stmt, len(chains))


def _no_tiles(chains: Sequence[Chain]) -> str:
    """Why a contraction is not computed by a function or in tiles."""
    head = head_of(chains)
    assert head is not None
    behind = [c.block.name for c in chains[chains.index(head) + 1 :]]
    if not behind:
        return f"no tiles: in registers, what {head.block.name!r} reads would be read as often as before"
    names = ", ".join(map(repr, behind))
    return f"no tiles with what follows: {names} would have to take each result of {head.block.name!r} by itself"


def _reduction(owner: _Scheduler, chains: Sequence[Chain]) -> Taken | str:
    """A reduction, with what is done to its result where that is in tiles."""
    reason = unlike(chains, "Reduction")
    if reason is None and (stmt := owner.contracted(chains)) is not None:
        return Taken(stmt, len(chains))
    head = head_of(chains)
    if head is None or len(chains) > 1:
        return reason or _no_tiles(chains)
    return Taken(owner.reduction(head, {}, shared=True))


def _general_reduction(owner: _Scheduler, chains: Sequence[Chain]) -> Taken | str:
    """Several blocks row by row."""
    stmt = owner.rows(owner.merged(chains))
    return stmt if isinstance(stmt, str) else Taken(stmt, len(chains))


def _several(blocks: Sequence[object]) -> str:
    """Why a rule for single blocks is not for several."""
    return f"no single block: there are {len(blocks)}"


def _no_elements(chains: Sequence[Chain]) -> str | None:
    """Why blocks are not one that computes element by element; None where they are."""
    return _several(chains) if len(chains) > 1 else not_element_wise(chains[0])


def _transpose(owner: _Scheduler, chains: Sequence[Chain]) -> Taken | str:
    """A block of elements in tiles that are transposed."""
    if (reason := _no_elements(chains)) is not None:
        return reason
    stmt = transposed(owner, chains[0])
    name = chains[0].block.name
    return (
        f"no transpose: what block {name!r} reads lies as it writes, or in no whole tiles" if not stmt else Taken(stmt)
    )


def _element_wise(owner: _Scheduler, chains: Sequence[Chain]) -> Taken | str:
    """A block of elements."""
    reason = _no_elements(chains)
    return Taken(element_loops(owner, chains[0], {}, shared=True, turns=False)) if reason is None else reason


def _fallback(owner: _Scheduler, chains: Sequence[Chain]) -> Taken | str:
    """A block result by result, its outermost loops parallel."""
    if len(chains) > 1:
        return _several(chains)
    (chain,) = chains
    loops = {a: LoopSpec(owner.var("i"), a.extent) for a in chain.spatial}
    steps = {a: LoopSpec(owner.var("r"), a.extent) for a in chain.reduced}

    def result(at: Mapping[Var, Expr]) -> Stmt:
        values = {a.var: at[loop.var] for a, loop in loops.items()} | {a.var: loop.var for a, loop in steps.items()}
        if chain.block.init is None:
            return chain.with_values([values[a.var] for a in chain.axes])
        return owner.accumulated(chain, values, [*steps.values()])

    return Taken(owner.shared_out([*loops.values()], total_size([a.extent for a in chain.reduced]), result))


BY_NAME: Final[Mapping[str, BlockRule[_Scheduler]]] = {
    "Matmul": partial(_contraction, "Matmul"),
    "GEMV": partial(_contraction, "GEMV"),
    "Convolution": partial(_contraction, "Convolution"),
    "Reduction": _reduction,
    "GeneralReduction": _general_reduction,
    "Transpose": _transpose,
    "ElementWise": _element_wise,
    "Fallback": _fallback,
}


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
