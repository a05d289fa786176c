"""What a runtime fuses by itself is found, in any order of operands, and only where all of it is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import INPUT, Value
from graphopt.ir.types import TensorType
from graphopt.optimize import optimize
from graphopt.rewrite.egraph.egraph_snapshot import ENode
from graphopt.rewrite.extract.choose import appraise
from graphopt.rewrite.extract.cost import CostModel
from graphopt.rewrite.extract.fusions import fusions
from graphopt.target import ORT, PORTABLE
from tests.bench.fusions import loaded_ops, lost, lost_by
from tests.corpus.covered import CORPUS
from tests.rewrite.extract.fused_patterns import patterns
from tests.rewrite.hand_made import e

X = Fact(TensorType("float32", (4, 64)))


def number(x: float) -> Fact:
    return Fact(TensorType("float32", ()), True, Constant.of(np.array(x, np.float32)))


def gelu(half: float = 0.5) -> tuple[dict[int, list[ENode]], dict[int, Fact]]:
    classes = {
        0: [e(0, INPUT)],
        4: [e(4, "Div", 0, 1)],
        5: [e(5, "Erf", 4)],
        6: [e(6, "Add", 2, 5)],
        7: [e(7, "Mul", 6, 0)],
        8: [e(8, "Mul", 7, 3)],
    }
    facts = dict.fromkeys(classes, X) | {1: number(2**0.5), 2: number(1.0), 3: number(half)}
    return classes, facts


def test_a_group_is_found_with_all_that_it_is() -> None:
    classes, facts = gelu()
    (found,) = fusions(PORTABLE, classes, facts, 17)[8]
    assert found.node.op == "com.microsoft::Gelu"
    assert found.node.children == (0,)
    assert [c for c, _ in found.parts] == [8, 7, 6, 5, 4]


def test_what_computes_a_value_from_itself_is_in_no_group() -> None:
    fused = """
# what is added and normalized is one op [L9] reals
norm: LayerNormalization(Add(x, y), g, b) => com.microsoft::SkipLayerNormalization(x, y, g, b)
"""
    classes = {
        0: [e(0, INPUT)],
        1: [e(1, INPUT)],
        5: [e(5, "Add", 5, 2), e(6, "Add", 0, 1)],
        7: [e(7, "LayerNormalization", 5, 3, 4)],
    }
    facts = (
        dict.fromkeys(classes, X) | {2: number(0.0)} | dict.fromkeys((3, 4), Fact(TensorType("float32", (64,)), True))
    )
    groups = fusions(replace(ORT, fusions=fused), classes, facts, 17)[7]
    assert {tuple(node.id for _, node in group.parts) for group in groups} == {(7, 6)}


def test_another_constant_is_another_function() -> None:
    assert fusions(PORTABLE, *gelu(half=0.25), 17) == {}


def test_attributes_that_are_not_mentioned_have_their_defaults() -> None:
    classes = {0: [e(0, INPUT)], 1: [e(1, "HardSigmoid", 0, alpha=1 / 6)], 2: [e(2, "Mul", 0, 1)]}
    facts = dict.fromkeys(classes, X)
    assert fusions(ORT, classes, facts, 17)[2][0].node.op == "HardSwish"
    classes[1] = [e(1, "HardSigmoid", 0, alpha=0.25)]
    assert fusions(ORT, classes, facts, 17) == {}


def test_guards_hold() -> None:
    classes = {0: [e(0, INPUT)], 2: [e(2, "MatMul", 0, 1)], 4: [e(4, "Add", 2, 3)]}
    weights, bias = (Fact(TensorType("float32", shape), True) for shape in ((64, 8), (8,)))
    facts = dict.fromkeys(classes, X) | {1: weights, 3: bias}
    assert fusions(PORTABLE, classes, facts, 17)[4][0].node.op == "Gemm"
    assert fusions(PORTABLE, classes, facts | {3: Fact(bias.type)}, 17) == {}


def test_a_variable_is_the_activation_of_what_is_made() -> None:
    classes = {0: [e(0, INPUT)], 2: [e(2, "Conv", 0, 1, pads=(1, 1, 1, 1))], 3: [e(3, "Sigmoid", 2)]}
    image, weights = Fact(TensorType("float32", (1, 8, 9, 9))), Fact(TensorType("float32", (8, 8, 3, 3)), True)
    facts = dict.fromkeys(classes, image) | {1: weights}
    (found,) = fusions(PORTABLE, classes, facts, 17)[3]
    assert found.node.op == "com.microsoft::FusedConv"
    assert dict(found.node.attrs) == {"pads": (1, 1, 1, 1), "activation": "Sigmoid"}
    assert fusions(PORTABLE, classes | {3: [e(3, "Elu", 2)]}, facts, 17) == {}


def test_a_group_takes_up_what_one_before_it_made() -> None:
    classes = {
        0: [e(0, INPUT)],
        1: [e(1, "Transpose", 0, perm=(1, 0))],
        2: [e(2, "MatMul", 0, 1)],
        4: [e(4, "Mul", 2, 3)],
    }
    facts = dict.fromkeys(classes, X) | {3: number(0.5)}
    found = fusions(PORTABLE, classes, facts, 17)[4]
    whole = max(found, key=lambda group: len(group.parts))
    assert dict(whole.node.attrs) == {"transB": 1}
    assert whole.node.children == (0, 0)
    assert [c for c, _ in whole.parts] == [4, 2, 1]


FUSED = (
    "applications/segments", "tensorflow/inception", "tensorflow/preprocess", "torch/grams", "torchscript/llama_eager",
    "torchscript/rms", "torchscript/t5_encoder", "torchscript/turned",
)  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("target", ["portable", "ort"])
def test_the_runtime_finds_as_many_fusions_as_before(name: str, target: str) -> None:
    pytest.importorskip("onnxruntime")
    assert lost_by(CORPUS / f"{name}.onnx", target) == {}


@pytest.mark.parametrize(("name", "model"), [pytest.param(*p, id=p[0]) for p in patterns()])
def test_what_the_runtime_fuses_stays_so(name: str, model: onnx.ModelProto, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    onnx.save(model, tmp_path / "in.onnx")
    assert set(loaded_ops(tmp_path / "in.onnx")).isdisjoint({"Pow", "Erf", "Relu", "Sigmoid"}), "it fuses nothing"
    assert lost_by(tmp_path / "in.onnx", "portable") == {}


def test_gelu_as_torch_writes_it_is_spelled_as_the_runtime_finds_it(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    assert "Gelu" not in loaded_ops(CORPUS / "torch/vit.onnx")
    optimize(CORPUS / "torch/vit.onnx", output=tmp_path / "out.onnx", verify="off")
    assert loaded_ops(tmp_path / "out.onnx")["Gelu"] == 1


def test_what_is_lost() -> None:
    assert lost({"FusedConv": 2}, {"FusedConv": 1, "Conv": 1, "Relu": 1}) == {"FusedConv": 1}
    assert lost({"FusedConv": 2}, {"FusedConv": 1, "Conv": 1}) == {}, "there is no activation any more"
    assert lost({"FusedConv": 2}, {"FusedConv": 1, "Relu": 1}) == {}, "there is a convolution less"
    assert lost({"FastGelu": 1}, {"Gelu": 1}) == {}
    assert lost({"SkipLayerNormalization": 1}, {"LayerNormalization": 1, "Add": 1}) == {"SkipLayerNormalization": 1}


def test_no_fusions_no_parsing() -> None:
    assert fusions(replace(PORTABLE, fusions=""), *gelu(), 17) == {}


def test_a_group_costs_what_the_runtime_makes_of_it() -> None:
    from graphopt.ir.graph import Graph

    def built(output: str) -> tuple[Graph, dict[Value, Fact]]:
        graph = Graph()
        x = graph.add_input("x", X.type)
        sigmoid = graph.add("Sigmoid", (x,)).outputs[0]
        swish = graph.add("Mul", (x, sigmoid)).outputs[0]
        graph.add_output("y", swish)
        if output == "both":
            graph.add_output("z", sigmoid)
        return graph, {v: X for n in graph.nodes() for v in n.outputs}

    assert appraise(*built("one"), CostModel(ORT)).by_op.keys() == {"com.microsoft::QuickGelu"}
    assert appraise(*built("both"), CostModel(ORT)).by_op.keys() == {"Mul", "Sigmoid"}
    assert appraise(*built("one"), CostModel(replace(ORT, fusions=""))).by_op.keys() == {"Mul", "Sigmoid"}
