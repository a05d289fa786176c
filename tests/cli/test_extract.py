"""A part of a model is cut out from the command line."""

from pathlib import Path

import onnx
import onnx.parser
import pytest

from graphopt.cli import run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[n,3] x) => (float[n,3] y, float[n,3] z)
        { a = Relu(x)  b = Sqrt(a)  y = Mul(b, b)  z = Neg(a) }"""
    )
    onnx.save(proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_part_is_written(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["extract", str(model), "--inputs", "a", "--outputs", "y,z"]) == 0
    proto = onnx.load(model.with_name("m.part.onnx"))
    assert [n.op_type for n in proto.graph.node] == ["Sqrt", "Mul", "Neg"]
    assert [i.name for i in proto.graph.input] == ["a"]
    assert "Sqrt" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to cut at"),
        (["--inputs", "", "--outputs", ","], "nothing to cut at"),
        (["--inputs", "nonsense"], "the model has no value 'nonsense'"),
        (["--inputs", "b", "--outputs", "z"], "'b': not needed to compute 'z'"),
    ],
)
def test_mistakes_are_one_line(
    model: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["extract", str(model), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not model.with_name("m.part.onnx").exists()
    assert run(["extract", str(model), "--inputs", "a", "-o", str(model)]) == 2
