"""What was chosen for a program is told, with what else there was and what that costs."""

import numpy as np
import pytest

from graphopt import platforms
from graphopt.cli import run
from graphopt.ir import onnx_io
from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, Attrs, Graph
from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.ir.types import TensorType
from graphopt.rewrite.extract.cost import graph_cost
from graphopt.target import CUDA
from graphopt.tools.alternatives_report import choices


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
    assert (chosen.chosen.what, chosen.chosen.how) == ("graphopt::MixedMatMul", "library")
    (plain,) = chosen.others
    assert plain.what == "MatMul"
    assert plain.seconds > chosen.chosen.seconds > 0
    assert not [c for c in choices(graph) if "Bfloat" in c.chosen.what]


def test_who_computes_products_on_a_gpu_is_told() -> None:
    graph = parse("x: float32[2048, 2048]\nw: float32[2048, 2048]\ny = MatMul(x, w)\nreturn y")
    (told,) = (c for c in choices(graph, CUDA) if c.kind == "product")
    assert told.chosen.how == "gemm"
    assert [way.how for way in told.others] == ["product"]


GPU_PRODUCTS = {
    "gemm": "x: float32[512, 2048]\nw: float32[2048, 1024]\ny = MatMul(x, w)\nreturn y",
    "convolution": "x: float32[8, 64, 56, 56]\nw: float32[64, 64, 3, 3]\ny = Conv(x, w, pads=[1, 1, 1, 1])\nreturn y",
}


@pytest.mark.parametrize("function", GPU_PRODUCTS)
def test_the_graph_costs_what_the_function_that_is_chosen_takes(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "has_cudnn", lambda: True)
    graph = parse(GPU_PRODUCTS[function])
    for way, expected in (("auto", function), ("own", "product")):
        target = platforms.equipped(CUDA, way)  # type: ignore[arg-type]
        (told,) = (c for c in choices(graph, CUDA) if c.kind == "product")
        seconds = {w.how: w.seconds for w in (told.chosen, *told.others)}
        assert seconds.keys() == {function, "product"}
        assert told.chosen.how == function
        assert graph_cost(graph, infer(graph), target).total.seconds == pytest.approx(seconds[expected], rel=1e-12)


def test_without_cudnn_convolutions_are_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "has_cudnn", lambda: False)
    graph = parse(GPU_PRODUCTS["convolution"])
    assert not [c for c in choices(graph, CUDA) if c.kind == "product"]
    assert "convolution" not in platforms.equipped(CUDA).prices.products
