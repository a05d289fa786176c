"""Rules are learnt from the command line, and rewrite the model once they are whole."""

from pathlib import Path

import onnx
import onnx.parser
import pytest

from graphopt.cli import run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[n,3] x) => (float[n,3] y)
        { [first] a = Relu(x)  b = Sqrt(a)  [last] y = Mul(b, b) }"""
    )
    onnx.save(proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_learnt_rule_optimizes_its_model_once_it_has_a_right_side(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = model.with_name("mine.rules")
    assert run(["learn-rule", str(model), "--nodes", "first..last", "--name", "square", "-o", str(rules)]) == 0
    assert "the left side matches 1 place of" in capsys.readouterr().err
    assert run(["rules", "check", str(rules)]) == 7
    assert "expected a term" in capsys.readouterr().err
    text = rules.read_text().replace("=>  ?", "=>  Relu(x)").replace("# exact\n", "# [H15] reals\n")
    rules.write_text(text)
    assert run(["rules", "check", str(rules), "--no-cache"]) == 0
    out = model.with_name("out.onnx")
    assert run(["optimize", str(model), "-o", str(out), "--rules", str(rules), "--only", "square", "-q"]) == 0
    assert [n.op_type for n in onnx.load(out).graph.node] == ["Relu"]


def test_it_goes_to_stdout_and_names_are_suggested(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["learn-rule", str(model), "--nodes", "b"]) == 0
    assert "learned:  Sqrt(x)" in capsys.readouterr().out
    assert run(["learn-rule", str(model), "--nodes", "first..lst"]) == 2
    assert "did you mean last" in capsys.readouterr().err


def test_inspect_lists_nodes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(model), "--nodes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("Relu  first  ->  a: float32[n, 3]")
