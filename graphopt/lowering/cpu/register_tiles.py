"""Register tiling: tiles of a contraction's results stay in registers while they are summed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from graphopt.kernels.host import lanes as lanes_of
from graphopt.lowering.analysis.access_analysis import (
    at_point,
    collapsed,
    decomposed,
    is_long,
    lies_along,
    scalar_first,
    shared_operands,
    start_of,
    taken_apart,
    total_size,
    vector_of,
)
from graphopt.lowering.analysis.canonical_nest import Chain, exchange
from graphopt.lowering.analysis.loop_partition import interior
from graphopt.lowering.cpu.scheduling import Scheduling
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, substitute
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import (
    Axis,
    If,
    Stmt,
    Store,
    seq,
)


def dots(owner: Scheduling, first: Chain, rest: Sequence[Chain]) -> Stmt | None:
    """A contraction of operands that lie side by side along what is reduced: a few results at a time, each in
    vectors of its own, share what they read."""
    plan, groups = shared_operands(first), collapsed(first, list(first.reduced))
    if not plan or not is_long(groups[-1]) or not lies_along(first, groups[-1][-1]):
        return None
    outer = [
        LoopSpec(owner.var("o" if n > 1 else "i"), (a.extent + (n - 1)) // n)
        for a in first.spatial
        for n in [plan.get(a.var, 1)]
    ]
    result = first.stores[0].buffer
    sums = owner.local(result.name, [Const(n) for n in plan.values()], result.dtype)
    if rest:
        owner.gone.add(result)

    def body(at: Mapping[Var, Expr]) -> Stmt:
        start = {a.var: start_of(at[o.var], a, plan.get(a.var, 1)) for a, o in zip(first.spatial, outer, strict=True)}
        reduce_loops = [LoopSpec(owner.var("r"), total_size([a.extent for a in group])) for group in groups]
        reduce_loops[-1] = replace(reduce_loops[-1], kind="vectorized")
        reduced: dict[Var, Expr] = {}
        for group, loop in zip(groups, reduce_loops, strict=True):
            reduced.update(taken_apart(loop.var, group))

        def each(chain: Chain, part: Callable[[Mapping[Var, Expr]], Stmt]) -> Stmt:
            steps = {v: LoopSpec(owner.var("q"), Const(n), "unrolled") for v, n in plan.items()}
            pairs = zip(first.spatial, chain.spatial, strict=True)
            where = {c.var: start[f.var] + steps[f.var].var if f.var in plan else start[f.var] for f, c in pairs}
            element = (sums, tuple(step.var for step in steps.values()))
            return wrapped(list(steps.values()), exchange(part(where), {result: element}))

        zeros = {a.var: Const(0) for a in first.reduced}
        begin = each(first, lambda where: decomposed(first, {**where, **zeros})[0])
        steps = each(first, lambda where: decomposed(first, {**where, **reduced})[1])
        ends = [each(c, partial(at_point, c)) for c in rest]
        if not rest:
            copies = {v: LoopSpec(owner.var("q"), Const(n), "unrolled") for v, n in plan.items()}
            elements = {v: e + copies[v].var if v in plan else e for v, e in start.items()}
            where = tuple(substitute(i, elements) for i in first.stores[0].indices)
            kept = Load(sums, tuple(c.var for c in copies.values()))
            ends = [wrapped(list(copies.values()), Store(result, where, kept))]
        return seq(begin, wrapped(reduce_loops, steps), *ends)

    size = total_size([*(Const(n) for n in plan.values()), *(a.extent for a in first.reduced)])
    return owner.shared_out(outer, size, body)


def tiled(owner: Scheduling, first: Chain, rest: Sequence[Chain], plan: Mapping[Var, int]) -> Stmt:
    """The loops over tiles, and in them the tile. A last tile that would reach beyond the end is moved back; where
    an axis may be shorter than its tile, which only its size tells, it is done step by step."""
    outer: list[LoopSpec] = []
    for axis in first.spatial:
        width = plan.get(axis.var, 1)
        outer.append(LoopSpec(owner.var("o" if width > 1 else "i"), (axis.extent + (width - 1)) // width))
    inside = _inside(owner, first, rest, plan)
    if inside is not None:
        return inside
    unknown = [a for a in first.spatial if plan.get(a.var, 1) > 1 and not isinstance(a.extent, Const)]
    whole = _RegisterTile(owner, first, rest, plan)
    narrow = _RegisterTile(owner, first, rest, {v: n for v, n in plan.items() if v not in [a.var for a in unknown]})
    if rest:
        owner.gone.add(first.stores[0].buffer)

    def body(at: Mapping[Var, Expr]) -> Stmt:
        start = {a.var: start_of(at[o.var], a, plan.get(a.var, 1)) for a, o in zip(first.spatial, outer, strict=True)}
        main = whole.at(start)
        for axis in unknown:
            step = LoopSpec(owner.var("i"), axis.extent)
            alone = wrapped([step], narrow.at({**start, axis.var: step.var}))
            main = If(axis.extent >= plan[axis.var], main, alone)
        return main

    size = total_size([*(Const(n) for n in plan.values()), *(a.extent for a in first.reduced)])
    return owner.shared_out(outer, size, body)


def _inside(owner: Scheduling, first: Chain, rest: Sequence[Chain], plan: Mapping[Var, int]) -> Stmt | None:
    """The tiles of a contraction with conditions at the ends of its vectorized axis: whole vectors between the
    ends, and the few results at the ends one by one. None where there are no such conditions, or masks serve."""
    axis = vector_of(first, rest, plan)
    strides = [s.number for a in first.accesses if (s := a.stride(axis.var)) is not None]
    if all(n is not None and n < 2 for n in strides):  # neighbours are as well read under a mask
        return None
    ranges = interior(first, axis)
    if ranges is None or ranges[0][1] - ranges[0][0] < plan[axis.var] or not isinstance(axis.extent, Const):
        return None
    (begin, end), block = ranges
    others = {v: n for v, n in plan.items() if v != axis.var}
    if any(n > 1 and not isinstance(a.extent, Const) for a in first.spatial for n in [others.get(a.var, 1)]):
        return None
    width = plan[axis.var]
    along = [a for a in first.spatial if a is not axis]
    outer = [LoopSpec(owner.var("i"), (a.extent + (n - 1)) // n) for a in along for n in [others.get(a.var, 1)]]
    middle = _RegisterTile(owner, replace(first, block=block), rest, plan)
    ends = [(0, begin), (end, int(axis.extent.value))]
    if rest:
        owner.gone.add(first.stores[0].buffer)

    def body(at: Mapping[Var, Expr]) -> Stmt:
        outer_loops = iter(outer)
        start = {a.var: start_of(at[next(outer_loops).var], a, others.get(a.var, 1)) for a in along}
        piece = LoopSpec(owner.var("o"), Const(-(-(end - begin) // width)))
        part = Axis(axis.var, Const(end - begin), axis.kind)
        parts = [wrapped([piece], middle.at({**start, axis.var: start_of(piece.var, part, width) + begin}))]
        for low, high in ends:
            if low < high:
                step = LoopSpec(owner.var("i"), Const(high - low))
                single = _RegisterTile(owner, first, rest, {**others, axis.var: 1})
                parts.append(wrapped([step], single.at({**start, axis.var: step.var + low})))
        return seq(*parts)

    size = total_size([axis.extent, *(Const(n) for n in others.values()), *(a.extent for a in first.reduced)])
    return owner.shared_out(outer, size, body)


class _RegisterTile:
    """A tile of results that a contraction keeps in registers: ``plan`` says how many along each axis."""

    def __init__(self, owner: Scheduling, first: Chain, rest: Sequence[Chain], plan: Mapping[Var, int]) -> None:
        self.owner, self.first, self.rest = owner, first, rest
        self.result = first.stores[0].buffer
        self.vector = vector_of(first, rest, plan).var
        native = lanes_of(self.result.dtype)
        self.lanes = min(native, plan[self.vector])
        self.order = [a for a in first.spatial if plan.get(a.var, 1) > 1 and a.var != self.vector]
        self.sizes = {a.var: plan[a.var] for a in self.order}
        self.pieces = -(-plan[self.vector] // self.lanes)
        # each piece fills whole vectors, so that those of neighbours do not overlap
        shape = [*(Const(n) for n in self.sizes.values()), Const(self.pieces), Const(native)]
        self.buffer = owner.local(self.result.name, shape, self.result.dtype)

    def at(self, start: Mapping[Var, Expr]) -> Stmt:
        """The tile from a point on: started, reduced, and what is done to its elements."""
        first = self.first
        reduce_loops = [LoopSpec(self.owner.var("r"), a.extent) for a in first.reduced]
        reduce_values = {a.var: loop.var for a, loop in zip(first.reduced, reduce_loops, strict=True)}
        zeros = {a.var: Const(0) for a in first.reduced}
        begin = self.over(start, first, zeros, lambda c, v, e: self.in_tile(decomposed(c, v)[0], e))
        steps = self.over(start, first, reduce_values, lambda c, v, e: self.in_tile(decomposed(c, v)[1], e))
        ends = [
            self.over(start, c, {}, lambda c, v, e: self.in_tile(c.with_values([v[a.var] for a in c.axes]), e))
            for c in self.rest
        ]
        if not self.rest:
            where = first.stores[0].indices
            ends = [
                self.over(
                    start, first, {}, lambda c, v, e: Store(self.result, tuple(substitute(i, v) for i in where), e)
                )
            ]
        return seq(begin, wrapped(reduce_loops, steps), *ends)

    def in_tile(self, stmt: Stmt, element: Load) -> Stmt:
        """The statement with the result's element in the tile."""
        return exchange(stmt, {self.result: (element.buffer, element.indices)})

    def over(
        self,
        start: Mapping[Var, Expr],
        chain: Chain,
        values: Mapping[Var, Expr],
        part: Callable[[Chain, Mapping[Var, Expr], Load], Stmt],
    ) -> Stmt:
        """One pass over the tile, in loops of its own."""
        var = self.owner.var
        steps = {v: var("q") for v in self.sizes}
        piece, lane = var("p"), var("c")
        places = {v: start[v] + steps[v] for v in self.sizes}
        places[self.vector] = start[self.vector] + piece * self.lanes + lane
        mine = dict(zip((a.var for a in self.first.spatial), (a.var for a in chain.spatial), strict=True))
        element = Load(self.buffer, (*steps.values(), piece, lane))
        order = scalar_first(self.order, self.first, self.vector)
        loops = [LoopSpec(steps[a.var], Const(self.sizes[a.var]), "unrolled") for a in order]
        loops += [LoopSpec(piece, Const(self.pieces), "unrolled"), LoopSpec(lane, Const(self.lanes), "vectorized")]
        return wrapped(loops, part(chain, {mine[v]: places.get(v, start[v]) for v in mine} | dict(values), element))
