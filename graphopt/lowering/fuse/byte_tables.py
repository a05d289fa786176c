"""Tables of bytes: a function of one byte is computed for all 256 of them, and looked up."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from graphopt.lowering.fuse.groups import CHEAP
from graphopt.lowering.fuse.kinds import work
from graphopt.lowering.loops.compute import ElementwiseStage, Tensor, compute
from graphopt.lowering.loops.expressions import INDEX, Const, Expr, Load, cast, children, loads_in, rewrite, variables

LOWEST: Final = {"uint8": 0, "int8": -128}
"""The dtypes of such bytes, with the least of each,"""
CODES: Final = 256
"""and how many there are."""
BYTES: Final = frozenset({*LOWEST, "bool"})
"""The dtypes of entries."""
LEAST: Final = 4 * CODES
"""Elements that are worth a table; where it is not known how many there are, there is one."""


def tabulated(tensor: Tensor) -> Tensor:
    """The tensor by a table, where each element is a function of the byte at its place that costs more than to look it
    up; else itself."""
    stage = tensor.stage
    if not isinstance(stage, ElementwiseStage) or len(stage.values) > 1 or tensor.dtype not in BYTES:
        return tensor
    (value,), axes = stage.values, frozenset(a.var for a in stage.axes)
    read = [load for load in loads_in(value) if axes & variables(load)]
    sizes = [int(n.value) for n in tensor.shape if isinstance(n, Const)]
    if len(read) != 1 or read[0].dtype not in LOWEST or work(value) <= CHEAP or _is_few(tensor, sizes):
        return tensor
    (byte,) = read
    is_at_place = byte.indices == tuple(a.var for a in stage.axes) and byte.buffer.shape == tensor.shape
    if not is_at_place or _reads_axes(value, byte, axes):
        return tensor
    least = LOWEST[byte.dtype]

    def entry(k: Expr) -> Expr:
        code = cast(k + least, byte.dtype)
        return rewrite(value, lambda part: code if part == byte else None)

    table = compute((CODES,), entry, tensor.dtype, "table", is_stored=True)
    return replace(tensor, stage=replace(stage, values=(table[cast(byte, INDEX) - least],)))


def _is_few(tensor: Tensor, sizes: list[int]) -> bool:
    """Whether there are known to be fewer elements than are worth a table."""
    total = 1
    for size in sizes:
        total *= size
    return len(sizes) == tensor.rank and total < LEAST


def _reads_axes(value: Expr, byte: Load, axes: frozenset[Expr]) -> bool:
    """Whether a value depends on where it is other than by the byte."""
    if value == byte:
        return False
    return value in axes or any(_reads_axes(part, byte, axes) for part in children(value))
