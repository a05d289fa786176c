"""Loop fusion: loops that stand beside each other become one that does a step of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, permutations

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.lowering.analysis.block_refs import (
    AnyLoop,
    LoopRef,
    LoopSite,
    StatementSite,
    find_loop,
    primitive,
    replaced,
)
from graphopt.lowering.analysis.dataflow import buffers_written, shared
from graphopt.lowering.analysis.dependence import BlockInLoop, check_use, placed
from graphopt.lowering.index.arithmetic import simplify
from graphopt.lowering.loops.expressions import Expr, Var, loads_in, substitute
from graphopt.lowering.loops.loop_nests import wrapped
from graphopt.lowering.loops.nest import For, Nest, Seq, Stmt, expressions, seq, statements, substitute_in


@primitive
def merge(nest: Nest, *loops: AnyLoop) -> tuple[Nest, LoopRef]:
    """Merge loops of nests that follow each other into one, which does a step of each in turn; returns it.

    So are the loops around them, up to where the nests stand beside each other; they hold nothing else, and are of
    equal extents and kinds. No nest uses what another one writes in another step. The loops of the first stay.
    Before::

        for i0, i1 in grid(4, 8):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] * 2.0
        for i2, i3 in grid(4, 8):
            with block("C"):
                v2, v3 = axis.remap("SS", [i2, i3])
                C[v2, v3] = A[v2, v3] + B[v2, v3]

    After ``s.merge("i0", "i2")``::

        for i0 in serial(4):
            for i1 in serial(8):
                with block("B"):
                    v0, v1 = axis.remap("SS", [i0, i1])
                    B[v0, v1] = A[v0, v1] * 2.0
            for i3 in serial(8):
                with block("C"):
                    v2, v3 = axis.remap("SS", [i0, i3])
                    C[v2, v3] = A[v2, v3] + B[v2, v3]
    """
    # Loop fusion (Allen and Kennedy, 2001), where each dependence between the nests is within one step of the loops.
    if len(loops) < 2:
        raise ScheduleError("name at least two loops to merge")
    named = [find_loop(nest, loop) for loop in loops]
    above = named[0].above
    for site in named[1:]:
        above = shared(above, site.above)
    chains = sorted((_Chain.below(above, site) for site in named), key=lambda c: c.position)
    parent = above[-1]
    assert isinstance(parent, Seq)
    for a, b in pairwise(chains):
        if a.position == b.position:
            raise ScheduleError(f"{a.name} and {b.name} stand in one loop; name loops of nests beside each other")
        if a.position + 1 < b.position:
            raise ScheduleError(f"other statements stand between {a.name} and {b.name}")
        if len(a.loops) != len(b.loops):
            raise ScheduleError(f"{a.name} is {len(a.loops)} loops deep in its nest, and {b.name} {len(b.loops)}")
    first, *rest = chains
    parts = [first.loops[-1].body, *(_on_loops_of(first, chain) for chain in rest)]
    for one, other in permutations(parts, 2):
        _independent(above, first.loops, one, other)
    merged = wrapped(first.loops, seq(*parts))
    kept = [s for k, s in enumerate(parent.stmts) if not first.position < k <= chains[-1].position]
    kept[first.position] = merged
    return replaced(nest, StatementSite(parent, above[:-1]), seq(*kept)), LoopRef(first.loops[-1].var.name)


@dataclass(frozen=True, slots=True)
class _Chain:
    """Loops directly within each other, the outermost at a position of a sequence."""

    loops: tuple[For, ...]
    position: int

    @property
    def name(self) -> str:
        """The innermost loop's name."""
        return self.loops[-1].var.name

    @staticmethod
    def below(above: Sequence[Stmt], site: LoopSite) -> _Chain:
        """The loops from below a path down to one."""
        inside = (*site.above, site.stmt)[len(above) :]
        loops = tuple(s for s in inside if isinstance(s, For))
        if not above or not isinstance(above[-1], Seq) or len(loops) < len(inside):
            raise ScheduleError(f"{site.stmt.var.name} does not stand beside the others, in loops that hold only it")
        return _Chain(loops, next(k for k, s in enumerate(above[-1].stmts) if s is inside[0]))


def _on_loops_of(first: _Chain, chain: _Chain) -> Stmt:
    """What a chain holds, on the loops of the first."""
    names: Mapping[Var, Expr] = {b.var: a.var for a, b in zip(first.loops, chain.loops, strict=True)}
    for a, b in zip(first.loops, chain.loops, strict=True):
        if simplify(substitute(b.extent, names) - a.extent, {}) != simplify(a.extent - a.extent, {}):
            raise ScheduleError(f"{a.var.name} and {b.var.name} are not equally long")
        if (a.kind, a.thread) != (b.kind, b.thread) or a.kind not in ("serial", "parallel"):
            raise ScheduleError(f"{a.var.name} is {a.kind} and {b.var.name} {b.kind}; merge serial or parallel loops")
        if a.notes != b.notes:
            raise ScheduleError(f"{a.var.name} and {b.var.name} have other notes; use unannotate")
    return substitute_in(chain.loops[-1].body, names)


def _independent(above: tuple[Stmt, ...], loops: tuple[For, ...], writing: Stmt, using: Stmt) -> None:
    """Raises ScheduleError where one part uses what the other writes in another step of the loops."""
    loaded = {e.buffer for s in statements(using) for x in _conditions(s) for e in loads_in(x)}
    if loaded & buffers_written(writing):
        name = min(b.name for b in loaded & buffers_written(writing))
        raise ScheduleError(f"whether or where a part of the loops runs depends on {name}, which another part writes")
    for k, loop in enumerate(loops):
        for writer in _placed(above, loops, k, writing):
            for user in _placed(above, loops, k, using):
                check_use(loop.var, writer, user)


def _placed(above: tuple[Stmt, ...], loops: tuple[For, ...], k: int, part: Stmt) -> list[BlockInLoop]:
    """The blocks of a part beneath one of the loops."""
    nested = wrapped(loops[k:], part)
    assert isinstance(nested, For)
    return placed(LoopSite(nested, (*above, *loops[:k])))


def _conditions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions that say whether and where a statement runs."""
    return expressions(stmt) if not hasattr(stmt, "value") else ()
