"""Fair speed without a search: how a nest is scheduled by its shape alone.

One list of rules, tried in order on a nest as it was first written (a chain of loops for each block):

- *called*: a product of matrices that is worth a call of the library; what is done to the result follows by parts.
- *tiles*: another contraction (a convolution, windows, a small product) with what is done to its result element by
  element. A tile of results stays in registers while the reduction runs; the outer loops are parallel.
- *rows*: blocks that share their outer axes (softmax, normalization) run row by row, what passes between them staying
  close; the rows are parallel.
- *alone*: each block by itself: element by element, or a reduction along or across the vectors.

What none of them fits (procedures) stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, product
from math import prod
from typing import Final

from graphopt.kernels.host import lanes as lanes_of
from graphopt.kernels.host import vector_bytes
from graphopt.lowering.addresses import polynomial
from graphopt.lowering.chains import Access, Chain, chains, exchange
from graphopt.lowering.expressions import Apply, Const, Expr, Load, Var, minimum, substitute, variables, walk
from graphopt.lowering.library import Product, is_worth_a_call, product_of
from graphopt.lowering.loops import (
    Axis,
    Block,
    Buffer,
    For,
    If,
    Invoke,
    LoopKind,
    Nest,
    Range,
    Region,
    Seq,
    Stmt,
    Store,
    accesses,
    is_accumulation,
    loads,
    map_expressions,
    mutate,
    seq,
    statements,
)
from graphopt.lowering.partition import interior

REGISTERS: Final = {64: 32, 32: 16, 16: 16}
"""Vector registers, by the bytes of a vector."""
SMALL: Final = 1 << 14
"""Steps of innermost loops below which a nest is not worth sharing out."""
UNKNOWN: Final = 1 << 20
"""What a size that is not known is taken to be."""
LARGE: Final = 1 << 21
"""Multiplications of a product from which on it is computed in pieces."""
NEAR: Final = (1, 2, 3, 4)
"""Distances of elements that are read as whole vectors."""
ITEMS: Final = 64
"""Work items that are enough to share out."""
CHUNK: Final = 1 << 12
"""Elements of a flat loop that make one work item."""
ROW_BYTES: Final = 1 << 17
"""What may lie on the stack for a row."""


def scheduled(nest: Nest) -> Nest:
    """The nest in loops that are fast on a CPU with vectors; statements that are parallel loops may stand in a row."""
    found = chains(nest)
    if found is None:
        return nest
    return _Scheduler(nest).scheduled(found)


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop to be written: its variable, how often it runs, and how."""

    var: Var
    extent: Expr
    kind: LoopKind = "serial"


def _wrapped(loops: Sequence[_Loop], body: Stmt) -> Stmt:
    for loop in reversed(loops):
        body = For(loop.var, loop.extent, body, loop.kind)
    return body


class _Scheduler:
    """Schedules one nest: hands out names, and collects the local buffers that it makes."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.numbers = count()
        self.locals: list[Buffer] = []
        self.gone: set[Buffer] = set()

    def var(self, letter: str) -> Var:
        return Var(f"{letter}{next(self.numbers)}")

    def local(self, name: str, shape: Sequence[Expr], dtype: str) -> Buffer:
        made = Buffer(f"{name}_l{next(self.numbers)}", tuple(shape), dtype, "local")
        self.locals.append(made)
        return made

    def scheduled(self, found: Sequence[Chain]) -> Nest:
        body = self.called(found) or self.tiles(found)
        if body is None:
            found = self.merged(found)
            body = self.rows(found) or seq(*(self.alone(c) for c in found))
        allocs = tuple(b for b in self.nest.allocs if b not in self.gone)
        return replace(self.nest, body=body, allocs=(*allocs, *self.locals))

    # ------------------------------------------------------------------ outer loops

    def shared_out(self, axes: Sequence[_Loop], steps: Expr, body: Callable[[Mapping[Var, Expr]], Stmt]) -> Stmt:
        """The body in the given outer loops: the first of them, as one loop, are the work items, the others serial.

        ``body`` gets what each loop's variable is; ``steps`` is how much is done within.
        """
        extents = [a.extent for a in axes]
        total = _number([*extents, steps])
        if not axes or (total is not None and total < SMALL):
            return _wrapped(axes, body({a.var: a.var for a in axes}))
        counts = [int(e.value) if isinstance(e, Const) else 1 for e in extents]  # a batch is often of one
        cut = next((k for k in range(1, len(axes)) if prod(counts[:k]) >= ITEMS), len(axes))
        item = self.var("t")
        values: dict[Var, Expr] = {}
        rest: Expr = Const(1)
        for axis in reversed(axes[:cut]):
            here: Expr = item if rest == Const(1) else item // rest
            values[axis.var] = here if axis is axes[0] else here % axis.extent
            rest = rest * axis.extent
        inner = _wrapped(axes[cut:], body({**{a.var: a.var for a in axes[cut:]}, **values}))
        return For(item, rest, inner, "parallel")

    # ------------------------------------------------------------------ one block

    def alone(self, chain: Chain) -> Stmt:
        """One block by itself, its work shared out."""
        if chain.block.init is None:
            return self.elements(chain, {}, shared=True)
        return self.contraction(chain, ()) or self.reduction(chain, {}, shared=True)

    def elements(self, chain: Chain, bound: Mapping[Var, Expr], shared: bool = False) -> Stmt:
        """Element by element: neighbouring axes that lie in memory as one are one loop, the innermost is vectorized."""
        free = [a for a in chain.axes if a.var not in bound]
        groups = _with_vectors_last(chain, _collapsed(chain, free))
        loops = [_Loop(self.var("i"), _product([a.extent for a in group])) for group in groups]
        if not loops:
            return chain.with_values([bound[a.var] for a in chain.axes])

        def block(at: Mapping[Var, Expr]) -> Stmt:
            values = dict(bound)
            for loop, group in zip(loops, groups, strict=True):
                values.update(_taken_apart(at[loop.var], group))
            return chain.with_values([values[a.var] for a in chain.axes])

        turned = turning(chain, groups)
        if turned is not None:
            return self.turned(chain, groups, turned, bound, shared)
        last = loops[-1]
        extent = last.extent.value if isinstance(last.extent, Const) else None
        if shared and len(loops) == 1 and (extent is None or extent > 4 * CHUNK):
            outer = _Loop(self.var("o"), (last.extent + (CHUNK - 1)) // CHUNK)

            def chunk(at: Mapping[Var, Expr]) -> Stmt:
                start = at[outer.var] * CHUNK
                return For(
                    last.var,
                    minimum(CHUNK, last.extent - start),
                    block({last.var: start + last.var}),
                    "vectorized",
                )

            return self.shared_out([outer], Const(CHUNK), chunk)

        def row(at: Mapping[Var, Expr]) -> Stmt:
            return For(last.var, last.extent, block({**at, last.var: last.var}), "vectorized")

        if shared:
            return self.shared_out(loops[:-1], last.extent, row)
        return _wrapped(loops[:-1], row({a.var: a.var for a in loops[:-1]}))

    def turned(
        self, chain: Chain, groups: Sequence[Sequence[Axis]], turned: Turned, bound: Mapping[Var, Expr], shared: bool
    ) -> Stmt:
        """Element by element in tiles: what lies side by side along another axis than the results do is read along that
        axis, and turned over on the stack."""
        sizes = {len(groups) - 1: turned.columns, turned.rows_at: turned.rows}
        extents = [_product([a.extent for a in group]) for group in groups]
        loops = [
            _Loop(self.var("o" if k in sizes else "i"), (n + (sizes.get(k, 1) - 1)) // sizes.get(k, 1))
            for k, n in enumerate(extents)
        ]
        shape = (Const(turned.rows), Const(turned.columns))
        kept = {load: self.local(load.buffer.name, shape, load.dtype) for load in turned.loads}

        def values_at(starts: Sequence[Expr]) -> dict[Var, Expr]:
            values = dict(bound)
            for start, group in zip(starts, groups, strict=True):
                values.update(_taken_apart(start, group))
            return values

        def body(at: Mapping[Var, Expr]) -> Stmt:
            starts = [_first(at[loop.var], extents[k], sizes.get(k, 1)) for k, loop in enumerate(loops)]

            def place(row: Expr, column: Expr) -> dict[Var, Expr]:
                here = list(starts)
                here[turned.rows_at] = here[turned.rows_at] + row
                here[-1] = here[-1] + column
                return values_at(here)

            parts: list[Stmt] = []
            for load, tile in kept.items():
                raw = self.local(load.buffer.name, shape[::-1], load.dtype)
                column, row = _Loop(self.var("q"), shape[1], "unrolled"), _Loop(self.var("c"), shape[0], "vectorized")
                read = substitute(load, place(row.var, column.var))
                parts.append(_wrapped([column, row], Store(raw, (column.var, row.var), read)))
                sides = [Region(b, tuple(Range(Const(0), n) for n in b.shape)) for b in (tile, raw)]
                name = f"transpose_{turned.rows}x{turned.columns}_{load.dtype}"
                parts.append(Invoke(name, (*sides, *shape)))
            row, column = _Loop(self.var("q"), shape[0], "unrolled"), _Loop(self.var("c"), shape[1], "vectorized")
            where = place(row.var, column.var)
            tiles: dict[Expr, Expr] = {load: Load(tile, (row.var, column.var)) for load, tile in kept.items()}
            block = replace(chain.block, body=map_expressions(chain.block.body, tiles.get))
            read_, written = accesses(block)
            block = replace(block, reads=read_, writes=written, values=tuple(where[a.var] for a in chain.axes))
            return seq(*parts, _wrapped([row, column], block))

        if shared:
            return self.shared_out(loops, Const(turned.rows * turned.columns), body)
        return _wrapped(loops, body({loop.var: loop.var for loop in loops}))

    def reduction(self, chain: Chain, bound: Mapping[Var, Expr], shared: bool = False) -> Stmt:
        """A reduction: along the vectors where what it reads lies side by side that way, else across them."""
        free = [a for a in chain.spatial if a.var not in bound]
        groups = _collapsed(chain, list(chain.reduced))
        along = groups[-1] if groups else []
        steps = _Loop(self.var("r"), _product([a.extent for a in along])) if along else None
        is_along = bool(along) and _lies_along(chain, along[-1]) and not (free and _lies_along(chain, free[-1]))
        is_along = is_along and all(is_accumulation(s) for s in chain.stores)
        reduce_loops = [_Loop(self.var("r"), _product([a.extent for a in g])) for g in groups[:-1]]
        if steps is not None:
            reduce_loops.append(replace(steps, kind="vectorized") if is_along else steps)
        across = [] if is_along or not free or not _lies_along(chain, free[-1]) else [free[-1]]
        outer = [_Loop(self.var("i"), a.extent) for a in free[: len(free) - len(across)]]
        vector = [_Loop(self.var("c"), a.extent, "vectorized") for a in across]

        def body(at: Mapping[Var, Expr]) -> Stmt:
            values = dict(bound)
            for axis, loop in zip(free, [*outer, *vector], strict=True):
                values[axis.var] = at.get(loop.var, loop.var)
            for group, loop in zip(groups, reduce_loops, strict=True):
                values.update(_taken_apart(loop.var, group))
            return _wrapped(vector, self.accumulated(chain, values, reduce_loops))

        size = _product([loop.extent for loop in (*vector, *reduce_loops)])
        if shared:
            return self.shared_out(outer, size, body)
        return _wrapped(outer, body({a.var: a.var for a in outer}))

    def accumulated(self, chain: Chain, values: Mapping[Var, Expr], reduce_loops: Sequence[_Loop]) -> Stmt:
        """One element's reduction in variables of its own: start, steps, and the result written once."""
        targets = {s.buffer: tuple(substitute(i, values) for i in s.indices) for s in chain.stores}
        own = {b: (self.local(b.name, (), b.dtype), ()) for b in targets}
        start, step = _decomposed(chain, values)
        written = [Store(b, where, Load(*own[b])) for b, where in targets.items()]
        return seq(exchange(start, own), _wrapped(reduce_loops, exchange(step, own)), *written)

    # ------------------------------------------------------------------ rows

    def merged(self, found: Sequence[Chain]) -> Sequence[Chain]:
        """The blocks with what one of them computes in place kept in the result itself, where that is of its kind."""
        for k, chain in enumerate(found):
            made = _made_from(chain, self.nest)
            if made is None or any(
                a.buffer == chain.stores[0].buffer for c in found if c is not chain for a in c.accesses
            ):
                continue
            if any(a.buffer == made for c in found[k + 1 :] for a in c.accesses):
                continue
            self.gone.add(made)
            found = [_moved(c, {made: chain.stores[0].buffer}, 0) for c in found]
        return found

    def rows(self, found: Sequence[Chain]) -> Stmt | None:
        """Several blocks within the outer axes that they share, what passes between them kept beside them."""
        shared = _shared_axes(found)
        if len(found) < 2 or not shared:
            return None
        own = [b for b in self.nest.allocs if b not in self.gone]
        for buffer in own:
            rest = buffer.shape[shared:]
            if not all(isinstance(e, Const) for e in rest) or _bytes(rest, buffer.dtype) > ROW_BYTES:
                return None
        outer = [_Loop(self.var("i"), a.extent) for a in found[0].axes[:shared]]
        small = {b: self.local(b.name, b.shape[shared:], b.dtype) for b in own}
        self.gone |= small.keys()

        def row(at: Mapping[Var, Expr]) -> Stmt:
            parts = []
            for chain in found:
                bound = {a.var: at[loop.var] for a, loop in zip(chain.axes, outer, strict=False)}
                inside = _moved(chain, small, shared)
                parts.append(
                    self.elements(inside, bound) if chain.block.init is None else self.reduction(inside, bound)
                )
            return seq(*parts)

        steps = _product([_product([a.extent for a in c.axes[shared:]]) for c in found])
        return self.shared_out(outer, steps, row)

    # ------------------------------------------------------------------ library

    def called(self, found: Sequence[Chain]) -> Stmt | None:
        """A product by the library, in pieces that can be shared out, each followed by what is done to its elements."""
        first, rest = found[0], found[1:]
        if first.block.init is None or not all(_follows(c, first, self.nest) for c in rest) or len(rest) > 1:
            return None
        product = product_of(first)
        if product is None or not is_worth_a_call(product):
            return None
        made = first.stores[0].buffer
        target = made
        if rest:  # the library writes where the result will stand, if that is of the same kind
            store = rest[0].stores[0]
            if len(rest[0].stores) == 1 and store.buffer.dtype == made.dtype:
                target = replace(store.buffer)
                self.gone.add(made)
        split, whole = (product.n, product.m) if _longer(product.n, product.m) else (product.m, product.n)
        step = _piece(product, split)
        outer = [_Loop(self.var("i"), a.extent) for a in first.spatial if a not in (split, whole)]
        pieces = _Loop(self.var("o"), (split.extent + (step - 1)) // step)

        def body(at: Mapping[Var, Expr]) -> Stmt:
            others = [a for a in first.spatial if a not in (split, whole)]
            values = {a.var: at[loop.var] for a, loop in zip(others, outer, strict=True)}
            start = at[pieces.var] * step
            part = Range(start, minimum(step, split.extent - start))
            all_of = Range(Const(0), whole.extent)
            rows, columns = (part, all_of) if split is product.m else (all_of, part)
            single = {a.var: Const(0) for a in first.reduced}
            call = product.call(target, rows, columns, {**values, **single})
            return seq(call, *(self.piece(c, first, product, (rows, columns), values, target) for c in rest))

        inner = _product([minimum(step, split.extent), whole.extent, product.k.extent])
        return self.shared_out([*outer, pieces], inner, body)

    def piece(
        self, chain: Chain, first: Chain, product: Product, part: tuple[Range, Range], values: Mapping[Var, Expr],
        target: Buffer,
    ) -> Stmt:  # fmt: skip
        """What is done to each element of a piece of the product."""
        mine = dict(zip((a.var for a in first.spatial), (a.var for a in chain.spatial), strict=True))
        row, column = _Loop(self.var("i"), part[0].extent), _Loop(self.var("c"), part[1].extent, "vectorized")
        where = {mine[v]: e for v, e in values.items()}
        where[mine[product.m.var]] = part[0].start + row.var
        where[mine[product.n.var]] = part[1].start + column.var
        block = chain.with_values([where[a.var] for a in chain.axes])
        made = first.stores[0].buffer
        if target != made:
            own = chain.stores[0].indices
            block = replace(block, body=exchange(block.body, {made: (target, own)}))
            read, written = accesses(block)
            block = replace(block, reads=read, writes=written)
        return _wrapped([row, column], block)

    # ------------------------------------------------------------------ tiles

    def tiles(self, found: Sequence[Chain]) -> Stmt | None:
        """A contraction and what is done to its elements, tile by tile, after what it needs."""
        place = next((k for k, c in enumerate(found) if c.block.init is not None), None)
        if place is None:
            return None
        before, first, rest = found[:place], found[place], found[place + 1 :]
        if not all(_follows(c, first, self.nest) for c in rest):
            return None
        made = self.contraction(first, rest)
        return None if made is None else seq(*(self.alone(c) for c in before), made)

    def contraction(self, first: Chain, rest: Sequence[Chain]) -> Stmt | None:
        """A contraction and what is done to its elements, several at a time; None where that does not pay."""
        if len(first.stores) != 1 or not is_accumulation(first.stores[0]):
            return None
        plan = _tiling(first, (rest or [first])[-1])
        return self.dots(first, rest) if plan is None else self.tile(first, rest, plan)

    def dots(self, first: Chain, rest: Sequence[Chain]) -> Stmt | None:
        """A contraction of operands that lie side by side along what is reduced: a few results at a time, each in
        vectors of its own, share what they read."""
        plan, groups = _shares(first), _collapsed(first, list(first.reduced))
        if not plan or not _is_long(groups[-1]) or not _lies_along(first, groups[-1][-1]):
            return None
        outer = [
            _Loop(self.var("o" if n > 1 else "i"), (a.extent + (n - 1)) // n)
            for a in first.spatial
            for n in [plan.get(a.var, 1)]
        ]
        made = first.stores[0].buffer
        sums = self.local(made.name, [Const(n) for n in plan.values()], made.dtype)
        if rest:
            self.gone.add(made)

        def body(at: Mapping[Var, Expr]) -> Stmt:
            start = {a.var: _start(at[o.var], a, plan.get(a.var, 1)) for a, o in zip(first.spatial, outer, strict=True)}
            reduce_loops = [_Loop(self.var("r"), _product([a.extent for a in group])) for group in groups]
            reduce_loops[-1] = replace(reduce_loops[-1], kind="vectorized")
            reduced: dict[Var, Expr] = {}
            for group, loop in zip(groups, reduce_loops, strict=True):
                reduced.update(_taken_apart(loop.var, group))

            def each(chain: Chain, part: Callable[[Mapping[Var, Expr]], Stmt]) -> Stmt:
                steps = {v: _Loop(self.var("q"), Const(n), "unrolled") for v, n in plan.items()}
                own = zip(first.spatial, chain.spatial, strict=True)
                where = {c.var: start[f.var] + steps[f.var].var if f.var in plan else start[f.var] for f, c in own}
                element = (sums, tuple(step.var for step in steps.values()))
                return _wrapped(list(steps.values()), exchange(part(where), {made: element}))

            zeros = {a.var: Const(0) for a in first.reduced}
            begin = each(first, lambda where: _decomposed(first, {**where, **zeros})[0])
            steps = each(first, lambda where: _decomposed(first, {**where, **reduced})[1])
            ends = [each(c, partial(_bound, c)) for c in rest]
            if not rest:
                copies = {v: _Loop(self.var("q"), Const(n), "unrolled") for v, n in plan.items()}
                place = [start[a.var] + copies[a.var].var if a.var in plan else start[a.var] for a in first.spatial]
                kept = Load(sums, tuple(c.var for c in copies.values()))
                ends = [_wrapped(list(copies.values()), Store(made, tuple(place), kept))]
            return seq(begin, _wrapped(reduce_loops, steps), *ends)

        size = _product([*(Const(n) for n in plan.values()), *(a.extent for a in first.reduced)])
        return self.shared_out(outer, size, body)

    def tile(self, first: Chain, rest: Sequence[Chain], plan: Mapping[Var, int]) -> Stmt:
        """The loops over tiles, and in them the tile. A last tile that would reach beyond the end is moved back; where
        an axis may be shorter than its tile, which only its size tells, it is done step by step."""
        outer: list[_Loop] = []
        for axis in first.spatial:
            width = plan.get(axis.var, 1)
            outer.append(_Loop(self.var("o" if width > 1 else "i"), (axis.extent + (width - 1)) // width))
        inside = self.inside(first, rest, plan)
        if inside is not None:
            return inside
        unknown = [a for a in first.spatial if plan.get(a.var, 1) > 1 and not isinstance(a.extent, Const)]
        whole = _Tile(self, first, rest, plan)
        narrow = _Tile(self, first, rest, {v: n for v, n in plan.items() if v not in [a.var for a in unknown]})
        if rest:
            self.gone.add(first.stores[0].buffer)

        def body(at: Mapping[Var, Expr]) -> Stmt:
            start = {a.var: _start(at[o.var], a, plan.get(a.var, 1)) for a, o in zip(first.spatial, outer, strict=True)}
            main = whole.at(start)
            for axis in unknown:
                step = _Loop(self.var("i"), axis.extent)
                alone = _wrapped([step], narrow.at({**start, axis.var: step.var}))
                main = If(axis.extent >= plan[axis.var], main, alone)
            return main

        size = _product([*(Const(n) for n in plan.values()), *(a.extent for a in first.reduced)])
        return self.shared_out(outer, size, body)

    def inside(self, first: Chain, rest: Sequence[Chain], plan: Mapping[Var, int]) -> Stmt | None:
        """The tiles of a contraction with conditions at the ends of its vectorized axis: whole vectors between the
        ends, and the few results at the ends one by one. None where there are no such conditions, or masks serve."""
        axis = _vector_of(first, rest, plan)
        strides = [s.number for a in first.accesses if (s := a.stride(axis.var)) is not None]
        if all(n is not None and n < 2 for n in strides):  # neighbours are as well read under a mask
            return None
        found = interior(first, axis)
        if found is None or found[0][1] - found[0][0] < plan[axis.var] or not isinstance(axis.extent, Const):
            return None
        (begin, end), block = found
        others = {v: n for v, n in plan.items() if v != axis.var}
        if any(n > 1 and not isinstance(a.extent, Const) for a in first.spatial for n in [others.get(a.var, 1)]):
            return None
        width = plan[axis.var]
        along = [a for a in first.spatial if a is not axis]
        outer = [_Loop(self.var("i"), (a.extent + (n - 1)) // n) for a in along for n in [others.get(a.var, 1)]]
        middle = _Tile(self, replace(first, block=block), rest, plan)
        ends = [(0, begin), (end, int(axis.extent.value))]
        if rest:
            self.gone.add(first.stores[0].buffer)

        def body(at: Mapping[Var, Expr]) -> Stmt:
            own = iter(outer)
            start = {a.var: _start(at[next(own).var], a, others.get(a.var, 1)) for a in along}
            piece = _Loop(self.var("o"), Const(-(-(end - begin) // width)))
            part = Axis(axis.var, Const(end - begin), axis.kind)
            parts = [_wrapped([piece], middle.at({**start, axis.var: _start(piece.var, part, width) + begin}))]
            for low, high in ends:
                if low < high:
                    step = _Loop(self.var("i"), Const(high - low))
                    single = _Tile(self, first, rest, {**others, axis.var: 1})
                    parts.append(_wrapped([step], single.at({**start, axis.var: step.var + low})))
            return seq(*parts)

        size = _product([axis.extent, *(Const(n) for n in others.values()), *(a.extent for a in first.reduced)])
        return self.shared_out(outer, size, body)


class _Tile:
    """A tile of results that a contraction keeps in registers: ``plan`` says how many along each axis."""

    def __init__(self, owner: _Scheduler, first: Chain, rest: Sequence[Chain], plan: Mapping[Var, int]) -> None:
        self.owner, self.first, self.rest = owner, first, rest
        self.made = first.stores[0].buffer
        self.vector = _vector_of(first, rest, plan).var
        native = lanes_of(self.made.dtype)
        self.lanes = min(native, plan[self.vector])
        self.order = [a for a in first.spatial if plan.get(a.var, 1) > 1 and a.var != self.vector]
        self.sizes = {a.var: plan[a.var] for a in self.order}
        self.pieces = -(-plan[self.vector] // self.lanes)
        # each piece fills whole vectors, so that those of neighbours do not overlap
        shape = [*(Const(n) for n in self.sizes.values()), Const(self.pieces), Const(native)]
        self.buffer = owner.local(self.made.name, shape, self.made.dtype)

    def at(self, start: Mapping[Var, Expr]) -> Stmt:
        """The tile from a point on: started, reduced, and what is done to its elements."""
        first = self.first
        reduce_loops = [_Loop(self.owner.var("r"), a.extent) for a in first.reduced]
        reduce_values = {a.var: loop.var for a, loop in zip(first.reduced, reduce_loops, strict=True)}
        zeros = {a.var: Const(0) for a in first.reduced}
        begin = self.over(start, first, zeros, lambda c, v, e: self.own(_decomposed(c, v)[0], e))
        steps = self.over(start, first, reduce_values, lambda c, v, e: self.own(_decomposed(c, v)[1], e))
        ends = [
            self.over(start, c, {}, lambda c, v, e: self.own(c.with_values([v[a.var] for a in c.axes]), e))
            for c in self.rest
        ]
        if not self.rest:
            made = self.made
            ends = [self.over(start, first, {}, lambda c, v, e: Store(made, tuple(v[a.var] for a in c.spatial), e))]
        return seq(begin, _wrapped(reduce_loops, steps), *ends)

    def own(self, stmt: Stmt, element: Load) -> Stmt:
        """The statement with the result's element in the tile."""
        return exchange(stmt, {self.made: (element.buffer, element.indices)})

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
        order = _scalar_first(self.order, self.first, self.vector)
        loops = [_Loop(steps[a.var], Const(self.sizes[a.var]), "unrolled") for a in order]
        loops += [_Loop(piece, Const(self.pieces), "unrolled"), _Loop(lane, Const(self.lanes), "vectorized")]
        return _wrapped(loops, part(chain, {mine[v]: places.get(v, start[v]) for v in mine} | dict(values), element))


# ---------------------------------------------------------------------- facts about chains


@dataclass(frozen=True, slots=True)
class Turned:
    """Loads that lie side by side along the group of axes number ``rows_at``, and the tile in which to turn them."""

    loads: tuple[Load, ...]
    rows_at: int
    rows: int
    columns: int


def turning(chain: Chain, groups: Sequence[Sequence[Axis]]) -> Turned | None:
    """What is to be turned over in an element-wise block over groups of axes, the last of which is vectorized."""
    last = groups[-1][-1]
    far = [a for a in chain.accesses if not a.is_write and not _is_near(a, last)]
    if not far or any(not _is_near(a, last) for a in chain.accesses if a.is_write):
        return None
    places = {k for k, group in enumerate(groups[:-1]) if all(_is_step(a, group[-1]) for a in far)}
    certain = set(_certain(chain.block.body))
    found = tuple(Load(a.buffer, a.indices) for a in far)
    if not places or not certain.issuperset(found):
        return None
    place = max(places)
    rows, columns = (_number([a.extent for a in groups[k]]) for k in (place, -1))
    if rows is None or columns is None or rows < 4 or columns < 4:
        return None
    most = min(lanes_of(a.buffer.dtype) for a in chain.accesses)
    return Turned(found, place, *(min(1 << (n.bit_length() - 1), most) for n in (rows, columns)))


def _with_vectors_last(chain: Chain, groups: list[list[Axis]]) -> list[list[Axis]]:
    """The groups of an element-wise block, that one last along which vectors pay: not a short one, as the colours of an
    image's points are, where another is read side by side."""
    extent = _number([a.extent for a in groups[-1]]) if groups else None
    if extent is None or extent >= 4:
        return groups
    read = [a for a in chain.accesses if not a.is_write and a.varies(groups[-1][-1].var)]
    for k, group in enumerate(groups[:-1]):
        wide = _number([a.extent for a in group])
        if read and (wide is None or wide >= 16) and all(_is_step(a, group[-1]) for a in read):
            return [*groups[:k], *groups[k + 1 :], group]
    return groups


def _is_near(access: Access, axis: Axis) -> bool:
    """Whether a vector along the axis is read in few pieces, or is one element."""
    stride = access.stride(axis.var)
    return stride is not None and stride.number in (0, *NEAR)


def _is_step(access: Access, axis: Axis) -> bool:
    stride = access.stride(axis.var)
    return stride is not None and stride.number == 1


def _certain(stmt: Stmt) -> Iterator[Expr]:
    """The loads that a block's statements carry out whatever holds."""

    def parts(expr: Expr) -> Iterator[Expr]:
        if isinstance(expr, Load):
            yield expr
        elif isinstance(expr, Apply):
            for arg in expr.args[:1] if expr.fn == "select" else expr.args:
                yield from parts(arg)

    for s in stmt.stmts if isinstance(stmt, Seq) else (stmt,):
        if isinstance(s, Store):
            yield from parts(s.value)


def _first(at: Expr, extent: Expr, width: int) -> Expr:
    """Where the tile number ``at`` starts: the last one ends where the axis does."""
    if width == 1 or (isinstance(extent, Const) and extent.value % width == 0):
        return at * width
    return minimum(at * width, extent - width)


def _number(extents: Sequence[Expr]) -> int | None:
    return (
        prod(int(e.value) for e in extents if isinstance(e, Const))
        if all(isinstance(e, Const) for e in extents)
        else None
    )


def _product(extents: Sequence[Expr]) -> Expr:
    total: Expr = Const(1)
    for extent in extents:
        total = total * extent
    return total


def _bytes(shape: Sequence[Expr], dtype: str) -> int:
    return (_number(shape) or 0) * (8 if "64" in dtype else 4)


def _collapsed(chain: Chain, axes: Sequence[Axis]) -> list[list[Axis]]:
    """The axes in groups, outermost first, each of which lies in memory as one axis would in every access."""
    used = _used_as_numbers(chain.block)
    groups: list[list[Axis]] = []
    for axis in axes:
        is_single = isinstance(axis.extent, Const) and axis.extent.value == 1 and axis.var not in used
        if groups and (
            is_single or (_lies_as_one(chain, groups[-1][-1], axis) and not {axis.var, groups[-1][-1].var} & used)
        ):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def _lies_as_one(chain: Chain, outer: Axis, inner: Axis) -> bool:
    extent = polynomial(inner.extent)
    for access in chain.accesses:
        a, b = access.stride(outer.var), access.stride(inner.var)
        if a is None or b is None or a.terms != (b * extent).terms:
            return False
    return True


def _used_as_numbers(block: Block) -> set[Var]:
    """The axes that a block uses for more than indices."""
    found: set[Var] = set()

    def look(expr: Expr) -> None:
        if isinstance(expr, Var):
            found.add(expr)
        elif not isinstance(expr, Load):
            for arg in getattr(expr, "args", ()):
                look(arg)

    for s in statements(block.body):
        if isinstance(s, Store):
            look(s.value)
        elif hasattr(s, "condition"):
            look(s.condition)
    for load in loads(block.body):  # an index that is itself looked up
        for index in load.indices:
            for part in walk(index):
                if isinstance(part, Load):
                    found |= variables(part)
    return found


def _taken_apart(var: Expr, group: Sequence[Axis]) -> dict[Var, Expr]:
    """What the axes of a group are, by the variable of their one loop."""
    values: dict[Var, Expr] = {}
    rest: Expr = Const(1)
    for axis in reversed(group):
        here = var if rest == Const(1) else var // rest
        values[axis.var] = here if axis is group[0] else here % axis.extent
        rest = rest * axis.extent
    return values


def _lies_along(chain: Chain, axis: Axis) -> bool:
    """Whether neighbours along the axis lie side by side in everything that the block reads or writes along it."""
    ones = [access.stride(axis.var) for access in chain.accesses if access.varies(axis.var)]
    return bool(ones) and all(s is not None and s.number == 1 for s in ones)


def _shared_axes(found: Sequence[Chain]) -> int:
    """How many outer axes all blocks share: spatial, of equal extents, and the same for what passes between them."""
    limit = min(len(c.spatial) for c in found)
    made = {a.buffer for c in found for a in c.accesses if a.is_write}
    shared = 0
    while shared < limit:
        axes = [c.axes[shared] for c in found]
        if any(a.kind != "spatial" or a.extent != axes[0].extent for a in axes):
            break
        if not all(_passes_along(made, c, shared) for c in found):
            break
        shared += 1
    return shared


def _passes_along(made: set[Buffer], chain: Chain, position: int) -> bool:
    """Whether the block reaches what blocks make only at its own point of the axis."""
    return all(
        len(a.indices) > position and _is_at(a.indices[position], chain.axes[position])
        for a in chain.accesses
        if a.buffer in made
    )


def _made_from(chain: Chain, nest: Nest) -> Buffer | None:
    """What an element-wise block reads at just the element that it writes, a buffer like its result; None for none."""
    if chain.block.init is not None or len(chain.stores) != 1:
        return None
    result, here = chain.stores[0].buffer, chain.stores[0].indices
    if result in nest.allocs or not all(map(_is_at, here, chain.axes)) or len(here) != len(chain.axes):
        return None
    for access in chain.accesses:
        buffer = access.buffer
        is_like = buffer in nest.allocs and buffer.shape == result.shape and buffer.dtype == result.dtype
        if is_like and all(a.indices == here for a in chain.accesses if a.buffer == buffer):
            return buffer
    return None


def _moved(chain: Chain, small: Mapping[Buffer, Buffer], shared: int) -> Chain:
    """The chain with what is passed between blocks in smaller buffers, without the shared axes."""

    def load(e: Expr) -> Expr | None:
        return Load(small[e.buffer], e.indices[shared:]) if isinstance(e, Load) and e.buffer in small else None

    def store(s: Stmt) -> Stmt | None:
        if isinstance(s, Store) and s.buffer in small:
            return Store(small[s.buffer], s.indices[shared:], s.value)
        return None

    def part(s: Stmt) -> Stmt:
        return mutate(map_expressions(s, load), store)

    block = replace(chain.block, body=part(chain.block.body), init=chain.block.init and part(chain.block.init))
    read, written = accesses(block)
    return Chain(chain.loops, replace(block, reads=read, writes=written))


def _bound(chain: Chain, where: Mapping[Var, Expr]) -> Block:
    """The block at a point."""
    return chain.with_values([where[a.var] for a in chain.axes])


def _decomposed(chain: Chain, values: Mapping[Var, Expr]) -> tuple[Block, Block]:
    """The block as two: what starts the reduction, and its steps."""
    block = chain.block
    assert block.init is not None
    start = Block(
        f"{block.name}_init",
        chain.spatial,
        tuple(values[a.var] for a in chain.spatial),
        block.init,
        writes=block.writes,
    )
    step = replace(block, init=None, values=tuple(values[a.var] for a in chain.axes))
    return start, step


def _follows(chain: Chain, first: Chain, nest: Nest) -> bool:
    """Whether a block does something to each element of the first by itself."""
    made = first.stores[0].buffer
    if chain.block.init is not None or made not in nest.allocs:
        return False
    if [a.extent for a in chain.axes] != [a.extent for a in first.spatial]:
        return False
    return all(
        len(a.indices) == len(chain.axes) and all(map(_is_at, a.indices, chain.axes))
        for a in chain.accesses
        if a.buffer == made or a.is_write
    )


def _is_at(index: Expr, axis: Axis) -> bool:
    """Whether an index is the point of the axis."""
    return index == axis.var or (index == Const(0) and axis.extent == Const(1))


def _longer(a: Axis, b: Axis) -> bool:
    """Whether the first axis is known to be the longer one."""
    return isinstance(a.extent, Const) and isinstance(b.extent, Const) and a.extent.value >= b.extent.value


def _piece(product: Product, split: Axis) -> int:
    """How much of an axis one call takes: few pieces, for each call arranges its operands anew."""
    sizes = [a.extent for a in (product.m, product.n, product.k)]
    work, extent = _number(sizes), _number([split.extent])
    if extent is None:
        return 256
    pieces = 1 if work is None or work < LARGE else 4 if work >= 8 * LARGE else 2
    return max(-(-extent // pieces // 16) * 16, 16)


def _start(at: Expr, axis: Axis, width: int) -> Expr:
    """Where the tile number ``at`` along the axis starts."""
    return _first(at, axis.extent, width)


def _is_vector(first: Chain, axis: Axis, rest: Sequence[Chain]) -> bool:
    """Whether results lie side by side along an axis."""
    chain = rest[-1] if rest else first
    place = first.spatial.index(axis)
    own = chain.spatial[place]
    written = [a for a in chain.accesses if a.is_write]
    return all((s := a.stride(own.var)) is not None and s.number == 1 for a in written)


def _vector_of(first: Chain, rest: Sequence[Chain], plan: Mapping[Var, int]) -> Axis:
    """The axis of a tile along which its vectors lie."""
    return next(a for a in reversed(first.spatial) if a.var in plan and _is_vector(first, a, rest))


def _scalar_first(order: Sequence[Axis], first: Chain, vector: Var) -> list[Axis]:
    """The axes of a tile in the order in which it is written out: those along which the operand that all lanes share
    stays the same come last, so that it is needed for no longer than its own steps."""
    shared = [a for a in first.accesses if not a.is_write and not a.varies(vector)]
    return sorted(order, key=lambda axis: not any(a.varies(axis.var) for a in shared))


def _tiling(first: Chain, last: Chain) -> dict[Var, int] | None:
    """How many results along each axis a tile holds; None where tiles do not pay."""
    vector = next(
        (a for a in reversed(first.spatial) if _is_vector(first, a, [last] if last is not first else [])), None
    )
    if vector is None or not isinstance(vector.extent, Const) or not first.reduced:
        return None
    own = [a for a in first.accesses if not a.is_write and a.buffer != first.stores[0].buffer]
    wide = [a for a in own if a.varies(vector.var)]
    if not wide or not all((s := a.stride(vector.var)) is not None and s.number in NEAR for a in wide):
        return None
    if (steps := _number([a.extent for a in first.reduced])) is not None and steps < 2:
        return None
    lanes, extent = lanes_of(first.stores[0].buffer.dtype), int(vector.extent.value)
    scalar = [a for a in own if not a.varies(vector.var)]
    rows, columns = [], []
    for axis in first.spatial:
        if axis is vector or axis.extent == Const(1):
            continue
        if any(not a.varies(axis.var) for a in wide):
            rows.append(axis)
        elif any(not a.varies(axis.var) for a in scalar):
            columns.append(axis)
    # several vectors side by side share the scalar operand
    rows, columns = rows[::-1][:2], [a for a in columns[::-1][:1] if isinstance(a.extent, Const)]
    is_flat = prod(_number([a.extent]) or UNKNOWN for a in rows) <= 4
    choices = [(k * lanes, k) for k in (1, 2, 3, 4, *((6, 8, 12) if is_flat else ())) if k * lanes <= extent]
    choices = choices or [(extent, 1)]
    rows = [a for k, a in enumerate(rows) if isinstance(a.extent, Const) or k == 0]  # one test of a size is enough
    return _best(first, vector.var, choices, rows, columns)


def _shares(first: Chain) -> dict[Var, int]:
    """How many results along each axis to compute side by side, so that what they share is read once for all."""
    own = [a for a in first.accesses if not a.is_write and a.buffer != first.stores[0].buffer]
    if len(own) != 2:
        return {}
    found: dict[Var, int] = {}
    for access in own:
        axes = [a for a in first.spatial if not access.varies(a.var) and a.var not in found]
        counts = [(a.var, n) for a in axes if (n := _number([a.extent])) is not None and n > 1]
        found.update((var, min(4, n)) for var, n in counts[-1:])
    return found


def _is_long(group: Sequence[Axis]) -> bool:
    """Whether a loop over the group of axes is worth several vectors."""
    extent = _number([a.extent for a in group])
    return extent is None or extent >= 64


def _best(
    first: Chain, vector: Var, choices: Sequence[tuple[int, int]], rows: Sequence[Axis], columns: Sequence[Axis]
) -> dict[Var, int]:
    """The tile with the least work for each result: what is computed twice at the ends counts, and what is loaded."""
    registers = REGISTERS[vector_bytes()]
    total = {a.var: int(a.extent.value) if isinstance(a.extent, Const) else UNKNOWN for a in first.spatial}
    found: tuple[float, dict[Var, int]] | None = None
    sizes = [[n for n in range(1, 15) if n <= total[a.var]] for a in rows]
    more = [[n for n in range(1, 5) if n <= total[a.var]] for a in columns]
    for (width, vectors), parts in product(choices, product(*sizes, *more)):
        down = prod(parts[: len(rows)])
        across = vectors * prod(parts[len(rows) :])
        if down * across + across + 1 > registers:  # accumulators, a vector for each column, and what is shared
            continue
        plan = {vector: width, **{a.var: n for a, n in zip([*rows, *columns], parts, strict=True)}}
        waste = prod(-(-total[v] // n) * n / total[v] for v, n in plan.items())
        load = (down + across) / (down * across)
        cost = waste * (max(1.0, 1.1 * load) + 0.15 * load + 0.4 * (down * across < 8))
        if found is None or cost < found[0] - 1e-9:
            found = cost, plan
    assert found is not None
    return found[1]
