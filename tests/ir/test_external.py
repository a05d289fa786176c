from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphopt.errors import ReadError
from graphopt.ir.external import ModelFolder


@pytest.fixture
def folder(tmp_path: Path) -> ModelFolder:
    (tmp_path / "secret").write_bytes(b"secret")
    model = tmp_path / "model"
    (model / "sub").mkdir(parents=True)
    (model / "w.bin").write_bytes(b"weights")
    (model / "sub" / "w.bin").write_bytes(b"more")
    return ModelFolder(model)


def test_files_below_the_folder_are_read(folder: ModelFolder) -> None:
    assert folder.view("w.bin", "t").tobytes() == b"weights"
    assert folder.view("sub/w.bin", "t").tobytes() == b"more"
    assert folder.view("./sub/w.bin", "t").tobytes() == b"more"
    assert folder.view("w.bin", "t") is folder.view("w.bin", "t")
    (folder.path / "nothing").touch()
    assert folder.view("nothing", "t").tobytes() == b""


@pytest.mark.parametrize(
    "location",
    [
        "",
        "/etc/passwd",
        "../secret",
        "sub/../../secret",
        "sub/../w.bin",
        "..",
        "C:\\secret",
        "\\secret",
        "a\\..\\b",
        "w\0",
    ],
)
def test_paths_that_lead_out_are_refused(folder: ModelFolder, location: str) -> None:
    with pytest.raises(ReadError, match="is not a path below the model's folder") as caught:
        folder.view(location, "here")
    assert str(caught.value).startswith("here: external data ")
    assert "\n" not in str(caught.value)


def test_an_absolute_path_is_refused_even_below_the_folder(folder: ModelFolder) -> None:
    with pytest.raises(ReadError, match="not a path below"):
        folder.view(str(folder.path / "w.bin"), "here")


def test_links_that_lead_out_are_refused(folder: ModelFolder) -> None:
    os.symlink(folder.path.parent / "secret", folder.path / "soft")
    with pytest.raises(ReadError, match="leads out"):
        folder.view("soft", "here")
    os.symlink(folder.path.parent, folder.path / "up")
    with pytest.raises(ReadError, match="leads out"):
        folder.view("up/secret", "here")
    os.link(folder.path.parent / "secret", folder.path / "hard")
    with pytest.raises(ReadError, match="hard link"):
        folder.view("hard", "here")
    os.symlink(folder.path / "w.bin", folder.path / "inside")
    assert folder.view("inside", "here").tobytes() == b"weights"


def test_what_is_no_file_is_refused(folder: ModelFolder) -> None:
    with pytest.raises(ReadError, match="cannot be read: No such file"):
        folder.view("none", "here")
    with pytest.raises(ReadError, match="is not a file"):
        folder.view("sub", "here")
    os.mkfifo(folder.path / "pipe")
    with pytest.raises(ReadError, match="is not a file"):
        folder.view("pipe", "here")
