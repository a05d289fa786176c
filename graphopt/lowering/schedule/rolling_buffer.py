"""Rolling buffers: a window of a buffer that moves along with a loop, in memory for that window alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.lowering.analysis.block_refs import (
    AnyBlock,
    BlockSite,
    extents_around,
    find_block,
    primitive,
    replaced,
)
from graphopt.lowering.analysis.dataflow import Unit, buffers_read, buffers_written, reindexed, units
from graphopt.lowering.analysis.dependence import owner, private_scopes
from graphopt.lowering.analysis.iteration_domains import box_written, only_bounded
from graphopt.lowering.analysis.regions import lives_within, refreshed
from graphopt.lowering.index.arithmetic import affine, prove, ranges_over, simplify
from graphopt.lowering.loops.expressions import Const, Expr, Var, apply, conjunction, loads_in, substitute, variables
from graphopt.lowering.loops.nest import (
    Block,
    Buffer,
    BufferRegion,
    For,
    If,
    Invoke,
    Nest,
    Stmt,
    Store,
    blocks,
    expressions,
    inner,
    statements,
)
from graphopt.lowering.schedule.cache import owned


@primitive
def rolling_buffer(nest: Nest, block: AnyBlock, buffer: int | str = 0) -> tuple[Nest, None]:
    """Keep what the block writes for the next step of a loop, and compute only what that does not have yet.

    In each step of the loop, the outermost for which this holds, a window of the buffer is written that overlaps with
    that of the step before. The buffer shrinks to the window along the axis on which it moves, and is used in circles:
    the index there becomes its remainder by the window's size. The buffer (by name or position) lives only within the
    loop.
    Before::

        B = alloc((18,), "float32")
        for i0 in serial(4):
            for ax0 in serial(6):
                with block("B"):
                    v0 = axis.spatial(18, i0 * 4 + ax0)
                    B[v0] = A[v0] + 1.0
            for i1 in serial(4):
                with block("C"):
                    v1 = axis.spatial(16, i0 * 4 + i1)
                    C[v1] = B[v1] + B[v1 + 1] + B[v1 + 2]

    After ``s.rolling_buffer("B")``::

        B = alloc((6,), "float32")
        for i0 in serial(4):
            for ax0 in serial(6):
                with block("B"):
                    v0 = axis.spatial(18, i0 * 4 + ax0)
                    where(i0 < 1 or ax0 >= 2)
                    B[v0 % 6] = A[v0] + 1.0
            for i1 in serial(4):
                with block("C"):
                    v1 = axis.spatial(16, i0 * 4 + i1)
                    C[v1] = B[v1 % 6] + B[(v1 + 1) % 6] + B[(v1 + 2) % 6]
    """
    # As TVM's rolling_buffer: find the outermost loop whose windows overlap, take the index along it modulo the window,
    # and compute what is new in the window.
    site = find_block(nest, block)
    old = owned(nest, block, buffer, "which others see whole; use cache_write")
    _alone(nest, site, old)
    window, reasons = None, list[ScheduleError]()
    for loop in (s for s in site.loops if s.kind in ("serial", "unrolled")):
        try:
            window = _Window.of(nest, site, loop, old)
            break
        except ScheduleError as error:
            reasons.append(error)
    if window is None:
        raise reasons[0] if reasons else ScheduleError(f"no loop around {site.stmt.name} is serial")
    side, size = window.side, window.size
    new = replace(old, shape=(*old.shape[:side], size, *old.shape[side + 1 :]))

    def where(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*indices[:side], indices[side] % size, *indices[side + 1 :])

    users = [b.name for b in blocks(nest.body) if old in buffers_read(b) | buffers_written(b)]
    after = replaced(nest, site, replace(site.stmt, predicate=conjunction(site.stmt.predicate, window.fresh)))
    allocs = tuple(new if b == old else b for b in nest.allocs)
    return refreshed(replace(after, body=reindexed(after.body, old, new, where), allocs=allocs), users), None


@dataclass(frozen=True, slots=True)
class _Window:
    """The window of a buffer that a step of a loop writes: of this size along one axis, else the same in all steps;
    ``fresh`` says, by the loops around the block, that an element is not in the window before."""

    side: int
    size: Expr
    fresh: Expr

    @staticmethod
    def of(nest: Nest, site: BlockSite, loop: For, buffer: Buffer) -> _Window:
        """The window along a loop; raises ScheduleError."""
        name, stmt = loop.var.name, site.stmt
        above = (*site.above[: site.above.index(loop)], loop)
        around = extents_around(above)
        _same_again(nest, loop, Unit(stmt, site.above), around)
        _apart(above, buffer)
        region = box_written(loop.body, buffer, around, f"in a step of {name}")
        side, step = _moving(region, loop, around)
        size = region.ranges[side].extent
        if not prove(size > step, around):
            raise ScheduleError(f"the windows of {buffer.name} in two steps of {name} do not overlap")
        if prove(size >= buffer.shape[side], around):
            raise ScheduleError(f"the window of {buffer.name} in a step of {name} is all of its axis {side}")
        values = dict(zip((a.var for a in stmt.axes), stmt.values, strict=True))
        index = substitute(_store_of(stmt, buffer).indices[side], values)
        is_new = index >= region.ranges[side].start + (size - step)
        inside = extents_around(site.above)
        return _Window(side, size, apply("or", loop.var < 1, simplify(is_new, inside)))


def _alone(nest: Nest, site: BlockSite, buffer: Buffer) -> None:
    """Raises ScheduleError where anything but the block writes the buffer, or uses it as a region."""
    stmt = site.stmt
    for unit in units(nest.body):
        if buffer in buffers_written(unit.stmt) and not any(s is stmt for s in statements(unit.stmt)):
            raise ScheduleError(f"{buffer.name} is written by {unit.name} as well")
    for s in statements(nest.body):
        if isinstance(s, Invoke) and any(isinstance(a, BufferRegion) and a.buffer == buffer for a in s.args):
            raise ScheduleError(f"{s.intrinsic} takes a region of {buffer.name}, which would be in two pieces")
    if buffers_written(stmt) != {buffer}:
        raise ScheduleError(f"{stmt.name} writes other buffers as well")
    if buffer.strides is not None:
        raise ScheduleError(f"{buffer.name} has strides; use storage_align after")
    if len({s.indices for part in inner(stmt) for s in statements(part) if isinstance(s, Store)}) > 1:
        raise ScheduleError(f"{stmt.name} writes several elements of {buffer.name} at a time")


def _store_of(block: Block, buffer: Buffer) -> Store:
    return next(s for s in statements(block.body) if isinstance(s, Store) and s.buffer == buffer)


def _apart(above: Sequence[Stmt], buffer: Buffer) -> None:
    """Raises ScheduleError where steps of a loop outside that run at once would share the window."""
    for loop in above:
        if not isinstance(loop, For) or loop.kind in ("serial", "unrolled"):
            continue
        if buffer.scope not in private_scopes(loop.thread):
            raise ScheduleError(f"steps of {loop.var.name} run at once, and would share {buffer.name}; use set_scope")


def _moving(region: BufferRegion, loop: For, around: Mapping[Var, Expr]) -> tuple[int, int]:
    """The axis along which a box moves with the steps of a loop, and by how much; raises ScheduleError."""
    name = region.buffer.name
    sides = [k for k, r in enumerate(region.ranges) if loop.var in variables(r.start) | variables(r.extent)]
    if not sides:
        raise ScheduleError(f"each step of {loop.var.name} writes the same elements of {name}")
    if any(loads_in(r.start) | loads_in(r.extent) for r in region.ranges):
        raise ScheduleError(f"elements say where the window of {name} is")
    linear = affine(region.ranges[sides[0]].start, [loop.var], around)
    step = None if linear is None else linear.coefficients[loop.var]
    if len(sides) > 1 or loop.var in variables(region.ranges[sides[0]].extent) or not isinstance(step, Const):
        raise ScheduleError(f"the window of {name} does not move along one axis with {loop.var.name}")
    if step.value < 1:
        raise ScheduleError(f"the window of {name} moves backwards with {loop.var.name}")
    return sides[0], int(step.value)


def _same_again(nest: Nest, loop: For, unit: Unit, around: dict[Var, Expr]) -> None:
    """Raises ScheduleError where an element that a block writes in several steps of a loop may differ between them, or
    may be read where a step did not write it."""
    block = unit.stmt
    if not isinstance(block, Block) or any(isinstance(s, Block) for s in statements(block.body)):
        raise ScheduleError(f"{unit.name} writes within {loop.var.name}, and is no plain block")
    position = unit.above.index(loop)
    inside = unit.above[position + 1 :]
    if any(isinstance(s, If) for s in inside):
        raise ScheduleError(f"{block.name} runs in a branch within {loop.var.name}")
    only_bounded(block, unit.above)
    written = buffers_written(block)
    for buffer in sorted(written, key=lambda b: b.name):
        lives_within(nest, buffer, loop, around)
    outer = {s.var for s in unit.above[: position + 1] if isinstance(s, For)}
    axes = {a.var: a.extent for a in block.axes}
    facts = ranges_over({**extents_around(unit.above), **axes})
    stores = [s for part in inner(block) for s in statements(part) if isinstance(s, Store)]
    for axis, value in zip(block.axes, block.values, strict=True):
        if axis.kind != "spatial":
            if variables(value) & outer:
                raise ScheduleError(f"{block.name} goes on to reduce in steps of {loop.var.name}, or around it")
        elif axis.extent != Const(1) and any(owner(axis.var, s.indices, axes, facts) is None for s in stores):
            raise ScheduleError(f"{block.name} writes elements that do not tell its {axis.var.name}: they may change")
    here = {s.var for s in inside if isinstance(s, For)} | {loop.var}
    parts = [s for part in inner(block) for s in statements(part)]
    if any(variables(e) & here for s in parts for e in expressions(s)):
        raise ScheduleError(f"{block.name} names loops around it, and not its axes")
    beside = list(units(loop.body, (*unit.above[:position], loop)))
    place = next(k for k, u in enumerate(beside) if u.stmt is block)
    for k, other in enumerate(beside):
        if other.stmt is not block and buffers_written(other.stmt) & buffers_read(block):
            if k > place:
                raise ScheduleError(f"{other.name} behind {block.name} changes what that reads")
            _same_again(nest, loop, other, around)
