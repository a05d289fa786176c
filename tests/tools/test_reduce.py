import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.errors import UsageError
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph, Value
from graphopt.ir.types import TensorType
from graphopt.tools.reduce import reduce, reduce_file


def chain(*ops: str) -> Graph:
    """Ops of one input, one after another."""
    graph = Graph()
    value = graph.add_input("x", TensorType("float32", (2, 3)))
    for op in ops:
        value = graph.add(op, (value,)).outputs[0]
    graph.add_output("y", value)
    return graph


def holds(*ops: str) -> object:
    """Whether a graph has all these ops: what stands for a failing check."""
    return lambda graph: set(ops) <= {node.op for node in graph.nodes()}


def test_one_node_is_left_of_a_chain() -> None:
    graph = chain(*["Relu"] * 20, "Tanh", *["Abs"] * 11)
    found, tries = reduce(graph, holds("Tanh"))  # type: ignore[arg-type]
    assert [n.op for n in found.order()] == ["Input", "Tanh"]
    assert len(found.outputs) == 1
    assert tries < 40
    assert len(graph) == 32


def test_two_nodes_with_others_between_them() -> None:
    found, _ = reduce(chain("Abs", "Tanh", "Relu", "Relu", "Neg", "Erf", "Abs"), holds("Tanh", "Erf"))  # type: ignore[arg-type]
    assert sorted(n.op for n in found.order()) == ["Erf", "Input", "Input", "Tanh"]


def test_outputs_that_do_not_matter_go() -> None:
    graph = chain("Relu", "Tanh")
    for index in range(5):
        graph.add_output(f"more{index}", graph.add("Neg", (graph.inputs[0],)).outputs[0])
    found, _ = reduce(graph, lambda g: "more3" in g.output_names)
    assert found.output_names == ["more3"]
    assert [n.op for n in found.order()] == ["Input", "Neg"]


def test_names_of_values_stay() -> None:
    graph = chain("Relu", "Tanh", "Neg")
    graph.names[Value(1)] = "between"
    found, _ = reduce(graph, holds("Tanh"))  # type: ignore[arg-type]
    assert [found.names[v] for v in found.inputs] == ["between"]


def test_constants_are_flattened() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType("float32", (10, 10)))
    w = graph.add_constant(Constant.of(np.arange(100, dtype="f4").reshape(10, 10)))
    graph.add_output("y", graph.add("MatMul", (x, w)).outputs[0])
    found, _ = reduce(graph, holds("MatMul"))  # type: ignore[arg-type]
    assert all(c is None or c.splat is not None for c in (found.constant_of(Value(n.id)) for n in found.nodes()))


CHECK = """
import sys, onnx
model = onnx.load(sys.argv[1])
onnx.checker.check_model(model, full_check=True)
sys.exit(3 if any(n.op_type == "Softplus" for n in model.graph.node) else 0)
"""


def test_a_file_is_reduced_to_what_fails_with_the_same_exit_code(tmp_path: Path) -> None:
    names = [f"v{i}" for i in range(8)]
    ops = ["Relu", "MatMul", "Abs", "Softplus", "Neg", "Relu", "Exp"]
    nodes = [
        helper.make_node(op, [a, "w"] if op == "MatMul" else [a], [b])
        for op, a, b in zip(ops, names, names[1:], strict=False)
    ]
    weight = numpy_helper.from_array(np.eye(20, dtype="f4"), "w")
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["n", 20])],
        [helper.make_tensor_value_info("v7", TensorProto.FLOAT, ["n", 20])],
        [weight],
    )
    model = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    check = tmp_path / "check.py"
    check.write_text(CHECK)
    found = reduce_file(model, f"{sys.executable} {check} {{}}", tmp_path / "out.onnx")
    assert (found.nodes_before, found.nodes_after, found.ops) == (7, 1, {"Softplus": 1})
    left = onnx.load(tmp_path / "out.onnx").graph
    assert [n.op_type for n in left.node] == ["Softplus"]
    assert not left.initializer
    with pytest.raises(UsageError, match="succeeds on"):
        reduce_file(model, "true", tmp_path / "none.onnx")
    with pytest.raises(UsageError, match="there is no such command"):
        reduce_file(model, "no-such-command-anywhere", tmp_path / "none.onnx")
    assert not (tmp_path / "none.onnx").exists()
