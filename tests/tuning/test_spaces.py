"""Spaces that are tried by themselves, and how draws are taken again."""

from __future__ import annotations

import pytest

from graphopt.errors import ScheduleError, UsageError
from graphopt.lowering.cpu.register_tiles import WRITTEN
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.tuning.spaces import SPACES, by_rule, elements, register_tiles, spaces_for
from tests.lowering.cuda.simulated import check as check_in_simulation
from tests.lowering.native import check
from tests.tuning.drawing import check_draw, drawn, kinds, written_out
from tests.tuning.nests import convolution, copy, dense, largest, mean, product, softmax_of


@pytest.mark.parametrize("nest", [product(), dense()], ids=["product", "dense"])
def test_draws_by_rule_compute_the_same(nest: Nest) -> None:
    check_draw(by_rule, nest, 1)


@pytest.mark.parametrize("nest", [product(7, 10, 12), softmax_of(3, 40)], ids=["product", "softmax"])
def test_draws_for_a_device_compute_the_same(nest: Nest) -> None:
    (space, *_) = spaces_for("simulated")
    for seed in range(3):
        made = drawn(space, nest, seed)
        check_in_simulation(nest, made.nest)
        assert "target='simulated'" in str(made.trace)
        assert made.trace.replay(nest).nest == made.nest


def test_every_target_has_spaces() -> None:
    assert spaces_for("cpu") == SPACES
    assert drawn(spaces_for("cuda")[0], product(), 1).nest != drawn(spaces_for("simulated")[0], product(), 1).nest
    with pytest.raises(UsageError, match="no target is called 'gpu'"):
        spaces_for("gpu")


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


CONTRACTIONS = {
    "product": product(),
    "dense": dense(),
    "dense of any size": dense("n"),
    "largest": largest(),
    "mean": mean(),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CONTRACTIONS)
def test_draws_of_register_tiles_compute_the_same(name: str, seed: int) -> None:
    check_draw(register_tiles, CONTRACTIONS[name], seed, pieces=2)


def test_tiles_are_in_registers_and_what_follows_is_done_there() -> None:
    made = drawn(register_tiles, dense(64), 0).nest
    assert "local" in {b.scope for b in made.allocs}
    assert kinds(made) >= {"parallel", "serial", "unrolled", "vectorized"}


def test_what_is_written_out_is_bounded() -> None:
    counts = [written_out(drawn(register_tiles, product(256, 256, 256), seed).nest.body) for seed in range(6)]
    assert WRITTEN // 2 < max(counts) <= WRITTEN


@pytest.mark.parametrize("made", [0, 1])
def test_what_comes_before_is_written_out_or_made_for_each_piece(made: int) -> None:
    for seed in range(3):
        s = Schedule(convolution(), seed, (made,))
        register_tiles(s)
        assert ("padded" in {b.name for b in s.nest.allocs if b.scope == "local"}) is bool(made)
        check(convolution(), s.nest, pieces=2)


def test_register_tiles_of_what_is_no_reduction_say_so() -> None:
    with pytest.raises(ScheduleError, match="copy is not one reduction"):
        drawn(register_tiles, copy(), 0)


def test_where_rules_leave_no_choice_there_is_nothing_to_draw() -> None:
    with pytest.raises(ScheduleError, match="there is nothing to choose for copy"):
        drawn(by_rule, copy(), 0)


def steps(rows: str | int = 6) -> Nest:
    """Two blocks, one after the other."""
    size, m = (", n: size", '"n"') if rows == "n" else ("", rows)
    return read(f"""
@program
def steps(x: Buffer[({m}, 40), "float32"], y: Buffer[({m}, 40), "float32"]{size}):
    e = alloc(({m}, 40), "float32")
    for i0, i1 in grid({rows}, 40):
        with block("e"):
            v0, v1 = axis.remap("SS", [i0, i1])
            e[v0, v1] = x[v0, v1] * 2.0
    for i2, i3 in grid({rows}, 40):
        with block("y"):
            v2, v3 = axis.remap("SS", [i2, i3])
            y[v2, v3] = max(e[v2, v3], 0.0)
""")


@pytest.mark.parametrize(("rows", "seed"), [(6, 1), (6, 2), ("n", 3)])
def test_draws_compute_the_same(rows: str | int, seed: int) -> None:
    check_draw(elements, steps(rows), seed, pieces=2)


def test_work_is_shared_out_in_vectors() -> None:
    assert all(kinds(drawn(elements, steps(), seed).nest) >= {"parallel", "vectorized"} for seed in range(4))


def test_blocks_are_written_out_in_others_or_not() -> None:
    assert len({len(drawn(elements, steps(), seed).nest.allocs) for seed in range(12)}) == 2


def test_reductions_are_for_other_spaces() -> None:
    with pytest.raises(ScheduleError, match="product does more than make elements one by one"):
        drawn(elements, product(), 0)
