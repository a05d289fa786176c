import pytest

from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.analysis.loop_partition import affine_segments
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.emit.kernel_source import emit
from graphopt.lowering.loops.expressions import Const
from tests.lowering.described import padded_by_itself
from tests.lowering.native import check


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize(
    ("size", "front", "behind", "segments"),
    [
        (100, 3, 5, [3, 100, 5]),
        (100, 3, 0, [3, 100]),
        (100, 0, 99, [100, 99]),
        (9000, 50, 700, [50, 9000, 700]),
        (20, 1, 1, [22]),
        (1, 0, 0, [1]),
    ],
)
def test_an_axis_is_cut_where_an_index_bends(
    mode: str, size: int, front: int, behind: int, segments: list[int]
) -> None:
    nest = padded_by_itself(size, front, behind, mode)
    found = chains(nest)
    assert found is not None
    made = [int(n.value) for _, n in affine_segments(found[0], found[0].axes[-1]) if isinstance(n, Const)]
    assert sum(made) == sum(segments)
    # the element at which an index bends may belong to either segment
    assert all(abs(a - b) <= 1 for a, b in zip(made, segments, strict=True))
    source = emit(scheduled(nest)).kernel.source
    assert len(segments) == 1 or not any(word in source for word in ("abs(", "gather"))
    for rows in (0, 1, 3):
        check(nest, scheduled(nest), [rows])


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_segments_of_one_long_row_are_cut_into_chunks(mode: str) -> None:
    nest = padded_by_itself(40_000, 100, 77, mode, rows=1)
    source = emit(made := scheduled(nest)).kernel.source
    assert not any(word in source for word in ("abs(", "gather"))
    check(nest, made, [])
