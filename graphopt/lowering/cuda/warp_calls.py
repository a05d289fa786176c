"""Warp calls: source of functions that all threads of a warp call together, each with its own fragments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphopt.kernels.cuda.limits import WARP
from graphopt.lowering.emit.emit_context import EmitContext
from graphopt.lowering.intrinsics import warp
from graphopt.lowering.intrinsics.tensor_intrin import find_intrinsic
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var
from graphopt.lowering.loops.nest import BufferRegion, Invoke, Nest, statements

if TYPE_CHECKING:
    from graphopt.lowering.cuda.emit import DeviceWriter

MULTIPLY, LOAD = warp.PRODUCT.format(""), warp.FRAGMENT.split("{")[0]


def multiplies(nest: Nest) -> bool:
    """Whether warps of a kernel hold fragments of matrices."""
    return any(isinstance(s, Invoke) and s.intrinsic.startswith((MULTIPLY, LOAD)) for s in statements(nest.body))


def write_warp_call(writer: DeviceWriter, stmt: Invoke, context: EmitContext, lane: Var) -> None:
    """The line of a call on fragments. ``lane`` is a thread's number in its warp."""
    writer.threads[lane] = "x"
    regions = [a for a in stmt.args if isinstance(a, BufferRegion)]
    each = warp.together(regions[1].buffer.dtype)
    function = str(find_intrinsic(stmt.intrinsic).function).rpartition(".")[2]
    if stmt.intrinsic.startswith(MULTIPLY):
        c, a, b = (
            _registers(writer, region, context, lane, places)
            for region, places in zip(
                regions, (range(4), range(0, 4 * each, each), range(0, 2 * each, each)), strict=True
            )
        )
        held = [", ".join(words) for words in (c, a, b)]
        writer.line(f"{held[0]} = {writer.spell.use(function)}({', '.join(f'({words})' for words in held)})")
    else:
        _write_load(writer, stmt.intrinsic, function, regions, context, lane)
    writer.threads.pop(lane)


def _write_load(
    writer: DeviceWriter,
    intrinsic: str,
    function: str,
    regions: Sequence[BufferRegion],
    context: EmitContext,
    lane: Var,
) -> None:
    """A fragment from shared memory: by one instruction, but for elements of 32 bits that it cannot turn over."""
    target, source = regions
    each = warp.together(source.buffer.dtype)
    words = _registers(writer, target, context, lane, range(0, 4 * each, each))
    start = [context.of(side.start) for side in source.ranges]

    def element(row: Expr, column: Expr) -> tuple[str, str]:
        load = Load(source.buffer, (*start[:-2], start[-2] + row, start[-1] + column))
        return writer.name(source.buffer), writer.index(writer.spell.address(load))

    _, operand, way, _ = intrinsic.split("_")
    if each > 1 or warp.is_deep(operand, way):
        buffer, at = element(*_row_of(lane, operand, way, 4 * each))
        writer.line(f"{', '.join(words)} = {writer.spell.use(function)}({buffer}, {at})")
        loaded = words
    else:
        loaded = []
        for word in range(4):
            first, last = (word % 2, word // 2) if operand == "a" else (word // 2, word % 2)
            loaded.append("{}[{}]".format(*element(lane % 4 + last * 4, lane // 4 + first * 8)))
    if each == 1:
        rounded = writer.spell.use("to_tf32")
        writer.line(f"{', '.join(words)} = {', '.join(f'{rounded}({word})' for word in loaded)}")


def _registers(
    writer: DeviceWriter, region: BufferRegion, context: EmitContext, lane: Var, places: Sequence[int]
) -> list[str]:
    """A thread's own elements of a fragment, or the words that they lie in, as variables."""
    *outer, last = (context.of(side.start) for side in region.ranges)
    across = next(k for k, side in enumerate(region.ranges) if side.extent == Const(WARP))
    outer[across] = lane
    names = []
    for k in places:
        load = Load(region.buffer, (*outer, last + k))
        register = writer.local(load, writer.spell.address(load), None, written=True)
        assert register is not None
        names.append(register.text)
    return names


def _row_of(lane: Var, operand: str, way: str, wide: int) -> tuple[Expr, Expr]:
    """The start of the row that a thread names for all: eight threads do for each of four matrices of 8 rows of 16
    bytes, ``wide`` elements, in the order in which their elements stand in a fragment."""
    if (operand, way) in (("a", "n"), ("b", "n")):
        return lane % 16, lane // 16 * wide
    return lane % 8 + lane // 16 * 8, lane // 8 % 2 * wide
