"""Files are whole at every moment, wherever the process that writes them is killed."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt import saving
from graphopt.errors import ReadError, UsageError
from graphopt.ir import onnx_io
from graphopt.saving import (
    beside,
    folder_beside,
    is_left_beside,
    is_named_by_content,
    name_by_content,
    take_places,
    whole,
    write_files,
    write_folder,
)
from tests.killed import killed


def write(path: str, value: float) -> None:
    """Save a model whose op and whose weights say which it is."""
    weights = numpy_helper.from_array(np.full((64, 64), value, np.float32), "w")
    nodes = [helper.make_node("MatMul" if value == 1 else "Add", ["x", "w"], ["y"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in "xy"]
    model = helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:], [weights]))
    onnx_io.save(onnx_io.load(model), path, external=True)


def read(path: Path) -> tuple[str, float]:
    """The op and the weights of the model in a file."""
    model = onnx.load(path)
    return model.graph.node[0].op_type, float(numpy_helper.to_array(model.graph.initializer[0])[0, 0])


def test_a_model_and_its_data_are_of_one_save_wherever_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    seen = []
    done = False
    with killed("from tests.test_saving import write", f"write({str(path)!r}, 2.0)") as is_done:
        while not done:
            write(str(path), 1.0)
            # what the killed one before left is gone, though it wrote something else
            assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
            done = is_done(len(seen))
            seen.append(read(path))
    write(str(path), 1.0)
    assert {p.name for p in tmp_path.iterdir()} == {"m.onnx", *onnx_io.data_files(path)}  # nor has one left its data
    assert set(seen) == {("MatMul", 1.0), ("Add", 2.0)}
    assert seen == sorted(seen, reverse=True)  # from the rename of the model on it is the new one


KILLS = """
import os, random, signal, sys, time
from tests.test_saving import write

path, kills, moments = sys.argv[1], int(sys.argv[2]), random.Random(7)
start = time.perf_counter()
write(path, 1.0)
seconds = time.perf_counter() - start
for _ in range(kills):
    if (process := os.fork()) == 0:
        for value in (2.0, 1.0):
            write(path, value)
        os._exit(0)
    time.sleep(2.5 * seconds * moments.random())
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    print(flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("kills", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_kills_at_random_moments_lose_nothing(tmp_path: Path, kills: int) -> None:
    path = tmp_path / "m.onnx"
    command = [sys.executable, "-c", KILLS, str(path), str(kills)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        seen = set()
        for _ in process.stdout:
            seen.add(read(path))
            process.stdin.write("\n")
            process.stdin.flush()
    assert process.returncode == 0
    assert seen <= {("MatMul", 1.0), ("Add", 2.0)}
    write(str(path), 1.0)
    assert {p.name for p in tmp_path.iterdir()} == {"m.onnx", *onnx_io.data_files(path)}


def test_a_copy_of_the_model_keeps_its_data(tmp_path: Path) -> None:
    path, copy = tmp_path / "m.onnx", tmp_path / "before.onnx"
    write(str(path), 1.0)
    copy.write_bytes(path.read_bytes())
    write(str(path), 2.0)
    assert (read(copy), read(path)) == (("MatMul", 1.0), ("Add", 2.0))
    copy.unlink()
    write(str(path), 1.0)
    assert read(path) == ("MatMul", 1.0)


def test_a_link_is_written_through(tmp_path: Path) -> None:
    """Where the link is in the same folder, with the data, too; elsewhere that would not be found beside the link."""
    (tmp_path / "store").mkdir()
    file, link, far = tmp_path / "real.onnx", tmp_path / "link.onnx", tmp_path / "store" / "far.onnx"
    write(str(file), 1.0)
    link.symlink_to("real.onnx")
    far.symlink_to(file)
    write(str(link), 2.0)
    assert link.is_symlink()
    assert read(file) == read(link) == ("Add", 2.0)
    with pytest.raises(UsageError, match=r"far\.onnx leads to .*real\.onnx, and the weights go into a file beside it"):
        write(str(far), 1.0)
    with whole(far) as opened:
        opened.write(b"new")
    assert far.is_symlink()
    assert file.read_bytes() == b"new"


def test_the_data_of_a_model_that_is_replaced_goes(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    (tmp_path / "m.onnx.0123456789abcdef.data").touch()  # whose it is is not known
    write(str(path), 1.0)
    (first,) = onnx_io.data_files(path)
    write(str(path), 2.0)
    (second,) = onnx_io.data_files(path)
    assert first != second
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == sorted(["m.onnx", "m.onnx.0123456789abcdef.data", second])
    assert all(is_named_by_content(n, "m.onnx", ".data") for n in names if n != "m.onnx")


def test_names_by_content() -> None:
    name = name_by_content("m.onnx", [b"1", memoryview(b"23")], ".data")
    assert name == name_by_content("m.onnx", [b"123"], ".data")
    assert name != name_by_content("m.onnx", [b"124"], ".data")
    assert is_named_by_content(name, "m.onnx", ".data")
    for other in ("m.onnx.data", "n.onnx.0123456789abcdef.data", "m.onnx.0123456789abcdeg.data"):
        assert not is_named_by_content(other, "m.onnx", ".data")


def test_what_is_being_written_is_not_taken_for_left_behind(tmp_path: Path) -> None:
    place = tmp_path / "out"
    (tmp_path / ".out-0123456789abcdef").write_text("of a run that was killed")
    (tmp_path / ".out-notes").write_text("the user's")
    with beside(place) as first:
        first.write(b"first")
        with beside(place) as second:
            second.write(b"second")
        assert place.read_bytes() == b"second"
    assert place.read_bytes() == b"first"
    assert sorted(os.listdir(tmp_path)) == [".out-notes", "out"]


def test_a_link_under_a_random_name_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "victim").write_text("the user's")
    (tmp_path / ".out-00").symlink_to(tmp_path / "victim")
    monkeypatch.setattr(saving.secrets, "token_hex", lambda size: "00")
    with pytest.raises(FileExistsError), beside(tmp_path / "out"):
        pass
    assert (tmp_path / "victim").read_text() == "the user's"


def test_folders_are_gone_at_the_end_and_what_others_left(tmp_path: Path) -> None:
    left = tmp_path / ".graphopt.0123456789abcdef"
    left.mkdir()
    (left / "result").write_text("of a run that was killed")
    with folder_beside(tmp_path) as first, folder_beside(tmp_path) as second:
        assert {first, second} == set(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []


def test_files_are_written_whole(tmp_path: Path) -> None:
    write_files({tmp_path / "data": [b"1", memoryview(b"23")], tmp_path / "model": [b"4"]})
    assert (tmp_path / "data").read_bytes() == b"123"
    assert sorted(os.listdir(tmp_path)) == ["data", "model"]


def test_files_take_their_places_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced = []
    replace = os.replace

    def note(source: Path, target: Path) -> None:
        replaced.append(target.name)
        replace(source, target)

    monkeypatch.setattr(saving.os, "replace", note)
    write_files({tmp_path / "data": [b"1"], tmp_path / "model": [b"2"]})
    take_places({tmp_path / "data": tmp_path / "a", tmp_path / "model": tmp_path / "b"})
    assert replaced == ["data", "model", "a", "b"]


def test_nothing_changes_where_writing_fails(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"old")
    with pytest.raises(ReadError, match=r"model.*: cannot write there"):
        write_files({tmp_path / "data": [b"new"], tmp_path / "none" / "model": [b"4"]})
    assert (tmp_path / "data").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["data"]


def test_names_of_what_is_being_written() -> None:
    assert is_left_beside(".out-0123456789abcdef", "out")
    for other in ("out", ".out-notes", ".other-0123456789abcdef", ".out-0123456789abcdef0"):
        assert not is_left_beside(other, "out")


def is_part(file: str) -> bool:
    """Whether a folder's file is one that the next save may remove."""
    return is_named_by_content(file, "data", ".bin")


def test_what_another_one_removes_meanwhile_is_not_left_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, glob = tmp_path / f"{saving._FOLDER}0123456789abcdef", Path.glob
    (folder / "part").mkdir(parents=True)
    (folder / "part" / "m.onnx").touch()
    assert saving.left_beside(tmp_path / "m.onnx") == [folder / "part" / "m.onnx"]

    def gone(path: Path, pattern: str) -> Iterator[Path]:
        if path == folder:
            raise FileNotFoundError(folder)
        return glob(path, pattern)

    monkeypatch.setattr(Path, "glob", gone)
    assert saving.left_beside(tmp_path / "m.onnx") == []


def test_a_folder_has_the_files_of_the_last_save_alone(tmp_path: Path) -> None:
    folder = tmp_path / "above" / "folder"
    for content in (b"1", b"2"):
        name = name_by_content("data", [content], ".bin")
        write_folder(folder, {name: [content], "manifest": [name.encode()]}, is_part)
        (folder / "notes").write_text("the user's")
        (folder / "data.0123456789abcdef.bin").write_text("of a run that was killed before its manifest was there")
    write_folder(folder, {name: [content], "manifest": [name.encode()]}, is_part)
    assert sorted(os.listdir(folder)) == sorted([name, "manifest", "notes"])


def test_who_writes_into_a_folder_waits_for_others(tmp_path: Path) -> None:
    (tmp_path / "data.0123456789abcdef.bin").write_text("of one that is at work")
    with saving._turn(tmp_path):
        thread = threading.Thread(target=write_folder, args=(tmp_path, {"manifest": [b"new"]}, is_part))
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        assert os.listdir(tmp_path) == ["data.0123456789abcdef.bin"]
    thread.join()
    assert os.listdir(tmp_path) == ["manifest"]


def test_a_folder_that_another_one_removes_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with saving._turn(folder):
        thread = threading.Thread(target=write_folder, args=(folder, {"manifest": [b"new"]}, is_part))
        thread.start()
        thread.join(0.1)
        folder.rmdir()
    thread.join()
    assert os.listdir(folder) == ["manifest"]


def test_a_process_that_is_forked_meanwhile_keeps_nobody_waiting(tmp_path: Path) -> None:
    with saving._turn(tmp_path):
        process = os.fork()
        if process == 0:
            signal.pause()
    try:
        thread = threading.Thread(target=write_folder, args=(tmp_path, {"manifest": [b"new"]}, is_part), daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def test_where_nothing_can_be_locked_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, wait: bool = False) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(saving, "flock", refuse)
    (tmp_path / "data.0123456789abcdef.bin").touch()
    write_folder(tmp_path, {"manifest": [b"new"]}, is_part)
    assert sorted(os.listdir(tmp_path)) == ["data.0123456789abcdef.bin", "manifest"]


def test_a_folder_that_cannot_be_written_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "folder", tmp_path / "new"):
        with pytest.raises(ReadError, match="cannot write there"):
            write_folder(folder, {"none/manifest": [b"new"]}, is_part)
    assert os.listdir(tmp_path) == ["file"]


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


def test_a_folder_that_another_process_took_for_left_behind_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not locked yet when it is made."""
    opens, once = os.open, [True]

    def open_later(path: Any, *rest: Any, **options: Any) -> int:
        if once and Path(path).parent == tmp_path:
            once.clear()
            Path(path).rmdir()
        return opens(path, *rest, **options)

    monkeypatch.setattr(saving.os, "open", open_later)
    with saving.folder_beside(tmp_path) as folder:
        assert folder.is_dir()
    assert not once
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_process_is_about_to_remove_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has locked what it took for left behind, and removes it later."""
    opens, taken = os.open, list[tuple[int, Path]]()

    def open_later(path: Any, *rest: Any, **options: Any) -> int:
        handle = opens(path, *rest, **options)
        if not taken and Path(path).parent == tmp_path:
            taken.append((opens(path, os.O_RDONLY), Path(path)))
            saving.flock(taken[0][0])
        return handle

    monkeypatch.setattr(saving.os, "open", open_later)
    with saving.folder_beside(tmp_path) as folder:
        theirs, left = taken[0]
        assert folder != left
        left.rmdir()
        os.close(theirs)
        (folder / "a").write_text("b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_many_processes_save_into_one_folder(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from graphopt import saving\n"
        "for turn in range(300):\n"
        "    with saving.folder_beside(Path(sys.argv[1])) as folder: (folder / 'a').write_text('b')\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    processes = [subprocess.Popen(command) for _ in range(8)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 8
    assert list(tmp_path.iterdir()) == []


def test_nobody_waits_for_the_disk_where_files_need_not_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(handle: int) -> None:
        raise AssertionError(f"waited for {handle}")

    monkeypatch.setattr(saving.os, "fsync", refuse)
    saving.write_files({tmp_path / "data": [b"1"], tmp_path / "model": [b"2"]}, durable=False)
    assert (tmp_path / "model").read_bytes() == b"2"
