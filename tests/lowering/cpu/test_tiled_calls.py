"""Products are done in few pieces, and in more where they take long."""

import pytest

from graphopt.lowering.cpu.tiled_calls import BY_LIBRARY, BY_PANELS, OF_BYTES, wanted


def test_more_work_is_done_in_more_pieces():
    counts = ((10, 2), (40, 4))
    assert [wanted(work, counts) for work in (None, 0, 9, 10, 39, 40, 10**9)] == [1, 1, 1, 2, 2, 4, 4]


@pytest.mark.parametrize("counts", [BY_LIBRARY, BY_PANELS, OF_BYTES])
def test_no_piece_is_much_smaller_than_what_is_done_in_one(counts):
    whole = counts[0][0]
    assert all(least // count >= whole // 2 for least, count in counts)
    assert list(counts) == sorted(counts)
