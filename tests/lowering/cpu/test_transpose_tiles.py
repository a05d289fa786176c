import pytest

from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.loops.nest import Invoke, Nest, statements
from graphopt.lowering.loops.script import read
from tests.lowering.described import any_turned, into_blocks, joined_in_blocks, out_of_blocks
from tests.lowering.native import check


def turns(nest: Nest) -> int:
    """Tiles that are turned over: whole ones, and where sizes are open shorter ones."""
    return sum(isinstance(s, Invoke) for s in statements(nest.body))


@pytest.mark.parametrize("channels", [24, 32, 8])
def test_images_enter_and_leave_blocks_in_squares(channels: int) -> None:
    for nest in (into_blocks(channels), out_of_blocks(channels)):
        made = scheduled(nest)
        assert turns(made) == 2
        for size in (0, 1, 15, 16, 50):
            check(nest, made, [size])


def test_matrices_of_any_size_are_turned_over() -> None:
    made = scheduled(any_turned())
    assert turns(made) == 2
    for size in (0, 3, 14, 15, 16, 33):
        check(any_turned(), made, [size])


def test_what_lies_side_by_side_is_not_turned() -> None:
    assert turns(scheduled(joined_in_blocks())) == 0


def test_what_works_in_place_is_not_turned() -> None:
    nest = read(
        """
@program
def scaled(z: Buffer[(40, 20), "float32"], y: Buffer[(20, 40), "float32"]):
    for i, j in grid(20, 40):
        with block("B"):
            vi, vj = axis.remap("SS", [i, j])
            y[vi, vj] = y[vi, vj] * 0.5 + z[vj, vi]
"""
    )
    assert turns(scheduled(nest)) == 0
