"""Parts of models: they are valid, compute what the whole does in between, and hold nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from graphopt.errors import UsageError
from graphopt.ir.onnx_io import load, save
from graphopt.tools.submodel import extract

MODEL = """<ir_version: 10, opset_import: ["" : 18]>
g (float[n,4] x, float[n,4] z) => (float[n,2] y, float[n,4] s)
<float[4,2] w = {1,2,3,4,5,6,7,8}, float[2] b = {1,2}, float[4] unused = {0,0,0,0}>
{
  [first] a = Relu(x)
  [second] c = Add(a, z)
  [third] d = MatMul(c, w)
  [fourth] y = Add(d, b)
  [both] p, q = Split <axis=1, num_outputs=2> (c)
  [last] s = Concat <axis=1> (q, p)
}"""


@pytest.fixture
def model() -> onnx.ModelProto:
    return parser.parse_model(MODEL)


def runs(proto: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    onnx.checker.check_model(proto, full_check=True)
    names = [o.name for o in proto.graph.output]
    return dict(zip(names, ReferenceEvaluator(proto).run(None, feeds), strict=True))


def every(model: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    """All values of the model."""
    names = [n for node in model.graph.node for n in node.output]
    return dict(zip(names, ReferenceEvaluator(model).run(names, feeds), strict=True)) | feeds


def names(values: Any) -> list[str]:
    return [v.name for v in values]


@pytest.mark.parametrize(
    ("inputs", "outputs", "kept", "weights", "made"),
    [
        (["c"], ["y"], ["c"], ["w", "b"], ["y"]),
        (["c"], [], ["c"], ["w", "b"], ["y", "s"]),
        (["p"], ["s"], ["p", "x", "z"], [], ["s"]),
        ([], ["d"], ["x", "z"], ["w"], ["d"]),
        (["d", "b"], ["y"], ["d", "b"], [], ["y"]),
        (["a"], ["c", "d"], ["a", "z"], ["w"], ["c", "d"]),
        (["second"], ["third"], ["second"], ["w"], ["third"]),
    ],
)
def test_the_part_computes_what_the_whole_does(
    model: onnx.ModelProto, inputs: list[str], outputs: list[str], kept: list[str], weights: list[str], made: list[str]
) -> None:
    part = extract(model, inputs, outputs)
    called = {"second": "c", "third": "d"}
    kept, made = ([called.get(n, n) for n in some] for some in (kept, made))
    assert (names(part.graph.initializer), names(part.graph.output)) == (weights, made)
    assert sorted(names(part.graph.input)) == sorted(kept)
    draw = np.random.default_rng(0)
    known = every(model, {n: draw.normal(size=(3, 4)).astype(np.float32) for n in "xz"})
    known["b"] = np.array([1, 2], np.float32)
    for name, value in runs(part, {n: known[n] for n in kept}).items():
        np.testing.assert_array_equal(value, known[name])


def test_cut_values_have_the_types_that_inference_finds(model: onnx.ModelProto) -> None:
    (given,) = extract(model, ["d"], ["y"]).graph.input
    sizes = [d.dim_param or d.dim_value for d in given.type.tensor_type.shape.dim]
    assert (given.type.tensor_type.elem_type, sizes) == (onnx.TensorProto.FLOAT, ["n", 2])


def test_an_input_can_be_an_output(model: onnx.ModelProto) -> None:
    part = extract(model, ["c"], ["c", "y"])
    assert names(part.graph.output) == ["c", "y"]
    c = np.ones((1, 4), np.float32)
    np.testing.assert_array_equal(runs(part, {"c": c})["c"], c)


def test_nodes_keep_their_names_and_the_model_is_left_alone(model: onnx.ModelProto) -> None:
    before = model.SerializeToString()
    assert names(extract(model, ["c"], ["y"]).graph.node) == ["third", "fourth"]
    assert model.SerializeToString() == before


def test_the_same_kind_comes_back(model: onnx.ModelProto, tmp_path: Path) -> None:
    assert isinstance(extract(onnx_ir.from_proto(model), ["c"]), onnx_ir.Model)
    assert isinstance(extract(model.SerializeToString(), ["c"]), bytes)
    assert len(extract(load(model), ["c"], ["y"])) == 2
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="needs output="):
        extract(tmp_path / "m.onnx", ["c"])
    assert extract(tmp_path / "m.onnx", ["c"], output=tmp_path / "p.onnx") == tmp_path / "p.onnx"
    assert names(onnx.load(tmp_path / "p.onnx").graph.input) == ["c"]


def test_bodies_that_read_values_from_outside(tmp_path: Path) -> None:
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18]>
        g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
          a = Relu(x)
          b = Neg(x)
          y = If (c) <
            then_branch = t () => (float[2] u) { u = Add(a, w) },
            else_branch = e () => (float[2] v) { v = Sub(b, a) }
          >
        }"""
    )
    part = extract(proto, ["a"], ["y"])
    assert set(names(part.graph.input)) == {"a", "c", "x"}
    for c in (True, False):
        feeds = {"a": np.array([1, 0], np.float32), "c": np.array(c), "x": np.array([1, -2], np.float32)}
        whole = {"c": feeds["c"], "x": feeds["x"]}
        np.testing.assert_array_equal(runs(part, feeds)["y"], ReferenceEvaluator(proto).run(None, whole)[0])
    with pytest.raises(UsageError, match="'u' is in a body of 'y' \\(If\\)"):
        extract(proto, ["u"], ["y"])


def test_weights_in_files_beside_the_model(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18]>
        g (float[n,64] x) => (float[n,64] y) { a = Relu(x)  y = MatMul(a, w) }"""
    )
    proto.graph.initializer.append(weight)
    (tmp_path / "there").mkdir()
    save(load(proto), tmp_path / "m.onnx", external=True)
    assert (tmp_path / "m.onnx").stat().st_size < 1000
    for place in (tmp_path / "part.onnx", tmp_path / "there" / "part.onnx"):
        extract(tmp_path / "m.onnx", ["a"], output=place)
        found = ReferenceEvaluator(str(place)).run(None, {"a": np.ones((1, 64), np.float32)})[0]
        np.testing.assert_array_equal(found, np.full((1, 64), 64, np.float32))


def test_functions_that_are_not_called_are_left_out() -> None:
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18, "local" : 1]>
        g (float[2] x) => (float[2] y) { a = local.twice(x)  y = local.less(a) }
        <opset_import: ["" : 18], domain: "local"> twice (x) => (y) { y = Add(x, x) }
        <opset_import: ["" : 18], domain: "local"> less (x) => (y) { y = Neg(x) }"""
    )
    assert names(extract(proto, [], ["a"]).functions) == ["twice"]


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (["cc"], ["y"], r"no value 'cc'; did you mean c\?"),
        (["nonsense"], ["y"], "no value 'nonsense'; `graphopt inspect MODEL --nodes`"),
        (["s"], ["y"], "'s': not needed to compute 'y'"),
        (["both"], ["s"], "the node 'both' makes several values: name one of 'p', 'q'"),
    ],
)
def test_names_that_will_not_do(model: onnx.ModelProto, inputs: list[str], outputs: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        extract(model, inputs, outputs)
