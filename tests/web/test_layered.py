"""Layouts: what is computed flows downwards, nothing lies on another, and equal graphs lie alike."""

from __future__ import annotations

import sys
from itertools import pairwise
from random import Random

import pytest

from graphopt.errors import MissingDependencyError
from graphopt.web.layered import COLUMN, LAYER, lay_out


def edges_of(count: int, seed: int) -> list[tuple[int, int]]:
    random = Random(seed)
    pairs = ((random.randrange(b), b) for b in range(1, count) for _ in range(random.choice((0, 1, 1, 2))))
    return list(dict.fromkeys(pairs))


@pytest.mark.parametrize("seed", range(8))
def test_edges_go_down_and_nodes_lie_apart(seed: int) -> None:
    count = 40
    edges = edges_of(count, seed)
    found = lay_out(count, edges)
    assert len(found.places) == count
    assert all(found.places[a][1] < found.places[b][1] for a, b in edges)
    for (a, b), bends in zip(edges, found.bends, strict=True):
        heights = [found.places[a][1], *(y for _, y in bends), found.places[b][1]]
        assert heights == sorted(heights)
    rows: dict[int, list[int]] = {}
    for x, y in found.places:
        assert y % LAYER == 0
        rows.setdefault(y, []).append(x)
    for xs in map(sorted, rows.values()):
        assert all(right - left >= 0.8 * COLUMN for left, right in pairwise(xs))
    assert found == lay_out(count, edges)


def test_an_edge_over_a_node_bends_around_it() -> None:
    found = lay_out(3, [(0, 1), (1, 2), (0, 2)])
    (bend,) = found.bends[2]
    assert bend[1] == found.places[1][1]
    assert bend[0] != found.places[1][0]


def test_what_nothing_connects_is_there_too() -> None:
    assert lay_out(0, []).places == ()
    assert len(set(lay_out(12, [(0, 1), (2, 3)]).places)) == 12


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fast_sugiyama", None)
    with pytest.raises(MissingDependencyError, match=r"graphopt\[report\]"):
        lay_out(1, [])
