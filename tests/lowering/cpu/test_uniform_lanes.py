import pytest

from graphopt.lowering.analysis.canonical_nest import Chain, chains
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.cpu.uniform_lanes import LEAST, in_granules
from graphopt.lowering.emit.kernel_source import emit
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.nest import For, Nest, statements
from graphopt.lowering.loops.script import read
from tests.lowering import described
from tests.lowering.described import joined_in_blocks
from tests.lowering.native import check


def first(nest: Nest) -> Chain:
    found = chains(nest)
    assert found is not None
    return found[0]


@pytest.mark.parametrize(
    ("channels", "pieces"),
    [((24, 24), [2, 8]), ((16, 24), [2, 8]), ((4, 20), [4, 4]), ((32, 16), [16]), ((24, 40), [2, 8])],
)
def test_lanes_of_a_piece_go_one_way(channels: tuple[int, int], pieces: list[int]) -> None:
    made = in_granules(first(joined_in_blocks(*channels)))
    assert made is not None
    assert [a.extent for a in made.axes][2:] == [Const(n) for n in pieces]


def test_nothing_is_gained_where_neighbours_differ_or_all_are_alike() -> None:
    assert in_granules(first(joined_in_blocks(3, 5))) is None
    assert in_granules(first(described.broadcast())) is None


@pytest.mark.parametrize("channels", [(24, 24), (32, 16), (3, 5)])
def test_images_are_joined_in_blocks(channels: tuple[int, int]) -> None:
    nest = joined_in_blocks(*channels)
    made = scheduled(nest)
    masks = emit(made).kernel.source.count("_where(")
    assert (masks > 0) == (channels == (3, 5))
    for size in (0, 1, 19):
        check(nest, made, [size])


@pytest.mark.parametrize(("width", "times"), [(92, 2), (60, 3), (24, 2), (15, 5), (3, 8)])
def test_a_row_that_is_repeated_is_read_row_by_row(width: int, times: int) -> None:
    nest = described.tiled(width, times)
    made = scheduled(nest)
    widths = {loop.extent for loop in statements(made.body) if isinstance(loop, For) and loop.kind == "vectorized"}
    assert widths == {Const(width if width >= LEAST else width * times)}
    for size in (0, 1, 19):
        check(nest, made, [size])


@pytest.mark.parametrize(("widths", "piece"), [([24, 48, 24], 24), ([36, 12, 60, 12], 12), ([100] * 9, 100)])
def test_pieces_are_as_wide_as_where_lanes_choose_allows(widths: list[int], piece: int) -> None:
    nest = described.side_by_side(widths)
    made = in_granules(first(nest))
    assert made is not None
    assert made.axes[-1].extent == Const(piece)
    for size in (0, 1, 19):
        check(nest, scheduled(nest), [size])


def test_neighbours_that_are_turned_as_pairs_are_read_as_vectors() -> None:
    """By heads of 32 elements: the pair's angle is read for both, the other element with its neighbour's."""
    nest = read(
        """
@program
def turned(x: Buffer[(n, 96), "float32"], s: Buffer[(n, 16), "float32"], at: Buffer[(n,), "int64"],
           y: Buffer[(n, 96), "float32"], n: size):
    for i, j in grid(n, 96):
        with block("y"):
            vi, vj = axis.remap("SS", [i, j])
            y[vi, vj] = x[vi, vj + 1 - vj % 2 * 2] * s[min(max(at[vi], 0), n - 1), vj // 2 % 16]
"""
    )
    made = scheduled(nest)
    source = emit(made).kernel.source
    assert "gather" not in source
    assert "load_swapped" in source
    assert "load_repeated" in source
    for size in (0, 1, 19):
        check(nest, made, [size])
