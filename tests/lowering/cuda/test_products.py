"""Contractions in tiles: as loops and as kernels they have the results of the nest, at every kind of edge."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from graphopt.kernels.cuda.compile import ptx
from graphopt.kernels.cuda.machine import machine_code
from graphopt.lowering.cuda.card import CARD, SIMULATED
from graphopt.lowering.cuda.emit import Launchable, emit
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.loops.nest import Nest
from tests.lowering.cuda.nests import CONTRACTIONS, OPEN, N, matrices, window
from tests.lowering.cuda.simulated import check
from tests.lowering.described import FIXED, SYMBOLIC, convolution

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


@pytest.mark.parametrize("name", ["pointwise_convolution", "any_convolution", "depth_to_space", "few_rows"])
def test_products_of_other_forms_have_their_results(name: str) -> None:
    nest = (FIXED | SYMBOLIC)[name]()
    check(nest, scheduled(nest, SIMULATED), [3] * len(nest.sizes))


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


LARGE: dict[str, Callable[[], Nest]] = {
    "large": lambda: matrices(4096, 4096, 4096),
    "transposed": lambda: matrices(2048, 2048, 2048, "tt"),
    "moderate": lambda: matrices(512, 512, 512),
    "open": lambda: matrices(N, 1024, 1024, "nt"),
    "halves": lambda: matrices(4096, 4096, 4096, "nn", "float16"),
    "open_halves": lambda: matrices(N, 1024, 1024, "nt", "float16"),
    "windows": lambda: window(size=56, stride=1, dilation=1, pad=1, groups=4),
}


@pytest.mark.slow
@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
@pytest.mark.parametrize("name", LARGE)
def test_tiles_stay_in_registers(name: str, capability: tuple[int, int]) -> None:
    for _, made in emit(scheduled(LARGE[name](), CARD)):
        assert isinstance(made, Launchable)
        code = machine_code(ptx(made.kernel, capability), capability)
        assert code.spilled == code.local == 0
        assert code.registers <= 128
