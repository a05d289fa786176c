"""Copies beside a block: it uses another buffer, and elements are copied into that before it, or out of it behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import get_args

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.lowering.analysis.block_refs import (
    AnyLoop,
    BlockRef,
    BlockSite,
    LoopSite,
    Site,
    StatementSite,
    extents_around,
    free_name,
    names_in,
    replaced,
)
from graphopt.lowering.analysis.dataflow import (
    accesses_in,
    buffers_read,
    buffers_written,
    scope,
    units,
    written_by_others,
)
from graphopt.lowering.analysis.dependence import at as index_at
from graphopt.lowering.analysis.iteration_domains import are_disjoint, check_start, written_exactly
from graphopt.lowering.analysis.regions import box, contains, read_box, refreshed, within, written_box
from graphopt.lowering.index.arithmetic import prove, simplify
from graphopt.lowering.loops.expressions import (
    Const,
    Expr,
    Load,
    Var,
    conjunction,
    loads_in,
    short_circuit,
    substitute,
    variables,
)
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import (
    TRUE,
    Axis,
    Block,
    Buffer,
    BufferRegion,
    For,
    If,
    MemoryScope,
    Nest,
    Range,
    Stmt,
    Store,
    blocks,
    inner,
    mutate,
    rename_buffers,
    seq,
    statements,
)

IN_PLACE = "cache_inplace copies in first what was there"


@dataclass(frozen=True, slots=True)
class Exchange:
    """A block that is to use a buffer in place of another: ``changed`` does.

    ``where`` gives the indices in the old buffer of the element of the new one at some indices.
    """

    block: Block
    changed: Block
    old: Buffer
    new: Buffer
    where: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]

    @staticmethod
    def of(nest: Nest, block: Block, old: Buffer, space: MemoryScope) -> Exchange:
        """The exchange of a buffer for one of its shape in a scope."""
        name = free_name(names_in(nest), f"{old.name}_{space}")
        new = Buffer(name, old.shape, old.dtype, space)
        changed = rename_buffers(block, {old: new})
        assert isinstance(changed, Block)
        return Exchange(block, changed, old, new, lambda indices: indices)

    def within(self, stmt: Stmt) -> Stmt:
        """The statement with the changed block."""
        return mutate(stmt, lambda s: self.changed if s is self.block else None)


def copied_in(nest: Nest, at: Site, exchange: Exchange) -> tuple[Nest, BlockRef]:
    """The nest in which a block reads another buffer, and a block before the statement at a place fills it."""
    around = extents_around(at.above)
    inside = exchange.within(at.stmt)
    region = read_box([inside], exchange.new, around)
    assert region is not None
    names = names_in(nest)
    copy = _copy(exchange, _settled(region, inside), (), around, names, out=False)
    return _with_copies(nest, at, exchange, [copy], [])


def copied_out(nest: Nest, at: Site, exchange: Exchange, instead: str) -> tuple[Nest, BlockRef]:
    """The nest in which a block writes another buffer, and a block behind the statement at a place copies out just what
    that wrote; raises ScheduleError where that is not known, or the block needs what was there before: ``instead`` says
    what to do then."""
    old, stmt = exchange.old, exchange.block
    try:
        others = written_by_others(nest, stmt, old)
        _starts(nest, stmt, old, others)
        around, inside = extents_around(at.above), exchange.within(at.stmt)
        if old in nest.allocs and not others and not any(isinstance(s, For) for s in at.above):
            box_of_all = written_box([inside], exchange.new, around)  # whatever else is in it nobody wrote
            assert box_of_all is not None
            region, limits = _settled(box_of_all, inside), tuple[Expr, ...]()
        else:
            region, limits = written_exactly(inside, exchange.new, around, f"by {stmt.name}")
    except ScheduleError as error:
        text = str(error).replace(exchange.new.name, old.name)
        raise ScheduleError(f"{text}; {instead}") from None
    copy = _copy(exchange, within(region), limits, around, names_in(nest), out=True)
    return _with_copies(nest, at, exchange, [], [copy])


def copied_in_and_out(nest: Nest, at: Site, exchange: Exchange) -> tuple[Nest, tuple[BlockRef, BlockRef]]:
    """The nest in which a block works on another buffer, which is filled before the statement at a place with all that
    is copied out behind it."""
    around, inside = extents_around(at.above), exchange.within(at.stmt)
    touched = box((a for a in accesses_in(inside) if a.buffer == exchange.new), around)
    assert touched is not None
    region = _settled(touched, inside)
    at_once = [s for s in at.above if isinstance(s, For) and s.kind in ("parallel", "bound", "vectorized")]
    running = {s.var: s.extent for s in at.above if isinstance(s, For)}
    if at_once and not are_disjoint(region.ranges, at_once, running, around):
        raise ScheduleError(
            f"steps of {at_once[0].var.name}, which is {at_once[0].kind}, would copy out the same elements of "
            f"{exchange.old.name}; do this before"
        )
    names = names_in(nest)
    before = _copy(exchange, region, (), around, names, out=False)
    behind = _copy(exchange, region, (), around, names, out=True)
    after, first = _with_copies(nest, at, exchange, [before], [behind])
    (second,) = [BlockRef(b.name) for b in blocks(behind)]
    return after, (first, second)


# ------------------------------------------------------------------ which buffer, and where


def check_scope(space: str) -> None:
    """Raises ScheduleError where there is no such scope."""
    if space not in get_args(MemoryScope):
        raise ScheduleError(f"there is no scope {space}; there are {', '.join(get_args(MemoryScope))}")


def chosen(block: Block, buffer: int | str, *, writes: bool) -> Buffer:
    """The buffer that is named, or at that place among those that a block writes (or only reads)."""
    written = [a.buffer for a in accesses_in(block) if a.is_write]
    read = [a.buffer for a in accesses_in(block) if not a.is_write and a.buffer not in written]
    buffers = list(dict.fromkeys(written if writes else read))
    names = [b.name for b in buffers]
    if isinstance(buffer, str):
        if buffer in names:
            return buffers[names.index(buffer)]
    elif 0 <= buffer < len(buffers):
        return buffers[buffer]
    verb = "writes" if writes else "reads, and does not write,"
    raise ScheduleError(f"{block.name} {verb} {', '.join(names) or 'nothing'}: {buffer} is none of these")


def outermost(site: BlockSite, fits: Callable[[Stmt], bool]) -> LoopSite | BlockSite:
    """The outermost loop around a block in its scope that fits, or else the block itself."""
    for k in range(len(scope(site.above)), len(site.above)):
        stmt = site.above[k]
        if isinstance(stmt, For) and fits(stmt):
            return LoopSite(stmt, site.above[:k])
    return site


def used_by_others(stmt: Stmt, block: Block) -> frozenset[Buffer]:
    """The buffers that a statement reads or writes outside of a block in it."""
    others = [u.stmt for u in units(stmt) if u.stmt is not block]
    return frozenset(b for s in others for b in buffers_read(s) | buffers_written(s))


def step_of(site: BlockSite, loop: AnyLoop) -> StatementSite:
    """The statement in the body of a loop that holds a block; raises ScheduleError where the loop is not around it."""
    name = loop if isinstance(loop, str) else loop.name
    path = (*site.above, site.stmt)
    for k, stmt in enumerate(path):
        if isinstance(stmt, For) and stmt.var.name == name and stmt in site.loops:
            below = next(j for j in range(k + 1, len(path)) if isinstance(path[j], For | Block))
            return StatementSite(path[below], path[:below])
    listed = ", ".join(s.var.name for s in site.loops) or "none"
    raise ScheduleError(f"{name} is not around {site.stmt.name}; its loops are {listed}")


# ------------------------------------------------------------------ what may be copied


def _starts(nest: Nest, block: Block, buffer: Buffer, others: Iterable[str]) -> None:
    """Raises ScheduleError where a block reads of a buffer that it writes more than what its init wrote."""
    if buffer not in buffers_read(block):
        return
    for name in others:
        raise ScheduleError(f"{buffer.name} is written by {name} as well; use cache_write earlier")
    if block.init is None:
        raise ScheduleError(
            f"{block.name} goes on from what {buffer.name} held before, which a new buffer does not have"
        )
    if buffer in buffers_read(block.init):
        raise ScheduleError(
            f"the init of {block.name} goes on from what {buffer.name} held before, which a new buffer does not have"
        )
    axes = {a.var: a.extent for a in block.axes}
    started, limits = written_exactly(block.init, buffer, axes, f"by the init of {block.name}")
    read = read_box(inner(block), buffer, axes)
    outside = any(e.buffer == buffer for x in (*block.values, block.predicate) for e in loads_in(x))
    if outside or limits or (read is not None and not contains(started, read, axes)):
        raise ScheduleError(f"{block.name} reads more of {buffer.name} than its init writes")
    check_start(block, {v: Const(0) for x in block.values for v in variables(x)})


# ------------------------------------------------------------------ the copies


def _settled(region: BufferRegion, stmt: Stmt) -> BufferRegion:
    """The region, with all of a side that is found by elements which the statement changes, or may not reach."""
    written = buffers_written(stmt)
    guarded = any(isinstance(s, If) or (isinstance(s, Block) and s.predicate != TRUE) for s in statements(stmt))
    sides = []
    for side, size in zip(within(region).ranges, region.buffer.shape, strict=True):
        loaded = {e.buffer for x in (side.start, side.extent) for e in loads_in(x)}
        sides.append(Range(Const(0), size) if loaded & written or (loaded and guarded) else side)
    return BufferRegion(region.buffer, tuple(sides))


def _copy(
    exchange: Exchange,
    region: BufferRegion,
    limits: Iterable[Expr],
    around: dict[Var, Expr],
    names: set[str],
    *,
    out: bool,
) -> Stmt:
    """Loops and a block that copy a region of the new buffer, where limits on its indices hold, in or out."""
    new, old = exchange.new, exchange.old
    name = free_name(names, f"{old.name}_copy")
    loops: dict[Var, Expr] = {}
    axes: list[Axis] = []
    values: list[Expr] = []
    for k, (side, size) in enumerate(zip(region.ranges, new.shape, strict=True)):
        loop = Var(free_name(names, f"ax{k}"))
        loops[loop] = side.extent
        values.append(simplify(side.start + loop, {**around, **loops}))
        axes.append(Axis(Var(free_name(names, f"vax{k}")), size))
    where = tuple(a.var for a in axes)
    there = exchange.where(where)
    points: dict[Var, Expr] = dict(zip(where, values, strict=True))
    inside = {**around, **loops}
    reach = [*zip(values, new.shape, strict=True)]
    reach += [(simplify(substitute(i, points), inside), n) for i, n in zip(there, old.shape, strict=True)]
    conditions = [c for value, size in reach for c in (value >= 0, value < size)]
    conditions += [substitute(c, {index_at(k): v for k, v in enumerate(values)}) for c in limits]
    kept = dict.fromkeys(simplify(c, inside) for c in conditions if not prove(c, inside))
    plain = conjunction(*(c for c in kept if not loads_in(c)))
    predicate = short_circuit(plain, conjunction(*(c for c in kept if loads_in(c))))
    body = Store(old, there, Load(new, where)) if out else Store(new, where, Load(old, there))
    block = Block(name, tuple(axes), tuple(values), body, predicate=predicate)
    return wrapped([LoopSpec(var, extent) for var, extent in loops.items()], block)


def _with_copies(
    nest: Nest, at: Site, exchange: Exchange, before: list[Stmt], behind: list[Stmt]
) -> tuple[Nest, BlockRef]:
    """The nest with the changed block, and copies beside the statement at a place; and the first of these."""
    rewritten = replaced(nest, at, seq(*before, exchange.within(at.stmt), *behind))
    rewritten = replace(rewritten, allocs=(*rewritten.allocs, exchange.new))
    names = [b.name for s in (*before, *behind) for b in blocks(s)]
    return refreshed(rewritten, [exchange.block.name, *names]), BlockRef(names[0])
