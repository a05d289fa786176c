"""Row plans: threads for each row, vector width, and whether a row stays in registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from graphopt.frozen import dataclass
from graphopt.kernels.cuda.limits import WARP
from graphopt.lowering.analysis.access_analysis import is_step, known_size
from graphopt.lowering.analysis.canonical_nest import Access
from graphopt.lowering.cuda.rows import RowBlock, RowBlocks
from graphopt.lowering.cuda.teams import Teams
from graphopt.lowering.cuda.threads import DeviceScheduling, powers
from graphopt.lowering.loops.expressions import Const, Expr

HELD: Final = 32
"""Elements of a row that one thread holds in registers. A row that is no longer than that it takes alone."""
ACCESSES: Final = 4
"""Accesses that a thread has to make before another one is worth its while, and that it may as well make at once."""
IDLE: Final = 16
"""By how much a card has to be idle before blocks that pass on whole rows are kernels of their own."""
MANY: Final = 64
"""What a size that is not known is taken to be, but for the outermost one, which may be a batch of one."""


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Threads for rows: each takes ``access`` neighbouring elements at once, ``steps`` times where that is known and
    they fit into its registers. Each row is shared out to ``blocks`` blocks."""

    teams: Teams
    access: int
    steps: int | None
    blocks: int


def planned(owner: DeviceScheduling, rows: RowBlocks, is_split: bool = True) -> RowPlan:
    """Plans the threads of rows; several blocks for each row only where ``is_split`` says so."""
    length, access = known_size(rows.length), _access(owner, rows)
    units = None if length is None else length // access
    teams = _teams(owner, rows, length, units)
    blocks = _blocks(teams, rows, units) if is_split else 1
    return _plan(rows, teams, access, blocks)


def with_choices(rows: RowBlocks, plan: RowPlan) -> RowPlan:
    """A plan of one block for each row, but for what is chosen of it."""
    teams, owner = plan.teams, plan.teams.owner
    access = owner.choose("access", powers(1, plan.access), plan.access)
    lanes = teams.lanes
    if teams.along:
        lanes = owner.choose("lanes", powers(WARP, owner.card.threads), lanes)
    elif _is_shared(rows):
        lanes = owner.choose("lanes", powers(1, owner.card.threads // WARP), lanes)
    most = owner.card.threads // lanes
    together = owner.choose("rows", powers(1, most), min(teams.rows, most))
    return _plan(rows, replace(teams, rows=together, lanes=lanes), access, 1)


def _plan(rows: RowBlocks, teams: Teams, access: int, blocks: int) -> RowPlan:
    """The plan in which a thread holds what it takes, where it can."""
    length = known_size(rows.length)
    steps = None if length is None else -(-(length // access) // teams.lanes)
    is_held = blocks == 1 and steps is not None and steps * access <= HELD
    return RowPlan(teams, access, steps if is_held else None, blocks)


def _teams(owner: DeviceScheduling, rows: RowBlocks, length: int | None, units: int | None) -> Teams:
    """As many threads for each row as it keeps busy, for as many rows as fill a block."""
    card, count = owner.card, at_least(rows.extents)
    all_busy, along, lanes = card.blocks * card.threads, _goes_along(rows), 1
    if not _is_shared(rows):
        along = False
    elif not along:
        while lanes * WARP < card.threads and (
            units is None or (units > 2 * ACCESSES * lanes and count * lanes < all_busy)
        ):
            lanes *= 2
    elif length is None or length > HELD:
        lanes = WARP
        while lanes < card.threads and (lanes * 2 < card.threads if units is None else units > ACCESSES * lanes):
            lanes *= 2
    along = along and lanes > 1
    most = card.threads // lanes if along or count * lanes >= all_busy else WARP
    return Teams(owner, _together(most, known_size(rows.extents), 1 if along else WARP, card.blocks), lanes, along)


def _together(most: int, count: int | None, least: int, blocks: int) -> int:
    """The largest number of rows of a block: few where there are few, so that more blocks are busy, but no fewer than
    are to be read together."""
    while count is not None and most > 1 and (count <= most // 2 or (most > least and count < most * blocks)):
        most //= 2
    return most


def _blocks(teams: Teams, rows: RowBlocks, units: int | None) -> int:
    """To how many blocks each row is shared out: several, where rows are long and would keep few blocks busy. Blocks
    that pass on whole rows stay one kernel where rows might be short."""
    card, count = teams.owner.card, known_size(rows.extents)
    if count is None or not _is_shared(rows) or (units is not None and units <= ACCESSES * ACCESSES * teams.lanes):
        return 1
    busy = max(-(-count // teams.rows), 1)
    is_passing = sum(bool(m.elements) for m in rows.members) > 1
    if is_passing and (units is None or busy * IDLE > card.blocks):
        return 1
    blocks = max(card.blocks // busy, 1)
    return blocks if units is None else min(blocks, units // (ACCESSES * teams.lanes))


def _is_shared(rows: RowBlocks) -> bool:
    """Whether several threads may reduce a row."""
    return all(m.is_shared for m in rows.members if m.reduces)


def at_least(extents: Sequence[Expr]) -> int:
    """The number of points, at a guess where sizes are not known."""
    return prod(int(e.value) if isinstance(e, Const) else MANY if k else 1 for k, e in enumerate(extents))


def _goes_along(rows: RowBlocks) -> bool:
    """Whether neighbours within a row lie side by side, rather than the same elements of neighbouring rows."""
    apart = {True: 0, False: 0}
    for member, access in _far(rows):
        apart[True] += not is_step(access, member.elements[-1])
        apart[False] += any(access.varies(a.var) and not is_step(access, a) for a in member.rows[-1:])
    return apart[True] <= apart[False]


def _access(owner: DeviceScheduling, rows: RowBlocks) -> int:
    """The number of neighbouring elements of a row that can be read or written at once."""
    side = known_size(rows.length[-1:])
    far = [(m, a) for m, a in _far(rows) if a.buffer not in owner.nest.allocs]
    accesses = [a for m, a in far if is_step(a, m.elements[-1])]
    if side is None or not accesses:
        return 1
    return owner.card.width([a.buffer.dtype for a in accesses], side)


def _far(rows: RowBlocks) -> Iterator[tuple[RowBlock, Access]]:
    """Accesses of blocks to whole rows."""
    for member in rows.members:
        for access in member.chain.accesses:
            if any(access.varies(a.var) for a in member.elements):
                yield member, access
