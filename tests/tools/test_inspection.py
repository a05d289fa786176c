from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.cli import run
from graphopt.ir.text import parse
from graphopt.tools.inspection import heirs, inspect


@pytest.fixture
def model(tmp_path: Path) -> Path:
    body = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["b"])],
        "body",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "w"], ["a"]),
            helper.make_node("If", ["flag"], ["y"], then_branch=body, else_branch=body),
            helper.make_node("my.domain", ["a"], ["z"], domain="custom"),
        ],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "?", 4]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "?", 4]),
            helper.make_empty_tensor_value_info("z"),
        ],
        [numpy_helper.from_array(np.ones(4, "f4"), "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("custom", 3)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="[me]", producer_version="1")
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_what_a_model_holds(model: Path) -> None:
    found = inspect(model)
    assert found.bytes == model.stat().st_size
    assert found.ir_version == 8
    assert dict(found.opsets) == {"": 17, "custom": 3}
    assert found.producer == "[me] 1"
    assert found.inputs == (("x", "float32[n, x.1, 4]"), ("flag", "bool[]"))
    assert [name for name, _ in found.outputs] == ["y", "z"]
    assert found.dimensions == ("n", "x.1")
    assert found.ops == {"Neg": 2, "Add": 1, "If": 1, "custom::my.domain": 1}
    assert found.constants == {"float32": (1, 16)}


def test_it_prints(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(model)]) == 0
    out = capsys.readouterr().out
    assert "opset ai.onnx 17, custom 3, made by [me] 1" in out
    assert "float32[n, x.1, 4]" in out
    assert "open dimensions: n, x.1" in out


def test_a_file_that_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, code in ((b"", 3), (b"garbage", 3)):
        (tmp_path / "bad.onnx").write_bytes(content)
        assert run(["inspect", str(tmp_path / "bad.onnx")]) == code
        assert "bad.onnx" in capsys.readouterr().err
    assert run(["inspect", str(tmp_path / "missing.onnx")]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_what_a_node_became_part_of_is_the_nearest_that_is_left() -> None:
    graph = parse("x: float32[n]\na = Relu(x)\nb = Neg(a)\nc = Exp(a)\nd = Add(b, c)\ny = Abs(d)\nreturn y")
    assert heirs(graph, "a", {"a", "y"}) == ("a",)
    assert heirs(graph, "a", {"c", "d"}) == ("c",)
    assert heirs(graph, "a", {"b", "c", "y"}) == ("b", "c")
    assert heirs(graph, "a", {"y"}) == ("y",)
    assert heirs(graph, "a", {"x"}) == heirs(graph, "x", {"y"}) == heirs(graph, "nowhere", {"y"}) == ()
