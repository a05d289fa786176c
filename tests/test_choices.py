"""What was chosen for a program is told, with what else there was and what that costs."""

import numpy as np
import pytest

from graphopt.choices import choices
from graphopt.cli import run
from graphopt.ir import onnx_io
from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, Attrs, Graph
from graphopt.ir.text import parse
from graphopt.ir.types import TensorType
from graphopt.target import CUDA


@pytest.fixture
def graph() -> Graph:
    graph = parse(
        "x: float32[1, 32, 14, 14]\nw: float32[32, 32, 5, 5]\na = Conv(x, w, pads=[2, 2, 2, 2])\n"
        "b = Relu(a)\ny = Conv(b, w, pads=[2, 2, 2, 2])\nreturn y"
    )
    value = graph.inputs.pop()
    kind = graph.types.pop(value)
    assert isinstance(kind, TensorType)
    held = Constant.of(np.ones((32, 32, 5, 5), np.float32))
    graph.update(value.node, op=CONSTANT, attrs=Attrs(value=held))
    return graph


def test_layouts_are_told_with_their_alternatives(graph: Graph) -> None:
    found = [c for c in choices(graph) if c.kind == "layout"]
    assert {c.chosen.what for c in found} == {"graphopt::BlockedConv"}
    assert {c.chosen.how for c in found} == {"blocks"}
    for choice in found:
        (plain,) = (o for o in choice.others if o.what == "Conv")
        assert plain.how == "plain"
        assert plain.seconds > choice.chosen.seconds > 0


def test_changes_of_layout_and_fusions_are_told(graph: Graph) -> None:
    found = choices(graph)
    assert sorted(c.chosen.what for c in found if c.kind == "reorder") == ["graphopt::Block", "graphopt::Unblock"]
    (fused,) = (c for c in found if c.kind == "fusion" and "Relu" in c.chosen.what)
    assert fused.chosen.what == "graphopt::BlockedConv+Relu"
    assert fused.others[0].how == "apart"
    assert fused.others[0].seconds > fused.chosen.seconds


def test_the_command_tells_them(graph: Graph, tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"{tmp_path}/m.onnx"
    onnx_io.save(graph, path)
    assert run(["explain", path, "--choices"]) == 0
    out = capsys.readouterr().out
    assert "graphopt::BlockedConv (blocks)" in out
    assert "Conv (plain)" in out
    assert "2 by layout, 2 by reorder" in out
    assert run(["explain", path]) == 2


def test_weights_in_bfloat16_are_told_beside_those_in_float32() -> None:
    graph = parse("x: float32[4, 256]\nw = float32[256, 512]{0.5, ...}\ny = MatMul(x, w)\nreturn y")
    (chosen,) = (c for c in choices(graph, policy="approx") if c.kind == "library")
    assert (chosen.chosen.what, chosen.chosen.how) == ("graphopt::BfloatMatMul", "library")
    (plain,) = chosen.others
    assert plain.what == "MatMul"
    assert plain.seconds > chosen.chosen.seconds > 0
    assert not [c for c in choices(graph) if "Bfloat" in c.chosen.what]


def test_who_computes_products_on_a_gpu_is_told() -> None:
    graph = parse("x: float32[2048, 2048]\nw: float32[2048, 2048]\ny = MatMul(x, w)\nreturn y")
    (told,) = (c for c in choices(graph, CUDA) if c.kind == "product")
    assert told.chosen.how == "gemm"
    assert [way.how for way in told.others] == ["product"]
