"""Loop transformations: split, fuse, reorder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.access_analysis import point_of
from graphopt.lowering.analysis.block_refs import (
    AnyLoop,
    BlockRef,
    LoopRef,
    extents_around,
    find_loop,
    find_place,
    free_name,
    names_in,
    primitive,
    replaced,
)
from graphopt.lowering.analysis.dependence import check_order, is_digit
from graphopt.lowering.index.arithmetic import simplify
from graphopt.lowering.loops.expressions import (
    Const,
    Expr,
    Var,
    maximum,
    minimum,
    short_circuit,
    substitute,
    variables,
    walk,
)
from graphopt.lowering.loops.loop_nests import peeled, wrapped
from graphopt.lowering.loops.nest import (
    TRUE,
    Block,
    For,
    If,
    LoopKind,
    Nest,
    Seq,
    Stmt,
    expressions,
    inner,
    map_expressions,
    with_inner,
)

TAILS = ("guard", "short")
"""The treatment of a split's surplus iterations."""


@primitive
def split(
    nest: Nest, loop: AnyLoop, factors: Sequence[int | None], tail: str = "guard"
) -> tuple[Nest, tuple[LoopRef, ...]]:
    """Split a loop into nested ones of the given extents; one extent may be None: as large as needed.

    Where extents do not divide, a predicate (``where``) guards the blocks; with the tail ``"short"``, of two loops the
    inner one ends where there are no more iterations, and the outer one before it would have none. Of a parallel loop
    the outermost part is parallel.
    Before::

        for i0 in serial(10):
            with block("B"):
                v0 = axis.spatial(10, i0)
                B[v0] = A[v0] + 1.0

    After ``s.split("i0", [None, 4])``::

        for i0_0, i0_1 in grid(3, 4):
            with block("B"):
                v0 = axis.spatial(10, i0_0 * 4 + i0_1)
                where(i0_0 * 4 + i0_1 < 10)
                B[v0] = A[v0] + 1.0

    Before::

        for i0 in serial(10):
            with block("B"):
                v0 = axis.spatial(10, i0)
                B[v0] = A[v0] + 1.0

    After ``s.split("i0", [None, 4], tail="short")``::

        for i0_0 in serial(3):
            for i0_1 in serial(min(i0_0 * -4 + 10, 4)):
                with block("B"):
                    v0 = axis.spatial(10, i0_0 * 4 + i0_1)
                    B[v0] = A[v0] + 1.0
    """
    # As TVM's split: i = i0 * f1 * f2 + i1 * f2 + i2. A guard tests i < n where the parts cover more than n; with a
    # short tail the inner loop runs min(f1, n - i0 * f1) times.
    site = find_loop(nest, loop)
    stmt = site.stmt
    name = stmt.var.name
    _one_kind([stmt], "split it before")
    sizes = [int(f) for f in factors if f is not None]
    if not factors or len(sizes) < len(factors) - 1:
        raise ScheduleError(f"{name}: of the factors {list(factors)} more than one is open; leave at most one None")
    if any(f < 1 for f in sizes):
        raise ScheduleError(f"{name}: the factors {list(factors)} are not all positive")
    around = extents_around(site.above)
    step = prod(sizes)
    rest = simplify((stmt.extent + (step - 1)) // step, {**around, stmt.var: stmt.extent})
    extents = [rest if f is None else Const(int(f)) for f in factors]
    if None not in factors and not (isinstance(stmt.extent, Const) and int(stmt.extent.value) <= step):
        raise ScheduleError(
            f"{name}: {' * '.join(map(str, sizes))} = {step} iterations do not cover its {_shown(stmt.extent)}; "
            "leave one factor None"
        )
    if tail not in TAILS or (tail == "short" and len(factors) != 2):
        raise ScheduleError(f"{name}: the tail is one of {', '.join(TAILS)}, a short one that of two loops; not {tail}")
    names = names_in(nest)
    loops = [Var(free_name(names, f"{name}_{k}")) for k in range(len(factors))]
    value: Expr = Const(0)
    for var, extent in zip(loops, extents, strict=True):
        value = value * extent + var
    if tail == "short":
        width = extents[1]
        if factors[0] is not None:  # the last of so many outer iterations may have nothing left to do
            extents[0] = simplify((stmt.extent + (width - 1)) // maximum(width, 1), around)
        extents[1] = simplify(minimum(width, stmt.extent - loops[0] * width), {**around, loops[0]: extents[0]})
    inside = {**around, **dict(zip(loops, extents, strict=True))}
    value = simplify(value, inside)
    body = rebind(stmt.body, {stmt.var: value}, inside)
    covered = simplify(value < stmt.extent, inside) if tail == "guard" else TRUE
    if not (isinstance(covered, Const) and covered.value):
        body = guarded(body, covered)
    for k in reversed(range(len(loops))):
        body = For(loops[k], extents[k], body, stmt.kind if k == 0 else "serial", notes=stmt.notes if k == 0 else ())
    return replaced(nest, site, body), tuple(LoopRef(v.name) for v in loops)


@primitive
def fuse(nest: Nest, *loops: AnyLoop) -> tuple[Nest, LoopRef]:
    """Fuse perfectly nested loops, given from the outermost in, into one.

    All are serial, or all are parallel, and so is the fused loop. Before::

        for i0, i1 in grid(4, 8):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] + 1.0

    After ``s.fuse("i0", "i1")``::

        for i0_i1 in serial(32):
            with block("B"):
                v0 = axis.spatial(4, i0_i1 // 8)
                v1 = axis.spatial(8, i0_i1 % 8)
                B[v0, v1] = A[v0, v1] + 1.0
    """
    # As TVM's fuse: one loop over the product of the extents; the loops' variables are its quotients and remainders.
    if not loops:
        raise ScheduleError("there are no loops to fuse; name at least one")
    sites = [find_loop(nest, loop) for loop in loops]
    chain = [s.stmt for s in sites]
    kind = _one_kind(chain, "fuse it before")
    for outer, below in pairwise(chain):
        if outer.body is not below:
            raise ScheduleError(
                f"{outer.var.name} does not hold {below.var.name} and nothing else; name loops that stand directly "
                "within each other, from the outermost in"
            )
        dependent = next((o for o in chain if o.var in variables(below.extent)), None)
        if dependent is not None:
            raise ScheduleError(f"the extent of {below.var.name} changes with {dependent.var.name}; fuse other loops")
    if len(chain) == 1:
        return nest, LoopRef(chain[0].var.name)
    around = extents_around(sites[0].above)
    var = Var(free_name(names_in(nest), "_".join(loop.var.name for loop in chain)))
    total: Expr = Const(1)
    for loop in chain:
        total = total * loop.extent
    inside: dict[Var, Expr] = {**around, var: simplify(total, around)}
    values: dict[Var, Expr] = {loop.var: Const(0) for loop in chain}
    longer = [loop for loop in chain if loop.extent != Const(1)]
    values |= zip((loop.var for loop in longer), point_of(var, [loop.extent for loop in longer]), strict=True)
    body = rebind(chain[-1].body, values, inside)
    notes = tuple(dict(n for loop in chain for n in loop.notes).items())
    return replaced(nest, sites[0], For(var, inside[var], body, kind, notes=notes)), LoopRef(var.name)


@primitive
def reorder(nest: Nest, *loops: AnyLoop) -> tuple[Nest, None]:
    """Reorder nested loops as given, from the outermost in; others between them keep their places.

    Before::

        for i0, i1 in grid(4, 8):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] + 1.0

    After ``s.reorder("i1", "i0")``::

        for i1, i0 in grid(8, 4):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] + 1.0
    """
    named = [find_loop(nest, loop) for loop in loops]
    if len({s.stmt.var for s in named}) < len(named):
        raise ScheduleError("a loop is named twice; name each once")
    if len(named) < 2:
        return nest, None
    outermost = min(named, key=lambda s: len(s.above))
    chain = _chain(outermost.stmt, {s.stmt.var for s in named})
    order = iter([s.stmt for s in named])
    after = tuple(next(order) if loop.var in {s.stmt.var for s in named} else loop for loop in chain)
    seen: set[Var] = set()
    for loop in after:
        later = variables(loop.extent) & {other.var for other in chain} - seen
        if later:
            raise ScheduleError(
                f"the extent of {loop.var.name} changes with {min(v.name for v in later)}, which has to stay around it"
            )
        seen.add(loop.var)
    if after == chain:
        return nest, None
    check_order(outermost, chain, after)
    return replaced(nest, outermost, wrapped(after, chain[-1].body)), None


def _chain(outermost: For, wanted: set[Var]) -> tuple[For, ...]:
    """The loops from the outermost to the last of those wanted, each directly within the one before."""
    chain, _ = peeled(outermost)
    left = wanted - {loop.var for loop in chain}
    if left:
        raise ScheduleError(
            f"{min(v.name for v in left)} does not stand directly within {chain[-1].var.name}; "
            "only loops with nothing else between them can be reordered"
        )
    return chain[: 1 + max(k for k, loop in enumerate(chain) if loop.var in wanted)]


@primitive
def add_unit_loop(nest: Nest, within: BlockRef | LoopRef | str) -> tuple[Nest, LoopRef]:
    """Add a loop of one iteration around a block or loop.

    Before::

        with block("B"):
            B[0] = A[0] + 1.0

    After ``s.add_unit_loop("B")``::

        for unit in serial(1):
            with block("B"):
                B[0] = A[0] + 1.0
    """
    site = find_place(nest, within)
    var = Var(free_name(names_in(nest), "unit"))
    return replaced(nest, site, For(var, Const(1), site.stmt)), LoopRef(var.name)


# ------------------------------------------------------------------ what the primitives share


def in_copies(block: Block, loops: Sequence[For], point: Mapping[Var, Expr]) -> Stmt:
    """The block at a point of the loops: in copies of those that are at a variable, and without the others."""
    stmt: Stmt = replace(
        block,
        axes=tuple(replace(a, extent=substitute(a.extent, point)) for a in block.axes),
        values=tuple(substitute(v, point) for v in block.values),
        predicate=substitute(block.predicate, point),
    )
    for loop in reversed(loops):
        if isinstance(var := point[loop.var], Var):
            stmt = replace(loop, var=var, extent=substitute(loop.extent, point), body=stmt, notes=())
    return stmt


def rebind(stmt: Stmt, values: Mapping[Var, Expr], extents: Mapping[Var, Expr]) -> Stmt:
    """The statement with variables replaced, and affected expressions simplified; ``extents`` are those around it."""
    inside = {**extents, **extents_around([stmt])}

    def part(e: Expr) -> Expr | None:
        return values.get(e) if isinstance(e, Var) else None

    below = inner(stmt)
    after = tuple(rebind(child, values, inside) for child in below)
    if any(a is not b for a, b in zip(below, after, strict=True)):
        stmt = with_inner(stmt, after)
    if not any(variables(e) & values.keys() for e in expressions(stmt)):
        return stmt

    def bound(e: Expr) -> Expr:  # what a variable becomes is simple already
        if isinstance(e, Var):
            return values.get(e, e)
        put = substitute(e, values)
        return put if _is_as_simple(e, values) else simplify(put, extents)

    if isinstance(stmt, Block):
        axes = tuple(
            replace(a, extent=bound(a.extent)) if variables(a.extent) & values.keys() else a for a in stmt.axes
        )
        return replace(stmt, axes=axes, values=tuple(map(bound, stmt.values)), predicate=bound(stmt.predicate))
    if isinstance(stmt, For):
        return replace(stmt, extent=bound(stmt.extent))
    if isinstance(stmt, If):
        return replace(stmt, condition=bound(stmt.condition))
    return map_expressions(stmt, part)


def _is_as_simple(expr: Expr, values: Mapping[Var, Expr]) -> bool:
    """Whether an expression is as simple with the values as before: a single digit of a number, which has the extent of
    the variable that it takes the place of, and is not divided any further."""
    vars = [v for v in variables(expr) if v in values]
    if not vars:
        return True
    return (
        len(vars) == 1
        and is_digit(values[vars[0]])
        and not any(is_digit(e) and e.args[0] == vars[0] for e in walk(expr))
    )


def guarded(stmt: Stmt, condition: Expr) -> Stmt:
    """The statement under a condition: blocks get it as predicate, other statements an ``If``."""
    match stmt:
        case Block():
            return replace(stmt, predicate=short_circuit(condition, stmt.predicate))
        case For():
            return replace(stmt, body=guarded(stmt.body, condition))
        case Seq():
            return Seq(tuple(guarded(s, condition) for s in stmt.stmts))
    return If(condition, stmt)


def _one_kind(loops: Sequence[For], instead: str) -> LoopKind:
    """The kind of the loops: serial, or all are parallel, as parts of such a loop and all of such loops may be."""
    kinds = {loop.kind for loop in loops}
    if kinds not in ({"serial"}, {"parallel"}):
        loop = next(loop for loop in loops if loop.kind != "serial")
        raise ScheduleError(f"{loop.var.name} is {loop.kind}; {instead}")
    return loops[0].kind


def _shown(extent: Expr) -> str:
    return str(extent.value) if isinstance(extent, Const) else "unknown number"
