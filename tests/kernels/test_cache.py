"""What compiled code is kept is bounded, and what is used stays."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from graphopt.errors import ReadError
from graphopt.kernels import cache
from graphopt.runtime import disk_cache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path / "c"))
    return cache.folder()


def put(folder: Path, name: str, age: int, size: int = 10) -> Path:
    (folder / name).write_bytes(bytes(size))
    os.utime(folder / name, (1e9 - age, 1e9 - age))
    return folder / name


def test_what_was_used_longest_ago_goes_until_the_rest_fits(folder: Path) -> None:
    old, young, middle = (put(folder, n, age) for n, age in (("old", 3), ("young", 1), ("middle", 2)))
    disk_cache.prune(folder, 30)
    assert len(list(folder.iterdir())) == 3
    disk_cache.use(old)
    disk_cache.prune(folder, 25)
    assert sorted(p.name for p in folder.iterdir()) == ["old", "young"]
    assert not middle.exists()
    disk_cache.prune(folder, 0)
    assert not young.exists()
    assert list(folder.iterdir()) == []


def test_a_folder_counts_with_all_that_it_holds_and_goes_as_one(folder: Path) -> None:
    (folder / "program").mkdir()
    put(folder / "program", "a", 0, 20)
    put(folder / "program", "b", 0, 20)
    os.utime(folder / "program", (0, 0))
    young = put(folder, "young", 0)
    disk_cache.prune(folder, 49)
    assert list(folder.iterdir()) == [young]


def test_kernels_are_counted_once_in_a_while(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST", 10)
    first, second, third = (put(folder, f"k{k}.o", 9 - k) for k in range(3))
    cache.prune_kernels()
    assert list(folder.iterdir()) == [third]
    put(folder, "k3.o", 0)
    cache.prune_kernels()
    assert len(list(folder.iterdir())) == 2
    monkeypatch.setattr(cache, "_WHILE", 0.0)
    cache.prune_kernels()
    assert [p.name for p in folder.iterdir()] == ["k3.o"]
    assert not first.exists()
    assert not second.exists()


def test_a_full_disk_is_told_with_what_to_do(folder: Path) -> None:
    put(folder, "a.o", 0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(ReadError, match=r"a\.o cannot be written: File too large; set GRAPHOPT_CACHE to a folder"):
            cache.store(folder / "a.o", bytes(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [(file.name, file.stat().st_size) for file in folder.iterdir()] == [("a.o", 10)]
