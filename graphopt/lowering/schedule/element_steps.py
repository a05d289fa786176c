"""Element-wise schedules as steps of primitives: the loops that a rule wrote, read off, and made again by steps.

Steps that do not give kernels of the same source, but for the names of loops, are none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.access_analysis import collapsed, with_vectors_last
from graphopt.lowering.analysis.block_refs import LoopRef, find_loop
from graphopt.lowering.analysis.canonical_nest import Chain, chains
from graphopt.lowering.cpu.compact_buffers import compacted
from graphopt.lowering.cpu.loop_fission import divided
from graphopt.lowering.cuda.emit import emit as emit_for_blocks
from graphopt.lowering.emit.kernel_source import Launchable, emit
from graphopt.lowering.loops.expressions import Apply, Const, Expr
from graphopt.lowering.loops.nest import For, If, Nest, Stmt, statements
from graphopt.lowering.schedule.schedule import Schedule


def element_steps(nest: Nest, made: Nest) -> Schedule | None:
    """The schedule by primitives of a nest of one element-wise block of which a rule has made another; None where none
    gives the same kernels."""
    nest_chains, loops, s = chains(nest), _loops(made.body), Schedule(nest)
    if nest_chains is None or len(nest_chains) > 1 or not loops or any(n.extent == Const(0) for n in loops):
        return None
    try:
        own = s.get_loops(s.get_block(nest_chains[0].block.name))
        _bound(s, own, loops) if loops[0].thread is not None else _vectorized(s, own, nest_chains[0], loops)
        return s if _sources(s.nest) == _sources(made) else None
    except ScheduleError:
        return None


def _loops(stmt: Stmt) -> list[For]:
    """The loops of one nest, outermost first."""
    loops = []
    while isinstance(stmt, For | If):
        if isinstance(stmt, For):
            loops.append(stmt)
        stmt = stmt.body if isinstance(stmt, For) else stmt.then
    return loops


def _bound(s: Schedule, own: Sequence[LoopRef], loops: Sequence[For]) -> None:
    """Blocks of threads, each of which takes some neighbours."""
    one = _fused(s, own)
    if len(loops) > 2:
        one, several = s.split(one, [None, _number(loops[2].extent)])
        s.vectorize(several)
    block, thread = s.split(one, [None, _number(loops[1].extent)])
    s.bind(block, "blockIdx.x")
    s.bind(thread, "threadIdx.x")


def _vectorized(s: Schedule, own: Sequence[LoopRef], chain: Chain, loops: Sequence[For]) -> None:
    """Neighbouring axes as one loop, the last of which is vectorized; outer ones, or chunks of one, are work items."""
    loop_of = dict(zip((a.var for a in chain.axes), own, strict=True))
    groups = with_vectors_last(chain, collapsed(chain, chain.axes))
    order = tuple(loop_of[a.var] for group in groups for a in group)
    if order != tuple(own):
        s.reorder(*order)
    *outer, last = (_fused(s, [loop_of[a.var] for a in group]) for group in groups)
    if loops[0].kind == "parallel":
        within = loops[1:-1]
        is_cut = bool(outer) and len(within) == 1 and within[0].extent != find_loop(s.nest, outer[-1]).stmt.extent
        if not outer:
            s.parallel(last)
            _, last = s.split(last, [None, _number(loops[1].extent)], tail="short")
        elif is_cut:  # the last one, in chunks
            for loop in outer:
                s.parallel(loop)
            outer[-1], _ = s.split(outer[-1], [None, _number(within[0].extent)], tail="short")
            _fused(s, outer)
        elif len(within) < len(outer):
            s.parallel(_fused(s, outer[: len(outer) - len(within)]))
        else:
            raise ScheduleError(f"{within[0].var.name}: it is a loop of no axis")
    s.vectorize(last)


def _fused(s: Schedule, loops: Sequence[LoopRef]) -> LoopRef:
    """Loops as one."""
    return s.fuse(*loops) if len(loops) > 1 else loops[0]


def _number(extent: Expr) -> int:
    """The extent, or that which it has at most."""
    found = extent.args if isinstance(extent, Apply) and extent.fn == "min" else (extent,)
    numbers = [int(e.value) for e in found if isinstance(e, Const)]
    if not numbers:
        raise ScheduleError("the extent is not known")
    return numbers[0]


def _sources(nest: Nest) -> list[str]:
    """The sources of a nest's kernels, loops being called by their numbers."""
    loops = [s for s in statements(nest.body) if isinstance(s, For)]
    if any(loop.thread is not None for loop in loops):
        texts = [part.kernel.source for _, part in emit_for_blocks(nest) if isinstance(part, Launchable)]
    else:
        texts = [emit(part).kernel.source for part in divided(compacted(nest))]
    for k, loop in enumerate(loops):
        texts = [re.sub(rf"\b{loop.var.name}\b", f"loop{k}", text) for text in texts]
    return texts
