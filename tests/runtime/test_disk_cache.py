"""All that is kept on disk is in one folder, which is its user's alone, under names by what it depends on."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from graphopt.errors import ReadError, UsageError
from graphopt.kernels import cache
from graphopt.program import digests
from graphopt.rewrite.checking.verdicts import Verdicts
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.reading.parsed import parsed
from graphopt.runtime import cpu, disk_cache

RULE = parse_rules("# twice negated [C11] exact\ntwice: Neg(Neg(x)) => x")[0]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "cache"
    monkeypatch.setenv(disk_cache.VARIABLE, str(root))
    return root


def test_all_that_is_kept_is_in_the_folder_that_is_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "PIECE", 1)
    monkeypatch.setattr(digests, "_RECENT", -1.0)
    parsed("text", "x", lambda: [RULE])
    Verdicts().check(RULE)
    cache.folder()
    (tmp_path / "f").write_bytes(b"some")
    digests.of_file(tmp_path / "f")
    assert {path.name for path in root.iterdir()} == {"counted", "digests", "kernels", "rules", "verdicts"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in root.iterdir())


def test_what_others_may_write_is_not_read(root: Path) -> None:
    parsed("text", "x", lambda: [RULE])
    verdicts = Verdicts()
    verdicts.check(RULE)
    verdicts.close()
    for name in ("rules", "verdicts"):
        (root / name).chmod(0o777)
        with pytest.raises(UsageError, match=rf"the cache folder {root / name} must be this user's alone"):
            disk_cache.folder(name)
    assert parsed("text", "x", list) == []
    again = Verdicts()
    assert again.check(RULE).problem is None
    assert again.hits == 0


def test_a_key_tells_each_part_and_the_code() -> None:
    keys = [
        disk_cache.key("code", "a", "b"),
        disk_cache.key("code", "ab"),
        disk_cache.key("code", "a\nb"),
        disk_cache.key("code", "b", "a"),
        disk_cache.key("codes", "a", "b"),
        disk_cache.key("code"),
    ]
    assert len(set(keys)) == len(keys)
    assert disk_cache.key("code", b"a", "b") == keys[0]
    assert all(len(key) == 40 for key in keys)


def test_a_digest_of_code_is_of_contents_versions_and_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("a.py", "inner/b.rules"):
        (tmp_path / name).write_text("one")
    first = disk_cache.digest_of_code([tmp_path])
    (tmp_path / "a.pyc").write_text("no source")
    assert disk_cache.digest_of_code([tmp_path]) == first
    native = disk_cache.digest_of_code([tmp_path], is_native=True)
    monkeypatch.setattr(cpu, "features", lambda: frozenset({"sse2"}))
    others = (
        native,
        disk_cache.digest_of_code([tmp_path], is_native=True),
        disk_cache.digest_of_code([tmp_path], ["numpy"]),
        disk_cache.digest_of_code([tmp_path / "a.py"]),
    )
    assert len({first, *others}) == 5
    (tmp_path / "inner" / "b.rules").rename(tmp_path / "b.rules")
    assert disk_cache.digest_of_code([tmp_path]) != first
    (tmp_path / "b.rules").rename(tmp_path / "inner" / "b.rules")
    assert disk_cache.digest_of_code([tmp_path]) == first
    (tmp_path / "inner" / "b.rules").write_text("two")
    assert disk_cache.digest_of_code([tmp_path]) != first
    with pytest.raises(PackageNotFoundError):
        disk_cache.digest_of_code([tmp_path], ["nothing-of-that-name"])


@pytest.mark.parametrize("name", ["gone.py", "empty"])
def test_a_source_that_is_not_there_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReadError, match=rf"{name}: a part of graphopt is not there; install it again"):
        disk_cache.digest_of_code([tmp_path / name])


def test_what_is_damaged_is_not_read(root: Path) -> None:
    path = disk_cache.folder("rules") / "a"
    disk_cache.write(path, b"content")
    os.utime(path, (0, 0))
    assert disk_cache.read(path) == b"content"
    assert path.stat().st_mtime > 0, "it is of use"
    stored = path.read_bytes()
    for wrong in (b"", b"content", stored[:-1], stored + b"x", b"x" + stored):
        path.write_bytes(wrong)
        assert disk_cache.read(path) is None
    path.unlink()
    assert disk_cache.read(path) is None


def put(kind: disk_cache.Kind, name: str, age: int, size: int = 10) -> Path:
    path = disk_cache.folder(kind) / name
    path.write_bytes(bytes(size))
    os.utime(path, (1e9 - age, 1e9 - age))
    return path


def test_what_was_used_longest_ago_goes_of_whatever_kind(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = old, young, middle = put("kernels", "old", 3), put("rules", "young", 1), put("kernels", "middle", 2)
    lock = disk_cache.folder("locks") / "turns.lock"
    lock.write_bytes(bytes(100))
    (root / "of-others").mkdir()
    (root / "of-others" / "file").write_bytes(bytes(100))
    for limit, left in ((30, {old, young, middle}), (25, {old, young}), (0, set())):
        monkeypatch.setattr(disk_cache, "LIMIT", limit)
        disk_cache.clean_up()
        assert {path for path in paths if path.exists()} == left
        disk_cache.use(old)
    assert lock.exists(), "whoever holds it would not be alone any more"
    assert (root / "of-others" / "file").exists()


def test_a_folder_that_others_may_write_into_is_left_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put("kernels", "k", 0)
    monkeypatch.setattr(disk_cache, "LIMIT", 0)
    path.parent.chmod(0o777)
    disk_cache.clean_up()
    assert path.exists()
    path.parent.chmod(0o700)
    disk_cache.clean_up()
    assert not path.exists()


def test_a_folder_counts_with_all_that_it_holds_and_goes_as_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = disk_cache.folder("programs") / "program"
    program.mkdir()
    put("programs", "program/a", 0, 20)
    put("programs", "program/b", 0, 20)
    os.utime(program, (0, 0))
    young = put("kernels", "young", 0)
    monkeypatch.setattr(disk_cache, "LIMIT", 49)
    disk_cache.clean_up()
    assert not program.exists()
    assert young.exists()


def test_entries_are_counted_once_in_a_while_and_behind_large_ones(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "LIMIT", 50)
    first, second = put("kernels", "a", 9), put("rules", "b", 8)
    disk_cache.write(disk_cache.folder("kernels") / "c", b"")
    assert [first.exists(), second.exists()] == [False, False]
    third = put("kernels", "d", 7)
    disk_cache.write(disk_cache.folder("kernels") / "e", b"")
    assert third.exists()
    monkeypatch.setattr(disk_cache, "_LARGE", 5)
    disk_cache.write(disk_cache.folder("kernels") / "f", bytes(5))
    assert not third.exists()
    fourth = put("kernels", "g", 7)
    monkeypatch.setattr(disk_cache, "_WHILE", 0.0)
    disk_cache.write(disk_cache.folder("kernels") / "h", b"")
    assert not fourth.exists()


def test_a_folder_takes_its_place_as_a_whole_or_not_at_all(root: Path) -> None:
    path = disk_cache.folder("programs") / "p"

    def fill(content: str) -> None:
        with disk_cache.new_folder(path, "done") as new:
            (new / "done").write_text(content)
            if not content:
                raise ValueError("killed")

    with pytest.raises(ValueError, match="killed"):
        fill("")
    assert list(path.parent.iterdir()) == []
    fill("first")
    fill("second")
    assert (path / "done").read_text() == "first", "another process was quicker"
    (path / "done").unlink()
    (path / "rest").write_text("of what was not complete")
    fill("third")
    assert [(file.name, file.read_text()) for file in path.iterdir()] == [("done", "third")]
    assert list(path.parent.iterdir()) == [path]


def test_an_empty_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(disk_cache.VARIABLE, "")
    for use in (lambda: disk_cache.folder("kernels"), lambda: parsed("text", "x", lambda: [RULE])):
        with pytest.raises(UsageError, match="GRAPHOPT_CACHE is empty: name a folder, or unset it"):
            use()


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    code = (
        "from graphopt.runtime import disk_cache as c; f = c.folder('rules') / 'x'; c.write(f, b'1'); "
        "assert c.read(f) == b'1'; print(f)"
    )
    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path / "file"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_told_with_what_to_do(root: Path) -> None:
    path = put("kernels", "a.o", 0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(ReadError, match=r"a\.o cannot be written: File too large; set GRAPHOPT_CACHE to a folder"):
            disk_cache.write(path, bytes(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [(file.name, file.stat().st_size) for file in path.parent.iterdir()] == [("a.o", 10)]
