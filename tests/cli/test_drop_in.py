"""The command lines of onnxsim and onnxslim, with only the program's name changed."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from graphopt.cli import run
from graphopt.cli.drop_in import is_asked


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n,64] x) => (float[n,64] y, float[n,64] z) <float[64,64] w>
        { a = Relu(x)  b = Relu(a)  y = MatMul(b, w)  c = Transpose <perm=[0,1]> (y)  z = Neg(c) }"""
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w"))
    onnx.save(proto, tmp_path / "in.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(folder: Path) -> tuple[list[str], list[str]]:
    proto = onnx.load(folder / "out.onnx")
    return [n.op_type for n in proto.graph.node], [o.name for o in proto.graph.output]


@pytest.mark.parametrize(
    "line",
    [
        "in.onnx out.onnx",
        "in.onnx out.onnx 2",
        "in.onnx out.onnx --overwrite-input-shape 1,64 --skip-fuse-bn",
        "in.onnx out.onnx --test-input-shape x:2,64 --input-fill ones --no-large-tensor 1KB --dynamic-input-shape",
        "--skip-shape-inference in.onnx out.onnx --skip-optimization fuse_bn_into_conv eliminate_nop_pad",
        "in.onnx out.onnx --model-check --model-check-inputs x:2,64 --no-shape-infer --verbose",
        "in.onnx out.onnx --input-shapes x:1,64 --skip-optimizations weight_tying",
    ],
)
def test_readme_examples_and_their_options(model: Path, line: str) -> None:
    assert run(line.split()) == 0
    assert made(model) == (["Relu", "MatMul", "Neg"], ["y", "z"])
    assert sorted(p.name for p in model.iterdir()) == ["in.onnx", "out.onnx"]


def test_options_that_shape_the_result(model: Path) -> None:
    assert run(["in.onnx", "out.onnx", "--unused-output", "z", "--target-opset", "18", "--mutable-initializer"]) == 0
    assert made(model) == (["Relu", "MatMul"], ["y"])
    assert onnx.load(model / "out.onnx").opset_import[0].version == 18
    assert run(["in.onnx", "out.onnx", "--inputs", "b", "--outputs", "y", "--dtype", "fp16"]) == 0
    assert made(model) == (["MatMul"], ["y"])
    assert onnx.load(model / "out.onnx").graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    assert run(["in.onnx", "out.onnx", "--skip-optimization"]) == 0
    assert made(model)[0] == ["Relu", "Relu", "MatMul", "Transpose", "Neg"]
    assert run(["in.onnx", "out.onnx", "--save-as-external-data"]) == 0
    assert len(list(model.glob("out.onnx.*.data"))) == 1
    assert made(model)[0] == ["Relu", "MatMul", "Neg"]


def test_a_size_above_which_weights_go_into_a_file(model: Path) -> None:
    assert run(["in.onnx", "out.onnx", "--external-data-threshold", "100MB"]) == 0
    assert not list(model.glob("out.onnx.*.data"))
    assert run(["in.onnx", "out.onnx", "--external-data-threshold", "1KB"]) == 0
    assert len(list(model.glob("out.onnx.*.data"))) == 1


def test_the_model_itself_may_be_replaced(model: Path) -> None:
    assert run(["in.onnx", "in.onnx"]) == 0
    assert len(onnx.load(model / "in.onnx").graph.node) == 3


def test_models_are_inspected(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--inspect", "in.onnx", "in.onnx"]) == 0
    assert capsys.readouterr().out.count("MatMul") == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("in.onnx out.onnx --emit-mlir", "--emit-mlir: graphopt does nothing of the kind; leave it out"),
        ("in.onnx out.onnx --cuda", "--cuda: graphopt does nothing of the kind"),
        ("in.onnx", "expected IN.onnx OUT.onnx, found 1"),
        ("in.onnx out.onnx --dtype fp8", "invalid choice: 'fp8'"),
        ("in.onnx out.onnx --external-data-threshold many", "expected a size such as 100MB"),
        ("in.onnx out.onnx --skip-optimization lift_lexical_references", "no rule does just what that pass does"),
        ("in.onnx out.onnx --outputs yy", "no value 'yy'; did you mean y"),
        ("in.onnx nowhere/out.onnx", "the folder nowhere does not exist"),
    ],
)
def test_what_is_not_done_is_one_line(model: Path, line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (model / "out.onnx").exists()


def test_commands_stay_commands(model: Path) -> None:
    commands = {"optimize", "inspect"}
    assert is_asked(["in.onnx", "out.onnx"], commands)
    assert is_asked(["--skip-fuse-bn", "in.onnx", "out.onnx"], commands)
    assert not is_asked(["optimize", "in.onnx"], commands)
    assert not is_asked(["optimze", "in.onnx"], commands)
    assert not is_asked(["--version"], commands)
    assert not is_asked([], commands)


def test_the_help_does_not_speak_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert "--skip-fuse-bn" not in capsys.readouterr().out
