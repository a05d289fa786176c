"""Arrays are read from files, and what is no such file is told in one line."""

from pathlib import Path

import numpy as np
import pytest

from graphopt.errors import ReadError, UsageError
from graphopt.run.local_checks import off
from graphopt.verify.arrays import comparable, filled, read_array


def test_an_array_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    assert np.array_equal(read_array(tmp_path / "a.npy"), np.arange(3))


def test_what_is_no_array_is_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", np.arange(3), np.arange(2))
    (tmp_path / "two.npz").rename(tmp_path / "two.npy")
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "empty.npy").touch()
    np.save(tmp_path / "objects.npy", np.array([None]), allow_pickle=True)
    for name, said in (
        ("missing", "cannot read: No such file or directory$"),
        ("two", "holds several arrays"),
        ("text", "write it with numpy.save"),
        ("empty", "write it with numpy.save"),
        ("objects", "objects.npy: not an array of numbers, or a damaged one; write it with numpy.save$"),
    ):
        with pytest.raises(ReadError, match=said):
            read_array(tmp_path / f"{name}.npy")


def test_arrays_are_filled() -> None:
    given = np.empty((2, 2), np.float16)
    for how, wanted in (("ones", [[1, 1], [1, 1]]), ("zeros", [[0, 0], [0, 0]]), ("arange", [[0, 1], [2, 3]])):
        assert np.array_equal(filled(given, how), np.array(wanted, np.float16))
        assert filled(given, how).dtype == np.float16
    with pytest.raises(UsageError, match="ones, zeros or arange, not 'sevens'"):
        filled(given, "sevens")


def test_maps_are_compared_by_labels_and_numbers() -> None:
    first = [{"a": 0.25, "b": 0.75}, {"a": 1.0, "b": 0.0}]
    near, other = [{"a": 0.25, "b": 0.750001}, {"a": 1.0, "b": 0.0}], [{"a": 0.25, "c": 0.75}, {"a": 1.0, "b": 0.0}]
    assert off(comparable(first), comparable(near)) <= 1
    assert off(comparable(first), comparable(other)) == np.inf
    assert off(comparable(first), comparable(first[:1])) == np.inf
    assert off(comparable([{4: 1.0}]), comparable([{4: 0.5}])) > 1
    assert off(comparable([{4: 1.0}]), comparable([{5: 1.0}])) == np.inf


def test_what_holds_no_maps_is_compared_as_it_is() -> None:
    arrays = [np.zeros(2), np.ones(3)]
    assert comparable(arrays) is arrays
    assert comparable([]) == []
