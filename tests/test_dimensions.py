"""Dimensions have the names that the model's file gives them, wherever they are shown or asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphopt
from graphopt.cli import run
from graphopt.errors import UsageError
from graphopt.ir.infer import infer
from graphopt.ir.onnx_io import load, save
from graphopt.ir.text import parse, show
from graphopt.ir.types import TensorType, fresh_symbol, in_words, is_anonymous, symbol
from graphopt.rewrite.passes import fix_dims

NAMES = (
    "batch-size", "p2o.DynamicDimension.0", "sequence length", "größe", "日本", "2*n", "a+b", "min", "broadcast",
    "x.y[0]", "a`b\"c\\d", "n//2", "(n)",
)  # fmt: skip


def model(name: str) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(k, TensorProto.FLOAT, [name, 3]) for k in "xy")
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Add", ["x", "y"], ["s"]), helper.make_node("Concat", ["s", "x"], ["z"], axis=0)]
    graph = helper.make_graph(nodes, "g", [x, y], [z])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def names_of(proto: onnx.ModelProto) -> list[str]:
    return [i.type.tensor_type.shape.dim[0].dim_param for i in proto.graph.input]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_the_models_own(name: str, tmp_path: Path) -> None:
    graph = load(model(name))
    x, y = (graph.types[v] for v in graph.inputs)
    assert x == y  # equal names are equal sizes
    assert str(x) == f"float32[{name}, 3]"
    assert infer(graph)[graph.outputs[0]].shape == (2 * symbol(name), 3)
    save(graph, tmp_path / "saved.onnx")
    assert names_of(onnx.load(tmp_path / "saved.onnx")) == [name, name]


@pytest.mark.parametrize("name", NAMES)
def test_text_reads_back(name: str) -> None:
    graph = load(model(name))
    graph.types[graph.outputs[0]] = infer(graph)[graph.outputs[0]].type
    again = parse(show(graph))
    assert show(again) == show(graph)
    assert again.key() == graph.key()
    assert again.types == graph.types


def test_a_name_that_looks_like_an_expression_is_a_name() -> None:
    assert symbol("2*n") != 2 * symbol("n")
    assert {symbol("2*n") + 2 * symbol("n")} == {2 * symbol("n") + symbol("2*n")}


@pytest.mark.parametrize("name", ["", " ", "?", "-1", "?3"])
def test_what_names_no_size(name: str, tmp_path: Path) -> None:
    graph = load(model(name))
    assert [graph.types[v].shape[0] for v in graph.inputs] == [symbol("x.0"), symbol("y.0")]
    graph.types[graph.outputs[0]] = infer(graph)[graph.outputs[0]].type
    save(graph, tmp_path / "saved.onnx")
    saved = onnx.load(tmp_path / "saved.onnx")
    assert not {
        d.dim_param for i in (*saved.graph.input, *saved.graph.output) for d in i.type.tensor_type.shape.dim
    } & {"x.0", "y.0"}
    assert names_of(saved) == names_of(model(name))


@pytest.mark.parametrize("name", ["batch-size", "2*n", "sequence length"])
def test_the_command_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, made = tmp_path / "m.onnx", tmp_path / "made.onnx"
    onnx.save(model(name), path)

    def said(*arguments: object, code: int = 0) -> str:
        assert run([*map(str, arguments)]) == code
        captured = capsys.readouterr()
        return captured.out + captured.err

    assert f"float32[{name}, 3]" in said("inspect", path)
    said("optimize", path, "-o", made, "--dim", f"{name}=4", "--verify", "off")
    assert "float32[4, 3]" in said("inspect", made)
    said("optimize", path, "-o", made, "--shape", "x=4,3", "--verify", "off")
    assert "float32[4, 3]" in said("inspect", made)
    said("optimize", path, "-o", made, "--verify", "off")
    assert names_of(onnx.load(made)) == [name, name]
    assert f"there is {name}" in said("optimize", path, "-o", made, "--dim", "other=4", code=2)


@pytest.mark.parametrize("name", ["batch-size", "2*n"])
def test_programs(name: str) -> None:
    program = graphopt.compile(model(name), jobs=0)
    x = np.ones((2, 3), np.float32)
    assert program({"x": x, "y": x})["z"].shape == (4, 3)
    with pytest.raises(UsageError) as caught:
        program({"x": x, "y": np.ones((5, 3), np.float32)})
    assert f"as {name} is by the other inputs" in str(caught.value)
    assert f"float32[{name}, 3]" in str(caught.value)


UNKNOWN = ["", "?", "-1"]


@pytest.mark.parametrize("name", UNKNOWN)
def test_axes_without_a_name_are_called_by_their_input(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, made = tmp_path / "m.onnx", tmp_path / "made.onnx"
    onnx.save(model(name), path)
    assert run(["inspect", str(path)]) == 0
    assert "float32[x.0, 3]" in capsys.readouterr().out
    assert run(["inspect", str(path), "--nodes"]) == 0
    assert "float32[x.0 + broadcast(x.0, y.0), 3]" in capsys.readouterr().out
    assert run(["optimize", str(path), "-o", str(made)]) == 0
    told = capsys.readouterr().out
    assert "x.0=" in told
    assert "?" not in told
    assert names_of(onnx.load(made)) == names_of(model(name))  # the file says no more than before
    assert run(["optimize", str(path), "-o", str(made), "--verify", "off", "--dim", "x.0=4"]) == 0
    capsys.readouterr()
    assert run(["inspect", str(made)]) == 0
    told = capsys.readouterr().out
    assert "float32[4, 3]" in told
    assert "float32[y.0, 3]" in told
    assert run(["optimize", str(path), "-o", str(made), "--dim", "x.1=4"]) == 2
    assert "did you mean x.0" in capsys.readouterr().err


@pytest.mark.parametrize("name", UNKNOWN)
def test_programs_call_axes_without_a_name_by_their_input(name: str) -> None:
    program = graphopt.compile(model(name), jobs=0)
    x = np.ones((2, 3), np.float32)
    assert program.sizes(x, x) == {"x.0": 2, "y.0": 2}


def test_a_name_of_the_model_goes_before_an_axis() -> None:
    proto = model("x.0")
    proto.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_param")
    fixed = fix_dims(load(proto), {}, {"x.0": 4})
    x, y = (fixed.types[v].shape[0] for v in fixed.inputs)
    assert is_anonymous(x)
    assert y == 4


def test_sizes_of_which_nothing_is_known_are_a_question_mark() -> None:
    sizes = [fresh_symbol(), 2 * fresh_symbol() + 1, 2 * symbol("x?0"), symbol("n")]
    assert [*map(in_words, sizes)] == ["?", "2*? + 1", "2*`x?0`", "n"]
    assert str(TensorType("float32", (fresh_symbol(), 3))) == "float32[?, 3]"
