"""Operand tiles: the threads of a block fetch a tile of a product's factor together."""

from __future__ import annotations

from collections.abc import Mapping

from graphopt.frozen import dataclass
from graphopt.ir.constants import BITS
from graphopt.lowering.cuda.card import Card
from graphopt.lowering.cuda.contraction import AxisGroup, alignment, lies_along
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Var, conjunction, const, substitute


@dataclass(frozen=True)
class ProductOperand:
    """A factor of a product: ``outer`` are its rows or columns, of which a tile has ``size``, and ``depth`` steps.

    Neighbouring threads fetch neighbours along the steps (``is_deep``) or along the outer axis, ``width`` of them each.
    """

    value: Expr
    outer: AxisGroup
    steps: AxisGroup
    size: int
    depth: int
    is_deep: bool

    @property
    def width(self) -> int:
        """The number of neighbours that a thread fetches at once."""
        return self.steps.width if self.is_deep else self.outer.width

    @property
    def count(self) -> int:
        """Units of a tile."""
        return self.size * self.depth // self.width

    @property
    def zero(self) -> Const:
        """The fill value for elements beyond the end."""
        return const(0, self.value.dtype)

    def tile_index(self, unit: Expr, lane: Expr) -> tuple[Expr, Expr]:
        """Of an element of a unit of the tile: which step, and which row or column."""
        if self.is_deep:
            along = self.depth // self.width
            return unit % along * self.width + lane, unit // along
        along = self.size // self.width
        return unit // along, unit % along * self.width + lane

    def at(self, unit: Expr, lane: Expr, tile: Expr, slab: Expr, batch: Mapping[Var, Expr]) -> Expr:
        """The element of a unit, of that number of a tile along the outer axis and of a slab along the steps."""
        step, outer = self._units(unit, tile, slab)
        return substitute(self.value, {**batch, **self.steps.at(step, lane), **self.outer.at(outer, lane)})

    def inside(self, unit: Expr, tile: Expr, slab: Expr) -> Expr:
        """The condition that there is such a unit, where tiles reach beyond the end."""
        step, outer = self._units(unit, tile, slab)
        return conjunction(*below(step, self.steps, self.depth), *below(outer, self.outer, self.size))

    def _units(self, unit: Expr, tile: Expr, slab: Expr) -> tuple[Expr, Expr]:
        step, outer = self.tile_index(unit, Const(0))
        return units(slab, step, self.depth, self.steps), units(tile, outer, self.size, self.outer)


def operand(value: Expr, outer: AxisGroup, steps: AxisGroup, size: int, depth: int, card: Card) -> ProductOperand:
    """A factor with the widest way to fetch it that its place in memory and the card allow."""
    value = stored(value)
    is_deep = bool(steps.axes) and lies_along(value, steps.axes[-1]) and not lies_along(value, outer.axes[-1])
    along = steps if is_deep else outer
    most = min(card.width([value.dtype]), depth if is_deep else size)
    wide = along.in_units(max(alignment(value, along.axes[-1], most), 1)) if along.axes else along
    return ProductOperand(value, outer if is_deep else wide, wide if is_deep else steps, size, depth, is_deep)


def stored(value: Expr) -> Expr:
    """The stored form of a factor until it is multiplied: the narrow element before a cast."""
    while isinstance(value, Apply) and value.fn == "cast" and BITS[value.args[0].dtype] < BITS[value.dtype]:
        value = value.args[0]
    return value


def units(tile: Expr, number: Expr, size: int, group: AxisGroup) -> Expr:
    """The unit of a place in a tile, which is a multiple of the group's width."""
    return tile * (size // group.width) + number // group.width


def below(unit: Expr, group: AxisGroup, size: int) -> tuple[Expr, ...]:
    """The condition that there is such a unit, where tiles of a size may reach beyond the end."""
    extent = group.known
    return () if extent is not None and extent % size == 0 else (unit < group.units,)
