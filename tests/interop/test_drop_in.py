"""onnxsim's and onnxslim's arguments; the former with a stand-in for the optimizer that keeps its own."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

from graphopt.errors import UsageError, VerificationError
from graphopt.interop.compat_options import OPTIMIZERS
from graphopt.interop.drop_in import simplify, slim
from graphopt.rewrite.ruleset import standard
from graphopt.verify.verification import Verification


class Calls(list[dict[str, Any]]):
    fault: Exception | None = None
    status = "verified"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    made = Calls()

    def optimize(model: onnx.ModelProto, return_report: bool = False, **options: Any) -> Any:
        made.append(options)
        if made.fault:
            raise made.fault
        return (model, SimpleNamespace(verification=Verification(made.status))) if return_report else model

    module = ModuleType("graphopt.optimize")
    module.optimize = optimize  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "graphopt.optimize", module)
    return made


@pytest.fixture
def model() -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3]) for n in "yz"],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_model_or_a_path_comes_back_as_a_model(calls: Calls, model: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(model, tmp_path / "m.onnx")
    for given in (model, tmp_path / "m.onnx", str(tmp_path / "m.onnx")):
        result, ok = simplify(given)
        assert ok
        assert [n.op_type for n in result.graph.node] == ["Relu", "Neg"]
    assert calls[0]["verify"] == 1
    assert calls[0]["freeze"]


@pytest.mark.parametrize("check_n", [0, 1])
@pytest.mark.parametrize("status", ["inconclusive", "unverified"])
def test_only_what_is_verified_is_ok(calls: Calls, model: onnx.ModelProto, status: str, check_n: int) -> None:
    calls.status = status
    assert not simplify(model, check_n)[1]


def test_a_model_that_nothing_runs_is_not_ok() -> None:
    graph = helper.make_graph(
        [helper.make_node("Foo", ["x"], ["l"], domain="my"), helper.make_node("Neg", ["l"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 16])],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]
    assert not simplify(helper.make_model(graph, opset_imports=opsets, ir_version=9))[1]


def test_a_model_of_random_numbers_that_stays_as_it_is_is_ok() -> None:
    graph = helper.make_graph(
        [helper.make_node("RandomNormalLike", ["x"], ["r"]), helper.make_node("Mul", ["r", "x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 16])],
    )
    assert simplify(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))[1]


def test_what_is_supported_reaches_the_optimizer(calls: Calls, model: onnx.ModelProto, tmp_path: Path) -> None:
    result, _ = simplify(
        model,
        check_n=3,
        skip_fuse_bn=True,
        overwrite_input_shapes={None: [2, 3]},
        test_input_shapes={"x": [4, 3]},
        skip_shape_inference=True,
        dynamic_input_shape=True,
        include_subgraph=True,
        unused_output=["z"],
        mutable_initializer=True,
        target_opset_version=18,
        output_path=tmp_path / "out.onnx",
    )
    options = calls[0]
    assert options["inputs"].pop("x").shape == (4, 3)
    assert options == {
        "without": ["K1"],
        "opset": 18,
        "freeze": False,
        "shapes": {"x": (2, 3)},
        "verify": 3,
        "inputs": {},
    }
    assert [o.name for o in result.graph.output] == ["y"]
    assert (tmp_path / "out.onnx").exists()


def test_input_data_is_what_the_check_feeds(calls: Calls, model: onnx.ModelProto) -> None:
    data = {"x": np.ones((1, 3), "f4")}
    simplify(model, 1, input_data=data)
    assert calls[0]["inputs"]["x"] is data["x"]


def test_a_failed_check_gives_the_original_and_false(calls: Calls, model: onnx.ModelProto) -> None:
    calls.fault = VerificationError("wrong")
    result, ok = simplify(model, check_n=1)
    assert not ok
    assert [n.op_type for n in result.graph.node] == ["Relu", "Neg"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"skip_constant_folding": True}, "does not take skip_constant_folding"),
        ({"custom_lib": "x.so"}, "does not take custom_lib"),
        ({"providers": ["CUDAExecutionProvider"]}, "does not take providers"),
        ({"check_rtol": 0.5}, "does not take check_rtol"),
        ({"initializers_as_constants": False}, "does not take initializers_as_constants"),
        ({"something_new": 1}, "does not take something_new"),
        ({"skipped_optimizers": ["lift_lexical_references"]}, "skipped_optimizers='lift_lexical_references'"),
        ({"target_opset_version": "newest"}, "the opset 'newest': expected a number, or latest"),
        ({"input_fill": "sevens", "check_n": 1}, "random numbers, ones, zeros or arange, not 'sevens'"),
    ],
)
def test_the_others_are_refused_by_name(calls: Calls, model: onnx.ModelProto, options: Any, message: str) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    with pytest.raises(UsageError, match=message):
        simplify(model, **options)
    assert not calls


def test_what_asks_for_nothing_may_be_there(calls: Calls, model: onnx.ModelProto) -> None:
    simplify(
        model,
        tensor_size_threshold="1KB",
        check_rtol=1e-4,
        initializers_as_constants=True,
        providers=["CPUExecutionProvider"],
        certify=False,
        import_custom_schemas=False,
    )
    assert set(calls[0]) == {"without", "opset", "freeze", "shapes", "verify", "inputs"}


def test_names_of_passes_are_families_and_names_of_rules_stay(calls: Calls, model: onnx.ModelProto) -> None:
    simplify(model, skipped_optimizers=["fuse_matmul_add_bias_into_gemm", "H8", "eliminate_nop_pad"])
    assert calls[0]["without"] == ["J1", "H8", "C9"]
    assert all(standard().named(family) for family in OPTIMIZERS.values())


def test_inputs_are_filled(calls: Calls, model: onnx.ModelProto) -> None:
    simplify(model, 1, test_input_shapes={"x": [2, 3]}, input_fill="arange")
    assert calls[0]["inputs"]["x"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_without_optimization_only_constants_are_computed(calls: Calls, model: onnx.ModelProto) -> None:
    simplify(model, perform_optimization=False)
    rules = calls[0]["rules"]
    assert not rules.rules
    assert {p.family for p in rules.passes} >= {"A1"}


def test_pairs_of_functions_are_rules_beside_the_standard_ones(calls: Calls, model: onnx.ModelProto) -> None:
    left, right = (
        onnx.parser.parse_function(f'<domain: "e", opset_import: ["" : 18]> f (x) => (y) {{ y = {op}(x) }}')
        for op in ("Relu", "Abs")
    )
    simplify(model, function_rewrite_rules=[(left, right)])
    assert calls[0]["rules"].rules[-1].name == "function-rule-1"
    assert len(calls[0]["rules"].rules) == len(standard().rules) + 1


def test_a_rewriter_takes_turns_until_nothing_changes(calls: Calls, model: onnx.ModelProto) -> None:
    seen: list[int] = []

    def shorten(proto: onnx.ModelProto) -> None:
        seen.append(len(proto.graph.node))
        if proto.graph.node[0].op_type == "Relu":
            proto.graph.node[0].op_type = "Abs"

    result, ok = simplify(model, custom_rewriter=shorten)
    assert ok
    assert [n.op_type for n in result.graph.node] == ["Abs", "Neg"]
    assert len(seen) == 2
    assert [n.op_type for n in model.graph.node] == ["Relu", "Neg"]


def test_a_rewriter_that_changes_results_is_found(model: onnx.ModelProto) -> None:
    def spoil(proto: onnx.ModelProto) -> None:
        proto.graph.node[0].op_type = "Exp"

    result, ok = simplify(model, 1, custom_rewriter=spoil, test_input_shapes={"x": [2, 3]})
    assert not ok
    assert [n.op_type for n in result.graph.node] == ["Relu", "Neg"]


def test_wrong_names_are_refused(calls: Calls, model: onnx.ModelProto) -> None:
    with pytest.raises(UsageError, match="there is no output 'q'; there are y, z"):
        simplify(model, unused_output=["q"])


# onnxslim's call


@pytest.fixture
def relus() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n,64] x) => (float[n,64] y, float[n,64] z) <float[64,64] w>
        { a = Relu(x)  b = Relu(a)  y = MatMul(b, w)  c = Transpose <perm=[0,1]> (y)  z = Neg(c) }"""
    )


@pytest.fixture
def slimmed(relus: onnx.ModelProto) -> onnx.ModelProto:
    relus.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w"))
    return relus


def ops(proto: onnx.ModelProto) -> list[str]:
    return [n.op_type for n in proto.graph.node]


def test_slim_gives_a_model_or_writes_one(slimmed: onnx.ModelProto, tmp_path: Path) -> None:
    assert ops(slim(slimmed, model_check=True, model_check_inputs=["x:2,64"])) == ["Relu", "MatMul", "Neg"]
    onnx.save(slimmed, tmp_path / "m.onnx")
    assert slim(str(tmp_path / "m.onnx"), str(tmp_path / "out.onnx"), save_as_external_data=True) is None
    assert ops(onnx.load(tmp_path / "out.onnx")) == ["Relu", "MatMul", "Neg"]
    (data,) = tmp_path.glob("out.onnx.*.data")
    assert data.stat().st_size >= 64 * 64 * 4


def test_slim_cuts_fixes_and_converts(slimmed: onnx.ModelProto) -> None:
    made = slim(slimmed, inputs=["b:fp32"], outputs=["y"], input_shapes={"b": [1, 64]}, dtype="fp16")
    assert ops(made) == ["MatMul"]
    assert made.graph.input[0].name == "b"
    assert made.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT16
    assert [d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim] == [1, 64]


def test_slim_leaves_out_what_it_is_told(slimmed: onnx.ModelProto) -> None:
    steps = ["constant_folding", "graph_fusion", "dead_node_elimination", "subexpression_elimination", "weight_tying"]
    assert ops(slim(slimmed, skip_optimizations=steps)) == ops(slimmed)


def test_slim_prints_what_models_hold(slimmed: onnx.ModelProto, capsys: pytest.CaptureFixture[str]) -> None:
    assert slim([slimmed, slimmed]) is None
    assert capsys.readouterr().out.count("  Relu: 2") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dump_to_disk": True}, "slim does not take dump_to_disk"),
        ({"skip_optimizations": ["constant_folding"]}, "skipping constant_folding is not possible here"),
        ({"outputs": ["yy"]}, "no value 'yy'; did you mean y"),
        ({"outputs": ["y:int32"]}, "'y' is float32; graphopt convert changes dtypes"),
        ({"input_shapes": ["x:1,a"]}, "x:1,a: expected a shape"),
    ],
)
def test_what_slim_cannot_do_is_said(slimmed: onnx.ModelProto, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        slim(slimmed, **options)
