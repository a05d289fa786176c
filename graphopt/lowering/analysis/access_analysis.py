"""Access pattern analysis for default schedules: contiguity, strides, shared axes, register tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from graphopt.lowering.analysis.canonical_nest import Access, Chain
from graphopt.lowering.index.arithmetic import polynomial
from graphopt.lowering.index.polynomials import replaced, text
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, minimum, rewrite
from graphopt.lowering.loops.nest import (
    Axis,
    Block,
    Buffer,
    Nest,
    Stmt,
    Store,
    described,
    map_expressions,
    mutate,
    statements,
    substitute_in,
)

REGISTERS: Final = {64: 32, 32: 16, 16: 16}
"""Vector registers, by the bytes of a vector."""
UNKNOWN: Final = 1 << 20
"""The assumed value of an unknown size."""
NEAR: Final = (1, 2, 3, 4)
"""Distances of elements that are read as whole vectors."""


def with_vectors_last(chain: Chain, groups: list[list[Axis]]) -> list[list[Axis]]:
    """The axis groups of an element-wise block, with the group that pays as vectors last: not a short one (an image's
    colours), where accesses are contiguous along another."""
    extent = known_size([a.extent for a in groups[-1]]) if groups else None
    if extent is None or extent >= 4:
        return groups
    read = [a for a in chain.accesses if not a.is_write and a.varies(groups[-1][-1].var)]
    for k, group in enumerate(groups[:-1]):
        wide = known_size([a.extent for a in group])
        if read and (wide is None or wide >= 16) and all(is_step(a, group[-1]) for a in read):
            return [*groups[:k], *groups[k + 1 :], group]
    return groups


def is_near(access: Access, axis: Axis) -> bool:
    """Whether a vector along the axis is loaded in few pieces, or is one element."""
    stride = access.stride(axis.var)
    return stride is not None and stride.number in (0, *NEAR)


def is_step(access: Access, axis: Axis) -> bool:
    """Whether elements are contiguous along the axis."""
    stride = access.stride(axis.var)
    return stride is not None and stride.number == 1


def tile_start(at: Expr, extent: Expr, width: int) -> Expr:
    """The start of the tile number ``at``; the last tile ends where the axis does."""
    if width == 1 or (isinstance(extent, Const) and extent.value % width == 0):
        return at * width
    return minimum(at * width, extent - width)


def known_size(extents: Sequence[Expr]) -> int | None:
    """The number of elements in constant extents; None where one is symbolic."""
    return (
        prod(int(e.value) for e in extents if isinstance(e, Const))
        if all(isinstance(e, Const) for e in extents)
        else None
    )


def total_size(extents: Sequence[Expr]) -> Expr:
    """The number of elements in the extents, as an expression."""
    total: Expr = Const(1)
    for extent in extents:
        total = total * extent
    return total


def bytes_of(shape: Sequence[Expr], dtype: str) -> int:
    """The approximate number of bytes of a buffer; 0 where it is unknown."""
    return (known_size(shape) or 0) * (8 if "64" in dtype else 4)


def collapsed(chain: Chain, axes: Sequence[Axis]) -> list[list[Axis]]:
    """Collapsed axes: groups, outermost first, each of which is one axis to every access."""
    used = used_as_numbers(chain.block)
    groups: list[list[Axis]] = []
    for axis in axes:
        is_single = isinstance(axis.extent, Const) and axis.extent.value == 1 and axis.var not in used
        if groups and (
            is_single or (_lies_as_one(chain, groups[-1][-1], axis) and not {axis.var, groups[-1][-1].var} & used)
        ):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def as_they_lie(chain: Chain, axes: Sequence[Axis]) -> list[Axis]:
    """The axes in an order in which the last is contiguous to all accesses, and as many as may be are one with it; as
    they are where the last is, or none."""
    inner = [a for a in axes if a.extent != Const(1)]
    last = next((a for a in reversed(inner) if lies_along(chain, a)), None)
    if last is None or last is inner[-1]:
        return list(axes)
    order, left = [last], [a for a in axes if a is not last]
    while (outer := next((a for a in reversed(left) if _lies_as_one(chain, a, order[0])), None)) is not None:
        order.insert(0, outer)
        left.remove(outer)
    return [*left, *order]


def _lies_as_one(chain: Chain, outer: Axis, inner: Axis) -> bool:
    extent = polynomial(inner.extent)
    for access in chain.accesses:
        found = replaced(access.polynomial, lambda atom: polynomial(rewrite(atom, _looked_up)))
        a, b = (found.split(axis.var) for axis in (outer, inner))
        if a is None or b is None or a[0].terms != (b[0] * extent).terms:
            return False
    return True


def _looked_up(e: Expr) -> Expr | None:
    """An element that an index is made from as something that does not vary: it is an access itself."""
    return Var(text(e), e.dtype) if isinstance(e, Load) else None


def used_as_numbers(block: Block) -> set[Var]:
    """The axes that a block uses as values, not only in indices."""
    vars: set[Var] = set()

    def look(expr: Expr) -> None:
        if isinstance(expr, Var):
            vars.add(expr)
        elif not isinstance(expr, Load):
            for arg in getattr(expr, "args", ()):
                look(arg)

    for s in statements(block.body):
        if isinstance(s, Store):
            look(s.value)
        elif hasattr(s, "condition"):
            look(s.condition)
    return vars


def point_of(number: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """The coordinates of an element, from its number in row-major order."""
    point: list[Expr] = []
    rest: Expr = Const(1)
    for k, extent in reversed(list(enumerate(extents))):
        here = number if rest == Const(1) else number // rest
        point.append(here % extent if k else here)
        rest = rest * extent
    return point[::-1]


def taken_apart(var: Expr, group: Sequence[Axis]) -> dict[Var, Expr]:
    """The axes of a collapsed group as functions of its one loop variable."""
    return dict(zip((a.var for a in group), point_of(var, [a.extent for a in group]), strict=True))


def lies_along(chain: Chain, axis: Axis) -> bool:
    """Whether all accesses that vary along the axis are contiguous along it."""
    ones = [access.stride(axis.var) for access in chain.accesses if access.varies(axis.var)]
    return bool(ones) and all(s is not None and s.number == 1 for s in ones)


def shared_axes(chains: Sequence[Chain]) -> int:
    """The number of outer axes that all blocks share: spatial, of equal extents, and the same for the buffers between
    them."""
    limit = min(len(c.spatial) for c in chains)
    written = {a.buffer for c in chains for a in c.accesses if a.is_write}
    shared = 0
    while shared < limit:
        axes = [c.axes[shared] for c in chains]
        if any(a.kind != "spatial" or a.extent != axes[0].extent for a in axes):
            break
        if not all(_passes_along(written, c, shared) for c in chains):
            break
        shared += 1
    return shared


def _passes_along(written: set[Buffer], chain: Chain, position: int) -> bool:
    """Whether the block reaches what blocks make only at its own point of the axis."""
    return all(
        len(a.indices) > position and _is_at(a.indices[position], chain.axes[position])
        for a in chain.accesses
        if a.buffer in written
    )


def made_from(chain: Chain, nest: Nest) -> Buffer | None:
    """The buffer that an element-wise block reads just at the written element, and that is like its result; None for
    none."""
    if chain.block.init is not None or len(chain.stores) != 1:
        return None
    result, here = chain.stores[0].buffer, chain.stores[0].indices
    if result in nest.allocs or not all(map(_is_at, here, chain.axes)) or len(here) != len(chain.axes):
        return None
    for access in chain.accesses:
        buffer = access.buffer
        is_like = buffer in nest.allocs and buffer.shape == result.shape and buffer.dtype == result.dtype
        if is_like and all(a.indices == here for a in chain.accesses if a.buffer == buffer):
            return buffer
    return None


def with_buffers(chain: Chain, small: Mapping[Buffer, Buffer], shared: int) -> Chain:
    """The chain with smaller intermediate buffers, without the shared axes."""

    def load(e: Expr) -> Expr | None:
        return Load(small[e.buffer], e.indices[shared:]) if isinstance(e, Load) and e.buffer in small else None

    def store(s: Stmt) -> Stmt | None:
        if isinstance(s, Store) and s.buffer in small:
            return Store(small[s.buffer], s.indices[shared:], s.value)
        return None

    def part(s: Stmt) -> Stmt:
        return mutate(map_expressions(s, load), store)

    block = replace(chain.block, body=part(chain.block.body), init=chain.block.init and part(chain.block.init))
    return Chain(chain.loops, described(block))


def at_point(chain: Chain, where: Mapping[Var, Expr]) -> Block:
    """The block at a point."""
    return chain.with_values([where[a.var] for a in chain.axes])


def decomposed(chain: Chain, values: Mapping[Var, Expr]) -> tuple[Block, Block]:
    """Reduction decomposition: the block that initializes, on axes of its own, and the block of the updates."""
    block = chain.block
    assert block.init is not None
    renamed = {a.var: Var(f"{a.var.name}_init") for a in chain.spatial}
    start = Block(
        f"{block.name}_init",
        tuple(replace(a, var=renamed[a.var]) for a in chain.spatial),
        tuple(values[a.var] for a in chain.spatial),
        substitute_in(block.init, renamed),
    )
    step = replace(block, init=None, values=tuple(values[a.var] for a in chain.axes))
    return described(start), step


def is_follower(chain: Chain, first: Chain, nest: Nest, written: Chain | None = None) -> bool:
    """Whether a block is an element-wise epilogue of the first. ``written`` is the block on the axes of its own
    results, where ``chain`` has others."""
    buffer = first.stores[0].buffer
    return buffer in nest.allocs and takes_each(chain, buffer, [a.extent for a in first.spatial], written)


def is_finished(chains: Sequence[Chain], nest: Nest) -> bool:
    """Whether the chains of a nest are a reduction and at most one element-wise epilogue."""
    first, rest = chains[0], chains[1:]
    return first.block.init is not None and len(rest) < 2 and all(is_follower(c, first, nest) for c in rest)


def takes_each(chain: Chain, buffer: Buffer, extents: Sequence[Expr], written: Chain | None = None) -> bool:
    """Whether a block is element-wise on a buffer of these extents; ``written`` as above."""
    if chain.block.init is not None or [a.extent for a in chain.axes] != list(extents):
        return False
    writer = chain if written is None else written
    read = [(a.indices, chain.axes) for a in chain.accesses if a.buffer == buffer]
    stored = [(a.indices, writer.axes) for a in writer.accesses if a.is_write]
    return all(len(at) == len(axes) and all(map(_is_at, at, axes)) for at, axes in (*read, *stored))


def _is_at(index: Expr, axis: Axis) -> bool:
    """Whether an index is the point of the axis."""
    return index == axis.var or (index == Const(0) and axis.extent == Const(1))


def is_longer(a: Axis, b: Axis) -> bool:
    """Whether the first axis is provably the longer one."""
    return isinstance(a.extent, Const) and isinstance(b.extent, Const) and a.extent.value >= b.extent.value
