from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from graphopt.errors import UsageError
from graphopt.ir.onnx_io import convert_opset, load, to_proto
from graphopt.ir.structure import same
from tests.ir.onnx_io.model_zoo import ZOO, model, plain


def test_the_version_that_it_has_is_no_change() -> None:
    graph = load(plain())
    assert convert_opset(graph, 18) is graph


@pytest.mark.parametrize("version", [9, 11, 13, 17, 21])
def test_a_model_says_the_same_in_other_opsets(version: int) -> None:
    proto = model(
        """agraph (float[2, 1, 4] x) => (float[2, 2] y) {
             q = Squeeze<axes = [1]>(x)
             c = Clip<min = 0.0, max = 6.0>(q)
             r = ReduceSum<keepdims = 0, axes = [1]>(c)
             u = Unsqueeze<axes = [1]>(r)
             a, b = Split<axis = 1>(c)
             s = Softmax<axis = 1>(a)
             y = Add(s, u)
           }""",
        opset=8,
        ir_version=4,
    )
    graph = convert_opset(load(proto), version)
    assert graph.opset == version
    converted = to_proto(graph)
    onnx.checker.check_model(converted, full_check=True)
    x = np.random.default_rng(0).normal(size=(2, 1, 4)).astype(np.float32)
    (expected,) = ReferenceEvaluator(to_proto(convert_opset(load(proto), 18))).run(None, {"x": x})
    (found,) = ReferenceEvaluator(converted).run(None, {"x": x})
    assert np.allclose(found, expected)
    assert same(convert_opset(graph, 18), convert_opset(load(proto), 18)) is None


def test_bodies_and_functions_are_converted_too() -> None:
    graph = convert_opset(load(ZOO["functions"]()), 21)
    assert [f.body.opset for f in graph.functions.values()] == [21, 21]
    assert {(o.domain, o.version) for f in to_proto(graph).functions for o in f.opset_import} == {
        ("", 21),
        ("local", 1),
    }
    graph = convert_opset(load(ZOO["bodies"]()), 21)
    assert all(b.opset == 21 for n in graph.nodes() for b in n.bodies.values())


def test_the_ir_version_follows() -> None:
    assert to_proto(convert_opset(load(plain()), 21)).ir_version == 10
    old = to_proto(convert_opset(load(ZOO["initializers_listed_as_inputs"]()), 21))
    assert [i.name for i in old.graph.input] == ["x"]


def test_ops_in_old_forms_go_through_onnx() -> None:
    proto = model(
        "agraph (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax<axis = 1>(x) }", opset=12, ir_version=7
    )
    graph = load(proto)
    assert [n.op for n in graph.nodes()] == ["Input", "Softmax@11"]
    converted = convert_opset(graph, 13)
    assert [n.op for n in converted.nodes() if "@" in n.op] == []
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    expected = np.exp(x) / np.exp(x).sum(axis=(1, 2), keepdims=True)
    assert np.allclose(ReferenceEvaluator(to_proto(converted)).run(None, {"x": x})[0], expected, atol=1e-6)


def test_attributes_change_their_type() -> None:
    proto = model('agraph (float[4] x) => (double[4] y) { y = Cast<to = "DOUBLE">(x) }', opset=5, ir_version=3)
    (attribute,) = to_proto(convert_opset(load(proto), 13)).graph.node[0].attribute
    assert onnx.helper.get_attribute_value(attribute) == onnx.TensorProto.DOUBLE


def test_what_cannot_be_converted() -> None:
    graph = load(model("agraph (float[4] x) => (float[4] y) { y = Gelu(x) }", opset=20, ir_version=9))
    with pytest.raises(UsageError, match=r"cannot be converted to opset 17: .*Gelu is not in opset 17"):
        convert_opset(graph, 17)
    with pytest.raises(UsageError, match="no opset 99"):
        convert_opset(graph, 99)
    with pytest.raises(UsageError, match="no opset 0"):
        convert_opset(graph, 0)


def test_light_models_convert_without_their_weights(tmp_path: Path) -> None:
    path = Path(onnx.__file__).parent / "backend/test/data/light/light_squeezenet.onnx"
    converted = convert_opset(load(path), 20)
    assert len(to_proto(converted).SerializeToString()) < 1.5 * path.stat().st_size
    onnx.checker.check_model(to_proto(converted), full_check=True)
