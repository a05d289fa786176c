import json
import re
from math import inf
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graphopt.cli import run
from graphopt.cli.results import encoded
from graphopt.errors import UsageError
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.tools import diff as comparing
from graphopt.tools.diff import diff, layers

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


CHAIN = """x: float32[n, 4]
    a = Mul(x, 2.0)
    b = Add(a, {})
    c = Neg(b)
    d = Abs(a)
    y = Add(c, d)
    return y"""


def save(path: Path, text: str) -> Path:
    onnx_io.save(parse(text), path)
    return path


def test_the_first_layer_that_diverges_is_found(tmp_path: Path) -> None:
    a, b = save(tmp_path / "a.onnx", CHAIN.format("1.0")), save(tmp_path / "b.onnx", CHAIN.format("1.5"))
    found = layers(a, b)
    assert found.first is not None
    assert (found.first.name, found.first.ops, found.first.by) == ("b", ("Add", "Add"), "name")
    assert found.first.absolute == pytest.approx(0.5, rel=1e-5)
    assert [(layer.name, layer.diverges) for layer in found.layers] == [
        ("a", False), ("b", True), ("c", True), ("d", False), ("y", True),
    ]  # fmt: skip
    assert found.unpaired == (0, 0)
    assert found.sizes.keys() == {"n"}


def test_the_users_tolerances_count_inside_too(tmp_path: Path) -> None:
    a, b = save(tmp_path / "a.onnx", CHAIN.format("1.0")), save(tmp_path / "b.onnx", CHAIN.format("1.5"))
    assert layers(a, b, atol=0.6).first is None
    tight = layers(a, b, atol=0.25).first
    assert tight is not None
    assert tight.error == pytest.approx(2, rel=1e-5)
    assert layers(a, a, rtol=0.0, atol=0.0).first is None


def test_values_of_another_kind_are_infinitely_far_apart(tmp_path: Path) -> None:
    given = np.zeros((1, 4), np.float32)
    a = save(tmp_path / "a.onnx", "x: float32[1, 4] a = Neg(x) y = Abs(a) return y")
    b = save(tmp_path / "b.onnx", "x: float32[1, 4] a = Log(x) y = Abs(a) return y")
    first = layers(a, b, {"x": given}).first
    assert first is not None
    assert first.error == inf
    assert encoded(first)["error"] is None  # in JSON


def test_a_journal_says_what_came_in_the_place_of_what(tmp_path: Path) -> None:
    swish = "x: float32[2, 64] b = Add(x, 3.0) c = Clip(b, 0.0, 6.0) d = Mul(x, c) e = Div(d, 6.0) y = Sin(e) return y"
    a, b = save(tmp_path / "a.onnx", swish), tmp_path / "b.onnx"
    assert run(["optimize", str(a), "-o", str(b), "--verify", "off", "-q"]) == 0
    found = layers(a, b)
    assert ("e", ("Div", "HardSwish")) in [(layer.name, layer.ops) for layer in found.layers]
    model = onnx.load(b)
    for node in model.graph.node:  # as a result is whose inner names were lost
        names = {n: f"{n}_of_another_name" for n in node.output if n not in ("y",)}
        for other in model.graph.node:
            other.input[:] = [names.get(n, n) for n in other.input]
        node.output[:] = [names.get(n, n) for n in node.output]
    onnx.save(model, b)
    assert next((layer.ops, layer.by) for layer in layers(a, b).layers) == (("Div", "HardSwish"), "journal")


def test_large_models_run_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = save(tmp_path / "a.onnx", CHAIN.format("1.0")), save(tmp_path / "b.onnx", CHAIN.format("1.5"))
    whole = layers(a, b)
    monkeypatch.setattr(comparing, "AT_ONCE", 40)
    assert layers(a, b) == whole


def test_other_inputs_are_refused(tmp_path: Path) -> None:
    a, b = (
        save(tmp_path / "a.onnx", CHAIN.format("1.0")),
        save(tmp_path / "b.onnx", "z: float32[4] y = Neg(z) return y"),
    )
    with pytest.raises(UsageError, match="have other inputs or outputs"):
        layers(a, b)


def test_layers_are_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = save(tmp_path / "a.onnx", CHAIN.format("1.0")), save(tmp_path / "b.onnx", CHAIN.format("1.5"))
    report, page = tmp_path / "d.json", tmp_path / "d.html"
    assert run(["diff", str(a), str(b), "--layers", "--json", str(report), "--html", str(page)]) == 6
    out = capsys.readouterr().out
    assert "5 compared in ONNX Runtime" in out
    assert "first at b (Add)" in out
    content = json.loads(report.read_text())
    assert content["first"] == content["layers"]["layers"][1]
    assert "output 'y'" in content["mismatch"]
    assert page.read_text().startswith("<!doctype html>")
    assert run(["diff", str(a), str(a), "--json", "-"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["layers"] is None
    assert content["outputs"]["status"] == "verified"
