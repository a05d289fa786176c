"""Loop-invariant code motion of reduction inits: before code is emitted, they leave the loops of their reduction.

A block with an init asks in each step whether it is the first one, which keeps what it accumulates out of registers,
and loops within the reduction from becoming vectors. Where nothing can tell the two apart, it is what
``decompose_reduction`` makes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import find_block, replaced
from graphopt.lowering.analysis.iteration_domains import are_disjoint
from graphopt.lowering.loops.expressions import Const, apply, conjunction, loads_in, variables
from graphopt.lowering.loops.nest import Block, For, Nest, Range, Stmt, Store, blocks, statements
from graphopt.lowering.schedule.reduction import decompose_reduction


def decomposed(nest: Nest) -> Nest:
    """The nest, in which reductions that are the only thing in their loops start before these; sums stay in order."""
    for name in [b.name for b in blocks(nest.body) if b.init is not None]:
        nest = _decomposed(nest, name)
    return nest


def _decomposed(nest: Nest, name: str) -> Nest:
    """The nest with the init of a block before the outermost loop of its reduction, where it may go there."""
    site = find_block(nest, name)
    loops = _own_loops(site.stmt, site.above)
    if loops is None or not _starts_alike(site.stmt):
        return nest
    try:
        after, init = decompose_reduction(nest, name, loops[0].var.name)
    except ScheduleError:  # it may not go there
        return nest
    runs = [apply("lt", Const(0), s.extent) for s in loops if not isinstance(s.extent, Const)]
    if not runs:
        return after
    start = find_block(after, init)  # where a loop has no steps, nothing starts
    return replaced(after, start, replace(start.stmt, predicate=conjunction(*runs, start.stmt.predicate)))


def _own_loops(block: Block, above: Sequence[Stmt]) -> Sequence[For] | None:
    """The loops from the outermost of a reduction on, where they hold its block alone and go through its steps once."""
    pairs = list(zip(block.axes, block.values, strict=True))
    steps = [value for axis, value in pairs if axis.kind == "reduce"]
    of_steps = {v for value in steps for v in variables(value)}
    outermost = next((k for k, s in enumerate(above) if isinstance(s, For) and s.var in of_steps), None)
    if outermost is None:
        return None
    loops = [s for s in above[outermost:] if isinstance(s, For) and s.kind not in ("parallel", "bound")]
    if len(loops) < len(above) - outermost or any(s.extent == Const(0) for s in loops):
        return None
    extents = {s.var: s.extent for s in above if isinstance(s, For)}
    running = {s.var: s.extent for s in loops if s.var in of_steps}
    around = {v: n for v, n in extents.items() if v not in running}
    once = are_disjoint([Range(value) for value in steps], [s for s in loops if s.var in of_steps], running, around)
    return loops if once and not any(variables(s.extent) & extents.keys() for s in loops) else None


def _starts_alike(block: Block) -> bool:
    """Whether it is the same for a block if other elements have started before it runs."""
    assert block.init is not None
    body, init = list(statements(block.body)), list(statements(block.init))
    if not all(isinstance(s, Store) for s in (*body, *init)):
        return False
    stores = [s for s in (*body, *init) if isinstance(s, Store)]
    targets = {s.buffer: s.indices for s in stores}
    read = [e for s in stores for part in (*s.indices, s.value) for e in loads_in(part)]
    return (
        all(targets[s.buffer] == s.indices for s in stores)
        and all(e.buffer not in targets or e.indices == targets[e.buffer] for e in read)
        and not any(e.buffer in targets for s in init if isinstance(s, Store) for e in loads_in(s.value))
    )
