"""Results take their place whole and verified, or nothing changes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt import saving
from graphopt.errors import GraphoptError, ReadError, VerificationError
from graphopt.ir import onnx_io
from graphopt.saving import is_named_by_content

N = helper.make_node


def proto(size: int = 4) -> onnx.ModelProto:
    """A product with weights, between Relus."""
    weights = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    graph = helper.make_graph(
        [N("Relu", ["x"], ["a"]), N("Relu", ["a"], ["b"]), N("MatMul", ["b", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", size])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "in.onnx"
    onnx.save(proto(), path)
    return path


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A model whose weights lie in a file of their own."""
    path = tmp_path / "large.onnx"
    onnx.save(proto(64), path, save_as_external_data=True, location="large.onnx.data", size_threshold=0)
    return path


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A rule that is not true."""
    path = tmp_path / "wrong.rules"
    path.write_text("# not true      [C1] exact always\nwrong:  Relu(x)  =>  Abs(x)\n")
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file()}


def weights(path: Path) -> np.ndarray:
    return numpy_helper.to_array(onnx.load(path).graph.initializer[0])


def ops(path: Path) -> list[str]:
    return [n.op_type for n in onnx.load(path, load_external_data=False).graph.node]


# -- what fails leaves everything as it was


def test_a_wrong_result_is_not_written(file: Path, wrong: Path) -> None:
    pytest.importorskip("onnxruntime")
    (file.parent / "out.onnx").write_bytes(b"what was there before")
    before = contents(file.parent)
    for output in (file.with_name("out.onnx"), file.with_name("new.onnx"), file):
        with pytest.raises(VerificationError, match="the result is wrong"):
            graphopt.optimize(file, output=output, rules=wrong, on_mismatch="refuse")
    assert contents(file.parent) == before
    assert {p.name for p in file.parent.iterdir()} == before.keys()
    with pytest.raises(VerificationError, match="the result is wrong"):
        graphopt.optimize(proto(), rules=wrong, on_mismatch="refuse")


def test_a_result_that_cannot_be_verified_is_written_unless_it_must_be(tmp_path: Path) -> None:
    strange = proto()
    strange.graph.node.append(N("Strange", ["b"], ["z"], domain="their.own"))
    strange.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 4]))
    strange.opset_import.append(helper.make_opsetid("their.own", 1))
    output = tmp_path / "out.onnx"
    with pytest.raises(VerificationError, match="could not be verified"):
        graphopt.optimize(strange, output=output, verify="require")
    assert list(tmp_path.iterdir()) == []
    _, report = graphopt.optimize(strange, output=output, return_report=True)
    assert report.verification.status == "unverified"
    assert ops(output) == ["Relu", "MatMul", "Strange"]


@pytest.mark.parametrize("place", ["in.onnx/out.onnx", "nowhere/out.onnx", "folder"])
def test_a_place_that_cannot_be_written_is_an_error(file: Path, place: str) -> None:
    (file.parent / "folder").mkdir()
    before = contents(file.parent)
    with pytest.raises(ReadError, match=str(file.parent / place)):
        graphopt.optimize(file, output=file.parent / place, verify="off")
    assert contents(file.parent) == before
    assert list((file.parent / "folder").iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to_is_an_error(file: Path) -> None:
    folder = file.parent / "closed"
    folder.mkdir(mode=0o500)
    with pytest.raises(ReadError, match="cannot write there"):
        graphopt.optimize(file, output=folder / "out.onnx", verify="off")


def test_a_disk_that_is_full_is_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(onnx_io, "save", full)
    with pytest.raises(ReadError, match="No space left on device"):
        graphopt.optimize(file, output=file.with_name("out.onnx"), verify="off")
    assert contents(file.parent).keys() == {"in.onnx"}


# -- data in files


def test_data_goes_with_the_model(large: Path, tmp_path: Path) -> None:
    want = weights(large)
    output = tmp_path / "elsewhere" / "out.onnx"
    output.parent.mkdir()
    graphopt.optimize(large, output=output)
    model, data = sorted((p.name for p in output.parent.iterdir()), key=len)
    assert (model, is_named_by_content(data, "out.onnx", ".data")) == ("out.onnx", True)
    assert ops(output) == ["Relu", "MatMul"]
    assert np.array_equal(weights(output), want)


def test_a_model_is_replaced_with_its_data(large: Path) -> None:
    want = weights(large)
    graphopt.optimize(large, output=large)
    assert large.with_name("large.onnx.data").exists()  # not ours: other models may refer to it
    graphopt.optimize(large, output=large, rules=[])
    graphopt.optimize(large, output=large)
    files = [p.name for p in large.parent.iterdir() if p.name not in ("large.onnx", "large.onnx.data")]
    assert [is_named_by_content(f, "large.onnx", ".data") for f in files] == [True]
    assert ops(large) == ["Relu", "MatMul"]
    assert np.array_equal(weights(large), want)


def test_data_takes_its_place_before_the_model(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []
    replace = os.replace

    def noted(source: Path, target: Path) -> None:
        if Path(source).parent.name == "result" and Path(target).parent == large.parent:
            moved.append(Path(target).suffix)
        replace(source, target)

    monkeypatch.setattr(saving.os, "replace", noted)
    graphopt.optimize(large, output=large.with_name("out.onnx"), verify="off")
    assert moved == [".data", ".onnx"]


def test_sizes_are_those_of_all_files(large: Path) -> None:
    output = large.with_name("out.onnx")
    _, report = graphopt.optimize(large, output=output, verify="off", return_report=True)
    files = [p.stat().st_size for p in large.parent.iterdir() if p.name.startswith("out.onnx")]
    assert len(files) == 2
    assert report.bytes_after == sum(files)


# -- where nothing is written


def test_a_model_in_memory_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    graphopt.optimize(proto())
    with pytest.raises(GraphoptError):
        graphopt.optimize(proto(), inputs={"x": "nowhere.npy"})
    assert not list(tmp_path.glob("*graphopt*"))
