"""Transpose tiles: loads along another axis than the stores', as vectors transposed in registers where it pays.

Images of blocks become plain ones, and plain ones images of blocks, in small squares; so do matrices that are
transposed. Of an axis of channels that a block's images divide into blocks, the lanes become an axis first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from graphopt.frozen import dataclass
from graphopt.kernels.host import lanes as lanes_of
from graphopt.lowering.analysis.access_analysis import is_near, is_step, known_size
from graphopt.lowering.analysis.axis_transforms import with_axis_split
from graphopt.lowering.analysis.canonical_nest import Chain
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, Var, conjunction, variables, walk
from graphopt.lowering.loops.nest import TRUE, Axis, Seq, Stmt, Store

LEAST = 4
"""Rows and columns of the smallest tile."""


@dataclass(frozen=True, slots=True)
class TransposedLoads:
    """Loads that lie side by side along the group of axes number ``rows_at``, each with the condition under which it
    may be read, and the tile in which to turn them."""

    loads: Mapping[Load, Expr]
    rows_at: int
    rows: int
    columns: int


def turning(chain: Chain, groups: Sequence[Sequence[Axis]]) -> TransposedLoads | None:
    """The loads to transpose in an element-wise block over groups of axes, the last of which is vectorized."""
    last = groups[-1][-1]
    far = [a for a in chain.accesses if not a.is_write and not is_near(a, last)]
    if not far or any(not is_near(a, last) for a in chain.accesses if a.is_write):
        return None
    written = {a.buffer for a in chain.accesses if a.is_write}
    if any(a.buffer in written for a in chain.accesses if not a.is_write):
        return None  # the last tile of an axis does again what the one before it did
    places = {k for k, group in enumerate(groups[:-1]) if all(is_step(a, group[-1]) for a in far)}
    if not places:
        return None
    group_index, guards = max(places), _guards(chain.block.body)
    loads = {load: guards.get(load) for load in (Load(a.buffer, a.indices) for a in far)}
    along = {a.var for a in groups[group_index]}
    transposed = {load: guard for load, guard in loads.items() if guard is not None and not along & variables(guard)}
    rows, columns = (known_size([a.extent for a in groups[k]]) for k in (group_index, -1))
    if len(transposed) < len(loads) or any(n is not None and n < LEAST for n in (rows, columns)):
        return None
    most = min(lanes_of(a.buffer.dtype) for a in chain.accesses)
    tile = (most if n is None else min(1 << (n.bit_length() - 1), most) for n in (rows, columns))
    return TransposedLoads(transposed, group_index, *tile)


def _guards(stmt: Stmt) -> dict[Load, Expr | None]:
    """The condition under which each load of a block's statements is carried out; None where that is not one."""
    guards: dict[Load, Expr | None] = {}

    def look(expr: Expr, guard: Expr | None) -> None:
        if isinstance(expr, Load):
            before = guards.get(expr, guard)
            guards[expr] = TRUE if TRUE in (before, guard) else guard if before == guard else None
        elif isinstance(expr, Apply) and expr.fn == "select":
            condition, then, otherwise = expr.args
            look(condition, guard)
            look(then, None if guard is None else conjunction(guard, condition))
            look(otherwise, None)
        elif isinstance(expr, Apply):
            for arg in expr.args:
                look(arg, guard)

    for s in stmt.stmts if isinstance(stmt, Seq) else (stmt,):
        if isinstance(s, Store):
            look(s.value, TRUE)
    return guards


def with_lanes_apart(chain: Chain, fixed: Collection[Var]) -> tuple[Chain, Expr]:
    """The block with an axis of channels as one of blocks and one of the lanes in a block, and when there is such a
    channel; what it was, where no axis but the fixed ones and the last is divided."""
    for index, axis in enumerate(chain.axes[:-1]):
        width = _width(chain, axis)
        extent = axis.extent
        if width is None or axis.var in fixed or not isinstance(extent, Const):
            continue
        blocks = -(-int(extent.value) // width)
        split = with_axis_split(chain, index, (Const(blocks), Const(width)))
        block, lane = split.axes[index : index + 2]
        return split, TRUE if extent.value % width == 0 else block.var * width + lane.var < extent
    return chain, TRUE


def _width(chain: Chain, axis: Axis) -> int | None:
    """By what the axis is divided in the indices of loads, if all divisions are by one number."""
    divisors = {
        e.args[1]
        for a in chain.accesses
        for index in a.indices
        for e in walk(index)
        if isinstance(e, Apply) and e.fn in ("floordiv", "mod") and e.args[0] == axis.var
    }
    widths = [int(n.value) for n in divisors if isinstance(n, Const)]
    return widths[0] if len(divisors) == len(widths) == 1 and widths[0] >= LEAST else None
