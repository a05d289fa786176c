"""Tables of bytes: a function of one byte is computed for all 256 of them, and looked up."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from graphopt.lowering.fuse.groups import CHEAP
from graphopt.lowering.fuse.kinds import work
from graphopt.lowering.loops.compute import ElementwiseStage, Tensor, byte_table
from graphopt.lowering.loops.expressions import (
    CODES,
    LEAST_CODE,
    Const,
    Expr,
    Load,
    cast,
    children,
    loads_in,
    rewrite,
    variables,
)

BYTES: Final = frozenset({*LEAST_CODE, "bool"})
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
    if len(read) != 1 or read[0].dtype not in LEAST_CODE or work(value) <= CHEAP or _is_few(tensor, sizes):
        return tensor
    (byte,) = read
    is_at_place = byte.indices == tuple(a.var for a in stage.axes) and byte.buffer.shape == tensor.shape
    if not is_at_place or _reads_axes(value, byte, axes):
        return tensor

    def entry(code: Expr) -> Expr:
        return rewrite(value, lambda part: cast(code, byte.dtype) if part == byte else None)

    found = byte_table(entry, byte.dtype, tensor.dtype)(byte)
    return replace(tensor, stage=replace(stage, values=(found,)))


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
