"""Products of half floats on tensor cores: by the interpreter, and by simulated warps, at every kind of edge."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphopt.lowering.cuda.card import CARD, Card
from graphopt.lowering.cuda.emit import emit
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.loops import Nest
from tests.lowering.cuda.nests import N, matrices
from tests.lowering.cuda.simulated import check

WARPS = Card(threads=64)
"""Few threads, which exchange what they have."""
NESTS: dict[str, Callable[[], Nest]] = {
    "even": lambda: matrices(32, 32, 64, "nt", "float16"),
    "odd": lambda: matrices(19, 37, 21, "nn", "float16"),
    "left_transposed": lambda: matrices(20, 24, 40, "tn", "bfloat16"),
    "both_transposed": lambda: matrices(24, 40, 8, "tt", "float16", batch=2),
    "long": lambda: matrices(8, 8, 544, "nt", "float16"),
}


@pytest.mark.parametrize("name", NESTS)
def test_tiles_have_the_results_of_the_nest(name: str) -> None:
    nest = NESTS[name]()
    check(nest, scheduled(nest, WARPS))


@pytest.mark.parametrize("size", [1, 18])
def test_one_schedule_serves_every_size(size: int) -> None:
    nest = matrices(N, 16, 24, "nt", "float16")
    check(nest, scheduled(nest, WARPS), [size])


def test_copies_are_under_way_while_others_are_multiplied() -> None:
    ((_, made),) = emit(scheduled(matrices(1024, 1024, 1024, "nt", "float16"), CARD))
    loop = made.kernel.source.partition("for k")[2]
    places = [loop.index(part) for part in ("copy_wait(0)", "barrier()", "copy_async(", "copy_commit()", "mma_f16(")]
    assert places == sorted(places)
    assert loop.count("barrier()") == loop.count("copy_wait(0)") == 1
    assert made.kernel.source.count("ldmatrix4(") == loop.count("ldmatrix4(") > 0
