import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.cli import run
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.tools import inspection
from graphopt.tools.inspection import heirs, inspect, layer_sizes, weight_statistics
from tests.web.models import modules


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


def weighted(path: Path, batch: str = "n") -> Path:
    """Two products by one weight, with something between."""
    rng = np.random.default_rng(0)
    w = numpy_helper.from_array(rng.standard_normal((64, 64)).astype("f4"), "w")
    nodes = [("MatMul", ["x", "w"], "a"), ("Relu", ["a"], "b"), ("MatMul", ["b", "w"], "c"), ("Flatten", ["c"], "y")]
    graph = helper.make_graph(
        [helper.make_node(op, inputs, [output], name=f"layer_{output}") for op, inputs, output in nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 64])],
        [w],
    )
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    return path


def test_work_and_memory_are_told_by_layer(tmp_path: Path) -> None:
    found = layer_sizes(weighted(tmp_path / "m.onnx"), dims={"n": 8})
    assert [(layer.name, layer.flops, layer.parameters) for layer in found.layers] == [
        ("layer_a", 2 * 8 * 64 * 64, 64 * 64), ("layer_b", 8 * 64, 0), ("layer_c", 2 * 8 * 64 * 64, 0),
        ("layer_y", 0, 0),
    ]  # fmt: skip
    assert found.weights == 4 * 64 * 64
    assert found.peak == 2 * 4 * 8 * 64
    assert found.sizes == {}
    assert layer_sizes(tmp_path / "m.onnx").sizes == {"n": 1}


def test_layers_are_grouped_by_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    onnx_io.save(modules(), path)
    found = layer_sizes(path)
    assert found.layers[0].scopes == ("net", "net.act")
    assert run(["inspect", str(path), "--layers"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line[: len(line) - len(line.lstrip())] + line.split()[0] for line in lines] == [
        "net", "  act", "    /net/act/Relu", "    /net/act/Relu_1", "  layers.0", "    /net/layers.0/Sigmoid",
        "    linear", "      /net/layers.0/linear/MatMul",
    ]  # fmt: skip
    assert lines[0].split()[1:3] == ["4", "ops"]
    assert "100.0%" in lines[0]
    assert run(["inspect", str(path), "--layers", "--depth", "2"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == ["net", "act", "layers.0"]
    assert run(["inspect", str(path), "--depth", "2"]) == 2
    assert "--depth is of --layers" in capsys.readouterr().err


def test_layers_of_bodies_stand_behind_their_node(model: Path) -> None:
    found = layer_sizes(model)
    assert [layer.op for layer in found.layers] == ["Add", "If", "Neg", "Neg", "custom::my.domain"]
    assert sorted(layer.name for layer in found.layers[2:4]) == ["y/else_branch/b", "y/then_branch/b"]


def test_weights_are_told_by_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.array([[1.0, 0.0, -3.0], [np.nan, np.inf, 1e4]], np.float32)
    path = tmp_path / "w.onnx"
    graph = parse("x: float32[2, 3] y = Add(x, float32[2, 3]{1.0, 0.0, -3.0, nan, inf, 10000.0}) return y")
    onnx_io.save(graph, path)
    finite = values[np.isfinite(values)].astype(np.float64)
    for chunk in (inspection.CHUNK, 2):
        monkeypatch.setattr(inspection, "CHUNK", chunk)
        (found,) = weight_statistics(path)
        assert (found.type, found.bytes, found.smallest, found.largest) == ("float32[2, 3]", 24, -3.0, 1e4)
        assert found.mean == pytest.approx(finite.mean())
        assert found.deviation == pytest.approx(finite.std())
        assert (found.zeros, found.lost) == (1 / 6, 2)


def test_models_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = str(weighted(tmp_path / "a.onnx")), str(weighted(tmp_path / "b.onnx", "m"))
    assert run(["inspect", a, b, "--dim", "n=2"]) == 2
    capsys.readouterr()
    assert run(["inspect", a, b]) == 0
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()[1:]}
    assert rows["parameters"] == ["4.1", "k", "4.1", "k"]
    assert rows["MatMul"] == ["2", "2"]
    assert run(["inspect", a, "--layers"]) == 0
    assert "layer_c" in capsys.readouterr().out
    assert run(["inspect", a, "--weights"]) == 0
    assert "float32[64, 64]" in capsys.readouterr().out
    assert run(["inspect", a, "--weights", "--layers"]) == 2
    capsys.readouterr()
    assert run(["inspect", a, b, "--weights", "--json", "-"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [sum(layer["parameters"] for layer in c["size"]["layers"]) for c in content] == [4096, 4096]
    assert content[0]["weights"][0]["name"] == "w"
