"""Whatever is drawn from a space computes what the nest says."""

from __future__ import annotations

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.loops import For, Nest, statements
from graphopt.lowering.schedule import Schedule
from graphopt.lowering.script import read
from graphopt.tuning.spaces import SPACES, Space, by_rule, register_tiles
from tests.lowering.native import check
from tests.tuning.nests import dense, largest, product

NESTS = {"product": product(), "dense": dense(), "open": dense("n"), "largest": largest()}


def drawn(space: Space, nest: Nest, seed: int) -> Schedule:
    s = Schedule(nest, seed)
    space(s)
    return s


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.__name__)
@pytest.mark.parametrize("name", NESTS)
def test_draws_compute_the_same(name: str, space: Space, seed: int) -> None:
    nest = NESTS[name]
    sizes = [7] * len(nest.sizes)
    try:
        made = drawn(space, nest, seed)
    except ScheduleError:
        assert (name, space) == ("largest", by_rule) or name == "open"
        return
    check(nest, made.nest, sizes)
    assert made.trace.replay(nest).nest == made.nest
    assert made.trace.decisions


def test_tiles_are_in_registers_and_what_follows_is_done_there() -> None:
    made = drawn(register_tiles, dense(), 0).nest
    assert {b.scope for b in made.allocs} == {"local"}
    assert len(made.allocs) == 1  # what comes before is written out where it is read
    kinds = {s.kind for s in statements(made.body) if isinstance(s, For)}
    assert kinds >= {"parallel", "serial", "unrolled", "vectorized"}


def test_the_same_seed_draws_the_same() -> None:
    texts = [[drawn(register_tiles, product(), seed).trace.to_json() for seed in range(4)] for _ in range(2)]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) > 1


def test_wanted_decisions_are_taken_where_they_are_possible() -> None:
    first = drawn(register_tiles, product(), 1)
    wanted = tuple(first.trace.decisions.values())
    again = Schedule(product(), 99, wanted)
    register_tiles(again)
    assert again.trace == first.trace
    other = Schedule(product(), 99, (10**6, *wanted[1:]))  # there is no such position
    register_tiles(other)
    assert other.trace.decisions.keys() == first.trace.decisions.keys()


def test_what_fits_no_space_says_why() -> None:
    nest = read("""
@program
def copy(x: Buffer[(4,), "float32"], y: Buffer[(4,), "float32"]):
    for i0 in serial(4):
        with block("y"):
            v0 = axis.remap("S", [i0])
            y[v0] = x[v0]
""")
    with pytest.raises(ScheduleError, match="copy is not one reduction"):
        drawn(register_tiles, nest, 0)
    with pytest.raises(ScheduleError, match="there is nothing to choose for copy"):
        drawn(by_rule, nest, 0)
