"""Compute inlining: a producer into its consumers, a consumer into its producer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.lowering.analysis.block_refs import (
    AnyBlock,
    BlockSite,
    extents_around,
    find_block,
    loops_of,
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
    units,
    units_beside,
    without_unused,
    writers,
    written_by_others,
)
from graphopt.lowering.analysis.iteration_domains import check_covered, only_bounded
from graphopt.lowering.analysis.regions import refreshed, simplified
from graphopt.lowering.index.arithmetic import simplify
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, conjunction, rewrite, substitute, variables
from graphopt.lowering.loops.loop_nests import wrapped
from graphopt.lowering.loops.nest import (
    Block,
    Buffer,
    Invoke,
    Nest,
    Stmt,
    Store,
    blocks,
    inner,
    loads,
    map_expressions,
    statements,
)


@primitive
def compute_inline(nest: Nest, block: AnyBlock) -> tuple[Nest, None]:
    """Inline a producer: its formula replaces each load of its result.

    The block has no reduction and plain indices, and its result lives only while the nest runs.
    Before::

        B = alloc((8,), "float32")
        for i0 in serial(8):
            with block("B"):
                v0 = axis.remap("S", [i0])
                B[v0] = A[v0] + 1.0
        for i1 in serial(8):
            with block("C"):
                v1 = axis.remap("S", [i1])
                C[v1] = B[v1] * 2.0

    After ``s.compute_inline("B")``::

        for i1 in serial(8):
            with block("C"):
                v1 = axis.remap("S", [i1])
                C[v1] = (A[v1] + 1.0) * 2.0
    """
    site = find_block(nest, block)
    only_bounded(site.stmt, site.above)
    formula = _formula(site.stmt)
    kept_inside(nest, formula.buffer, "; only what lives while the program runs can be computed where it is read")
    consumers = readers(units_beside(nest, site), formula.buffer)
    _sole_writer(nest, site, formula.buffer)
    if not consumers:
        raise ScheduleError(f"{site.stmt.name}: nothing reads {formula.buffer.name}")
    _unchanged_until(nest, site, consumers)
    changed = [b.name for b in blocks(nest.body) if any(e.buffer == formula.buffer for e in loads(b))]
    without = replaced(nest, site, None)

    def part(e: Expr) -> Expr | None:
        return formula.at(e.indices) if isinstance(e, Load) and e.buffer == formula.buffer else None

    body = map_expressions(without.body, part)
    after = without_unused(replace(without, body=simplified(body, {}, changed)), nest.allocs)
    return refreshed(after, changed), None


@primitive
def reverse_compute_inline(nest: Nest, block: AnyBlock) -> tuple[Nest, None]:
    """Inline a consumer into its only producer, which writes the result instead.

    The consumer reads each element of the producer once, at plain indices, and nothing else reads it.
    Before::

        B = alloc((8, 4), "float32")
        for i0, i1 in grid(8, 4):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] + 1.0
        for i2, i3 in grid(4, 8):
            with block("C"):
                v2, v3 = axis.remap("SS", [i2, i3])
                C[v2, v3] = B[v3, v2] * 2.0

    After ``s.reverse_compute_inline("C")``::

        for i0, i1 in grid(8, 4):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                C[v1, v0] = (A[v0, v1] + 1.0) * 2.0
    """
    site = find_block(nest, block)
    consumer = site.stmt
    only_bounded(consumer, site.above)
    elementwise(consumer)
    target = sole_store(consumer)
    beside = units_beside(nest, site)
    made_here = [
        b for b in sorted(buffers_read(consumer), key=lambda b: b.name) if b != target.buffer and writers(beside, b)
    ]
    candidates = [b for b in made_here if is_read_at_axes(consumer, b)]
    if not candidates:
        raise ScheduleError(
            f"{consumer.name} reads nothing that a block beside it makes at just its own axes; "
            "only such a consumer can be computed in its producer"
        )
    for buffer in candidates:
        kept_inside(
            nest, buffer, f": it would not be written any more if {consumer.name} were computed in its producer"
        )
    reasons = []
    for buffer in candidates:
        try:
            return _into_producer(nest, site, beside, buffer, target), None
        except ScheduleError as error:
            reasons.append(error)
    raise reasons[0]


def _into_producer(nest: Nest, site: BlockSite, beside: list[Unit], buffer: Buffer, target: Store) -> Nest:
    consumer = site.stmt
    sole_reader(nest, site, buffer)
    (unit, *more) = writers(beside, buffer)
    if more or not isinstance(unit.stmt, Block):
        raise ScheduleError(f"{buffer.name} is not written by one block alone")
    producer = unit.stmt
    if producer.init is not None or any(a.kind != "spatial" for a in producer.axes):
        raise ScheduleError(
            f"{producer.name} reduces: {consumer.name} may only see what is complete; "
            f"use reverse_compute_at to bring {consumer.name} close"
        )
    store = sole_store(producer)
    if any(e.buffer == buffer for e in loads(producer)):
        raise ScheduleError(f"{producer.name} reads {buffer.name}, which it writes")
    may_run_at(site, unit, beside)
    check_covered(alone(unit), consumer, buffer, extents_around(scope(site.above)), f"by {producer.name}")
    points = points_read(consumer, buffer, store.indices)

    def computed(expr: Expr) -> Expr:
        there = substitute(expr, points)
        return rewrite(there, lambda e: store.value if isinstance(e, Load) and e.buffer == buffer else None)

    bindings = {a.var: v for a, v in zip(producer.axes, producer.values, strict=True)}
    limits = []
    for axis in consumer.axes:
        at = points.get(axis.var)
        if at is not None:
            limits.append(simplify(substitute(at, bindings) < axis.extent, extents_around(unit.above)))
    body = Store(target.buffer, tuple(map(computed, target.indices)), computed(target.value))
    merged = replace(producer, body=body, predicate=conjunction(producer.predicate, *limits))
    without = replaced(nest, site, None)
    after = without_unused(replaced(without, find_block(without, producer.name), merged), nest.allocs)
    changed = [producer.name]
    return refreshed(replace(after, body=simplified(after.body, {}, changed)), changed)


# ------------------------------------------------------------------ what is asked of the blocks


@dataclass(frozen=True, slots=True)
class _Formula:
    """The formula of a buffer's elements: ``value`` over the variables of ``points``."""

    buffer: Buffer
    points: tuple[Var | None, ...]
    value: Expr

    def at(self, indices: tuple[Expr, ...]) -> Expr:
        """The element at the indices."""
        return substitute(self.value, {p: i for p, i in zip(self.points, indices, strict=True) if p is not None})


def _formula(block: Block) -> _Formula:
    """The formula of a block that computes one element at a time; raises ScheduleError for any other."""
    elementwise(block)
    store = sole_store(block)
    if any(e.buffer == store.buffer for e in loads(block)):
        raise ScheduleError(f"{block.name} reads {store.buffer.name}, which it writes")
    points: list[Var | None] = []
    for index, size in zip(store.indices, store.buffer.shape, strict=True):
        if isinstance(index, Var) and index not in points:
            points.append(index)
        elif index == Const(0) and size == Const(1):
            points.append(None)
        else:
            raise ScheduleError(f"{block.name} does not write {store.buffer.name} at just its own axes, each once")
    extents = {a.var: a.extent for a in block.axes}
    unknown = [v for v in extents if v not in points and v in variables(store.value)]
    if any(extents[v] != Const(1) for v in unknown):
        raise ScheduleError(f"{block.name} writes one element of {store.buffer.name} for several of its points")
    return _Formula(store.buffer, tuple(points), substitute(store.value, {v: Const(0) for v in unknown}))


def elementwise(block: Block) -> None:
    """Raises ScheduleError for a block that reduces or is ordered."""
    if block.init is not None or any(a.kind != "spatial" for a in block.axes):
        raise ScheduleError(f"{block.name} reduces or is ordered; only a block of spatial axes can be inlined")


def sole_store(block: Block) -> Store:
    """The store that is all of a block; raises ScheduleError."""
    if not isinstance(block.body, Store):
        raise ScheduleError(f"{block.name} holds more than one store")
    return block.body


def _sole_writer(nest: Nest, site: BlockSite, buffer: Buffer) -> None:
    for name in written_by_others(nest, site.stmt, buffer):
        raise ScheduleError(f"{buffer.name} is written by {name} as well")
    for stmt in statements(nest.body):
        if isinstance(stmt, Invoke) and any(a.buffer == buffer for a in accesses_in(stmt)):
            raise ScheduleError(f"{stmt.intrinsic} works on {buffer.name}, which has to be there for it")


def sole_reader(nest: Nest, site: BlockSite, buffer: Buffer) -> None:
    """Raises ScheduleError where another block reads a buffer."""
    for stmt in blocks(nest.body):
        if not _holds(stmt, site.stmt) and buffer in buffers_read(stmt) - buffers_written(stmt):
            raise ScheduleError(f"{buffer.name} is read by {stmt.name} as well")


def _holds(outer: Stmt, stmt: Stmt) -> bool:
    return any(s is stmt for s in statements(outer))


def _unchanged_until(nest: Nest, site: BlockSite, consumers: list[Unit]) -> None:
    """Raises ScheduleError where what the block reads is not the same when its consumers run."""
    beside = units_beside(nest, site)
    position = next(k for k, u in enumerate(beside) if u.stmt is site.stmt)
    for consumer in consumers:
        if beside.index(consumer) < position:
            raise ScheduleError(f"{consumer.name} reads what {site.stmt.name} writes only after it")
    unit = beside[position]
    for buffer in buffers_read(site.stmt):
        producers = writers(beside, buffer)
        for writer in producers:
            around = shared(writer.above, unit.above)
            together = all(c.above[: len(around)] == around for c in consumers)
            alone = len(producers) == 1 and isinstance(writer.stmt, Block) and _is_complete(writer.stmt)
            if beside.index(writer) > position or not (together or alone):
                raise ScheduleError(
                    f"{writer.name} changes {buffer.name} before all consumers of {site.stmt.name} have run"
                )


def _is_complete(block: Block) -> bool:
    """Whether each point of a block computes final elements, whatever ran before."""
    return block.init is None and all(a.kind == "spatial" for a in block.axes)


def may_run_at(site: BlockSite, producer: Unit, beside: list[Unit]) -> None:
    """Raises ScheduleError where a block cannot run where its producer does."""
    consumer = site.stmt
    first = beside.index(producer)
    position = next(k for k, u in enumerate(beside) if u.stmt is consumer)
    if position < first:
        raise ScheduleError(f"{producer.name} runs after {consumer.name}, which reads what was there before")
    written = buffers_written(consumer)
    read = buffers_read(consumer)
    for k, unit in enumerate(beside):
        if k in (first, position):
            continue
        if k >= first and buffers_written(unit.stmt) & read:
            raise ScheduleError(f"{unit.name} writes what {consumer.name} reads, and runs after {producer.name}")
        if k < first and buffers_written(unit.stmt) & read and _in_reduction(unit, producer):
            raise ScheduleError(f"{unit.name} is not complete where {producer.name} runs")
        if first <= k < position and (buffers_written(unit.stmt) | buffers_read(unit.stmt)) & written:
            raise ScheduleError(f"{unit.name} uses what {consumer.name} writes, and runs before it")
    if written & (buffers_read(producer.stmt) | read):
        raise ScheduleError(f"{consumer.name} writes what is read there")
    keeps_steps(consumer, site.above, producer.above)


def keeps_steps(block: Block, above: tuple[Stmt, ...], there: tuple[Stmt, ...]) -> None:
    """Raises ScheduleError where a block would leave a loop whose steps each write the same elements for others in
    it; ``there`` are the statements around its new place."""
    values = dict(zip((a.var for a in block.axes), block.values, strict=True))
    for loop in loops_of(above):
        if any(s is loop for s in there):
            continue
        others = [u.stmt for u in units(loop) if u.stmt is not block]
        used = frozenset(b for s in others for b in buffers_read(s) | buffers_written(s))
        for access in (a for s in inner(block) for a in accesses_in(s, values) if a.is_write and a.buffer in used):
            if not any(loop.var in variables(i) for i in access.indices):
                raise ScheduleError(
                    f"{block.name} writes the same elements of {access.buffer.name} in each step of {loop.var.name}, "
                    "where others use them"
                )


def alone(unit: Unit) -> Stmt:
    """A block in its loops, without all that stands beside it."""
    return wrapped(loops_of(unit.above), unit.stmt)


def _in_reduction(unit: Unit, other: Unit) -> bool:
    """Whether a unit still reduces over a loop that stands around another one."""
    if not isinstance(unit.stmt, Block):
        return True
    around = {s.var for s in shared(unit.above, other.above) if hasattr(s, "var")}
    reducing = [v for a, v in zip(unit.stmt.axes, unit.stmt.values, strict=True) if a.kind != "spatial"]
    return any(variables(v) & around for v in reducing)


def is_read_at_axes(block: Block, buffer: Buffer) -> bool:
    """Whether all of the block's loads of a buffer are one element, at its own axes, each used once."""
    points = {e.indices for e in loads(block) if e.buffer == buffer}
    if len(points) != 1:
        return False
    (indices,) = points
    plain = [i for i in indices if isinstance(i, Var)]
    constant = all(
        isinstance(i, Var) or (i == Const(0) and n == Const(1)) for i, n in zip(indices, buffer.shape, strict=True)
    )
    missing = [a for a in block.axes if a.var not in plain and a.extent != Const(1)]
    return constant and len(set(plain)) == len(plain) and not missing


def points_read(consumer: Block, buffer: Buffer, indices: tuple[Expr, ...]) -> Mapping[Var, Expr]:
    """The consumer's axes where it reads the element of the buffer at the indices."""
    read = next(e for e in loads(consumer) if e.buffer == buffer)
    points: dict[Var, Expr] = {a.var: Const(0) for a in consumer.axes}
    points.update({axis: at for axis, at in zip(read.indices, indices, strict=True) if isinstance(axis, Var)})
    return points
