"""Calls that the threads of a warp make together, as source: each thread has its own elements of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphopt.kernels.cuda.limits import WARP
from graphopt.lowering import warp_intrinsics as warps
from graphopt.lowering.expressions import Const, Expr, Load, Var
from graphopt.lowering.intrinsics import find_intrinsic
from graphopt.lowering.loops import Invoke, Nest, Region, statements
from graphopt.lowering.places import Place

if TYPE_CHECKING:
    from graphopt.lowering.cuda.emit import DeviceWriter

MULTIPLY, LOAD = warps.PRODUCT.format(""), warps.FRAGMENT.split("{")[0]


def multiplies(nest: Nest) -> bool:
    """Whether warps of a kernel hold fragments of matrices."""
    return any(isinstance(s, Invoke) and s.intrinsic.startswith((MULTIPLY, LOAD)) for s in statements(nest.body))


def write_warp_call(writer: DeviceWriter, stmt: Invoke, place: Place, lane: Var) -> None:
    """The line of a call on fragments. ``lane`` is a thread's number in its warp."""
    writer.threads[lane] = "x"
    regions = [a for a in stmt.args if isinstance(a, Region)]
    function = str(find_intrinsic(stmt.intrinsic).function)
    name = writer.spell.use(function.rpartition(".")[2])
    if stmt.intrinsic.startswith(MULTIPLY):
        c, a, b = (
            _registers(writer, region, place, lane, places)
            for region, places in zip(regions, (range(4), range(0, 8, 2), range(0, 4, 2)), strict=True)
        )
        writer.line(f"{c} = {name}(({c}), ({a}), ({b}))")
    else:
        words = _registers(writer, regions[0], place, lane, range(0, 8, 2))
        source = regions[1]
        start = [place.of(side.start) for side in source.ranges]
        row, column = _row_of(lane, stmt.intrinsic)
        first = Load(source.buffer, (*start[:-2], start[-2] + row, start[-1] + column))
        at = writer.index(writer.spell.address(first))
        writer.line(f"{words} = {name}({writer.name(source.buffer)}, {at})")
    writer.threads.pop(lane)


def _registers(writer: DeviceWriter, region: Region, place: Place, lane: Var, places: Sequence[int]) -> str:
    """A thread's own elements of a fragment, or the words that they lie in, as variables."""
    *outer, last = (place.of(side.start) for side in region.ranges)
    across = next(k for k, side in enumerate(region.ranges) if side.extent == Const(WARP))
    outer[across] = lane
    names = []
    for k in places:
        load = Load(region.buffer, (*outer, last + k))
        own = writer.local(load, writer.spell.address(load), None, written=True)
        assert own is not None
        names.append(own.text)
    return ", ".join(names)


def _row_of(lane: Var, intrinsic: str) -> tuple[Expr, Expr]:
    """Where the row starts that a thread names for all: eight threads do for each of four matrices of 8 by 8, in the
    order in which their elements stand in a fragment."""
    _, operand, way, _ = intrinsic.split("_")
    if (operand, way) in (("a", "n"), ("b", "n")):
        return lane % 16, lane // 16 * 8
    return lane % 8 + lane // 16 * 8, lane // 8 % 2 * 8
