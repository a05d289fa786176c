"""Sliding windows: schedules of depthwise convolutions and pools on images in blocks of channels.

Each row of results is a work item. Several neighbours in the middle of a row are computed at once, each in vectors of
its own that stay in registers, without a condition; those at the edges, whose windows reach beyond the image, one by
one. Steps of a window that lie beyond the image are left out by bounds, so that one nest serves images of any size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from graphopt.frozen import dataclass
from graphopt.kernels.host import lanes as lanes_of
from graphopt.kernels.host import vector_bytes
from graphopt.lowering.analysis.access_analysis import REGISTERS, decomposed, known_size
from graphopt.lowering.analysis.canonical_nest import Chain, exchange
from graphopt.lowering.cpu.reduction_bounds import Clip, clipped
from graphopt.lowering.cpu.scheduling import Scheduling
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, minimum, select, substitute
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import Axis, Buffer, For, LoopKind, Stmt, Store, seq

WRITTEN_OUT: Final = 8
"""Steps along a row of a window that are written out one after another."""
LARGEST: Final = 1 << 10
"""Elements of a window beyond which reading them is no matter of edges."""


@dataclass(frozen=True, slots=True)
class Sliding:
    """A reduction over windows: the axis along which they slide, and the one of the vectors."""

    first: Chain
    clip: Clip
    along: Axis
    vector: Axis
    middle: tuple[Expr, Expr]
    """Where along the axis whole windows begin, and where they end."""


def sliding(first: Chain) -> Sliding | None:
    """Matches a chain whose steps read vectors of neighbours, with windows of known size."""
    if not first.reduced or len(first.stores) != 1 or len(first.spatial) < 2:
        return None
    size, vector = known_size([a.extent for a in first.reduced]), first.spatial[-1]
    lanes, width = lanes_of(first.stores[0].buffer.dtype), known_size([vector.extent])
    if size is None or not 1 < size <= LARGEST or width is None or width % lanes or width // lanes > _most():
        return None
    read = [a for a in first.accesses if not a.is_write and a.buffer != first.stores[0].buffer]
    if any(a.varies(vector.var) and ((s := a.stride(vector.var)) is None or s.number != 1) for a in first.accesses):
        return None
    along = next((a for a in first.spatial[-2::-1] if a.extent != Const(1)), None)
    if along is None or not any(a.varies(along.var) for a in read):
        return None
    if any(not a.varies(vector.var) for a in read):  # a number that all lanes share, which is worth keeping
        return None
    clip = clipped(first)
    if clip is None or any(clip.moves(a, vector) for a in first.reduced):
        return None
    middle = clip.interior(along, {a.var: int(a.extent.value) for a in first.reduced if isinstance(a.extent, Const)})
    return None if middle is None else Sliding(first, clip, along, vector, middle)


def _most() -> int:
    """Vectors of results that are kept at once: enough for the latency of additions, and room for what is read."""
    return REGISTERS[vector_bytes()] * 3 // 8


class SlidingRowWriter:
    """Writes a row of results of windows, and what is done to each of them."""

    def __init__(self, owner: Scheduling, windows: Sliding, rest: Sequence[Chain]) -> None:
        self.owner, self.windows, self.rest = owner, windows, rest
        self.result = windows.first.stores[0].buffer
        self.lanes = lanes_of(self.result.dtype)
        self.pieces = prod([known_size([windows.vector.extent]) or 1]) // self.lanes
        begin, end = windows.middle
        most, length = max(_most() // self.pieces, 1), known_size([end - begin])
        self.width = most * 2 // 3 or 1
        if length:
            self.width = -(-length // -(-length // most))  # tiles of equal width
        shape = [Const(self.pieces), Const(self.lanes)]
        self.tile = owner.local(self.result.name, [Const(self.width), *shape], self.result.dtype)
        self.single = owner.local(self.result.name, [Const(1), *shape], self.result.dtype)

    @property
    def outer(self) -> list[Axis]:
        """The axes around a row."""
        return [a for a in self.windows.first.spatial if a not in (self.windows.along, self.windows.vector)]

    def at(self, where: Mapping[Var, Expr]) -> Stmt:
        """The row at a point of the outer axes."""
        along, (begin, end) = self.windows.along, self.windows.middle
        length = end - begin
        inside = select(length >= self.width, length, 0)
        o, i = self.owner.var("o"), self.owner.var("i")
        last = minimum(o * self.width, inside - self.width)
        if isinstance(inside, Const) and inside.value % self.width == 0:
            last = o * self.width
        tile = self.computed({**where, along.var: begin + last}, self.tile, whole=True)
        middle = For(o, (inside + (self.width - 1)) // self.width, tile)
        position = i + select(i < begin, 0, inside)
        edge = self.computed({**where, along.var: position}, self.single, whole=False)
        parts: list[Stmt] = [middle] if inside != Const(0) else []
        if (left := along.extent - inside) != Const(0):
            parts.append(For(i, left, edge))
        return seq(*parts)

    def computed(self, where: Mapping[Var, Expr], tile: Buffer, whole: bool) -> Stmt:
        """The results from a point on, all that a tile holds."""
        first, clip = self.windows.first, self.windows.clip
        inner = Chain(first.loops, clip.block)
        values: dict[Var, Expr] = {}
        loops: list[LoopSpec] = []
        for axis in first.reduced:
            start, end = (
                (Const(0), axis.extent) if whole and clip.moves(axis, self.windows.along) else clip.steps(axis, where)
            )
            var = self.owner.var("r")
            count = known_size([end - start])
            is_last = axis is first.reduced[-1]
            kind: LoopKind = "unrolled" if is_last and count is not None and count <= WRITTEN_OUT else "serial"
            loops.append(LoopSpec(var, end - start, kind))
            values[axis.var] = start + var
        zeros: dict[Var, Expr] = {a.var: Const(0) for a in first.reduced}
        begin = self.over(first, where, zeros, tile, 0)
        steps = wrapped(loops, self.over(inner, where, values, tile, 1))
        return seq(begin, steps, *self.ends(where, tile))

    def ends(self, where: Mapping[Var, Expr], tile: Buffer) -> list[Stmt]:
        """The epilogue of the results: at least they are stored."""
        return [self.over(c, where, {}, tile, None) for c in self.rest or [self.windows.first]]

    def over(
        self, chain: Chain, where: Mapping[Var, Expr], values: Mapping[Var, Expr], tile: Buffer, part: int | None
    ) -> Stmt:
        """A pass over the tile: the chain's start, its steps, or (None) what follows from each result."""
        q, p, c = (self.owner.var(letter) for letter in "qpc")
        places = dict(where)
        places[self.windows.along.var] = places[self.windows.along.var] + q
        places[self.windows.vector.var] = p * self.lanes + c
        first = self.windows.first
        at = {axis.var: places[a.var] for a, axis in zip(first.spatial, chain.spatial, strict=True)} | dict(values)
        element = (tile, (q, p, c))
        if part is not None:
            body: Stmt = exchange(decomposed(chain, at)[part], {self.result: element})
        elif self.rest:
            body = exchange(chain.with_values([at[a.var] for a in chain.axes]), {self.result: element})
        else:
            where_to = chain.stores[0].indices
            body = Store(self.result, tuple(substitute(i, at) for i in where_to), Load(*element))
        body = For(c, Const(self.lanes), body, "vectorized")
        return For(q, tile.shape[0], For(p, tile.shape[1], body, "unrolled"), "unrolled")
