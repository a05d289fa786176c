"""Row analysis: blocks that reduce along the same rows, and those for each element or each row.

A row is what a reduction reduces: along which axes its elements lie is the block's affair, inner or outer ones. Blocks
that pass elements and results of the same rows to each other can be one kernel, in which each row is some threads'.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.lowering.analysis.access_analysis import known_size
from graphopt.lowering.analysis.axis_transforms import with_axis_split
from graphopt.lowering.analysis.canonical_nest import Chain
from graphopt.lowering.loops.accumulation import is_accumulation
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Var
from graphopt.lowering.loops.nest import Axis, Buffer, Check, Invoke, statements


@dataclass(frozen=True)
class RowBlock:
    """A block with the axes that say which row, in the order of the rows' axes, and those that say where in it."""

    chain: Chain
    rows: tuple[Axis, ...]
    elements: tuple[Axis, ...]

    @property
    def reduces(self) -> bool:
        """Whether it makes one result of each row."""
        return self.chain.block.init is not None

    @property
    def is_shared(self) -> bool:
        """Whether several threads can reduce one row: in any order, each element of the row being one step."""
        return all(map(is_accumulation, self.chain.stores))


@dataclass(frozen=True)
class RowBlocks:
    """Blocks on the same rows, in order: so many along each axis, and the extents of the axes within them."""

    extents: tuple[Expr, ...]
    length: tuple[Expr, ...]
    members: tuple[RowBlock, ...]


def rows_of(chains: Sequence[Chain]) -> RowBlocks | None:
    """The blocks as one set of rows; None where they are none."""
    chains = [_with_groups(c, _passed(chains)) for c in chains]
    if not any(c.block.init is not None for c in chains) or not all(map(is_plain, chains)):
        return None
    places = [_wide(chains[0].spatial)] if len(chains) == 1 else _in_common(chains)
    members = []
    for chain, row_axes in zip(chains, places, strict=True):
        members.append(RowBlock(chain, row_axes, tuple(a for a in _wide(chain.axes) if a not in row_axes)))
    lengths = {tuple(a.extent for a in m.elements) for m in members if m.elements or m.reduces}
    if len(lengths) != 1 or any(m.reduces and not set(m.elements) <= set(m.chain.reduced) for m in members):
        return None
    rows = RowBlocks(tuple(a.extent for a in members[0].rows), lengths.pop(), tuple(members))
    passed = _passed(chains)
    return rows if all(_keeps_to_rows(m, passed) for m in members) else None


def _passed(chains: Sequence[Chain]) -> set[Buffer]:
    """Buffers that some of the blocks write and others read."""
    written = {s.buffer: c for c in chains for s in c.stores}
    return {a.buffer for c in chains for a in c.accesses if written.get(a.buffer, c) is not c}


def _with_groups(chain: Chain, passed: Container[Buffer]) -> Chain:
    """An element-wise block with an axis for groups of neighbours, where it reads a result of each group."""
    if chain.block.init is not None:
        return chain
    for index in (i for a in chain.accesses if a.buffer in passed for i in a.indices):
        match index:
            case Apply(fn="floordiv", args=(Var() as var, Const(value=width))):
                axis = next((a for a in chain.spatial if a.var == var), None)
                count = known_size([axis.extent]) if axis is not None else None
                if axis is not None and count is not None and count % width == 0:
                    parts = (Const(count // int(width)), Const(width))
                    return _with_groups(with_axis_split(chain, chain.spatial.index(axis), parts), passed)
    return chain


def is_plain(chain: Chain) -> bool:
    """Whether a block only stores."""
    return bool(chain.stores) and not any(isinstance(s, Check | Invoke) for s in statements(chain.block))


def _wide(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes with more than one point."""
    return tuple(a for a in axes if a.extent != Const(1))


Side: TypeAlias = tuple[int, Var] | tuple[Buffer, int]
"""An axis of a block, by the block's number, or an axis of a buffer."""


def _in_common(chains: Sequence[Chain]) -> list[tuple[Axis, ...]]:
    """Of each block the spatial axes that all have in common, in the order of the first block: the same elements of all
    that passes between blocks lie along them."""
    passed = _passed(chains)
    same: dict[Side, Side] = {}
    broken: list[Side] = []

    def root(side: Side) -> Side:
        while side in same:
            side = same[side]
        return side

    for number, chain in enumerate(chains):
        spatial = {a.var for a in chain.spatial}
        for access in chain.accesses:
            for k, index in enumerate(access.indices if access.buffer in passed else ()):
                if index in spatial:
                    one, other = root((number, index)), root((access.buffer, k))
                    if one != other:
                        same[one] = other
                else:
                    broken.append((access.buffer, k))
    lost = {root(side) for side in broken}
    groups = []
    for axis in _wide(chains[0].spatial):
        home = root((0, axis.var))
        each = [[a for a in c.axes if root((k, a.var)) == home] for k, c in enumerate(chains)]
        if home not in lost and all(len(axes) == 1 and axes[0].extent == axis.extent for axes in each):
            groups.append([axes[0] for axes in each])
    return [tuple(group[k] for group in groups) for k in range(len(chains))]


def _keeps_to_rows(member: RowBlock, passed: Container[Buffer]) -> bool:
    """Whether a block reaches what blocks pass on only in its own row, and there only at its own element."""
    ways, along = {a.var for a in member.rows}, [a.var for a in member.elements]
    for access in member.chain.accesses:
        if access.buffer in passed:
            sides = zip(access.indices, access.buffer.shape, strict=True)
            here = [index for index, extent in sides if extent != Const(1)]
            rest = [index for index in here if index not in ways]
            if (rest and rest != along) or len(here) - len(rest) != len(ways):
                return False
    return True
