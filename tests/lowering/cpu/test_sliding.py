import pytest

from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.cpu.sliding import sliding
from graphopt.lowering.loops.expressions import Var
from graphopt.lowering.loops.nest import Nest, Store, expressions, statements
from graphopt.lowering.loops.script import read
from tests.lowering import described
from tests.lowering.described import over_windows
from tests.lowering.native import check

SIZE = Var("h"), Var("w")
CASES = {
    "plain": over_windows(SIZE, (2, 2), (2, 2), largest=True),
    "padded": over_windows(SIZE, (3, 3), pads=(1, 1, 1, 1)),
    "strided": over_windows(SIZE, (5, 5), (2, 1), (2, 2, 2, 2)),
    "uneven": over_windows(SIZE, (3, 2), (1, 2), (0, 1, 2, 0), (1, 3)),
    "beyond": over_windows(SIZE, (1, 3), (3, 2), (1, 3, 1, 3), largest=True),
}


@pytest.mark.parametrize("name", CASES)
def test_windows_over_images_of_every_size(name: str) -> None:
    nest = CASES[name]
    made = scheduled(nest)
    for size in ([5, 5], [6, 30], [17, 12], [4, 61]):
        check(nest, made, size)


@pytest.mark.parametrize("name", ["padded", "beyond"])
def test_images_that_are_smaller_than_windows_or_empty(name: str) -> None:
    nest = CASES[name]
    made = scheduled(nest)
    for size in ([1, 1], [2, 1], [1, 3], [0, 1], [1, 0]):
        check(nest, made, size)


def conditions(nest: Nest) -> int:
    """How many stores rest on a condition."""
    found = [e for s in statements(nest.body) if isinstance(s, Store) for e in expressions(s)]
    return sum("select" in repr(e) for e in found)


def test_no_step_of_a_window_asks_whether_it_is_inside() -> None:
    assert conditions(CASES["padded"]) > 0
    assert conditions(scheduled(CASES["padded"])) == 0


def test_what_all_lanes_share_makes_no_sliding_window() -> None:
    dense = chains(described.any_convolution())
    depthwise = chains(CASES["padded"])
    assert dense is not None
    assert depthwise is not None
    assert sliding(dense[0]) is None
    assert sliding(depthwise[0]) is not None


def test_results_may_stand_in_another_order() -> None:
    nest = read(
        """
@program
def sums(x: Buffer[(18, 20, 16), "float32"], y: Buffer[(18, 18, 16), "float32"]):
    for i, j, c, k in grid(18, 18, 16, 3):
        with block("s"):
            vi, vj, vc, vk = axis.remap("SSSR", [i, j, c, k])
            with init():
                y[vj, vi, vc] = 0.0
            y[vj, vi, vc] = y[vj, vi, vc] + x[vi, vj + vk, vc]
"""
    )
    check(nest, scheduled(nest), [])
