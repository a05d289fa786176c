"""Arrays are read from files, and what is no such file is told in one line."""

from pathlib import Path

import numpy as np
import pytest

from graphopt.errors import ReadError, UsageError
from graphopt.verify.arrays import comparable, filled, read_array, read_samples
from graphopt.verify.conditioning import off


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


def test_samples_are_read_from_archives_and_folders(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", x=np.ones(2), y=np.zeros(1))
    np.savez(tmp_path / "a.npz", x=np.zeros(2))
    (tmp_path / "plain").mkdir()
    np.save(tmp_path / "plain" / "x.npy", np.arange(3))
    assert [(name, sorted(s)) for name, s in read_samples(tmp_path / "b.npz")] == [("b.npz", ["x", "y"])]
    assert [(name, sorted(s)) for name, s in read_samples(tmp_path)] == [("a.npz", ["x"]), ("b.npz", ["x", "y"])]
    ((name, sample),) = read_samples(tmp_path / "plain")
    assert name == "plain"
    assert np.array_equal(sample["x"], np.arange(3))


@pytest.mark.parametrize("name", ["absent", "empty", "bad.npz", "text.txt"])
def test_what_holds_no_samples_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.npz").write_bytes(b"PK\3\4garbage")
    (tmp_path / "text.txt").write_text("x")
    with pytest.raises(ReadError, match=name):
        list(read_samples(tmp_path / name))
