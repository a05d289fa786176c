"""Digests tell what files hold, whether they are remembered or not."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from graphopt.program import digests
from graphopt.runtime.disk_cache import VARIABLE

LONG_AGO = 1e9


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "PIECE", 4)
    (tmp_path / "f").write_bytes(b"a file of some pieces")
    return tmp_path / "f"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read."""
    found: list[Path] = []
    whole = digests._of_content
    monkeypatch.setattr(digests, "_of_content", lambda path: found.append(path) or whole(path))
    return found


def test_equal_contents_have_equal_digests(file: Path, tmp_path: Path) -> None:
    pieces = [sha256(b"a file of some pieces"[k : k + 4]).digest() for k in range(0, 21, 4)]
    assert digests.of_file(file) == sha256(b"".join(pieces)).hexdigest()
    (tmp_path / "g").write_bytes(file.read_bytes())
    assert digests.of_file(tmp_path / "g") == digests.of_file(file)
    (tmp_path / "g").write_bytes(file.read_bytes() + b".")
    assert digests.of_file(tmp_path / "g") != digests.of_file(file)


def test_a_large_file_that_stays_as_it_is_is_read_once(
    file: Path, read: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_RECENT", -1.0)
    first = digests.of_file(file)
    assert digests.of_file(file) == first
    assert read == [file]
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    file.write_bytes(b"a file of other piece")
    os.utime(file, ns=times)  # the size and the time of writing are the same, that of the change is not
    assert digests.of_file(file) != first


def test_what_was_written_just_now_is_read_again(file: Path, read: list[Path]) -> None:
    os.utime(file, (LONG_AGO, LONG_AGO))  # which is a change itself
    assert digests.of_file(file) == digests.of_file(file)
    assert len(read) == 2
    digests.remember(file, "what its only writer says")
    assert digests.of_file(file) == "what its only writer says"


def test_small_files_are_read_every_time(file: Path, read: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "PIECE", 1 << 20)
    monkeypatch.setattr(digests, "_RECENT", -1.0)
    digests.remember(file, "not taken")
    assert digests.of_file(file) == digests.of_file(file)
    assert len(read) == 2


@pytest.mark.parametrize("content", [b"", b"0" * 64, b"\xff"])
def test_a_damaged_note_is_not_believed(
    file: Path, read: list[Path], content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_RECENT", -1.0)
    first = digests.of_file(file)
    (note,) = (file.parent / "cache" / "digests").iterdir()
    note.write_bytes(content)
    assert digests.of_file(file) == first
    assert len(read) == 2


def test_a_file_that_is_not_there_has_none(file: Path) -> None:
    with pytest.raises(FileNotFoundError):
        digests.of_file(file.with_name("nothing"))
