"""Tile sizes of matrix products on CUDA: for a block of threads and for each thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Final, TypeVar

from graphopt.frozen import dataclass
from graphopt.ir.constants import BITS
from graphopt.kernels.cuda.limits import WARP
from graphopt.lowering.cuda.card import Card
from graphopt.lowering.cuda.contraction import Contraction
from graphopt.lowering.cuda.threads import DeviceScheduling, powers

OPEN: Final = 512
"""What a size that is not known is taken to be."""
TOGETHER: Final = 128
"""Multiprocessors of a card, about."""
UNITS: Final = 128
"""Multiplications that a multiprocessor begins in a cycle."""
DELAY: Final = 32
"""Cycles until a thread has what it reads from shared memory."""
SHALLOW: Final = 8
"""Steps that are fetched together, at least, where a thread does not have to hold more than ``AHEAD`` elements of an
operand until then."""
AHEAD: Final = 8
CHUNK: Final = 4
"""Neighbours that a thread reads from shared memory at once."""
PAD: Final = 4
"""Elements between rows of a shared tile, so that threads that write a column meet different banks."""
SIDES: Final = (8, 4)
"""How many rows and columns of a tile a thread may have; fewer where the product has no more."""
LONG: Final = 256
"""Steps that are worth a kernel of their own, at least."""
DEEPEST: Final = 32
"""Steps that may be fetched together, at most."""
Shape = TypeVar("Shape")


@dataclass(frozen=True)
class Tile:
    """A block of threads computes ``rows`` by ``columns`` results, ``depth`` steps at a time; a thread ``down`` by
    ``across`` of them. ``splits`` blocks share out the steps of each tile."""

    rows: int
    columns: int
    depth: int
    down: int
    across: int
    splits: int = 1

    @property
    def threads(self) -> int:
        """The number of threads in a block."""
        return self.rows // self.down * (self.columns // self.across)


def tile_for(contraction: Contraction, owner: DeviceScheduling) -> Tile:
    """The tile with which a product takes the least time, as far as a count of blocks and accesses tells, but for what
    is chosen of it."""
    card = owner.card
    rows, columns = (OPEN if n is None else n for n in (contraction.rows.known, contraction.columns.known))
    batch = 1 if contraction.batch.known is None else max(contraction.batch.known, 1)

    def quickest(tiles: Sequence[Tile]) -> Tile:
        return min(tiles, key=lambda t: (_cost(t, rows, columns, batch), -t.rows * t.columns))

    best = chosen_shape(owner, _tiles(rows, columns, card), quickest, ("down", "across", "rows", "columns"))
    size = max(BITS[contraction.result.dtype] // 8, 4)
    share = best.threads / max(best.rows, best.columns)
    depth = _power(int(min(max(CHUNK * share, SHALLOW), AHEAD * share)))
    steps = contraction.steps.known
    if steps is not None:
        depth = min(depth, _power(steps))
    most = card.shared // ((best.rows + best.columns + 2 * PAD) * size)
    while depth > 1 and depth > most:
        depth //= 2
    deepest = min(most, DEEPEST, DEEPEST if steps is None else steps)
    depth = owner.choose("depth", powers(1, deepest), depth)
    blocks = -(-rows // best.rows) * -(-columns // best.columns) * batch
    return Tile(best.rows, best.columns, depth, best.down, best.across, splits_of(contraction, owner, blocks, depth))


def chosen_shape(
    owner: DeviceScheduling, shapes: Iterable[Shape], best: Callable[[Sequence[Shape]], Shape], sides: Sequence[str]
) -> Shape:
    """The best of some shapes, of those that have each of their sides as it is chosen."""
    left = list(shapes)
    for name in sides:
        side = owner.choose(name, (getattr(s, name) for s in left), getattr(best(left), name))
        left = [s for s in left if getattr(s, name) == side]
    return best(left)


def splits_of(contraction: Contraction, owner: DeviceScheduling, blocks: int, depth: int) -> int:
    """The number of blocks that share the steps of each tile, where there are few tiles and many steps: each has
    some."""
    steps = contraction.steps.known
    if steps is None or None in (contraction.rows.known, contraction.columns.known, contraction.batch.known):
        return 1
    slabs = max(-(-steps // depth), 1)

    def full(wanted: int) -> int:
        return -(-slabs // -(-slabs // wanted))

    wanted = min(max(min(TOGETHER // max(blocks, 1), steps // LONG), 1), slabs)
    return owner.choose("splits", map(full, powers(1, min(TOGETHER, slabs))), full(wanted))


def _tiles(rows: int, columns: int, card: Card) -> Iterator[Tile]:
    """The tiles that a block of threads may have."""
    down, across = (dict.fromkeys(min(n, _power(size)) for n in SIDES) for size in (rows, columns))
    for d, a, (high, wide) in product(down, across, product((4, 8, 16), (8, 16, 32))):
        if WARP <= high * wide <= card.threads:
            yield Tile(high * d, wide * a, 1, d, a)


def _cost(tile: Tile, rows: int, columns: int, batch: int) -> float:
    """About how many cycles a step takes on the card: blocks that share a multiprocessor take turns at its units, and a
    block that has one to itself waits for its own multiplications and accesses."""
    blocks = -(-rows // tile.rows) * -(-columns // tile.columns) * batch
    warps = tile.threads / WARP
    multiplied = tile.rows * tile.columns / UNITS
    read = warps * (tile.down + tile.across) / CHUNK * 2
    fetched = (tile.rows + tile.columns) / WARP * 4
    busy = max(multiplied, read) + 0.3 * read + fetched
    return max(-(-blocks // TOGETHER) * busy, tile.down * tile.across + DELAY)


def _power(size: int) -> int:
    """The least power of two that is not below a size."""
    return 1 << max(size - 1, 0).bit_length()
