"""Constant indices, slices side by side, matrices that change nothing."""

from __future__ import annotations

import pytest

from graphopt.rewrite.guards.indices import all_in_order, common_row, is_eye, side_by_side, widths


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        (((1, 0), (0, 1)), True),
        ((((1,), (0,)), ((0,), (1,))), True),
        (((1, 0), (0, 2)), False),
        (((1, 0, 0), (0, 1, 0)), False),
        ((1, 1), False),
        ((((1, 0), (0, 0)), ((0, 0), (1, 0))), False),
    ],
)
def test_identity_matrices(matrix: tuple[object, ...], expected: bool) -> None:
    assert is_eye(matrix) is expected


@pytest.mark.parametrize(
    ("starts", "ends", "size", "expected"),
    [
        ((0, 2), (2, 5), 5, True),
        ((0, 2), (2, 2**63 - 1), 5, True),
        ((0, 3), (2, 5), 5, False),
        ((1, 2), (2, 5), 5, False),
        ((0, 2), (2, 4), 5, False),
    ],
)
def test_slices_side_by_side(starts: tuple[int, ...], ends: tuple[int, ...], size: int, expected: bool) -> None:
    assert side_by_side(starts, ends, size) is expected
    assert widths((0, 2), 5) == (2, 3)


def test_a_slice_that_is_looked_at_alone_may_be_one_of_several() -> None:
    assert side_by_side((), (), 5)
    assert all_in_order((), 3)


def test_all_places() -> None:
    assert all_in_order((0, 1, 2), 3)
    assert not all_in_order((0, 2, 1), 3)
    assert not all_in_order((0, 1), 3)


def test_rows_of_indices() -> None:
    assert common_row((((1, 1), (0, 0)),), 1) == (1, 0)
    with pytest.raises(ValueError, match="same"):
        common_row((((1, 1), (0, 1)),), 1)
