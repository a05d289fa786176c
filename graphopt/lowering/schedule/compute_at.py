"""Compute location: moves a producer under a loop of its consumers, or a consumer under one of its producers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.lowering.analysis.block_refs import (
    INLINE,
    ROOT,
    AnyBlock,
    AnyLoop,
    BlockSite,
    LoopSite,
    extents_around,
    find_block,
    find_loop,
    free_name,
    loops_of,
    names_in,
    primitive,
    replaced,
)
from graphopt.lowering.analysis.dataflow import (
    Unit,
    accesses_in,
    buffers_read,
    buffers_written,
    kept_inside,
    readers,
    scope,
    shared,
    units_beside,
    writers,
)
from graphopt.lowering.analysis.iteration_domains import (
    Domain,
    are_disjoint,
    box_written,
    check_covered,
    check_extents,
    match,
    narrow,
    only_bounded,
)
from graphopt.lowering.analysis.regions import read_box, refreshed, within
from graphopt.lowering.index.arithmetic import prove, simplify
from graphopt.lowering.loops.expressions import Const, Expr, Var, conjunction, variables
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import (
    Axis,
    Block,
    Buffer,
    For,
    Nest,
    Range,
    Seq,
    Stmt,
    Store,
    loads,
    seq,
    statements,
)
from graphopt.lowering.schedule.compute_inline import compute_inline, keeps_steps


@primitive
def compute_at(nest: Nest, block: AnyBlock, loop: AnyLoop, preserve_unit_loops: bool = False) -> tuple[Nest, None]:
    """Move a producer under a loop of its consumers, where it computes what one step of the loop reads.

    All consumers are within the loop, and the result lives only while the nest runs. Elements that several steps read
    are computed again in each. The block gets a loop for each axis longer than 1 there, with ``preserve_unit_loops``
    for all. The loop may be ``ROOT`` (stay) or ``INLINE`` (``compute_inline``).
    Before::

        B = alloc((8, 16), "float32")
        for i0, i1 in grid(8, 16):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] + 1.0
        for i2, i3 in grid(8, 15):
            with block("C"):
                v2, v3 = axis.remap("SS", [i2, i3])
                C[v2, v3] = B[v2, v3] + B[v2, v3 + 1]

    After ``s.compute_at("B", "i2")``::

        B = alloc((8, 16), "float32")
        for i2 in serial(8):
            for ax1 in serial(16):
                with block("B"):
                    v0 = axis.spatial(8, i2)
                    v1 = axis.spatial(16, ax1)
                    B[v0, v1] = A[v0, v1] + 1.0
            for i3 in serial(15):
                with block("C"):
                    v2, v3 = axis.remap("SS", [i2, i3])
                    C[v2, v3] = B[v2, v3] + B[v2, v3 + 1]
    """
    # As TVM's compute_at: check that the block is the only writer and that only the loop reads its results, infer the
    # domain that one step of the loop reads (bound inference), and write the block over it before its first reader.
    if loop == ROOT:
        return nest, None
    if loop == INLINE:
        return compute_inline(nest, block)
    site, target = find_block(nest, block), find_loop(nest, loop)
    move = _Move.of(nest, site, target)
    stmt = site.stmt
    written = buffers_written(stmt)
    for buffer in _sorted(written):
        kept_inside(nest, buffer, f": {stmt.name} has to write all of it")
        _sole_writer(move, buffer)
        consumers = readers(move.beside, buffer)
        outside = next((u for u in consumers if target.stmt not in u.above), None)
        if outside is not None:
            raise ScheduleError(f"{outside.name} reads {buffer.name} outside of {target.stmt.var.name}")
        _used_here_alone(nest, move, buffer)
        if not consumers:
            raise ScheduleError(f"nothing reads {buffer.name}")
        if any(move.beside.index(u) < move.position for u in consumers):
            raise ScheduleError(f"{consumers[0].name} reads {buffer.name} before {stmt.name} writes it")
    if stmt.init is None and written & buffers_read(stmt):
        raise ScheduleError(f"{stmt.name} goes on from what it wrote before: it cannot run anew in steps of a loop")
    for unit in move.beside:
        if unit.stmt is stmt or not buffers_written(unit.stmt) & buffers_read(stmt):
            continue
        if move.beside.index(unit) > move.position:
            raise ScheduleError(f"{unit.name} behind {stmt.name} changes what it reads")
        if _is_reducing(unit, shared(unit.above, site.above)):
            raise ScheduleError(f"{unit.name} is not complete where {stmt.name} reads it")
    only_bounded(stmt, site.above)
    around = extents_around((*target.above, target.stmt))
    domain: Domain = {}
    for buffer in _sorted(written):
        region = read_box([target.stmt.body], buffer, around)
        assert region is not None
        for where in {s.indices for s in statements(stmt.body) if isinstance(s, Store) and s.buffer == buffer}:
            narrow(domain, stmt, where, within(region))
    # what no index tells of stays in the step of the loops around both, which write the same elements anew
    steps = {s.var for s in shared(site.above, (*target.above, target.stmt)) if isinstance(s, For)}
    for axis, value in zip(stmt.axes, stmt.values, strict=True):
        if axis.var not in domain and axis.kind == "spatial" and variables(value) and variables(value) <= steps:
            domain[axis.var] = Range(value, Const(1))
    _race_free(move, domain)
    users = {id(u.stmt) for buffer in written for u in readers(move.beside, buffer)}
    body = _children(target.stmt.body)
    at = next(k for k, s in enumerate(body) if any(id(x) in users for x in statements(s)))
    return _moved(nest, move, domain, at, preserve_unit_loops), None


@primitive
def reverse_compute_at(
    nest: Nest, block: AnyBlock, loop: AnyLoop, preserve_unit_loops: bool = False
) -> tuple[Nest, None]:
    """Move a consumer under a loop of its producers, where it uses the results of one step of the loop.

    These are complete by then: no loop around is one that the producers reduce over. The block gets a loop for each
    axis longer than 1 there, with ``preserve_unit_loops`` for all.
    Before::

        B = alloc((8, 16), "float32")
        for i0, i1 in grid(8, 16):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] + 1.0
        for i2, i3 in grid(8, 16):
            with block("C"):
                v2, v3 = axis.remap("SS", [i2, i3])
                C[v2, v3] = max(B[v2, v3], 0.0)

    After ``s.reverse_compute_at("C", "i0")``::

        B = alloc((8, 16), "float32")
        for i0 in serial(8):
            for i1 in serial(16):
                with block("B"):
                    v0, v1 = axis.remap("SS", [i0, i1])
                    B[v0, v1] = A[v0, v1] + 1.0
            for ax1 in serial(16):
                with block("C"):
                    v2, v3 = axis.remap("SS", [i0, ax1])
                    C[v2, v3] = max(B[v2, v3], 0.0)
    """
    site, target = find_block(nest, block), find_loop(nest, loop)
    move = _Move.of(nest, site, target)
    stmt = site.stmt
    name = target.stmt.var.name
    inside = [u for u in move.beside if target.stmt in u.above]
    made_here = [b for b in _sorted(buffers_read(stmt) - buffers_written(stmt)) if writers(inside, b)]
    if not made_here:
        raise ScheduleError(f"nothing that {stmt.name} reads is made within {name}")
    first = move.beside.index(inside[0])
    if move.position < first:
        raise ScheduleError(f"{stmt.name} runs before {name}, and reads what was there before")
    _runs_early(move, inside, first)
    only_bounded(stmt, site.above)
    around = extents_around((*target.above, target.stmt))
    outside = extents_around(scope(site.above))
    domain: Domain = {}
    for buffer in made_here:
        check_covered(move.loops[0], stmt, buffer, outside, f"in {move.loops[0].var.name}")
        for unit in writers(inside, buffer):
            assert isinstance(unit.stmt, Block)
            only_bounded(unit.stmt, unit.above)
        region = box_written(target.stmt.body, buffer, around, f"in a step of {name}")
        for where in dict.fromkeys(e.indices for e in loads(stmt) if e.buffer == buffer):
            match(domain, stmt, where, region, around)
    _each_once(move, domain)
    makers = {id(u.stmt) for b in made_here for u in writers(inside, b)}
    body = _children(target.stmt.body)
    at = max(k for k, s in enumerate(body) if any(id(x) in makers for x in statements(s))) + 1
    return _moved(nest, move, domain, at, preserve_unit_loops), None


# ------------------------------------------------------------------ the move


@dataclass(frozen=True, slots=True)
class _Move:
    """A block and the loop that it is to run in, in one scope; ``beside`` are the units of that scope, and ``position``
    is where the block stands among them."""

    site: BlockSite
    target: LoopSite
    beside: Sequence[Unit]
    position: int

    @staticmethod
    def of(nest: Nest, site: BlockSite, target: LoopSite) -> _Move:
        stmt, name = site.stmt, target.stmt.var.name
        if any(s is target.stmt for s in site.above):
            raise ScheduleError(f"{stmt.name} runs within {name} already")
        if _within(site) is not _within(target):
            raise ScheduleError(f"{name} and {stmt.name} do not stand in one block")
        if target.stmt.kind == "vectorized":
            raise ScheduleError(f"{name} is vectorized; move {stmt.name} before")
        if stmt.of_kind("ordered"):
            raise ScheduleError(f"{stmt.name} has ordered axes, which have to stay in their order")
        keeps_steps(stmt, site.above, (*target.above, target.stmt))
        check_extents(stmt, stmt.axes, {*nest.sizes, *extents_around((*target.above, target.stmt))})
        beside = units_beside(nest, site)
        return _Move(site, target, beside, next(k for k, u in enumerate(beside) if u.stmt is stmt))

    @property
    def loops(self) -> tuple[For, ...]:
        """The loops that the block is to run in, from the outermost in."""
        return loops_of((*self.target.above, self.target.stmt))


def _within(site: BlockSite | LoopSite) -> Stmt | None:
    """The body or init that a place is in; None for that of the nest."""
    outside = scope(site.above)
    return (*site.above, site.stmt)[len(outside)] if outside else None


def _moved(nest: Nest, move: _Move, domain: Domain, at: int, keep_units: bool) -> Nest:
    """The nest with the block in new loops over the domain of its axes, as the ``at``-th statement of the loop."""
    stmt, name = move.site.stmt, move.target.stmt.var.name
    around = extents_around((*move.target.above, move.target.stmt))
    names = names_in(nest)
    loops: dict[Var, Expr] = {}
    values, limits = [], []
    for k, axis in enumerate(stmt.axes):
        side = domain.get(axis.var, Range(Const(0), axis.extent))
        value = side.start
        if keep_units or side.extent != Const(1):
            var = Var(free_name(names, f"ax{k}"))
            loops[var] = side.extent
            value = value + var
        inside = {**around, **loops}
        value = simplify(value, inside)
        values.append(value)
        limits += [c for c in (value >= 0, value < axis.extent) if not prove(c, inside)]
    inside = {**around, **loops}
    predicate = conjunction(*dict.fromkeys(simplify(c, inside) for c in limits))
    block = replace(stmt, values=tuple(values), predicate=predicate)
    moved = wrapped([LoopSpec(var, simplify(extent, around)) for var, extent in loops.items()], block)
    without = replaced(nest, move.site, None)
    target = find_loop(without, name)
    body = list(_children(target.stmt.body))
    gone = len(_children(move.target.stmt.body)) - len(body)
    body.insert(at - gone, moved)
    after = replaced(without, target, replace(target.stmt, body=seq(*body)))
    return refreshed(after, [stmt.name])


def _children(stmt: Stmt) -> tuple[Stmt, ...]:
    return stmt.stmts if isinstance(stmt, Seq) else (stmt,)


def _sorted(buffers: Iterable[Buffer]) -> list[Buffer]:
    return sorted(buffers, key=lambda b: b.name)


# ------------------------------------------------------------------ what must not change


def _sole_writer(move: _Move, buffer: Buffer) -> None:
    for unit in move.beside:
        if unit.stmt is not move.site.stmt and buffer in buffers_written(unit.stmt):
            raise ScheduleError(f"{buffer.name} is written by {unit.name} as well")


def _used_here_alone(nest: Nest, move: _Move, buffer: Buffer) -> None:
    count = sum(a.buffer == buffer for s in (move.site.stmt, move.target.stmt) for a in accesses_in(s))
    if count < sum(a.buffer == buffer for a in accesses_in(nest.body)):
        raise ScheduleError(f"{buffer.name} is used outside of {move.target.stmt.var.name}")


def _is_reducing(unit: Unit, path: Sequence[Stmt]) -> bool:
    """Whether a unit may still change what it wrote in further steps of the loops on a path."""
    around = {s.var for s in path if isinstance(s, For)}
    if not isinstance(unit.stmt, Block):
        return bool(around)
    pairs = zip(unit.stmt.axes, unit.stmt.values, strict=True)
    return any(a.kind != "spatial" and variables(v) & around for a, v in pairs)


def _runs_early(move: _Move, inside: Sequence[Unit], first: int) -> None:
    """Raises ScheduleError where the block would not find what it reads now, or others would not find what it left."""
    stmt, name = move.site.stmt, move.target.stmt.var.name
    read, written = buffers_read(stmt), buffers_written(stmt)
    path = (*move.target.above, move.target.stmt)
    for k, unit in enumerate(move.beside):
        if k == move.position:
            continue
        if buffers_written(unit.stmt) & read:
            if unit in inside and not isinstance(unit.stmt, Block):
                raise ScheduleError(f"{unit.name} in {name} makes what {stmt.name} reads; put it in a block")
            if k > first and unit not in inside:
                raise ScheduleError(f"{unit.name} behind {name} makes what {stmt.name} reads")
            if _is_reducing(unit, shared(unit.above, path)):
                raise ScheduleError(f"{unit.name} still reduces in {name}: {stmt.name} would read what is not complete")
        if (buffers_read(unit.stmt) | buffers_written(unit.stmt)) & written:
            if first <= k < move.position:
                raise ScheduleError(f"{unit.name} uses what {stmt.name} writes, and runs before it")
            if len(shared(unit.above, path)) > len(shared(unit.above, move.site.above)) and k < first:
                raise ScheduleError(f"{unit.name} uses what {stmt.name} writes, in a loop that they would share")


def _each_once(move: _Move, domain: Domain) -> None:
    """Raises ScheduleError where a block that combines into what it wrote would do so twice for one point."""
    stmt = move.site.stmt
    path = {s.var for s in move.loops}
    starts = {a: domain[a.var].start for a in stmt.axes if a.var in domain}
    partly = [a for a, s in starts.items() if a.kind == "reduce" and variables(s) & path]
    again = stmt.init is None and bool(buffers_written(stmt) & buffers_read(stmt))
    if not partly and not again:
        return
    for loop in move.loops:
        if loop.kind not in ("serial", "unrolled") and any(loop.var in variables(starts[a]) for a in partly):
            raise ScheduleError(f"{stmt.name} would reduce over {loop.var.name}, which is {loop.kind}")
    if not _is_told(move, domain, stmt.axes, move.loops):
        raise ScheduleError(f"{stmt.name} would combine some elements twice: steps of the loop have them in common")


def _race_free(move: _Move, domain: Domain) -> None:
    """Raises ScheduleError where several threads would reduce into the same elements."""
    stmt = move.site.stmt
    if stmt.init is None or all(b.scope == "local" for b in buffers_written(stmt)):
        return
    at_once = [s for s in move.loops if s.kind in ("parallel", "bound")]
    if at_once and not _is_told(move, domain, stmt.of_kind("spatial"), at_once):
        name = min(b.name for b in buffers_written(stmt))
        raise ScheduleError(
            f"steps of {at_once[0].var.name}, which is {at_once[0].kind}, would reduce into the same elements of "
            f"{name}; use set_scope to make it local"
        )


def _is_told(move: _Move, domain: Domain, axes: Sequence[Axis], loops: Sequence[For]) -> bool:
    """Whether the points of the axes tell the steps of the loops that the block would do them in."""
    sides = [domain.get(a.var, Range(Const(0), a.extent)) for a in axes]
    running = {s.var: s.extent for s in move.loops}
    return are_disjoint(sides, loops, running, extents_around(move.target.above))
