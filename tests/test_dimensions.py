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
from graphopt.ir.types import is_anonymous, symbol

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
def test_what_names_no_size(name: str) -> None:
    graph = load(model(name))
    sizes = [graph.types[v].shape[0] for v in graph.inputs]
    assert all(map(is_anonymous, sizes))
    assert sizes[0] != sizes[1]


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
