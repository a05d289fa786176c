"""Tiles for blocks of threads compute what the nest says, at every kind of edge, within the limits of the card."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import pytest

from graphopt.errors import ScheduleError
from graphopt.kernels.cuda.limits import WARP
from graphopt.lowering.cuda.card import SIMULATED
from graphopt.lowering.cuda.emit import Launchable, emit
from graphopt.lowering.loops.nest import Nest
from graphopt.tuning.block_tiles import block_tiles
from tests.lowering.cuda.nests import CONTRACTIONS
from tests.lowering.cuda.row_nests import vector
from tests.lowering.cuda.simulated import check
from tests.tuning.drawing import drawn
from tests.tuning.nests import dense, product, softmax_of

SPACE = partial(block_tiles, card=SIMULATED)
NESTS: dict[str, Callable[[], Nest]] = {
    "even": lambda: product(16, 16, 8),
    "odd": lambda: product(9, 21, 5),
    "with what is before and behind it": dense,
    "of several axes": CONTRACTIONS["einsum"],
}


@pytest.mark.parametrize("name", NESTS)
def test_draws_compute_the_same(name: str) -> None:
    nest = NESTS[name]()
    for seed in range(2):
        made = drawn(SPACE, nest, seed)
        check(nest, made.nest)
        assert made.trace.replay(nest).nest == made.nest
        assert {b.scope for b in made.nest.allocs} == {"local", "shared"}


def test_draws_are_one_kernel_of_so_many_threads_as_a_card_has() -> None:
    blocks = set()
    for seed in range(8):
        ((_, kernel),) = emit(drawn(SPACE, product(), seed).nest)
        assert isinstance(kernel, Launchable)
        assert WARP <= prod(kernel.block) <= SIMULATED.threads
        blocks.add(kernel.block)
    assert len(blocks) > 2


def test_what_is_no_contraction_has_no_tiles() -> None:
    with pytest.raises(ScheduleError, match="softmax is not one reduction"):
        drawn(SPACE, softmax_of(3, 40), 0)
    with pytest.raises(ScheduleError, match="is no contraction with rows and columns"):
        drawn(SPACE, vector(), 0)
