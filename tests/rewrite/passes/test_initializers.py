"""Constant nodes become initializers."""

from __future__ import annotations

from onnx import TensorProto, helper

from graphopt.ir import onnx_io
from graphopt.rewrite.passes import PASSES
from graphopt.rewrite.simplify import simplify


def test_constant_nodes_become_initializers() -> None:
    value = helper.make_tensor("v", TensorProto.FLOAT, [2], [1.0, 2.0])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=value),
        helper.make_node("Constant", [], ["d"], value_floats=[3.0, 4.0]),
        helper.make_node("Add", ["x", "c"], ["s"]),
        helper.make_node("Add", ["s", "d"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy")
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)])
    made = onnx_io.to_proto(simplify(onnx_io.load(model), passes=PASSES))
    assert [n.op_type for n in made.graph.node] == ["Add", "Add"]
    assert sorted(t.name for t in made.graph.initializer) == ["c", "d"]
