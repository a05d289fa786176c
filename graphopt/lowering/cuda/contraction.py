"""Contractions: the axes of a reduction of products as batch, rows, columns and steps of a matrix product.

A sum of ``x * y`` is a product of matrices along the axes that only one of the factors depends on, whatever those are:
a convolution's weights have rows of their own, and its windows are columns that lie nowhere but are read from an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from graphopt.frozen import dataclass
from graphopt.lowering.analysis.access_analysis import known_size, taken_apart, total_size
from graphopt.lowering.analysis.canonical_nest import Chain
from graphopt.lowering.index.arithmetic import address_of
from graphopt.lowering.loops.accumulation import factors
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, variables, walk
from graphopt.lowering.loops.nest import Axis, Buffer


@dataclass(frozen=True)
class AxisGroup:
    """Axes that are counted through by one number, the last of them fastest, in units of ``width`` neighbours."""

    axes: tuple[Axis, ...]
    width: int = 1

    @property
    def extent(self) -> Expr:
        """The number of points."""
        return total_size([a.extent for a in self.axes])

    @property
    def known(self) -> int | None:
        """The number of points, where it is known."""
        return known_size([a.extent for a in self.axes])

    @property
    def units(self) -> Expr:
        """The number of units."""
        return total_size([a.extent for a in self._counted])

    @property
    def _counted(self) -> tuple[Axis, ...]:
        """The axes, the last one in units."""
        if self.width == 1:
            return self.axes
        last = self.axes[-1]
        assert isinstance(last.extent, Const)
        return (*self.axes[:-1], replace(last, extent=Const(int(last.extent.value) // self.width)))

    def at(self, unit: Expr, lane: Expr) -> dict[Var, Expr]:
        """The index along each axis of the neighbour ``lane`` of a unit."""
        values = taken_apart(unit, self._counted)
        if self.width > 1:
            last = self.axes[-1].var
            values[last] = values[last] * self.width + lane
        return values

    def in_units(self, most: int) -> AxisGroup:
        """The group in the widest units of a power of two, up to so many, that divide its last axis."""
        last = self.axes[-1].extent if self.axes else None
        return replace(self, width=gcd(most, int(last.value)) if isinstance(last, Const) else 1)


@dataclass(frozen=True)
class Contraction:
    """``made[batch, rows, columns] = sum(x * y over steps)``: ``x`` is the same along columns, ``y`` along rows.

    ``chain`` is the reduction itself, of which ``x`` and ``y`` are expressions over its axes.
    """

    chain: Chain
    x: Expr
    y: Expr
    batch: AxisGroup
    rows: AxisGroup
    columns: AxisGroup
    steps: AxisGroup

    @property
    def result(self) -> Buffer:
        """The buffer that the contraction writes."""
        return self.chain.stores[0].buffer


def contraction_of(chain: Chain, rest: Sequence[Chain]) -> Contraction | None:
    """The product of matrices that a reduction is, its columns those of which neighbours lie side by side in what
    ``rest`` makes of it; None where it is none."""
    operands = _factors(chain)
    if operands is None:
        return None
    x, y = operands
    if _lies_side_by_side(chain, rest, x):
        x, y = y, x
    in_x, in_y = variables(x), variables(y)
    rows = [a for a in chain.spatial if a.var in in_x and a.var not in in_y]
    columns = [a for a in chain.spatial if a.var in in_y and a.var not in in_x]
    batch = [a for a in chain.spatial if a not in rows and a not in columns]
    if any(known_size([a.extent for a in group]) == 1 for group in (rows, columns)):
        return None
    steps = sorted(chain.reduced, key=lambda axis: lies_along(x, axis) or lies_along(y, axis))
    return Contraction(chain, x, y, *(AxisGroup(tuple(g)) for g in (batch, rows, columns, steps)))


def _factors(chain: Chain) -> tuple[Expr, Expr] | None:
    """The factors of what a reduction sums up; None where it does anything else."""
    if chain.block.init is None or len(chain.stores) != 1 or not chain.reduced:
        return None
    (store,) = chain.stores
    operands = factors(Load(store.buffer, store.indices), store.value)
    recurrences = [e for x in operands or () for e in walk(x) if isinstance(e, Load) and e.buffer == store.buffer]
    return None if recurrences else operands


def _lies_side_by_side(chain: Chain, rest: Sequence[Chain], factor: Expr) -> bool:
    """Whether neighbours along an axis that a factor depends on lie side by side in the result."""
    last = rest[-1] if rest else chain
    written = [a for a in last.accesses if a.is_write]
    for axis, last_axis in zip(chain.spatial, last.spatial, strict=True):
        strides = [a.stride(last_axis.var) for a in written]
        if axis.extent != Const(1) and all(s is not None and s.number == 1 for s in strides):
            return axis.var in variables(factor)
    return False


def lies_along(factor: Expr, axis: Axis) -> bool:
    """Whether neighbours along an axis lie side by side in everything that a factor reads along it."""
    return alignment(factor, axis) > 0


def alignment(factor: Expr, axis: Axis, most: int = 1) -> int:
    """The vector width of a factor's loads along an axis: a power of two up to ``most``, from places on that are
    multiples of it; 0 where not even single elements are adjacent."""
    reads = [part for part in walk(factor) if isinstance(part, Load) and axis.var in variables(part)]
    width = most if reads else 0
    for load in reads:
        parts = address_of(load).split(axis.var)
        if parts is None or parts[0].number != 1:
            return 0
        width = gcd(width, *parts[1].terms.values())
    return width
