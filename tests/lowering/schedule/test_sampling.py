"""What is drawn is possible, every possibility is drawn, and a seed decides which."""

from collections import Counter
from itertools import product
from math import prod
from random import Random

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import INLINE, ROOT, LoopRef
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.nest import For, statements
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.sampling import (
    compute_locations,
    sample_categorical,
    sample_partitioned_tile,
    sample_perfect_tile,
)
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.lowering.schedule.trace import Trace
from tests.lowering.documented import same_results

STAGES = """
@program
def stages(X: Buffer[(24, 6), "float32"], Y: Buffer[(24,), "float32"]):
    T = alloc((24, 6), "float32")
    for a in serial(24):
        for b in serial(6):
            with block("T"):
                va, vb = axis.remap("SS", [a, b])
                T[va, vb] = X[va, vb] * 2.0
    for i in serial(24):
        for k in serial(6):
            with block("Y"):
                vi, vk = axis.remap("SR", [i, k])
                with init():
                    Y[vi] = 0.0
                Y[vi] = Y[vi] + T[vi, vk]
"""
NEST = read(STAGES)


def test_every_tile_is_as_likely() -> None:
    random = Random(0)
    drawn = Counter(sample_perfect_tile(NEST, random, "i", 3, max_innermost=4)[1] for _ in range(6000))
    possible = {
        (a, b, c) for a in range(1, 25) for b in range(1, 25) for c in range(1, 5) if a * b * c == 24
    }  # fmt: skip
    assert set(drawn) == possible
    expected = 6000 / len(possible)
    assert all(0.6 * expected < n < 1.4 * expected for n in drawn.values())


@pytest.mark.parametrize("n", [1, 2, 5])
def test_factors_multiply_to_the_extent(n: int) -> None:
    for seed in range(20):
        decision, tile = sample_perfect_tile(NEST, Random(seed), "a", n, max_innermost=24)
        assert decision == tile
        assert len(tile) == n
        assert prod(tile) == 24


@pytest.mark.parametrize(("n", "position", "factor"), [(3, 1, 4), (3, 2, 6), (2, 0, 24), (2, 0, 1), (4, 3, 1)])
def test_every_partitioned_tile_is_as_likely(n: int, position: int, factor: int) -> None:
    random = Random(0)
    drawn = Counter(sample_partitioned_tile(NEST, random, "i", n, position, factor)[1] for _ in range(6000))
    possible = {
        tile for tile in product(range(1, 25), repeat=n) if prod(tile) == 24 and prod(tile[position:]) % factor == 0
    }
    assert set(drawn) == possible
    expected = 6000 / len(possible)
    assert all(0.6 * expected < count < 1.4 * expected for count in drawn.values())


def test_a_trace_keeps_a_partitioned_tile() -> None:
    s = Schedule(NEST, 3)
    tile = s.sample_partitioned_tile("a", 3, 1, 4)
    s.split("a", tile)
    again = Trace.from_json(s.trace.to_json())
    assert again.replay(NEST, 7).nest == s.nest
    (position,) = again.decisions
    changed = again.with_decisions({position: [6, 4, 1]})
    assert [loop.extent for loop in statements(changed.replay(NEST).nest.body) if isinstance(loop, For)][:3] == [
        Const(6),
        Const(4),
        Const(1),
    ]
    same_results(NEST, changed.replay(NEST).nest)


def test_categories_follow_their_probabilities() -> None:
    random = Random(0)
    drawn = Counter(sample_categorical(NEST, random, [16, 64, 512], [0.5, 0.0, 1.5])[1] for _ in range(2000))
    assert set(drawn) == {16, 512}
    assert 400 < drawn[16] < 600
    assert sample_categorical(NEST, random, [16, 64, 512], [1, 0, 0], decision=2) == (2, 512)


def test_a_seed_decides() -> None:
    def drawn(seed: int) -> str:
        s = Schedule(NEST, seed)
        for _ in range(4):
            s.sample_perfect_tile("i", 3)
            s.sample_categorical(list(range(100)))
            s.sample_compute_location("T")
        return str(s.trace)

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_a_block_is_computed_at_loops_of_its_consumers() -> None:
    places = compute_locations(NEST, "T")
    assert places == (ROOT, INLINE, LoopRef("i"), LoopRef("k"))
    assert compute_locations(NEST, "Y") == (ROOT,)
    for place in places:
        done = Schedule(NEST)
        done.compute_at("T", done.sample_compute_location("T", decision=place.name))
        same_results(NEST, done.nest)
        assert done.trace.replay(NEST).nest == done.nest
    s = Schedule(NEST)
    assert {s.sample_compute_location("T") for _ in range(40)} == set(places)
    assert s.sample_compute_location("T", decision="i") == LoopRef("i")
    again = s.trace.replay(NEST)
    assert again.trace == s.trace


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda s: s.sample_perfect_tile("x", 2), "there is no loop x"),
        (lambda s: s.sample_perfect_tile("i", 0), "0 factors of at most 64 are none"),
        (lambda s: s.sample_perfect_tile("i", 1, 8), "its extent 24 is more than 8; ask for more than one factor"),
        (lambda s: s.sample_perfect_tile("i", 2, 4, decision=[3, 8]), "is not 2 factors of 24, the last at most 4"),
        (lambda s: s.sample_perfect_tile("i", 2, decision=[-3, -8]), "is not 2 factors of 24"),
        (lambda s: s.sample_partitioned_tile("i", 2, 1, 5), "its extent 24 is no multiple of 5; give a divisor of it"),
        (lambda s: s.sample_partitioned_tile("i", 2, 2), "positions are 0 to 1, and factors positive"),
        (lambda s: s.sample_partitioned_tile("i", 2, 1, 0), "and factors positive"),
        (
            lambda s: s.sample_partitioned_tile("i", 2, 1, 4, decision=[12, 2]),
            r"the decision \[12, 2\] is not 2 factors of 24, those from position 1 on with a multiple of 4",
        ),
        (lambda s: s.sample_categorical([]), "0 candidates with the probabilities"),
        (lambda s: s.sample_categorical([1, 2], [1.0]), "2 candidates with the probabilities"),
        (lambda s: s.sample_categorical([1, 2], [1.0, -1.0]), "give each one of at least 0"),
        (lambda s: s.sample_categorical([1, 2], decision=2), "the decision 2 is not a position among 2 candidates"),
        (
            lambda s: s.sample_compute_location("T", decision="a"),
            "is no place for this block; use <root>, <inline>, i, k",
        ),
    ],
)
def test_impossible_draws_are_refused(draw, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        draw(Schedule(NEST))


def test_a_loop_over_a_size_has_no_tiles() -> None:
    sized = read(STAGES.replace("a in serial(24)", "a in serial(n)").replace("):\n    T", ", n: size):\n    T"))
    with pytest.raises(ScheduleError, match="its extent is not a number"):
        Schedule(sized).sample_perfect_tile("a", 2)
