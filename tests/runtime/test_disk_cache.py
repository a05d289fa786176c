"""All that is kept on disk is in one folder, which is its user's alone, under names by what it depends on."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from graphopt.errors import ReadError, UsageError
from graphopt.kernels import cache
from graphopt.program import digests
from graphopt.rewrite.checking.verdicts import Verdicts
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.reading.parsed import parsed
from graphopt.runtime import disk_cache

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
    assert {place.name for place in root.iterdir()} == {"digests", "kernels", "rules", "verdicts"}
    assert all(place.stat().st_mode & 0o077 == 0 for place in root.iterdir())


def test_what_others_may_write_is_not_read(root: Path) -> None:
    parsed("text", "x", lambda: [RULE])
    verdicts = Verdicts()
    verdicts.check(RULE)
    verdicts.close()
    for name in ("rules", "verdicts"):
        (root / name).chmod(0o777)
        with pytest.raises(UsageError, match=rf"the folder {root / name} for what is kept must be this user's alone"):
            disk_cache.folder(name)
    assert parsed("text", "x", list) == []
    again = Verdicts()
    assert again.check(RULE).problem is None
    assert again.hits == 0


def test_a_digest_is_of_contents_and_of_versions(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("a.py", "inner/b.py"):
        (tmp_path / name).write_text("one")
    first = disk_cache.digest_of([tmp_path])
    assert disk_cache.digest_of([tmp_path]) == first
    assert len({first, disk_cache.digest_of([tmp_path], ["numpy"]), disk_cache.digest_of([tmp_path / "a.py"])}) == 3
    (tmp_path / "inner" / "b.py").write_text("two")
    assert disk_cache.digest_of([tmp_path]) != first
    with pytest.raises(PackageNotFoundError):
        disk_cache.digest_of([tmp_path], ["nothing-of-that-name"])


@pytest.mark.parametrize("name", ["gone.py", "empty"])
def test_a_source_that_is_not_there_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReadError, match=rf"{name}: a part of graphopt is not there; install it again"):
        disk_cache.digest_of([tmp_path / name])


def test_rules_that_were_read_longest_ago_go(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphopt.rewrite.reading.parsed.MOST", 0)
    for text in ("one", "two"):
        parsed(text, "x", lambda: [RULE])
    assert len(list((root / "rules").iterdir())) == 1
