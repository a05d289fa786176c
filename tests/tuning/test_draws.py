"""Draws are points of a space, and others are made from them."""

from __future__ import annotations

from random import Random

import pytest

from graphopt.errors import ScheduleError, UsageError
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.lowering.schedule.trace import Trace
from graphopt.tuning.draws import Draw, Draws
from graphopt.tuning.spaces import SPACES, by_rule
from graphopt.tuning.workload import Workload
from tests.tuning.made_up import illegal, naive, nothing, pair, tiles
from tests.tuning.nests import dense, largest, product


def drawn(count: int = 8) -> tuple[Draws, list[Draw]]:
    draws, random = Draws.of(naive(), (tiles,), Random(0)), Random(1)
    return draws, [draws.fresh(random) for _ in range(count)]


def test_a_draw_is_what_its_trace_says() -> None:
    for draw in drawn()[1]:
        assert Trace.from_json(draw.text).replay(product()).nest == draw.nest
        assert draw.decisions == tuple(draw.trace.decisions.values())


def test_a_mutant_differs_in_one_decision() -> None:
    draws, (parent, *_) = drawn()
    random = Random(2)
    mutants = [draws.mutated(parent, random) for _ in range(20)]
    differing = [sum(a != b for a, b in zip(parent.decisions, m.decisions, strict=True)) for m in mutants]
    assert set(differing) == {0, 1}  # a decision may be made as before


def test_a_child_of_two_has_each_decision_from_one_of_them() -> None:
    draws, (one, other, *_) = drawn()
    assert all(a != b for a, b in zip(one.decisions, other.decisions, strict=True))
    random = Random(3)
    children = {draws.crossed(one, other, random).decisions for _ in range(30)}
    assert children == {
        (a, b) for a in (one.decisions[0], other.decisions[0]) for b in (one.decisions[1], other.decisions[1])
    }


def test_of_two_spaces_a_child_is_of_the_first() -> None:
    draws, random = Draws.of(naive(), (tiles, pair), Random(0)), Random(0)
    found = {draw.space: draw for draw in (draws.fresh(random) for _ in range(20))}
    assert {draws.crossed(found[1], found[0], random).space for _ in range(5)} == {1}


def test_a_trace_is_found_again() -> None:
    draws, found = drawn()
    for draw in found:
        assert draws.again(draw.trace, Random(9)) == draw
    s = Schedule(product())
    s.unroll(s.get_loops(s.get_block("c"))[2])
    assert draws.again(s.trace, Random(9)) is None


def test_spaces_that_have_nothing_for_a_workload_are_left_out() -> None:
    assert Draws.of(naive(), (illegal, tiles, nothing), Random(0)).spaces == (tiles,)
    assert by_rule not in Draws.of(Workload.of(largest()), SPACES, Random(0)).spaces


@pytest.mark.parametrize("workload", [naive(), Workload.of(dense()), Workload.of(dense("n"), {"n": 7})])
def test_schedules_by_rule_are_draws(workload: Workload) -> None:
    """They need not be well-formed as scripts: copies of a block at the edges of tiles share its names."""
    assert Draws.of(workload, (by_rule,), Random(0)).fresh(Random(0)).features


@pytest.mark.parametrize(
    ("spaces", "why"),
    [
        ((), "no search space has a schedule of product: there is none"),
        ((nothing,), "16 draws in a row are illegal, the last for this: the space draws nothing"),
        ((illegal,), "16 draws in a row are illegal, the last for this: .*reduc"),
    ],
)
def test_no_schedule_at_all_is_an_error(spaces: tuple[object, ...], why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        Draws.of(naive(), spaces, Random(0))  # type: ignore[arg-type]


def test_every_draw_is_there_once_and_what_is_illegal_is_left_out() -> None:
    def some(s: Schedule) -> None:
        i, _, _ = s.get_loops(s.get_block("c"))
        if s.sample_categorical([0, 1, 2], [1, 0, 1]):  # what has no chance is not drawn
            s.sample_perfect_tile(i, 2)
        s.parallel(s.get_loops(s.get_block("c"))[s.sample_categorical([0, 2])])  # steps of a sum are not shared out
        s.random.randrange(2)

    draws = Draws.of(naive(), (some, pair), Random(0))
    found = [(d.space, d.decisions) for d in draws.every()]
    rows = [(a, 24 // a) for a in (1, 2, 3, 4, 6, 8, 12, 24)]
    assert [f for f in found[::2] if f[0] == 0] == [f for f in found[1::2] if f[0] == 0]  # the last of them is no step
    assert {f for f in found if f[0] == 0} == {(0, (0, 0)), *((0, (2, row, 0)) for row in rows)}
    assert found[-2:] == [(1, (0,)), (1, (1,))]


def test_what_draws_by_other_means_is_not_gone_through() -> None:
    def other(s: Schedule) -> None:
        s.sample_categorical([1, 2] if s.random.random() < 2 else [1])

    draws = Draws.of(naive(), (other,), Random(0))
    with pytest.raises(UsageError, match="this space draws in another way"):
        list(draws.every())
