"""Which models are served: those inside the folder, found by name and never by path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphopt.errors import ReadError, UsageError
from graphopt.serving.folder import KEPT, ServedFolder


@pytest.fixture
def folder(tmp_path: Path) -> ServedFolder:
    root, scratch = tmp_path / "models", tmp_path / "scratch"
    for place in (root / "deep", root / ".hidden", scratch, tmp_path / "outside"):
        place.mkdir(parents=True)
    for name in ("models/a.onnx", "models/deep/b.onnx", "models/.hidden/c.onnx", "models/note.txt", "outside/d.onnx"):
        (tmp_path / name).write_bytes(b"model")
    (root / "link.onnx").symlink_to(tmp_path / "outside" / "d.onnx")
    (root / "inner.onnx").symlink_to(root / "a.onnx")
    (root / "loop.onnx").symlink_to(root / "loop.onnx")
    (root / "gone.onnx").symlink_to(root / "nowhere.onnx")
    (root / "dir.onnx").mkdir()
    (root / "away").symlink_to(tmp_path / "outside", target_is_directory=True)
    return ServedFolder(root, scratch)


def test_only_files_inside_are_listed(folder: ServedFolder) -> None:
    assert [m.name for m in folder.models()] == ["a.onnx", "inner.onnx", "deep/b.onnx"]
    assert folder.find("deep/b.onnx").path.read_bytes() == b"model"


@pytest.mark.parametrize(
    "name",
    ["../outside/d.onnx", "deep/../../outside/d.onnx", "/etc/passwd", "link.onnx", "away/d.onnx", ".hidden/c.onnx", "",
     "..\\outside\\d.onnx", "a.onnx\x00", "note.txt", "%2e%2e/outside/d.onnx", "loop.onnx", "dir.onnx"],
)  # fmt: skip
def test_no_name_leads_out(folder: ServedFolder, name: str) -> None:
    with pytest.raises(ReadError, match="no model is called"):
        folder.find(name)


def test_names_that_are_no_text_are_shown_as_bytes(folder: ServedFolder) -> None:
    (folder.root / os.fsdecode(b"\xff.onnx")).write_bytes(b"model")
    (shown,) = (m.name for m in folder.models() if "udcff" in m.name)
    assert shown.encode()
    assert folder.find(shown).path.read_bytes() == b"model"


def test_uploads_have_names_of_their_own_and_the_oldest_goes(folder: ServedFolder) -> None:
    names = []
    for _ in range(KEPT + 1):
        place = folder.place()
        place.write_bytes(b"x")
        names.append(folder.take("../../<img>\n.onnx", place))
    assert names[0] == "uploaded: ../../<img>?.onnx"
    assert len(set(names)) == KEPT + 1
    with pytest.raises(ReadError):
        folder.find(names[0])
    assert folder.find(names[-1]).path.parent == folder.scratch
    assert len(list(folder.scratch.iterdir())) == KEPT


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no folder"):
        ServedFolder(tmp_path / "none", tmp_path)


def test_results_are_kept_for_a_while(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    folder = ServedFolder(tmp_path, tmp_path / "scratch")
    with folder.workplace() as place:
        (place / "left").write_text("over")
    assert not place.exists()
    keys = []
    for _ in range(KEPT + 1):
        with folder.workplace() as place:
            (place / "result.onnx").write_bytes(b"model")
            keys.append(folder.keep(place))
    assert folder.result(keys[-1], "result.onnx").read_bytes() == b"model"
    assert len(list((tmp_path / "scratch").iterdir())) == KEPT
    for key, file in ((keys[0], "result.onnx"), (keys[-1], "other"), ("..", "a.onnx"), ("", "")):
        with pytest.raises(ReadError, match="run the rules again"):
            folder.result(key, file)


def test_python_is_listed_only_where_it_may_run(tmp_path: Path) -> None:
    for name in ("a.py", "b.rules", ".hidden.py", "c.txt"):
        (tmp_path / name).write_text("")
    assert [r.name for r in ServedFolder(tmp_path, tmp_path).rules()] == ["b.rules"]
    assert [r.name for r in ServedFolder(tmp_path, tmp_path, code=True).rules()] == [".hidden.py", "a.py", "b.rules"]
