"""Iteration domains: the points of a block's axes that write, or read, a box of elements, for moving blocks under
loops.

A domain says where some axes of a block are, by the loops around the place where it is to run; the
others are there from end to end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import extents_around, paths
from graphopt.lowering.analysis.dataflow import AccessSet, accesses_in, buffers_written
from graphopt.lowering.analysis.dependence import at, owner
from graphopt.lowering.analysis.regions import box, contains, within
from graphopt.lowering.index.arithmetic import affine, bounds, prove, ranges_over, simplify
from graphopt.lowering.loops.expressions import (
    COMPARISONS,
    INDEX,
    Apply,
    Const,
    Expr,
    Var,
    apply,
    conjuncts,
    loads_in,
    substitute,
    variables,
    walk,
)
from graphopt.lowering.loops.nest import (
    Axis,
    Block,
    Buffer,
    BufferRegion,
    For,
    If,
    Invoke,
    Range,
    Stmt,
    Store,
    expressions,
    inner,
    statements,
)

Domain: TypeAlias = dict[Var, Range]


def narrow(domain: Domain, block: Block, where: Sequence[Expr], region: BufferRegion) -> None:
    """Narrows the domain of a block's axes to what writes the region; axes of which nothing is known keep theirs."""
    for index, side, size in zip(where, region.ranges, region.buffer.shape, strict=True):
        if side == Range(Const(0), size):
            continue
        axis_range = _axis_range(index, side)
        if axis_range is not None and axis_range[0] not in domain and any(a.var == axis_range[0] for a in block.axes):
            domain[axis_range[0]] = axis_range[1]


def _axis_range(index: Expr, side: Range) -> tuple[Var, Range] | None:
    """The axis in an index, and where it has to be for the index to be on that side of a box."""
    if isinstance(index, Var):
        return index, side
    if isinstance(index, Apply) and isinstance(n := index.args[-1], Const) and isinstance(v := index.args[0], Var):
        if index.fn == "add":
            return v, Range(side.start - n, side.extent)
        if index.fn == "floordiv" and int(n.value) > 0:
            return v, Range(side.start * n, side.extent * n)
    return None


def match(
    domain: Domain, block: Block, where: Sequence[Expr], region: BufferRegion, around: Mapping[Var, Expr]
) -> None:
    """Narrows the domain of a block's axes to the points that read only within a region."""
    name = region.buffer.name
    for index, side, size in zip(where, region.ranges, region.buffer.shape, strict=True):
        whole = prove(side.start <= 0, around) and prove(side.start + side.extent >= size, around)
        free = not variables(index)
        if whole or (free and prove(side.start <= index, around) and prove(index < side.start + side.extent, around)):
            continue
        axis_range = _axis_range(index, side)
        if axis_range is None:
            raise ScheduleError(f"{block.name} does not read {name} at just its own axes, and so not in one step")
        var, wanted = (
            axis_range[0],
            Range(simplify(axis_range[1].start, around), simplify(axis_range[1].extent, around)),
        )
        if domain.setdefault(var, wanted) != wanted:
            raise ScheduleError(f"{block.name} reads elements of {name} that are made in different steps")


def box_written(stmt: Stmt, buffer: Buffer, around: Mapping[Var, Expr], when: str) -> BufferRegion:
    """The box of a buffer that a statement writes completely; raises ScheduleError where it may have gaps.

    ``when`` completes the message.
    """
    writes = [access for access, _ in _conditional_writes(stmt, buffer, around)]
    if not all(_is_dense(a, around) for a in writes):
        raise ScheduleError(f"what is written of {buffer.name} {when} may have gaps")
    boxes = [r for a in writes if (r := box([a], around)) is not None]
    largest = next((r for r in boxes if all(contains(r, other, around) for other in boxes)), None)
    if largest is None:
        raise ScheduleError(f"no block alone writes all of {buffer.name} that is written {when}")
    return within(largest)


def written_exactly(
    stmt: Stmt, buffer: Buffer, around: Mapping[Var, Expr], when: str
) -> tuple[BufferRegion, tuple[Expr, ...]]:
    """The elements of a buffer that a statement writes: those of a box at which conditions on their indices, ``at(k)``,
    hold; raises ScheduleError where no such box was found.

    Loops that move no index are taken to run at least once. ``when`` completes the message.
    """
    region = box_written(stmt, buffer, around, when)
    found = {_limits(access, conditions, around) for access, conditions in _conditional_writes(stmt, buffer, around)}
    if len(found) > 1:
        raise ScheduleError(f"what is written of {buffer.name} {when} is written under several conditions")
    limits = found.pop()
    told = [*limits, *(e for side in region.ranges for e in (side.start, side.extent))]
    changed = {e.buffer for expr in told for e in loads_in(expr)} & buffers_written(stmt)
    if changed:
        name = min(b.name for b in changed)
        raise ScheduleError(f"what is written of {buffer.name} {when} depends on {name}, which is written there too")
    return region, limits


def _conditional_writes(
    stmt: Stmt, buffer: Buffer, around: Mapping[Var, Expr]
) -> Iterator[tuple[AccessSet, list[Expr]]]:
    """The writes of a buffer within a statement, each with the conditions under which it is done, over loops.

    An axis that loops run from end to end, and a condition ends, is a loop itself. A loop that other loops end is one
    of its greatest extent, and a condition.
    """
    for part, above in paths(stmt):
        if not isinstance(part, Store | Invoke) or buffer not in buffers_written(part):
            continue
        values: dict[Var, Expr] = {}
        extents: dict[Var, Expr] = {}
        conditions: list[Expr] = []
        for outer, below in pairwise((*above, part)):
            if isinstance(outer, For):
                extents[outer.var], ends = _evened(outer.var, substitute(outer.extent, values), {**around, **extents})
                conditions += ends
            elif isinstance(outer, Block):
                values |= {a.var: substitute(v, values) for a, v in zip(outer.axes, outer.values, strict=True)}
                conditions += conjuncts(simplify(substitute(outer.predicate, values), {**around, **extents}))
                for axis in _ended(outer, values, conditions, extents, around):
                    values[axis.var] = axis.var
                    extents[axis.var] = axis.extent
            elif isinstance(outer, If):
                condition = substitute(outer.condition, values)
                conditions.append(condition if outer.then is below else apply("not", condition))
        for access in accesses_in(part, values, extents):
            if access.is_write and access.buffer == buffer:
                yield access, conditions


def _evened(var: Var, extent: Expr, outside: Mapping[Var, Expr]) -> tuple[Expr, list[Expr]]:
    """The greatest extent of a loop over what is around it, and the conditions that end it earlier."""
    moving = {v: n for v, n in outside.items() if v in variables(extent)}
    reach = bounds(extent, outside) if moving else None
    if reach is None:
        return extent, []
    parts, ends = [extent], list[Expr]()
    while parts:
        part = parts.pop()
        if isinstance(part, Apply) and part.fn == "min":
            parts += part.args
        else:
            ends.append(simplify(apply("lt", var, part), {**outside, var: reach[1]}))
    return reach[1], [c for c in ends if not prove(c, {**outside, var: reach[1]})]


def _ended(
    block: Block,
    values: Mapping[Var, Expr],
    conditions: list[Expr],
    extents: Mapping[Var, Expr],
    around: Mapping[Var, Expr],
) -> list[Axis]:
    """The axes of a block that run from end to end, each by loops of its own, because a condition ends them; takes that
    out of the conditions."""
    inside = {**around, **extents}
    within_block = [e for child in inner(block) for s in statements(child) for e in expressions(s)]
    found = []
    for axis in block.axes:
        value = values[axis.var]
        ends = set(conjuncts(simplify(value < axis.extent, inside)))
        others = [*(values[a.var] for a in block.axes if a != axis), *(c for c in conditions if c not in ends)]
        others += within_block
        own = variables(value) - {v for e in others for v in variables(e)}
        ragged = variables(axis.extent) & inside.keys()
        if ragged or not ends & set(conditions) or not variables(value) <= own & extents.keys():
            continue
        if not _is_dense(AccessSet(Buffer("", ()), (value,), False, extents), around):
            continue
        reach = bounds(value, extents, around)
        if reach and prove(reach[0] <= 0, around) and prove(reach[1] >= axis.extent - 1, around):
            conditions[:] = [c for c in conditions if c not in ends]
            found.append(axis)
    return found


def _limits(access: AccessSet, conditions: Iterable[Expr], around: Mapping[Var, Expr]) -> tuple[Expr, ...]:
    """The conditions on the indices, ``at(k)``, under which an access is done; raises ScheduleError where they are
    about something else."""
    moving = {v for i in access.indices for v in variables(i)}
    everything = {**around, **access.extents}
    limits: list[Expr] = []
    for condition in (c for whole in conditions for c in conjuncts(simplify(whole, everything))):
        running = variables(condition) & access.extents.keys()
        if not running:
            limits.append(condition)
        elif running & moving or not prove(substitute(condition, {v: Const(0) for v in running}), around):
            limits.append(_by_index(condition, access, everything))
    return tuple(dict.fromkeys(limits))


def _by_index(condition: Expr, access: AccessSet, around: Mapping[Var, Expr]) -> Expr:
    """The condition as one on an index of the access."""
    if isinstance(condition, Apply) and condition.fn in COMPARISONS and condition.args[0].dtype == INDEX:
        a, b = condition.args
        for k, index in enumerate(access.indices):
            upper, lower = simplify(b - a + index, around), simplify(a - b + index, around)
            if not variables(upper) & access.extents.keys():
                return apply(condition.fn, at(k), upper)
            if not variables(lower) & access.extents.keys():
                return apply(condition.fn, lower, at(k))
    raise ScheduleError(f"{access.buffer.name} is written only where a condition holds that is not about its indices")


def only_bounded(block: Block, above: Sequence[Stmt]) -> None:
    """Raises ScheduleError where a block's predicate says more than that its axes stay within their extents."""
    around = extents_around(above)
    bounds = {simplify(v < a.extent, around) for a, v in zip(block.axes, block.values, strict=True)}
    bounds |= {simplify(v >= 0, around) for v in block.values}
    bounds = {part for condition in bounds for part in conjuncts(condition)}
    moved = frozenset(x for v in block.values for x in variables(v))
    for condition in set(conjuncts(block.predicate)) - bounds:
        idle = variables(condition) & around.keys()
        # loops that move no axis do the same thing again: it is enough that it is done where they start
        if prove(condition, around) or (
            not idle & moved and prove(substitute(condition, {v: Const(0) for v in idle}), around)
        ):
            continue
        raise ScheduleError(f"{block.name} runs only where a condition holds that is not about the ends of its axes")


def check_extents(block: Block, axes: Iterable[Axis], known: Collection[Var]) -> None:
    """Raises ScheduleError where extents of a block's axes change with other variables than the known ones."""
    others = {v.name for a in axes for v in variables(a.extent) if v not in known}
    if others:
        raise ScheduleError(f"how long an axis of {block.name} is changes with {min(others)}")


def check_start(block: Block, first: Mapping[Var, Expr]) -> None:
    """Raises ScheduleError where a block's reduction does not start at the first steps of loops, which are given."""
    for axis, value in zip(block.axes, block.values, strict=True):
        if axis.kind == "reduce" and simplify(substitute(value, first), {}) != Const(0):
            raise ScheduleError(f"{block.name} does not start where its loops do: {axis.var.name} is not 0 there")


def check_covered(stmt: Stmt, reader: Block, buffer: Buffer, around: Mapping[Var, Expr], where: str) -> None:
    """Checks that a statement writes all that a block reads of a buffer; raises ScheduleError where it does not, or
    where the block may not read all that it names (loads behind a condition may lie outside of the buffer)."""
    axes = {a.var: a.extent for a in reader.axes}
    reads = (a for s in inner(reader) for a in accesses_in(s, {}, axes) if a.buffer == buffer and not a.is_write)
    read = box(reads, around)
    everything = BufferRegion(buffer, tuple(Range(Const(0), n) for n in buffer.shape))
    if read is None or not contains(everything, read, around):
        raise ScheduleError(f"{reader.name} may not read all that it names of {buffer.name}")
    if not contains(box_written(stmt, buffer, around, where), read, around):
        raise ScheduleError(f"{reader.name} reads more of {buffer.name} than is written {where}")


def _is_dense(access: AccessSet, around: Mapping[Var, Expr]) -> bool:
    """Whether an access reaches all elements of the box around them."""
    indices, extents = _divided(access.indices, access.extents)
    inside = {**around, **extents}
    used: set[Var] = set()
    for index in indices:
        linear = affine(index, extents, inside)
        vars = variables(index) & extents.keys()
        if linear is None or vars & used or any(variables(extents[v]) & extents.keys() for v in vars):
            return False
        used |= vars
        steps = [(linear.coefficients[v], extents[v]) for v in vars if extents[v] != Const(1)]
        numbers = sorted(((abs(int(c.value)), n) for c, n in steps if isinstance(c, Const)), key=lambda s: s[0])
        if len(numbers) < len(steps) or not _gapless(numbers, 1):
            return False
    return True


def _gapless(steps: Sequence[tuple[int, Expr]], reach: int) -> bool:
    """Whether sums of so many multiples of each number, smallest first, are all numbers from 0 up to some."""
    for k, (step, extent) in enumerate(steps):
        if step < 1 or step > reach:
            return False
        if isinstance(extent, Const):
            reach += step * (int(extent.value) - 1)
        elif k + 1 < len(steps):
            return False
    return True


def _divided(indices: Sequence[Expr], extents: Mapping[Var, Expr]) -> tuple[tuple[Expr, ...], dict[Var, Expr]]:
    """The indices with a loop that is divided into quotient and remainder as two loops."""
    sizes = dict(extents)
    for index in indices:
        for e in _divisions(index):
            v, n = e.args
            size = sizes.get(v) if isinstance(v, Var) else None
            if (
                isinstance(size, Const)
                and isinstance(n, Const)
                and int(n.value) > 0
                and int(size.value) % int(n.value) == 0
            ):
                assert isinstance(v, Var)
                high, low = Var(f"{v.name}//"), Var(f"{v.name}%")
                sizes.pop(v)
                sizes |= {high: Const(int(size.value) // int(n.value)), low: n}
                split = tuple(simplify(substitute(i, {v: high * n + low}), sizes) for i in indices)
                return _divided(split, sizes)
    return tuple(indices), sizes


def _divisions(expr: Expr) -> list[Apply]:
    return [e for e in walk(expr) if isinstance(e, Apply) and e.fn in ("floordiv", "mod")]


def are_disjoint(
    sides: Sequence[Range], loops: Sequence[For], running: Mapping[Var, Expr], around: Mapping[Var, Expr]
) -> bool:
    """Whether the boxes of different steps of loops never overlap: every point tells the steps that it belongs to.

    The box moves with the variables that are ``running``, which the loops' are among.
    """
    steps = {Var(f"@step{k}"): side.extent for k, side in enumerate(sides)}
    varying = {**running, **steps}
    facts = ranges_over({**around, **varying})
    points = [side.start + step for side, step in zip(sides, steps, strict=True)]
    return all(s.extent == Const(1) or owner(s.var, points, varying, facts) is not None for s in loops)
