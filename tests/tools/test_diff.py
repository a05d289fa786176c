import re
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from graphopt.cli import run
from graphopt.tools.diff import diff

pytest.importorskip("onnxruntime")


def write(path: Path, *ops: str) -> Path:
    """A chain of ops of one input."""
    names = ["x", *(f"v{i}" for i in range(len(ops) - 1)), "y"]
    graph = helper.make_graph(
        [helper.make_node(op, [a], [b]) for op, a, b in zip(ops, names, names[1:], strict=False)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_equal_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path / "a.onnx", "Relu", "Neg"), write(tmp_path / "b.onnx", "Relu", "Neg")
    assert diff(a, b) is None
    assert run(["diff", str(a), str(b), "--verify", "off"]) == 0
    assert capsys.readouterr().out == "structure   equal\noutputs     not verified (off)\n"


def test_equal_outputs_of_another_structure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path / "a.onnx", "Relu", "Relu", "Neg"), write(tmp_path / "b.onnx", "Relu", "Neg")
    found = diff(a, b)
    assert found is not None
    assert found.ops == {"Relu": (2, 1)}
    assert run(["diff", str(a), str(b)]) == 0
    out = capsys.readouterr().out
    assert "structure   differs: " in out
    assert "verified on one random input in ONNX Runtime, no difference" in out


def test_outputs_that_differ_exit_with_6(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path / "a.onnx", "Relu"), write(tmp_path / "b.onnx", "Abs")
    assert run(["diff", str(a), str(b)]) == 6
    out, err = capsys.readouterr()
    assert "structure   differs: " in out
    assert re.search(r"the models differ: output 'y' of \S*b.onnx differs from that of \S*a.onnx", err)
