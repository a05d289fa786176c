"""Layered layout of a graph (Sugiyama), in which data flows downwards.

The layout is Sugiyama's (Sugiyama, Tagawa, Toda, 1981), by fast-sugiyama: 2 000 nodes in half a second.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.errors import MissingDependencyError
from graphopt.frozen import dataclass

WIDTH, HEIGHT = 148, 34
"""How large a node is drawn."""
COLUMN, LAYER = WIDTH + 28, 66
"""From the middle of a node to that of its neighbour, and from layer to layer."""

Place = tuple[int, int]
"""The middle of a node, or a bend of an edge: right and down."""


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """Where each node is, and how each edge bends between its ends."""

    width: int
    height: int
    places: tuple[Place, ...]
    bends: tuple[tuple[Place, ...], ...]


def check() -> None:
    """Raise MissingDependencyError where nothing lays graphs out."""
    try:
        import fast_sugiyama  # noqa: F401
    except ImportError:
        raise MissingDependencyError("pictures of graphs need fast-sugiyama: pip install 'graphopt[report]'") from None


def lay_out(count: int, edges: Sequence[tuple[int, int]]) -> GraphLayout:
    """The layout of nodes 0 to ``count - 1``, given edges (each once) without a cycle.

    Parts that nothing connects stand side by side, those of one node together.
    """
    check()
    from fast_sugiyama import from_edges

    centres: dict[int, Place] = {}
    after: dict[int, list[int]] = {}
    dummies = count
    left = 0
    for positions, _, _, drawn in sorted(from_edges(list(edges)), key=lambda part: -len(part[0])) if edges else ():
        # nodes that stand for bends are numbered anew in each part
        ids = [int(n) for n, _ in positions]
        numbers = {n: n for n in ids if n < count}
        numbers |= {n: dummies + k for k, n in enumerate(n for n in ids if n >= count)}
        dummies = max(dummies, 1 + max(numbers.values()))
        layers = {y: rank for rank, y in enumerate(sorted({y for _, (_, y) in positions}, reverse=True))}
        start = min(x for _, (x, _) in positions)
        for n, (_, (x, y)) in zip(ids, positions, strict=True):
            centres[numbers[n]] = round(left + (x - start) * COLUMN / _SPACING), layers[y] * LAYER
        for a, b in drawn or ():
            after.setdefault(numbers[int(a)], []).append(numbers[int(b)])
        left = max(x for x, _ in centres.values()) + COLUMN
    loose = [n for n in range(count) if n not in centres]
    for position, n in enumerate(loose):
        centres[n] = left + COLUMN * (position % _ABREAST), LAYER * (position // _ABREAST)
    width = max((x for x, _ in centres.values()), default=0)
    height = max((y for _, y in centres.values()), default=0)
    bends = _bends(count, after, centres)
    return GraphLayout(width, height, tuple(centres[n] for n in range(count)), tuple(bends.get(e, ()) for e in edges))


_SPACING = 72
"""From vertex to vertex, as fast-sugiyama counts."""
_ABREAST = 8
"""How many nodes without edges stand in a row."""


def _bends(
    count: int, after: dict[int, list[int]], places: dict[int, Place]
) -> dict[tuple[int, int], tuple[Place, ...]]:
    """By edge, the corners on the way from one end to the other."""
    bends: dict[tuple[int, int], tuple[Place, ...]] = {}
    for start in range(count):
        for at in after.get(start, ()):
            way = [start]
            while at >= count:
                way.append(at)
                (at,) = after[at]
            way.append(at)
            bends[start, at] = _corners([places[n] for n in way])
    return bends


def _corners(way: Sequence[Place]) -> tuple[Place, ...]:
    """The places on the way at which its direction changes."""
    kept = []
    for (ax, ay), (bx, by), (cx, cy) in zip(way, way[1:], way[2:], strict=False):
        if abs((bx - ax) * (cy - by) - (cx - bx) * (by - ay)) > LAYER:
            kept.append((bx, by))
    return tuple(kept)
