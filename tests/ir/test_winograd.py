"""Convolutions by tiles against plain ones: what they compute, the types they infer, and what they refuse."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphopt.errors import GraphoptError
from graphopt.ir.blocked import blocked, packed, unblocked
from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import Constant
from graphopt.ir.evaluate import evaluate
from graphopt.ir.graph import Attrs
from graphopt.ir.infer import infer_node
from graphopt.ir.minimal_filtering import filtering
from graphopt.ir.winograd import MEANINGS, TILES
from tests.ir.test_blocked import compute, image


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("attrs", [{}, {"pads": (1, 0, 2, 1)}, {"auto_pad": "SAME_UPPER"}])
def test_convolutions_by_tiles_are_those_of_plain_images(tile: int, attrs: dict[str, Any]) -> None:
    x, w, b = image(2, 20, 6, 7), image(18, 20, 3, 3), image(18)
    (expected,) = evaluate("Conv", Attrs(attrs), [Constant.of(a) for a in (x, w, b)], 1, 21)
    u = compute("graphopt::WinogradWeights", packed(w, 16, "blocked"), tile=tile)
    assert u.shape == (2, (tile + 2) ** 2, 2, 16, 16)
    y = compute("graphopt::BlockedWinogradConv", blocked(x, 16), u, blocked(b[None], 16)[0], tile=tile, **attrs)
    np.testing.assert_allclose(unblocked(y)[:, :18], expected.array, rtol=1e-5, atol=1e-5)
    assert not unblocked(y)[:, 18:].any()


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("matrix", ["input", "kernel", "output"])
def test_a_wrong_matrix_is_another_convolution(tile: int, matrix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = filtering(tile)
    rows = [list(row) for row in getattr(right, matrix)]
    rows[1][1] += 1
    wrong = replace(right, **{matrix: tuple(map(tuple, rows))})
    monkeypatch.setattr("graphopt.ir.winograd.filtering", lambda outputs: wrong)
    x, w = image(1, 16, 6, 6), image(16, 16, 3, 3)
    (expected,) = evaluate("Conv", Attrs(), [Constant.of(a) for a in (x, w)], 1, 21)
    u = compute("graphopt::WinogradWeights", packed(w, 16, "blocked"), tile=tile)
    y = compute("graphopt::BlockedWinogradConv", blocked(x, 16), u, tile=tile)
    assert not np.allclose(unblocked(y), expected.array, rtol=0.01, atol=0.01)


REFUSED: list[tuple[str, list[tuple[int, ...]], dict[str, int]]] = [
    ("graphopt::WinogradWeights", [(1, 1, 3, 3, 16, 16)], {"tile": 3}),
    ("graphopt::WinogradWeights", [(1, 1, 3, 2, 16, 16)], {"tile": 2}),
    ("graphopt::WinogradWeights", [(16, 16, 3, 3)], {"tile": 2}),
    ("graphopt::BlockedWinogradConv", [(1, 1, 6, 6, 16), (1, 16, 1, 16, 16)], {"tile": 4}),
    ("graphopt::BlockedWinogradConv", [(1, 2, 6, 6, 16), (1, 36, 1, 16, 16)], {"tile": 4}),
    ("graphopt::BlockedWinogradConv", [(1, 1, 6, 6, 8), (1, 36, 1, 8, 8)], {"tile": 4}),
    ("graphopt::BlockedWinogradConv", [(1, 1, 6, 16), (1, 36, 1, 16, 16)], {"tile": 4}),
]


@pytest.mark.parametrize(("op", "shapes", "attrs"), REFUSED)
def test_what_does_not_fit_is_refused(op: str, shapes: list[tuple[int, ...]], attrs: dict[str, int]) -> None:
    with pytest.raises(GraphoptError):
        infer_node(op, Attrs(attrs), [fact_of(Constant.of(image(*s))) for s in shapes], 1, 21)


TRIED = frozenset(MEANINGS)
"""The ops that the tests above cover."""
