"""Element by element, whatever is drawn computes what the nest says."""

from __future__ import annotations

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read
from graphopt.tuning.elements import elements
from tests.tuning.drawing import check_draw, drawn, kinds
from tests.tuning.nests import product


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
