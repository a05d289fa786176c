import pytest

from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.analysis.loop_partition import Inside, pieces
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.emit.kernel_source import emit
from tests.lowering.described import padded_by_itself
from tests.lowering.native import check


@pytest.mark.parametrize("is_reflected", [True, False])
@pytest.mark.parametrize(
    ("size", "front", "behind", "parts"),
    [
        (100, 3, 5, [(0, 3), (3, 103), (103, 108)]),
        (100, 3, 0, [(0, 3), (3, 103)]),
        (100, 0, 99, [(0, 100), (100, 199)]),
        (9000, 50, 700, [(0, 50), (50, 9050), (9050, 9750)]),
        (20, 1, 1, [(0, 22)]),
        (1, 0, 0, [(0, 1)]),
    ],
)
def test_an_axis_is_cut_where_an_index_turns(
    is_reflected: bool, size: int, front: int, behind: int, parts: list[Inside]
) -> None:
    nest = padded_by_itself(size, front, behind, is_reflected)
    found = chains(nest)
    assert found is not None
    made = pieces(found[0], found[0].axes[-1])
    assert len(made) == len(parts)  # the element at which an index turns may belong to either piece
    assert all(abs(a - b) <= 1 for one, other in zip(made, parts, strict=True) for a, b in zip(one, other, strict=True))
    if len(parts) > 1:
        assert "abs(" not in emit(scheduled(nest)).kernel.source
    for rows in (0, 1, 3):
        check(nest, scheduled(nest), [rows])
