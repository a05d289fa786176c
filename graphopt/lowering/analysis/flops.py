"""Operation count: the floating-point operations and the iterations of a nest, from its blocks, loops and calls.

A block does what its body says once for each point of its axes, however the loops around it are written. What stands in
no block, as in procedures, is done as often as its loops run; where how long a loop runs depends on those around it, it
counts as long as it may be, so that tiles which reach beyond an end count as whole ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace

from graphopt.frozen import dataclass
from graphopt.lowering.index.arithmetic import bounds
from graphopt.lowering.intrinsics.tensor_intrin import find_intrinsic
from graphopt.lowering.loops.expressions import Apply, Expr, Var, variables, walk
from graphopt.lowering.loops.nest import Block, For, If, Invoke, Nest, Seq, Stmt, Store, substitute_in
from graphopt.lowering.loops.sizes import product, size_of, total
from graphopt.runtime.sizes import Size


def flops(nest: Nest, sizes: Mapping[Var, Size]) -> Size:
    """The approximate number of floating-point operations of a nest, as a size. Sizes that depend on elements count as
    zero."""
    return _Count(sizes, _operations, 0).of(nest.body, {}, 1, 1)


def iterations(nest: Nest, sizes: Mapping[Var, Size], unknown: int) -> Size:
    """How many elements a nest stores, as a size. Sizes that depend on elements count as ``unknown``."""
    return _Count(sizes, lambda value: 1, unknown).of(nest.body, {}, 1, 1)


@dataclass(frozen=True)
class _Count:
    """Counts what statements do; a block that stands in several places is one."""

    sizes: Mapping[Var, Size]
    of_store: Callable[[Expr], int]
    unknown: int
    seen: set[str] = field(default_factory=set)

    def of(self, stmt: Stmt, around: Mapping[Var, Expr], times: Size, apart: Size) -> Size:
        """The operations of a statement within loops of these extents, which runs so many times; a block in it runs
        ``apart`` times, whatever the loops around it."""
        match stmt:
            case Store():
                return product(times, self.of_store(stmt.value))
            case Seq():
                return total(*(self.of(s, around, times, apart) for s in stmt.stmts))
            case For():
                inside = {**around, stmt.var: stmt.extent}
                return self.of(stmt.body, inside, product(times, self.most(stmt.extent, around)), apart)
            case If():
                ways = [stmt.then] if stmt.otherwise is None else [stmt.then, stmt.otherwise]
                counts = [self.of(s, around, times, apart) for s in ways]
                return counts[0] if counts[-1] in (0, counts[0]) else ("max", *counts)
            case Block():
                return self.block(stmt, around, times, apart)
            case Invoke():
                description = find_intrinsic(stmt.intrinsic).description
                pairs = zip(description.params, stmt.args, strict=True)
                given = {p: longest(a, around) for p, a in pairs if isinstance(p, Var) and isinstance(a, Expr)}
                values = {p: n for p, n in given.items() if n is not None}
                return replace(self, seen=set()).of(substitute_in(description.body, values), {}, times, times)
        return 0

    def block(self, block: Block, around: Mapping[Var, Expr], times: Size, apart: Size) -> Size:
        """The operations of a block."""
        if not block.axes:
            return self.of(block.body, around, times, apart)
        if block.name in self.seen:
            return 0
        self.seen.add(block.name)
        points = product(apart, *(self.most(a.extent, around) for a in block.axes))
        return self.of(block.body, {a.var: a.extent for a in block.axes}, points, points)

    def most(self, extent: Expr, around: Mapping[Var, Expr]) -> Size:
        """The maximal trip count of a loop."""
        limit = longest(extent, around)
        try:
            return self.unknown if limit is None else size_of(limit, self.sizes)
        except (KeyError, ValueError):
            return self.unknown


def longest(extent: Expr, around: Mapping[Var, Expr]) -> Expr | None:
    """An upper bound of an extent over the loops around it; None where none is known."""
    if variables(extent).isdisjoint(around):
        return extent
    interval = bounds(extent, around)
    return None if interval is None else interval[1]


def _operations(value: Expr) -> int:
    return sum(
        isinstance(e, Apply) and e.dtype.startswith(("float", "bfloat")) and e.fn not in ("cast", "select")
        for e in walk(value)
    )
