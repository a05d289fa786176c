"""Products on tensor cores: by the interpreter, and by simulated warps, at every kind of edge."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphopt.ir.constants import Array
from graphopt.kernels.cuda.compile import ptx
from graphopt.lowering.cuda.card import CARD, Card
from graphopt.lowering.cuda.emit import emit
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.emit.kernel_source import Launchable
from graphopt.lowering.loops.nest import Nest
from tests.lowering.cuda.nests import N, matrices, window
from tests.lowering.cuda.simulated import check

FOLDER = Path(__file__).parent / "goldens"
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


NEAR = Card(threads=64, is_approximate=True)
SINGLES: dict[str, Callable[[], Nest]] = {
    "odd": lambda: matrices(19, 37, 21, "nn"),
    "both_transposed": lambda: matrices(24, 20, 8, "tt"),
    "windows": lambda: window(size=5, stride=1, dilation=1, pad=1),
}


def as_seen(array: Array) -> Array:
    """Numbers of which tensor cores see all bits."""
    return array.astype(np.float16).astype(array.dtype)


@pytest.mark.parametrize("name", SINGLES)
def test_tiles_of_tf32_have_the_results_of_the_nest(name: str) -> None:
    nest = SINGLES[name]()
    made = scheduled(nest, NEAR)
    assert any("mma_tf32(" in part.kernel.source for _, part in emit(made) if isinstance(part, Launchable))
    check(nest, made, given=as_seen)


def test_float32_is_rounded_only_where_that_is_allowed() -> None:
    ((_, exact),) = emit(scheduled(matrices(64, 64, 64), CARD))
    ((_, near),) = emit(scheduled(matrices(32, 32, 16, "nt"), replace(CARD, is_approximate=True)))
    assert isinstance(exact, Launchable)
    assert isinstance(near, Launchable)
    assert "mma_tf32(" not in exact.kernel.source
    path = FOLDER / "tf32.py.txt"
    if os.environ.get("GRAPHOPT_GOLDEN"):
        path.write_text(near.kernel.source)
    assert near.kernel.source == path.read_text()
    pytest.importorskip("numba.cuda")
    assert "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in ptx(near.kernel, (8, 0))


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
