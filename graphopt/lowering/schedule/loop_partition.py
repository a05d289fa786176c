"""Loop partitioning: the steps of a loop for which conditions hold apart from the others, which go on testing them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.lowering.analysis.block_refs import (
    BlockRef,
    BlockSite,
    LoopRef,
    LoopSite,
    extents_around,
    find_block,
    find_place,
    free_name,
    names_in,
    primitive,
    replaced,
    with_free_names,
)
from graphopt.lowering.analysis.loop_partition import clipped, conditions, steps_within
from graphopt.lowering.analysis.regions import refreshed
from graphopt.lowering.index.arithmetic import prove, simplify
from graphopt.lowering.index.comparisons import comparisons
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Var, apply, conjuncts, substitute, variables
from graphopt.lowering.loops.nest import (
    Block,
    For,
    If,
    Nest,
    Seq,
    Stmt,
    blocks,
    inner,
    map_expressions,
    mutate,
    seq,
    statements,
    with_inner,
)
from graphopt.lowering.schedule.loop_transforms import rebind


@primitive
def loop_partition(
    nest: Nest, within: BlockRef | LoopRef | str
) -> tuple[Nest, tuple[LoopRef, ...] | tuple[BlockRef, ...]]:
    """Split the range of a loop where conditions begin or cease to hold: the steps in between do not test them.

    Conditions are those of blocks (``where``), of branches, and of choices (``select``); a part of the range in which
    nothing runs is left out. Returns the loops of the parts, in order. For a block, loops around it are split as far as
    conditions on it are about them, and the blocks of the parts are returned.
    Before::

        for i0, i1 in grid(3, 4):
            with block("B"):
                v0 = axis.spatial(10, i0 * 4 + i1)
                where(i0 * 4 + i1 < 10)
                B[v0] = A[v0] + 1.0

    After ``s.loop_partition("i0")``::

        for i0, i1 in grid(2, 4):
            with block("B"):
                v0 = axis.spatial(10, i0 * 4 + i1)
                B[v0] = A[v0] + 1.0
        for i0_tail, i1_tail in grid(1, 4):
            with block("B_tail"):
                v0_tail = axis.spatial(10, i1_tail + 8)
                where(i1_tail < 2)
                B[v0_tail] = A[v0_tail] + 1.0

    Before::

        for i0, i1 in grid(3, 4):
            with block("B"):
                v0 = axis.spatial(10, i0 * 4 + i1)
                where(i0 * 4 + i1 < 10)
                B[v0] = A[v0] + 1.0

    After ``s.loop_partition("B")``::

        for i0, i1 in grid(2, 4):
            with block("B"):
                v0 = axis.spatial(10, i0 * 4 + i1)
                B[v0] = A[v0] + 1.0
        for i0_tail, i1_tail in grid(1, 2):
            with block("B_tail"):
                v0_tail = axis.spatial(10, i1_tail + 8)
                B[v0_tail] = A[v0_tail] + 1.0
    """
    # As TVM's pass LoopPartition: the range in which conditions hold for all steps of inner loops comes of bounds.
    site = find_place(nest, within)
    if isinstance(site, LoopSite):
        made = _partitioned(nest, site, None)
        return made.nest, tuple(map(LoopRef, made.loops))
    name = site.stmt.name
    todo, done, final, is_split = [name], list[str](), set[str](), False
    while todo:
        split = _split_around(nest, find_block(nest, todo[0]), final)
        if split is None:
            done.append(todo.pop(0))
        else:
            nest, is_split = split.nest, True
            todo[:1] = split.copies[todo[0]]
    if not is_split:
        raise ScheduleError(f"{name}: no condition on it begins or ceases to hold along one of its loops")
    return nest, tuple(map(BlockRef, done))


@dataclass(frozen=True, slots=True)
class _Partition:
    """The nest with the parts of a loop, their loops in order, and the blocks that each of its blocks became."""

    nest: Nest
    loops: tuple[str, ...]
    copies: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class _Guard:
    """A condition within a loop, as it is written there and by the loops, and the loops around it within that one."""

    written: Expr
    by_loops: Expr
    inside: Mapping[Var, Expr]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of a loop's range, of so many steps from ``start`` on: the ``head``, the ``tail``, or what is between
    (no suffix). Conditions that are ``told`` hold in all steps between, and in none of the head or tail."""

    suffix: str
    start: Expr
    extent: Expr
    told: set[Expr]


def _split_around(nest: Nest, site: BlockSite, final: set[str]) -> _Partition | None:
    """The partition of the outermost loop around a block that can be split for it. Parts of a loop that are of open
    size are ``final``: without numbers, nobody can tell when there is nothing left to split."""
    for depth, above in enumerate(site.above):
        if above in site.loops and isinstance(above, For) and above.var.name not in final:
            try:
                made = _partitioned(nest, LoopSite(above, site.above[:depth]), site.stmt)
            except ScheduleError:
                continue
            if not isinstance(above.extent, Const):
                final.update(made.loops)
            return made
    return None


def _partitioned(nest: Nest, site: LoopSite, block: Block | None) -> _Partition:
    """The partition of a loop by its conditions, or by those on one of its blocks."""
    loop, around = site.stmt, extents_around(site.above)
    names, block_names = names_in(nest), {b.name for b in blocks(nest.body)}
    copies: dict[str, list[str]] = {b.name: [] for b in blocks(loop.body)}
    parts: list[Stmt] = []
    loops: list[str] = []
    for piece in _pieces(loop, around, block):
        suffix, start, extent = piece.suffix, piece.start, piece.extent
        part = replace(loop, body=_told(loop.body, piece.told, not suffix))
        part = replace(part, body=_started(part.body, {loop.var: loop.var + start}, {**around, loop.var: extent}))
        renamed = {b: b for b in copies}
        if suffix:
            part, renamed = _renamed(part, suffix, names, block_names)
        inside = {**around, part.var: extent}
        body: Stmt | None = rebind(part.body, {part.var: simplify(part.var + start, inside)}, inside)
        if suffix and body is not None:
            body = _decided(body, {}, inside)
        if body is not None:
            left = {b.name for b in blocks(body)}
            for old, new in renamed.items():
                copies[old] += [new] if new in left else []
            parts.append(replace(part, extent=extent, body=body))
            loops.append(part.var.name)
    after = replaced(nest, site, seq(*parts))
    return _Partition(refreshed(after, [new for made in copies.values() for new in made]), tuple(loops), copies)


def _pieces(loop: For, around: Mapping[Var, Expr], block: Block | None) -> Iterator[_Piece]:
    """The pieces of a loop's range by its conditions, or by those on one of its blocks; raises ScheduleError."""
    name = loop.var.name
    if loop.kind == "bound":
        raise ScheduleError(f"{name} is bound to {loop.thread}, which runs all of its range; partition it before")
    ranges: dict[Expr, dict[tuple[Expr, Expr] | None, None]] = {}
    unclear: set[Expr] = set()  # conditions that hold in some more steps, for some steps of inner loops
    for guard in _guards(loop.body, {}, {}, block):
        if loop.var in variables(guard.by_loops):
            ranges.setdefault(guard.written, {})[steps_within(guard.by_loops, loop, guard.inside, around)] = None
            if variables(guard.by_loops) & guard.inside.keys() or not list(comparisons(guard.by_loops)):
                unclear.add(guard.written)
    known = {c for c, found in ranges.items() if None not in found}
    if not known:
        raise ScheduleError(f"{name}: no condition in it begins or ceases to hold along it")
    held = [(c, r) for c, found in ranges.items() if c in known for r in found if r is not None]
    first, end = clipped(loop, [r for _, r in held], around)
    if prove(end <= first, around):
        raise ScheduleError(f"{name}: its conditions hold together in none of its steps")
    before = [c for c, (low, _) in held if low != Const(0)]
    behind = [c for c, (_, high) in held if high != loop.extent]

    def failing(limiting: list[Expr]) -> set[Expr]:  # a condition that alone ends the range holds nowhere beyond
        return set(limiting) - unclear if len(limiting) == 1 else set()

    pieces = [("head", Const(0), first, failing(before)), ("", first, end, known)]
    for suffix, start, stop, told in (*pieces, ("tail", end, loop.extent, failing(behind))):
        extent = simplify(stop - start, around)
        if not prove(extent <= 0, around):
            yield _Piece(suffix, start, extent, told)


def _guards(
    stmt: Stmt, values: Mapping[Var, Expr], inside: Mapping[Var, Expr], block: Block | None
) -> Iterator[_Guard]:
    """The conditions within the body of a loop; with a block, those on that block."""
    if block is not None and not any(s is block for s in statements(stmt)):
        return
    if isinstance(stmt, If):
        for condition in conjuncts(stmt.condition):
            yield _Guard(condition, substitute(condition, values), inside)
    elif isinstance(stmt, Block):
        for condition in conjuncts(stmt.predicate):
            yield _Guard(condition, substitute(condition, values), inside)
        bound = {a.var: substitute(v, values) for a, v in zip(stmt.axes, stmt.values, strict=True)}
        values, block = {**values, **bound}, None
        if not any(isinstance(s, Block) for part in inner(stmt) for s in statements(part)):
            extents = {**inside, **extents_around(s for s in statements(stmt.body) if isinstance(s, For))}
            for condition in conditions(stmt):
                yield _Guard(condition, substitute(condition, values), extents)
            return
    elif isinstance(stmt, For):
        inside = {**inside, stmt.var: substitute(stmt.extent, values)}
    for child in inner(stmt):
        yield from _guards(child, values, inside, block)


def _told(stmt: Stmt, known: set[Expr], hold: bool) -> Stmt:
    """The statement where these conditions hold, or do not."""
    stmt = map_expressions(stmt, lambda e: Const(hold, "bool") if e in known else None)
    return mutate(stmt, lambda s: s.then if isinstance(s, If) and s.condition == Const(True, "bool") else None)


def _renamed(loop: For, suffix: str, names: set[str], block_names: set[str]) -> tuple[For, dict[str, str]]:
    """A copy of a loop under names of its own, and the names of its blocks."""
    renamed = {b: free_name(block_names, f"{b}_{suffix}") for b in dict.fromkeys(b.name for b in blocks(loop))}
    copy = with_free_names(loop, names, f"_{suffix}")
    copy = mutate(copy, lambda s: replace(s, name=renamed[s.name]) if isinstance(s, Block) else None)
    assert isinstance(copy, For)
    return copy, renamed


def _started(stmt: Stmt, step: Mapping[Var, Expr], around: Mapping[Var, Expr]) -> Stmt:
    """The statement in a part of a loop, whose steps these are, without inits that run in an earlier part; raises
    ScheduleError where that is not told."""
    if isinstance(stmt, Block) and stmt.init is not None:
        pairs = zip(stmt.axes, stmt.values, strict=True)
        reduced = [v for a, v in pairs if a.kind == "reduce" and variables(v) & step.keys()]
        if any(prove(substitute(v, step) >= 1, around) for v in reduced):
            return replace(stmt, init=None)
        if reduced and any(var != value for var, value in step.items()):
            (loop,) = step
            raise ScheduleError(
                f"{stmt.name} may begin to reduce in any part of {loop.name}; decompose_reduction before"
            )
    extents = {**around, **extents_around([stmt])}
    below = inner(stmt)
    after = tuple(_started(child, step, extents) for child in below)
    return with_inner(stmt, after) if any(a is not b for a, b in zip(below, after, strict=True)) else stmt


def _decided(stmt: Stmt, values: Mapping[Var, Expr], around: Mapping[Var, Expr]) -> Stmt | None:
    """The statement with conditions decided where possible; None where nothing of it runs."""
    if isinstance(stmt, For):
        body = _decided(stmt.body, values, {**around, stmt.var: substitute(stmt.extent, values)})
        return None if body is None or prove(stmt.extent <= 0, around) else replace(stmt, body=body)
    if isinstance(stmt, Seq):
        kept = [made for s in stmt.stmts if (made := _decided(s, values, around)) is not None]
        return seq(*kept) if kept or not stmt.stmts else None
    if isinstance(stmt, If):
        condition = simplify(substitute(stmt.condition, values), around)
        then = None if condition == Const(False, "bool") else _decided(stmt.then, values, around)
        other = stmt.otherwise and _decided(stmt.otherwise, values, around)
        if condition == Const(True, "bool"):
            return then
        if then is None:
            return other and (If(apply("not", stmt.condition), other) if condition != Const(False, "bool") else other)
        return replace(stmt, then=then, otherwise=other)
    if isinstance(stmt, Block):
        predicate = simplify(substitute(stmt.predicate, values), around)
        if predicate == Const(False, "bool"):
            return None
        bound = {a.var: substitute(v, values) for a, v in zip(stmt.axes, stmt.values, strict=True)}
        extents = {**around, **extents_around(s for s in statements(stmt.body) if isinstance(s, For))}
        told = {c: simplify(substitute(c, {**values, **bound}), extents) for c in conditions(stmt)}
        known = {c: value for c, value in told.items() if isinstance(value, Const)}
        body = map_expressions(stmt.body, lambda e: known.get(e) if isinstance(e, Apply) else None)
        return replace(stmt, body=body, predicate=stmt.predicate if values else predicate)
    return stmt
