"""Fair speed without a search: how a nest is scheduled by its shape alone.

One list of rules, tried in order on a nest as it was first written (a chain of loops for each block):

- *called*: a product of matrices that is worth a call, of BLAS or of our own kernel; what is done to the result follows
  by parts.
- *convolved*: a convolution by a function that sums a tile of results, over images in blocks of channels or into them.
- *tiles*: another contraction (a convolution, windows, a small product) with what is done to its result element by
  element. A tile of results stays in registers while the reduction runs; the outer loops are parallel. Windows over
  images in blocks go row by row (``sliding``).
- *rows*: blocks that share their outer axes (softmax, normalization) run row by row, what passes between them staying
  close; the rows are parallel.
- *alone*: each block by itself: element by element, or a reduction along or across the vectors.

What none of them fits (procedures) stays as it is, but for what is done to each element that a procedure stores: that
is done there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from math import prod
from typing import Final

from graphopt.kernels.host import lanes as lanes_of
from graphopt.lowering.chain_axes import following, with_axes_redrawn
from graphopt.lowering.chain_facts import (
    UNKNOWN,
    at_point,
    bytes_of,
    collapsed,
    decomposed,
    is_follower,
    is_long,
    known_size,
    lies_along,
    made_from,
    scalar_first,
    shared_axes,
    shared_operands,
    start_of,
    taken_apart,
    tile_plan,
    tile_start,
    total_size,
    vector_of,
    with_buffers,
    with_vectors_last,
)
from graphopt.lowering.chains import Chain, chains, exchange
from graphopt.lowering.convolution_tiles import convolution_of, convolved
from graphopt.lowering.expressions import Const, Expr, Load, Var, conjunction, maximum, minimum, substitute
from graphopt.lowering.finishing import finished
from graphopt.lowering.granules import in_granules
from graphopt.lowering.library import Product, called_product, pieces
from graphopt.lowering.loop_nests import Loop as _Loop
from graphopt.lowering.loop_nests import wrapped as _wrapped
from graphopt.lowering.loops import (
    TRUE,
    Axis,
    Block,
    Buffer,
    For,
    If,
    Invoke,
    Nest,
    Range,
    Region,
    Stmt,
    Store,
    accesses,
    is_accumulation,
    map_expressions,
    seq,
)
from graphopt.lowering.partition import interior
from graphopt.lowering.sliding import Row, Sliding, sliding
from graphopt.lowering.turning import Turned, turning, with_lanes_apart

SMALL: Final = 1 << 14
"""Steps of innermost loops below which a nest is not worth sharing out."""
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
        return finished(nest)
    if any(axis.extent == Const(0) for chain in found for axis in chain.spatial):
        return nest
    return _Scheduler(nest).scheduled(found)


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
        total = known_size([*extents, steps])
        if not axes or (total is not None and total < SMALL):
            return _wrapped(axes, body({a.var: a.var for a in axes}))
        # an outermost size that is not known is taken for a batch of one, any other for many
        counts = [int(e.value) if isinstance(e, Const) else ITEMS if k else 1 for k, e in enumerate(extents)]
        cut = next((k for k in range(1, len(axes)) if prod(counts[:k]) >= ITEMS), len(axes))
        work = known_size([steps])
        if cut == len(axes) and work is not None and 0 < work < CHUNK:
            axes, body = self.chunked(axes, CHUNK // work, body)
            cut = len(axes)
        item = self.var("t")
        values: dict[Var, Expr] = {}
        rest: Expr = Const(1)
        for axis in reversed(axes[:cut]):
            here: Expr = item if rest == Const(1) else item // rest
            values[axis.var] = here if axis is axes[0] else here % axis.extent
            rest = rest * axis.extent
        inner = _wrapped(axes[cut:], body({**{a.var: a.var for a in axes[cut:]}, **values}))
        return For(item, rest, inner, "parallel")

    def chunked(
        self, axes: Sequence[_Loop], size: int, body: Callable[[Mapping[Var, Expr]], Stmt]
    ) -> tuple[list[_Loop], Callable[[Mapping[Var, Expr]], Stmt]]:
        """The loops with the last one in chunks of about a size, which makes finding out where one is worth while, and
        the body in them."""
        last, length = axes[-1], known_size([axes[-1].extent])
        if length is not None:
            size = -(-length // -(-max(length, 1) // size))
        outer, step = _Loop(self.var("o"), (last.extent + (size - 1)) // size), self.var("i")

        def inner(at: Mapping[Var, Expr]) -> Stmt:
            start = at[outer.var] * size
            part = body({**at, last.var: start + step})
            return For(step, minimum(size, last.extent - start), part)

        return [*axes[:-1], outer], inner

    # ------------------------------------------------------------------ one block

    def alone(self, chain: Chain) -> Stmt:
        """One block by itself, its work shared out."""
        if chain.block.init is None:
            return self.elements(chain, {}, shared=True)
        return self.contraction(chain, ()) or self.reduction(chain, {}, shared=True)

    def elements(self, chain: Chain, bound: Mapping[Var, Expr], shared: bool = False) -> Stmt:
        """Element by element: neighbouring axes that lie in memory as one are one loop, the innermost is vectorized."""
        free = [a for a in chain.axes if a.var not in bound]
        groups = with_vectors_last(chain, collapsed(chain, free))
        loops = [_Loop(self.var("i"), total_size([a.extent for a in group])) for group in groups]
        if not loops:
            return chain.with_values([bound[a.var] for a in chain.axes])

        def block(at: Mapping[Var, Expr]) -> Stmt:
            values = dict(bound)
            for loop, group in zip(loops, groups, strict=True):
                values.update(taken_apart(at[loop.var], group))
            return chain.with_values([values[a.var] for a in chain.axes])

        if (turned := self.turned_over(chain, bound, shared)) is not None:
            return turned
        if len(groups[-1]) == 1 and (pieces := in_granules(chain)) is not None:
            in_one = len(pieces.axes) == len(chain.axes)
            return self.elements(pieces, bound, shared) if in_one else self.granules(pieces, bound, shared)
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

    def granules(self, chain: Chain, bound: Mapping[Var, Expr], shared: bool) -> Stmt:
        """Element by element, the last two axes being pieces of a vector and the lanes of a piece."""
        free = [a for a in chain.axes if a.var not in bound]
        pieces, lanes = (_Loop(self.var("q"), a.extent) for a in free[-2:])
        groups = collapsed(chain, free[:-2])
        loops = [_Loop(self.var("i"), total_size([a.extent for a in group])) for group in groups]

        def block(at: Mapping[Var, Expr]) -> Stmt:
            values = {**bound, free[-2].var: pieces.var, free[-1].var: lanes.var}
            for loop, group in zip(loops, groups, strict=True):
                values.update(taken_apart(at[loop.var], group))
            inner = chain.with_values([values[a.var] for a in chain.axes])
            return _wrapped([replace(pieces, kind="unrolled"), replace(lanes, kind="vectorized")], inner)

        if shared:
            return self.shared_out(loops, pieces.extent * lanes.extent, block)
        return _wrapped(loops, block({a.var: a.var for a in loops}))

    def turned_over(self, chain: Chain, bound: Mapping[Var, Expr], shared: bool) -> Stmt | None:
        """Element by element in tiles that are turned over, where that pays."""
        for made, exists in ((chain, TRUE), with_lanes_apart(chain, bound.keys())):
            groups = with_vectors_last(made, collapsed(made, [a for a in made.axes if a.var not in bound]))
            if (turned := turning(made, groups)) is not None:
                return self.turned(made, groups, turned, bound, shared, exists)
        return None

    def turned(
        self, chain: Chain, groups: Sequence[Sequence[Axis]], turned: Turned, bound: Mapping[Var, Expr], shared: bool,
        exists: Expr,
    ) -> Stmt:  # fmt: skip
        """Element by element in tiles: what lies side by side along another axis than the results do is read along that
        axis, and turned over on the stack. A result is there where ``exists`` says so."""
        sizes = {len(groups) - 1: turned.columns, turned.rows_at: turned.rows}
        extents = [total_size([a.extent for a in group]) for group in groups]
        loops = [
            _Loop(self.var("o" if k in sizes else "i"), (n + (sizes.get(k, 1) - 1)) // sizes.get(k, 1))
            for k, n in enumerate(extents)
        ]
        shape = (Const(turned.rows), Const(turned.columns))
        kept = {load: self.local(load.buffer.name, shape, load.dtype) for load in turned.loads}
        open_ = [k for k in sizes if known_size([extents[k]]) is None]

        def body(at: Mapping[Var, Expr]) -> Stmt:
            starts = [tile_start(at[loop.var], extents[k], sizes.get(k, 1)) for k, loop in enumerate(loops)]

            def place(row: Expr, column: Expr, first: Sequence[Expr] = starts) -> dict[Var, Expr]:
                values, here = dict(bound), list(first)
                here[turned.rows_at] = here[turned.rows_at] + row
                here[-1] = here[-1] + column
                for start, group in zip(here, groups, strict=True):
                    values.update(taken_apart(start, group))
                return values

            def results(block: Block, rows: _Loop, columns: _Loop, where: Mapping[Var, Expr]) -> Stmt:
                inner = _wrapped([columns], replace(block, values=tuple(where[a.var] for a in chain.axes)))
                there = substitute(exists, where)
                return _wrapped([rows], inner if there == TRUE else If(there, inner))

            parts: list[Stmt] = []
            for load, tile in kept.items():
                raw = self.local(load.buffer.name, shape[::-1], load.dtype)
                column, row = _Loop(self.var("q"), shape[1], "unrolled"), _Loop(self.var("c"), shape[0], "vectorized")
                where = place(row.var, column.var)
                read = _wrapped([row], Store(raw, (column.var, row.var), substitute(load, where)))
                guard = substitute(turned.loads[load], where)
                parts.append(_wrapped([column], read if guard == TRUE else If(guard, read)))
                sides = [Region(b, tuple(Range(Const(0), n) for n in b.shape)) for b in (tile, raw)]
                name = f"transpose_{turned.rows}x{turned.columns}_{load.dtype}"
                parts.append(Invoke(name, (*sides, *shape)))
            row, column = _Loop(self.var("q"), shape[0], "unrolled"), _Loop(self.var("c"), shape[1], "vectorized")
            tiles: dict[Expr, Expr] = {load: Load(tile, (row.var, column.var)) for load, tile in kept.items()}
            block = replace(chain.block, body=map_expressions(chain.block.body, tiles.get))
            read_, written = accesses(block)
            block = replace(block, reads=read_, writes=written)
            whole = seq(*parts, results(block, row, column, place(row.var, column.var)))
            if not open_:
                return whole
            # where an axis is shorter than its tile, the elements are done one by one
            ends = [minimum(extents[k], n) if k in open_ else Const(n) for k, n in sizes.items()]
            column, row = _Loop(self.var("c"), ends[0], "vectorized"), _Loop(self.var("q"), ends[1])
            starts = [maximum(start, 0) if k in open_ else start for k, start in enumerate(starts)]
            plain = results(chain.block, row, column, place(row.var, column.var, starts))
            return If(conjunction(*(extents[k] >= sizes[k] for k in open_)), whole, plain)

        if shared:
            return self.shared_out(loops, Const(turned.rows * turned.columns), body)
        return _wrapped(loops, body({loop.var: loop.var for loop in loops}))

    def reduction(self, chain: Chain, bound: Mapping[Var, Expr], shared: bool = False) -> Stmt:
        """A reduction: along the vectors where what it reads lies side by side that way, else across them."""
        free = [a for a in chain.spatial if a.var not in bound]
        groups = collapsed(chain, list(chain.reduced))
        along = groups[-1] if groups else []
        steps = _Loop(self.var("r"), total_size([a.extent for a in along])) if along else None
        is_along = bool(along) and lies_along(chain, along[-1]) and not (free and lies_along(chain, free[-1]))
        is_along = is_along and all(is_accumulation(s) for s in chain.stores)
        reduce_loops = [_Loop(self.var("r"), total_size([a.extent for a in g])) for g in groups[:-1]]
        if steps is not None:
            reduce_loops.append(replace(steps, kind="vectorized") if is_along else steps)
        across = [] if is_along or not free or not lies_along(chain, free[-1]) else [free[-1]]
        outer = [_Loop(self.var("i"), a.extent) for a in free[: len(free) - len(across)]]
        vector = [_Loop(self.var("c"), a.extent, "vectorized") for a in across]

        def body(at: Mapping[Var, Expr]) -> Stmt:
            values = dict(bound)
            for axis, loop in zip(free, [*outer, *vector], strict=True):
                values[axis.var] = at.get(loop.var, loop.var)
            for group, loop in zip(groups, reduce_loops, strict=True):
                values.update(taken_apart(loop.var, group))
            return _wrapped(vector, self.accumulated(chain, values, reduce_loops))

        size = total_size([loop.extent for loop in (*vector, *reduce_loops)])
        if shared:
            return self.shared_out(outer, size, body)
        return _wrapped(outer, body({a.var: a.var for a in outer}))

    def accumulated(self, chain: Chain, values: Mapping[Var, Expr], reduce_loops: Sequence[_Loop]) -> Stmt:
        """One element's reduction in variables of its own: start, steps, and the result written once."""
        targets = {s.buffer: tuple(substitute(i, values) for i in s.indices) for s in chain.stores}
        own = {b: (self.local(b.name, (), b.dtype), ()) for b in targets}
        start, step = decomposed(chain, values)
        written = [Store(b, where, Load(*own[b])) for b, where in targets.items()]
        return seq(exchange(start, own), _wrapped(reduce_loops, exchange(step, own)), *written)

    # ------------------------------------------------------------------ rows

    def merged(self, found: Sequence[Chain]) -> Sequence[Chain]:
        """The blocks with what one of them computes in place kept in the result itself, where that is of its kind."""
        for k, chain in enumerate(found):
            made = made_from(chain, self.nest)
            if made is None or any(
                a.buffer == chain.stores[0].buffer for c in found if c is not chain for a in c.accesses
            ):
                continue
            if any(a.buffer == made for c in found[k + 1 :] for a in c.accesses):
                continue
            self.gone.add(made)
            found = [with_buffers(c, {made: chain.stores[0].buffer}, 0) for c in found]
        return found

    def rows(self, found: Sequence[Chain]) -> Stmt | None:
        """Several blocks within the outer axes that they share, what passes between them kept beside them."""
        shared = shared_axes(found)
        if len(found) < 2 or not shared:
            return None
        own = [b for b in self.nest.allocs if b not in self.gone]
        for buffer in own:
            rest = buffer.shape[shared:]
            if not all(isinstance(e, Const) for e in rest) or bytes_of(rest, buffer.dtype) > ROW_BYTES:
                return None
        outer = [_Loop(self.var("i"), a.extent) for a in found[0].axes[:shared]]
        small = {b: self.local(b.name, b.shape[shared:], b.dtype) for b in own}
        self.gone |= small.keys()

        def row(at: Mapping[Var, Expr]) -> Stmt:
            parts = []
            for chain in found:
                bound = {a.var: at[loop.var] for a, loop in zip(chain.axes, outer, strict=False)}
                inside = with_buffers(chain, small, shared)
                parts.append(
                    self.elements(inside, bound) if chain.block.init is None else self.reduction(inside, bound)
                )
            return seq(*parts)

        steps = total_size([total_size([a.extent for a in c.axes[shared:]]) for c in found])
        return self.shared_out(outer, steps, row)

    # ------------------------------------------------------------------ library

    def called(self, found: Sequence[Chain]) -> Stmt | None:
        """A product by the library, in pieces that can be shared out, each followed by what is done to its elements."""
        first, rest = found[0], found[1:]
        product = called_product(found, self.nest)
        if product is None:
            return None
        made = first.stores[0].buffer
        target = made
        if rest:  # the library writes where the result will stand, if that is of the same kind
            store = rest[0].stores[0]
            if len(rest[0].stores) == 1 and store.buffer.dtype == made.dtype:
                target = replace(store.buffer)
                self.gone.add(made)
        steps = pieces(product)
        others = [a for a in first.spatial if a not in (product.m, product.n)]
        outer = {a: _Loop(self.var("i"), a.extent) for a in others}
        outer |= {a: _Loop(self.var("o"), (a.extent + (step - 1)) // step) for a, step in steps.items()}

        def part(axis: Axis, at: Mapping[Var, Expr]) -> Range:
            if axis not in steps:
                return Range(Const(0), axis.extent)
            start = at[outer[axis].var] * steps[axis]
            return Range(start, minimum(steps[axis], axis.extent - start))

        def body(at: Mapping[Var, Expr]) -> Stmt:
            values = {a.var: at[outer[a].var] for a in others}
            rows, columns = part(product.m, at), part(product.n, at)
            single = {a.var: Const(0) for a in first.reduced}
            call = product.call(target, rows, columns, {**values, **single})
            return seq(call, *(self.piece(c, first, product, (rows, columns), values, target) for c in rest))

        sizes = [minimum(steps.get(a, UNKNOWN), a.extent) for a in (product.m, product.n)]
        return self.shared_out([*outer.values()], total_size([*sizes, product.k.extent]), body)

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
        before, first = found[:place], found[place]
        rest = [following(c, first) for c in found[place + 1 :]]
        written = zip(rest, found[place + 1 :], strict=True)
        if not all(is_follower(c, first, self.nest, own) for c, own in written):
            return None
        made: Stmt | None
        if found_ := convolution_of(first, [*before, *rest]):
            self.gone |= found_.unneeded
            before = [c for c in before if not found_.unneeded & {s.buffer for s in c.stores}]
            made = convolved(self, found_, first, rest)
        else:
            made = self.contraction(first, rest)
        return None if made is None else seq(*(self.alone(c) for c in before), made)

    def contraction(self, first: Chain, rest: Sequence[Chain]) -> Stmt | None:
        """A contraction and what is done to its elements, several at a time; None where that does not pay."""
        if len(first.stores) != 1 or not is_accumulation(first.stores[0]):
            return None
        if (windows := sliding(first)) is not None:
            return self.row_of_windows(windows, rest)
        first, rest = with_axes_redrawn(first, rest)
        plan = tile_plan(first, (rest or [first])[-1])
        return self.dots(first, rest) if plan is None else self.tile(first, rest, plan)

    def row_of_windows(self, found: Sliding, rest: Sequence[Chain]) -> Stmt:
        """Windows that slide along rows."""
        row = Row(self, found, rest)
        if rest:
            self.gone.add(found.first.stores[0].buffer)
        outer = [_Loop(self.var("i"), a.extent) for a in row.outer]

        def body(at: Mapping[Var, Expr]) -> Stmt:
            return row.at({a.var: at[loop.var] for a, loop in zip(row.outer, outer, strict=True)})

        sizes = [found.along.extent, found.vector.extent, *(a.extent for a in found.first.reduced)]
        return self.shared_out(outer, total_size(sizes), body)

    def dots(self, first: Chain, rest: Sequence[Chain]) -> Stmt | None:
        """A contraction of operands that lie side by side along what is reduced: a few results at a time, each in
        vectors of its own, share what they read."""
        plan, groups = shared_operands(first), collapsed(first, list(first.reduced))
        if not plan or not is_long(groups[-1]) or not lies_along(first, groups[-1][-1]):
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
            start = {
                a.var: start_of(at[o.var], a, plan.get(a.var, 1)) for a, o in zip(first.spatial, outer, strict=True)
            }
            reduce_loops = [_Loop(self.var("r"), total_size([a.extent for a in group])) for group in groups]
            reduce_loops[-1] = replace(reduce_loops[-1], kind="vectorized")
            reduced: dict[Var, Expr] = {}
            for group, loop in zip(groups, reduce_loops, strict=True):
                reduced.update(taken_apart(loop.var, group))

            def each(chain: Chain, part: Callable[[Mapping[Var, Expr]], Stmt]) -> Stmt:
                steps = {v: _Loop(self.var("q"), Const(n), "unrolled") for v, n in plan.items()}
                own = zip(first.spatial, chain.spatial, strict=True)
                where = {c.var: start[f.var] + steps[f.var].var if f.var in plan else start[f.var] for f, c in own}
                element = (sums, tuple(step.var for step in steps.values()))
                return _wrapped(list(steps.values()), exchange(part(where), {made: element}))

            zeros = {a.var: Const(0) for a in first.reduced}
            begin = each(first, lambda where: decomposed(first, {**where, **zeros})[0])
            steps = each(first, lambda where: decomposed(first, {**where, **reduced})[1])
            ends = [each(c, partial(at_point, c)) for c in rest]
            if not rest:
                copies = {v: _Loop(self.var("q"), Const(n), "unrolled") for v, n in plan.items()}
                place = {v: e + copies[v].var if v in plan else e for v, e in start.items()}
                where = tuple(substitute(i, place) for i in first.stores[0].indices)
                kept = Load(sums, tuple(c.var for c in copies.values()))
                ends = [_wrapped(list(copies.values()), Store(made, where, kept))]
            return seq(begin, _wrapped(reduce_loops, steps), *ends)

        size = total_size([*(Const(n) for n in plan.values()), *(a.extent for a in first.reduced)])
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
            start = {
                a.var: start_of(at[o.var], a, plan.get(a.var, 1)) for a, o in zip(first.spatial, outer, strict=True)
            }
            main = whole.at(start)
            for axis in unknown:
                step = _Loop(self.var("i"), axis.extent)
                alone = _wrapped([step], narrow.at({**start, axis.var: step.var}))
                main = If(axis.extent >= plan[axis.var], main, alone)
            return main

        size = total_size([*(Const(n) for n in plan.values()), *(a.extent for a in first.reduced)])
        return self.shared_out(outer, size, body)

    def inside(self, first: Chain, rest: Sequence[Chain], plan: Mapping[Var, int]) -> Stmt | None:
        """The tiles of a contraction with conditions at the ends of its vectorized axis: whole vectors between the
        ends, and the few results at the ends one by one. None where there are no such conditions, or masks serve."""
        axis = vector_of(first, rest, plan)
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
            start = {a.var: start_of(at[next(own).var], a, others.get(a.var, 1)) for a in along}
            piece = _Loop(self.var("o"), Const(-(-(end - begin) // width)))
            part = Axis(axis.var, Const(end - begin), axis.kind)
            parts = [_wrapped([piece], middle.at({**start, axis.var: start_of(piece.var, part, width) + begin}))]
            for low, high in ends:
                if low < high:
                    step = _Loop(self.var("i"), Const(high - low))
                    single = _Tile(self, first, rest, {**others, axis.var: 1})
                    parts.append(_wrapped([step], single.at({**start, axis.var: step.var + low})))
            return seq(*parts)

        size = total_size([axis.extent, *(Const(n) for n in others.values()), *(a.extent for a in first.reduced)])
        return self.shared_out(outer, size, body)


class _Tile:
    """A tile of results that a contraction keeps in registers: ``plan`` says how many along each axis."""

    def __init__(self, owner: _Scheduler, first: Chain, rest: Sequence[Chain], plan: Mapping[Var, int]) -> None:
        self.owner, self.first, self.rest = owner, first, rest
        self.made = first.stores[0].buffer
        self.vector = vector_of(first, rest, plan).var
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
        begin = self.over(start, first, zeros, lambda c, v, e: self.own(decomposed(c, v)[0], e))
        steps = self.over(start, first, reduce_values, lambda c, v, e: self.own(decomposed(c, v)[1], e))
        ends = [
            self.over(start, c, {}, lambda c, v, e: self.own(c.with_values([v[a.var] for a in c.axes]), e))
            for c in self.rest
        ]
        if not self.rest:
            where = first.stores[0].indices
            ends = [
                self.over(start, first, {}, lambda c, v, e: Store(self.made, tuple(substitute(i, v) for i in where), e))
            ]
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
        order = scalar_first(self.order, self.first, self.vector)
        loops = [_Loop(steps[a.var], Const(self.sizes[a.var]), "unrolled") for a in order]
        loops += [_Loop(piece, Const(self.pieces), "unrolled"), _Loop(lane, Const(self.lanes), "vectorized")]
        return _wrapped(loops, part(chain, {mine[v]: places.get(v, start[v]) for v in mine} | dict(values), element))
