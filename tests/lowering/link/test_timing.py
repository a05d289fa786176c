"""Nests are timed as they stand."""

from __future__ import annotations

import pytest

from graphopt.errors import UsageError
from graphopt.lowering.link.timing import Timing, time_nest
from graphopt.lowering.loops import compute as te
from graphopt.lowering.loops.compute import compute, placeholder, reduce_axis
from graphopt.lowering.loops.expressions import Var
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.schedule.schedule import Schedule


def product(n: int) -> Nest:
    x, w, k = placeholder((n, n)), placeholder((n, n)), reduce_axis(n)
    return te.nest("mm", [x, w], [compute((n, n), lambda i, j: te.sum(x[i, k.var] * w[k.var, j], k))])


def test_a_product_is_timed() -> None:
    found = time_nest(product(32), number=3, repeat=4)
    assert len(found.seconds) == 4
    assert 0 < found.best <= found.median < 1
    assert found.flops == 2 * 32**3
    assert "GFLOP/s" in str(found)


def test_a_scheduled_nest_is_timed() -> None:
    schedule = Schedule(product(128))
    block = schedule.get_block("t")
    i, j, k = schedule.get_loops(block)
    schedule.reorder(i, k, j)
    schedule.decompose_reduction(block, k)
    schedule.vectorize(j)
    timing = time_nest(schedule.nest, 5, 5)
    assert timing.flops == time_nest(product(128), 1, 1).flops
    assert timing.best > 2 * time_nest(product(16), 5, 5).best, "there are 512 times as many operations"


def test_sizes_are_given_by_name() -> None:
    n = Var("n")
    x = placeholder((n,))
    nest = te.nest("neg", [x], [compute((n,), lambda i: -x[i])], [n])
    small, large = time_nest(nest, 2000, 3, n=8), time_nest(nest, 20, 3, n=1 << 20)
    assert large.best > 10 * small.best
    with pytest.raises(UsageError, match=r"has the size n: say what it is"):
        time_nest(nest)
    with pytest.raises(UsageError, match=r"neg has no size m: its sizes are n$"):
        time_nest(nest, n=8, m=3)
    for wrong in (-1, "8"):
        with pytest.raises(UsageError, match=f"a number from 0 on, and not {wrong!r}"):
            time_nest(nest, n=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no measurement"):
        time_nest(nest, 0, n=8)


def test_a_timing_knows_its_middle() -> None:
    assert Timing((3.0, 1.0, 2.0)).median == 2.0
