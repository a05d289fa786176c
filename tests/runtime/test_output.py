import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from graphopt.errors import ReadError
from graphopt.runtime.output import beside, whole

LIMIT = 100
"""Bytes that a file may have, as if the disk were full then."""


@contextmanager
def full() -> Iterator[None]:
    """As if the disk were full, for no longer than it takes: what the tests print may go to a file too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_takes_its_place_as_a_whole(tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.write_text("old")
    with whole(place) as file:
        file.write(b"new")
        file.flush()
        assert place.read_text() == "old"
    assert place.read_text() == "new"
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("size", [LIMIT + 1, 1 << 20])  # what fails when it is flushed, and at once
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, size: int) -> None:
    place = tmp_path / "out"
    place.write_text("old")
    with full(), pytest.raises(ReadError, match=r"out: cannot write there \(File too large\)$"), whole(place) as file:
        file.write(bytes(size))
    with full(), pytest.raises(ReadError, match=r"out: cannot write there"), whole(place) as file:
        np.savez(file, a=np.zeros(size, np.uint8))
    assert place.read_text() == "old"
    assert list(tmp_path.iterdir()) == [place]


def test_a_place_where_nothing_can_be_is_named(tmp_path: Path) -> None:
    for place in (tmp_path / "no" / "out", Path("/proc/out")):
        with pytest.raises(ReadError, match=f"^{place}: cannot write there"), whole(place):
            pass
    with pytest.raises(FileNotFoundError), beside(tmp_path / "no" / "out"):
        pass


def test_an_error_of_the_caller_leaves_what_was_there(tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.write_text("old")
    with pytest.raises(ZeroDivisionError), whole(place) as file:
        file.write(bytes([1 // 0]))
    assert [f.read_text() for f in tmp_path.iterdir()] == ["old"]
