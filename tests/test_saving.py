"""Files are whole at every moment, wherever the process that writes them is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt import saving
from graphopt.errors import ReadError
from graphopt.ir import onnx_io
from graphopt.saving import beside, folder_beside, is_named_by_content, name_by_content, take_places, write_files

KILLED = """
import os, sys
from graphopt import saving
from tests.test_saving import write

left = int(sys.argv[2])

def counted(function):
    def call(*arguments, **options):
        global left
        for moment in (0, 1):
            left -= 1
            if left < 0:
                os._exit(9)
            if moment == 0:
                result = function(*arguments, **options)
        return result
    return call

for name in ("replace", "fsync", "unlink"):
    setattr(saving.os, name, counted(getattr(os, name)))
write(sys.argv[1], 2.0)
print("done")
"""


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
    for moment in range(40):
        write(str(path), 1.0)
        run = subprocess.run([sys.executable, "-c", KILLED, path, str(moment)], capture_output=True, text=True)
        assert run.returncode in (0, 9), run.stderr
        seen.append(read(path))
        if run.stdout:
            break
    assert run.stdout
    assert set(seen) == {("MatMul", 1.0), ("Add", 2.0)}
    assert seen == sorted(seen, reverse=True)  # from the rename of the model on it is the new one
    write(str(path), 2.0)
    files = sorted(p.name for p in tmp_path.iterdir())
    assert [f for f in files if f.startswith(".")] == []  # what the killed ones left is gone


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
