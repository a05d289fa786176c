"""Tiles are as large as pays: many threads with many results each where there are enough of them."""

from __future__ import annotations

import pytest

from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.cuda.card import CARD, SIMULATED, Card
from graphopt.lowering.cuda.contraction import contraction_of
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.cuda.tile_shapes import PAD, Tile, tile_for
from tests.lowering.cuda.nests import CONTRACTIONS, matrices


def tile(m: int, n: int, k: int) -> Tile:
    nest = matrices(m, n, k)
    found = chains(nest)
    assert found is not None
    contraction = contraction_of(found[0], found[1:])
    assert contraction is not None
    return tile_for(contraction, DeviceScheduling(nest, CARD))


def test_large_products_have_large_tiles() -> None:
    large = tile(4096, 4096, 4096)
    assert (large.rows, large.columns, large.down, large.across, large.splits) == (128, 128, 8, 8, 1)


def test_moderate_products_keep_the_card_busy() -> None:
    assert tile(1024, 1024, 1024).threads >= 128
    assert -(-1024 // tile(1024, 1024, 1024).rows) * -(-1024 // tile(1024, 1024, 1024).columns) >= 64


def test_the_steps_of_few_results_are_shared_out() -> None:
    assert tile(64, 64, 8192).splits > 4
    assert tile(64, 64, 64).splits == 1
    assert tile(4096, 4096, 8192).splits == 1


@pytest.mark.parametrize("name", ["even", "odd", "halves", "long", "one_step", "einsum"])
@pytest.mark.parametrize("card", [CARD, SIMULATED], ids=["card", "simulated"])
def test_every_tile_fits_its_card(name: str, card: Card) -> None:
    nest = CONTRACTIONS[name]()
    found = chains(nest)
    assert found is not None
    contraction = contraction_of(found[0], found[1:])
    assert contraction is not None
    made = tile_for(contraction, DeviceScheduling(nest, card))
    assert 32 <= made.threads <= card.threads
    assert (made.rows + made.columns + 2 * PAD) * made.depth * 4 <= card.shared
