"""onnxsim's arguments, with a stand-in for the optimizer that keeps what it was called with."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graphopt.drop_in import simplify
from graphopt.errors import UsageError, VerificationError


class Calls(list[dict[str, Any]]):
    fault: Exception | None = None


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    made = Calls()

    def optimize(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
        made.append(options)
        if made.fault:
            raise made.fault
        return model

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
    assert calls[0]["verify"] == "off"
    assert calls[0]["freeze"]


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
    ("options", "name"),
    [
        ({"perform_optimization": False}, "perform_optimization"),
        ({"skip_constant_folding": True}, "skip_constant_folding"),
        ({"custom_lib": "x.so"}, "custom_lib"),
        ({"skipped_optimizers": ["eliminate_nop_pad"]}, "skipped_optimizers='eliminate_nop_pad'"),
        ({"custom_rewriter": print}, "custom_rewriter"),
        ({"tensor_size_threshold": "1KB"}, "tensor_size_threshold"),
    ],
)
def test_the_others_are_refused_by_name(calls: Calls, model: onnx.ModelProto, options: Any, name: str) -> None:
    with pytest.raises(UsageError, match=f"does not take {name}"):
        simplify(model, **options)
    assert not calls


def test_wrong_names_are_refused(calls: Calls, model: onnx.ModelProto) -> None:
    with pytest.raises(UsageError, match="the model has no output 'q'; it has y, z"):
        simplify(model, unused_output=["q"])
