"""Functions that every program has: maps of labels, and texts at places."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.errors import ExecutionError
from graphopt.runtime.host import FEW, bytes_of, maps, words


@pytest.mark.parametrize("rows", [0, 1, FEW, FEW + 1, 100])
def test_maps(rows: int) -> None:
    numbers = np.random.default_rng(rows).random((rows, 3)).astype(np.float32)
    wanted = [dict(zip((7, -1, 2), row, strict=True)) for row in numbers.tolist()]
    assert maps(np.array([7, -1, 2]), numbers) == wanted
    texts = [dict(zip(("ä", "", "c"), row, strict=True)) for row in numbers.tolist()]
    assert maps(bytes_of(["ä", "", "c"]), numbers) == texts


def test_a_map_of_one_axis_is_one_row() -> None:
    assert maps(np.array([1, 2]), np.array([0.5, 0.25], np.float32)) == [{1: 0.5, 2: 0.25}]


def test_labels_and_numbers_have_to_go_together() -> None:
    with pytest.raises(ExecutionError, match="2 labels for 3 numbers"):
        maps(np.array([1, 2]), np.zeros((4, 3), np.float32))


def test_words() -> None:
    texts = bytes_of(["no", "", "yes"])
    assert words(texts, np.array([2, 0, -2])).tolist() == ["yes", "no", ""]
    assert words(texts, np.zeros((2, 0), np.int64)).shape == (2, 0)
    with pytest.raises(ExecutionError, match="out of range"):
        words(texts, np.array([3]))
