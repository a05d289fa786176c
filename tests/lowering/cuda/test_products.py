"""Contractions in tiles: as loops and as kernels they have the results of the nest, at every kind of edge."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphopt.lowering.cuda.card import CARD, SIMULATED
from graphopt.lowering.cuda.emit import emit
from graphopt.lowering.cuda.schedules import scheduled
from tests.lowering.cuda.nests import CONTRACTIONS, OPEN
from tests.lowering.cuda.simulated import check
from tests.lowering.described import convolution

FOLDER = Path(__file__).parent / "goldens"


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_tiles_have_the_results_of_the_nest(name: str) -> None:
    nest = CONTRACTIONS[name]()
    check(nest, scheduled(nest, SIMULATED))


@pytest.mark.parametrize("name", ["odd", "halves", "groups_of_windows"])
def test_tiles_of_many_threads_have_them_too(name: str) -> None:
    nest = CONTRACTIONS[name]()
    check(nest, scheduled(nest, CARD), is_run=False)


@pytest.mark.parametrize("size", [1, 2, 17])
@pytest.mark.parametrize("name", OPEN)
def test_one_schedule_serves_every_size(name: str, size: int) -> None:
    nest = OPEN[name]()
    check(nest, scheduled(nest, SIMULATED), [size], is_run=size > 1)


def test_what_is_only_moved_for_a_product_is_not_kept() -> None:
    made = scheduled(convolution(), SIMULATED)
    assert {b.scope for b in made.allocs} == {"local", "shared"}


def test_what_others_need_as_well_is_kept() -> None:
    nest = CONTRACTIONS["twice_needed"]()
    assert [b.name for b in scheduled(nest, SIMULATED).allocs if b.scope == "global"] == ["c"]


@pytest.mark.parametrize("name", ["even", "halves", "long", "padded_windows", "open"])
def test_the_source_is_as_it_was(name: str) -> None:
    source = "\n".join(made.kernel.source for _, made in emit(scheduled((CONTRACTIONS | OPEN)[name](), CARD)))
    path = FOLDER / f"{name}.py.txt"
    if os.environ.get("GRAPHOPT_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    assert source == path.read_text()
