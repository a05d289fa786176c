"""Reports tell how many attentions are one op, and what stood in the way of the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.cli import run
from graphopt.run.attentions import CHEAPER, QUANTIZED, Attentions


def attention(heads: int, shared: int, size: int = 8, depth: int = 3, axis: int = -1) -> onnx.ModelProto:
    """Attention written out, of queries with so many heads and keys and values that are repeated for them."""
    length: list[str | int] = ["batch", heads, "seq", size]
    cache: list[str | int] = ["batch", shared, "past", size]
    constants = {
        "scale": np.float32(0.25),
        "axes": np.array([2]),
        "repeats": np.array([1, 1, heads // shared, 1, 1]),
        "rows": np.array([0, heads, -1, size]),
    }
    nodes = []
    for name in "kv":
        nodes += [
            helper.make_node("Unsqueeze", [name, "axes"], [f"{name}5"]),
            helper.make_node("Expand", [f"{name}5", "repeats"], [f"{name}x"]),
            helper.make_node("Reshape", [f"{name}x", "rows"], [f"{name}r"]),
        ]
    nodes += [
        helper.make_node("Transpose", ["kr"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["s"]),
        helper.make_node("Mul", ["s", "scale"], ["t"]),
        helper.make_node("Softmax", ["t"], ["p"], axis=axis),
        helper.make_node("MatMul", ["p", "vr"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "attention",
        [value("q", TensorProto.FLOAT, length), *(value(n, TensorProto.FLOAT, cache) for n in "kv")],
        [value("y", TensorProto.FLOAT, length)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def told(model: onnx.ModelProto, target: str = "ort") -> Attentions | None:
    _, report = graphopt.optimize(model, target=target, return_report=True)
    assert isinstance(report.attentions, Attentions)
    return report.attentions


def test_heads_that_share_values_are_products_and_that_is_said() -> None:
    found = told(attention(8, 2))
    assert found == Attentions(0, ((CHEAPER, 1),))
    assert found.told == f"0 of 1 are one op; 1 not: {CHEAPER}"


def test_an_attention_that_is_one_op_is_counted() -> None:
    found = told(attention(4, 4))
    assert found is not None
    assert found.fused + sum(count for why, count in found.left if why == CHEAPER) == 1


def test_what_stands_in_the_way_is_what_the_rule_that_came_furthest_says() -> None:
    found = told(attention(4, 4, axis=2))
    assert found is not None
    assert found.fused == 0
    ((why, count),) = found.left
    assert count == 1
    assert why != CHEAPER


@pytest.mark.parametrize(("place", "why"), [("q", CHEAPER), ("t", QUANTIZED), ("p", QUANTIZED)])
def test_what_is_quantized_between_the_products_stays_so(place: str, why: str) -> None:
    model = attention(4, 4)
    for node in model.graph.node:
        node.input[:] = ["dequantized" if name == place else name for name in node.input]
    ends = [helper.make_node("QuantizeLinear", [place, "step", "zero"], ["bytes"])]
    ends.append(helper.make_node("DequantizeLinear", ["bytes", "step", "zero"], ["dequantized"]))
    at = next((i + 1 for i, node in enumerate(model.graph.node) if place in node.output), 0)
    nodes = [*model.graph.node[:at], *ends, *model.graph.node[at:]]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(0.05, np.float32), "step"))
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(128, np.uint8), "zero"))
    assert told(model) == Attentions(0, ((why, 1),))


def test_the_opset_may_stand_in_the_way() -> None:
    assert told(attention(4, 4), "portable") == Attentions(0, (("Attention needs opset 23, the model has 18", 1),))
    assert Attentions(0).told == ""


def test_the_table_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(attention(8, 2), path)
    assert run(["optimize", str(path), "--target", "ort", "-o", str(tmp_path / "o.onnx")]) == 0
    assert "attention   0 of 1 are one op; 1 not: costs less as products" in capsys.readouterr().out
