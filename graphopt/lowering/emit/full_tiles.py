"""Full and partial tile separation (Ancourt and Irigoin, 1991): where all iterations of a tile are within bounds, its
blocks are emitted without their predicates.

Splits by factors that do not divide leave a predicate for each iteration. Where the tiles are numbered, the last one
becomes a statement of its own, whose loops end where the predicates do (index-set splitting); otherwise, as where sizes
are open, a test outside of the tile finds whether they hold for all of it, and only tiles for which they do not keep
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from graphopt.frozen import dataclass
from graphopt.lowering.index.comparisons import is_inequality, positive
from graphopt.lowering.index.polynomials import Polynomial
from graphopt.lowering.loops.expressions import (
    Const,
    Expr,
    Var,
    apply,
    conjunction,
    conjuncts,
    variables,
)
from graphopt.lowering.loops.nest import Block, For, If, Stmt, inner, mutate, seq, substitute_in, with_inner

Guards = Mapping[Expr, Expr]
"""Conditions of blocks on iterations of a tile, and for each what says that it holds in all of the tile."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition of a block on iterations of a tile: ``whole`` says, in the body of the loop over ``outer``, that it
    holds for all of them."""

    condition: Expr
    outer: Var
    whole: Expr


def separated(stmt: Stmt, sizes: Sequence[Var] = ()) -> Stmt:
    """The statement with full tiles apart from partial ones; each block is written twice at most, a reduction four
    times."""
    return _separated(stmt, _guards(stmt, (), frozenset(sizes)))


def _separated(stmt: Stmt, guards: Mapping[Var, Guards]) -> Stmt:
    """The statement, where the loops of these variables go over tiles."""
    if not isinstance(stmt, For) or stmt.var not in guards:
        children = inner(stmt)
        return with_inner(stmt, tuple(_separated(s, guards) for s in children)) if children else stmt
    known = guards[stmt.var]
    full = _separated(mutate(stmt.body, lambda s: _without(s, known) if isinstance(s, Block) else None), guards)
    number = _full_tiles(stmt, known)
    if number is None:
        condition = conjunction(*dict.fromkeys(known.values()))
        return replace(stmt, body=If(condition, full, _separated(stmt.body, guards)))
    last = _separated(_ending(substitute_in(stmt.body, {stmt.var: Const(number)})), guards)
    return seq(replace(stmt, extent=Const(number), body=full), last)


def _without(block: Block, known: Guards) -> Block:
    """The block without conditions that are known to hold."""
    return replace(block, predicate=conjunction(*(c for c in conjuncts(block.predicate) if c not in known)))


# ------------------------------------------------------------------ tiles that are numbered


def _full_tiles(loop: For, known: Guards) -> int | None:
    """The number of full tiles of a serial loop, before a single partial one; None where that is not to be said."""
    if loop.kind != "serial" or not isinstance(loop.extent, Const) or loop.extent.value < 2:
        return None
    last = int(loop.extent.value) - 1
    return last if all((_end(whole, loop.var) or 0) >= last for whole in known.values()) else None


def _ending(stmt: Stmt) -> Stmt:
    """The statement, whose loops end where the predicates of all of their blocks do."""
    children = tuple(map(_ending, inner(stmt)))
    stmt = with_inner(stmt, children) if children else stmt
    if not isinstance(stmt, For) or not isinstance(stmt.extent, Const):
        return stmt
    ends = dict(_ends(stmt.body, stmt.var))
    if not ends or None in ends:
        return stmt
    end = max(n for n in ends if n is not None)
    known = {c: c for c in ends.get(end, ())} if len(ends) == 1 else {}
    body = mutate(stmt.body, lambda s: _without(s, known) if isinstance(s, Block) else None)
    return replace(stmt, extent=Const(max(0, min(end, int(stmt.extent.value)))), body=body)


def _ends(stmt: Stmt, var: Var) -> Iterator[tuple[int | None, frozenset[Expr]]]:
    """Where each of the outermost blocks in a loop ends, and by which conditions; None where one has no end."""
    if isinstance(stmt, Block):
        ends = {c: n for c in conjuncts(stmt.predicate) if (n := _end(c, var)) is not None}
        yield (min(ends.values()), frozenset(ends)) if ends else (None, frozenset())
        return
    children = inner(stmt)
    if not children:
        yield None, frozenset()
    for child in children:
        yield from _ends(child, var)


def _end(condition: Expr, var: Var) -> int | None:
    """The first number from which on a comparison of a loop's variable alone does not hold."""
    parts = positive(condition).split(var) if is_inequality(condition) else None
    if parts is None or parts[0].number is None or parts[1].number is None or parts[0].number >= 0:
        return None
    return parts[1].number // -parts[0].number + 1


# ------------------------------------------------------------------ conditions


def _guards(stmt: Stmt, loops: Sequence[For], sizes: frozenset[Var]) -> dict[Var, dict[Expr, Expr]]:
    """The conditions of the blocks in a statement within loops, by the variable of the loop that they are tested in."""
    found: dict[Var, dict[Expr, Expr]] = {}
    for guard in _of_block(stmt, loops, sizes) if isinstance(stmt, Block) else ():
        found.setdefault(guard.outer, {})[guard.condition] = guard.whole
    for child in inner(stmt):
        for var, known in _guards(child, (*loops, stmt) if isinstance(stmt, For) else loops, sizes).items():
            found.setdefault(var, {}).update(known)
    return found


def _of_block(block: Block, loops: Sequence[For], sizes: frozenset[Var]) -> Iterator[Guard]:
    """The conditions of a block that hold for whole tiles, those of its reduction and others tested in one loop each:
    the innermost of those around a tile."""
    depths = {loop.var: depth for depth, loop in enumerate(loops)}
    reduced = {
        v for a, value in zip(block.axes, block.values, strict=True) if a.kind == "reduce" for v in variables(value)
    }
    tiles: dict[bool, list[tuple[int, int, Expr, Expr]]] = {False: [], True: []}
    for condition in conjuncts(block.predicate):
        of = sorted(depths.get(v, -1) for v in variables(condition) - sizes)
        if len(of) > 1 and of[0] >= 0 and (whole := _whole(condition, loops[of[-1]])) is not None:
            tiles[bool(variables(condition) & reduced)].append((of[-2], of[-1], condition, whole))
    for kind in tiles.values():
        outer = max((depth for depth, _, _, _ in kind), default=0)
        yield from (Guard(c, loops[outer].var, whole) for _, within, c, whole in kind if within > outer)


def _whole(condition: Expr, loop: For) -> Expr | None:
    """Whether a comparison holds in all iterations of a loop; None where that is not to be said by another one."""
    parts = positive(condition).split(loop.var) if is_inequality(condition) else None
    if parts is None or parts[0].number is None or not isinstance(loop.extent, Const):
        return None
    least: Polynomial = parts[1] + min(parts[0].number, 0) * (int(loop.extent.value) - 1)
    return apply("ge", least.expr(), Const(0))
