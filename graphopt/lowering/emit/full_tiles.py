"""Full and partial tile separation (Ancourt and Irigoin, 1991): where all iterations of a tile are within bounds, its
blocks are emitted without their predicates.

Splits by factors that do not divide leave a predicate for each iteration. A test outside of the tile finds whether it
holds for all of them: those tiles become loops without branches, and the last ones keep their predicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from graphopt.lowering.analysis.loop_partition import COMPARISONS, positive
from graphopt.lowering.index.polynomials import Polynomial
from graphopt.lowering.loops.expressions import INDEX, Apply, Const, Expr, Var, apply, conjunction, conjuncts, variables
from graphopt.lowering.loops.nest import TRUE, Block, For, If, Stmt, inner, mutate, with_inner


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition of a block on iterations of a tile: ``whole`` says, in the body of the loop over ``outer``, that it
    holds for all of them."""

    condition: Expr
    outer: Var
    whole: Expr


def separated(stmt: Stmt) -> Stmt:
    """The statement with full tiles apart from partial ones; each is written twice at most."""
    return _separated(stmt, _guards(stmt, ()))


def _separated(stmt: Stmt, guards: Mapping[Var, Mapping[Expr, Expr]]) -> Stmt:
    """The statement, where loops of these variables have conditions (with what says that they hold in all of a tile)."""
    if not isinstance(stmt, For) or stmt.var not in guards:
        children = inner(stmt)
        return with_inner(stmt, tuple(_separated(s, guards) for s in children)) if children else stmt
    known = guards[stmt.var]
    full = mutate(stmt.body, lambda s: _without(s, known) if isinstance(s, Block) else None)
    return replace(stmt, body=If(conjunction(*dict.fromkeys(known.values())), full, stmt.body))


def _without(block: Block, known: Mapping[Expr, Expr]) -> Block:
    """The block without conditions that are known to hold."""
    return replace(block, predicate=conjunction(*(c for c in conjuncts(block.predicate) if c not in known)))


def _guards(stmt: Stmt, loops: Sequence[For]) -> dict[Var, dict[Expr, Expr]]:
    """The conditions of the blocks in a statement within loops, by the variable of the loop that they are tested in."""
    found: dict[Var, dict[Expr, Expr]] = {}
    for guard in _of_block(stmt, loops) if isinstance(stmt, Block) else ():
        found.setdefault(guard.outer, {})[guard.condition] = guard.whole
    for child in inner(stmt):
        for var, known in _guards(child, (*loops, stmt) if isinstance(stmt, For) else loops).items():
            found.setdefault(var, {}).update(known)
    return found


def _of_block(block: Block, loops: Sequence[For]) -> Iterator[Guard]:
    """The conditions of a block that hold for whole tiles, tested in one loop: the innermost of those around a tile."""
    depths = {loop.var: depth for depth, loop in enumerate(loops)}
    tiles: list[tuple[int, int, Expr, Expr]] = []
    for condition in conjuncts(block.predicate) if block.predicate != TRUE else ():
        of = sorted(depths.get(v, -1) for v in variables(condition))
        if len(of) > 1 and of[0] >= 0 and (whole := _whole(condition, loops[of[-1]])) is not None:
            tiles.append((of[-2], of[-1], condition, whole))
    outer = max((depth for depth, _, _, _ in tiles), default=0)
    yield from (Guard(c, loops[outer].var, whole) for _, within, c, whole in tiles if within > outer)


def _whole(condition: Expr, loop: For) -> Expr | None:
    """Whether a comparison holds in all iterations of a loop; None where that is not to be said by another one."""
    if not (isinstance(condition, Apply) and condition.fn in COMPARISONS and condition.args[0].dtype == INDEX):
        return None
    parts = positive(condition).split(loop.var)
    if parts is None or parts[0].number is None or not isinstance(loop.extent, Const):
        return None
    last = min(parts[0].number, 0) * (int(loop.extent.value) - 1)
    least: Polynomial = parts[1] + last
    return apply("ge", least.expr(), Const(0))
