"""Contractions in tiles: the interpreter finds in the tiles' loops what it finds in the nest's own."""

from __future__ import annotations

import pytest

from graphopt.lowering.cuda.card import CARD, SIMULATED, Card
from graphopt.lowering.cuda.emit import emit
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.interpret import interpret
from graphopt.lowering.loops import Nest
from graphopt.tolerance import error
from tests.lowering.cuda.nests import CONTRACTIONS, OPEN
from tests.lowering.native import random_arrays

CARDS = {"card": CARD, "simulated": SIMULATED}


def check(nest: Nest, card: Card, sizes: list[int]) -> None:
    """What the scheduled nest leaves in each buffer is what the nest itself leaves there."""
    want = random_arrays(nest, sizes)
    got = [a.copy() for a in want]
    for buffer, array in zip(nest.buffers, got, strict=True):
        if buffer in nest.outputs:
            array[...] = 77
    made = scheduled(nest, card)
    assert emit(made)
    known = {v.name: n for v, n in zip(nest.sizes, sizes, strict=True)}
    interpret(nest, want, known)
    interpret(made, got, known)
    for a, b in zip(want, got, strict=True):
        assert error(a, b) <= 1.0


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("name", CONTRACTIONS)
def test_tiles_have_the_results_of_the_nest(name: str, card: str) -> None:
    check(CONTRACTIONS[name](), CARDS[card], [])


@pytest.mark.parametrize("size", [1, 2, 17])
@pytest.mark.parametrize("name", OPEN)
def test_one_schedule_serves_every_size(name: str, size: int) -> None:
    check(OPEN[name](), SIMULATED, [size])
