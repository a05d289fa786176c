import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.cli import run
from graphopt.errors import UsageError
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Function, Graph, Value
from graphopt.ir.onnx_io import save, to_proto
from graphopt.ir.text import parse
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
    result = reduce(graph, holds("Tanh"))  # type: ignore[arg-type]
    found, tries = result.graph, result.tries
    assert [n.op for n in found.order()] == ["Input", "Tanh"]
    assert len(found.outputs) == 1
    assert tries < 40
    assert len(graph) == 32


def test_two_nodes_with_others_between_them() -> None:
    found = reduce(chain("Abs", "Tanh", "Relu", "Relu", "Neg", "Erf", "Abs"), holds("Tanh", "Erf")).graph  # type: ignore[arg-type]
    assert sorted(n.op for n in found.order()) == ["Erf", "Input", "Input", "Tanh"]


def test_outputs_that_do_not_matter_go() -> None:
    graph = chain("Relu", "Tanh")
    for index in range(5):
        graph.add_output(f"more{index}", graph.add("Neg", (graph.inputs[0],)).outputs[0])
    found = reduce(graph, lambda g: "more3" in g.output_names).graph
    assert found.output_names == ["more3"]
    assert [n.op for n in found.order()] == ["Input", "Neg"]


def test_names_of_values_stay() -> None:
    graph = chain("Relu", "Tanh", "Neg")
    graph.names[Value(1)] = "between"
    found = reduce(graph, holds("Tanh")).graph  # type: ignore[arg-type]
    assert [found.names[v] for v in found.inputs] == ["between"]


def test_constants_are_flattened() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType("float32", (10, 10)))
    w = graph.add_constant(Constant.of(np.arange(100, dtype="f4").reshape(10, 10)))
    graph.add_output("y", graph.add("MatMul", (x, w)).outputs[0])
    found = reduce(graph, holds("MatMul")).graph  # type: ignore[arg-type]
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


IF = """c: bool[] x: float32[2, 3]
    a = Relu(x)
    b = If(c | a, then_branch={{ q: ? r = Neg(q) s = {op}(r) t = Exp(s) return t }},
           else_branch={{ q: ? u = Abs(q) return u }})
    y = Neg(b)
    return y"""
LOOP = """x: float32[2]
    n: int64[]
    c: bool[]
    y = Loop(n, c, x | x, body={{ i: ? go: ? s: float32[2] k: ?
        t = Add(s, k)
        u = {op}(t)
        w = Exp(u)
        return go, w }})
    return y"""


def names(graph: Graph) -> list[str]:
    """The ops of a graph and its bodies."""
    found = [n.op for n in graph.order() if n.op not in ("Input", "Constant")]
    return found + [op for n in graph.nodes() for body in n.bodies.values() for op in names(body)]


def test_what_is_at_fault_in_a_branch_becomes_the_model() -> None:
    found = reduce(parse(IF.format(op="Softplus")), lambda g: "Softplus" in names(g)).graph
    assert names(found) == ["Softplus"]
    onnx.checker.check_model(onnx.load_from_string(to_proto(found).SerializeToString()), full_check=True)


def test_what_is_at_fault_in_a_loop_becomes_the_model() -> None:
    found = reduce(parse(LOOP.format(op="Softplus")), lambda g: "Softplus" in names(g)).graph
    assert names(found) == ["Softplus"]


def test_a_branch_takes_the_place_of_its_if() -> None:
    found = reduce(parse(IF.format(op="Softplus")), lambda g: {"Softplus", "Relu"} <= set(names(g))).graph
    assert sorted(names(found)) == ["Relu", "Softplus"]


def test_bodies_are_thinned_where_the_loop_is_needed() -> None:
    found = reduce(parse(LOOP.format(op="Softplus")), lambda g: {"Loop", "Softplus"} <= set(names(g))).graph
    assert sorted(names(found)) == ["Loop", "Softplus"]
    onnx.checker.check_model(onnx.load_from_string(to_proto(found).SerializeToString()), full_check=True)


def test_functions_are_inlined_and_imports_that_nothing_uses_go() -> None:
    graph = chain("Abs", "Tanh")
    graph.header = replace(graph.header, opsets=(*graph.header.opsets, ("com.microsoft", 1), ("mine", 1)))
    found = reduce(graph, holds("Tanh")).graph  # type: ignore[arg-type]
    assert dict(found.header.opsets).keys() == {""}
    kept = reduce(graph, lambda g: "mine" in dict(g.header.opsets)).graph
    assert "mine" in dict(kept.header.opsets)
    calls = Graph(functions={("mine::twice", ""): Function("mine", "twice", "", chain("Relu", "Softplus"))})
    calls.add_output("y", calls.add("mine::twice", (calls.add_input("x", TensorType("float32", (2, 3))),)).outputs[0])
    assert names(reduce(calls, lambda g: not {"Softplus", "mine::twice"}.isdisjoint(names(g))).graph) == ["Softplus"]


def test_the_smallest_so_far_is_kept() -> None:
    tried: list[Graph] = []

    def interrupted(graph: Graph) -> bool:
        tried.append(graph)
        if len(tried) == 6:
            raise KeyboardInterrupt
        return "Tanh" in names(graph)

    graph = chain(*["Relu"] * 20, "Tanh", *["Abs"] * 11)
    found = reduce(graph, interrupted)
    assert found.ending == "interrupted"
    assert "Tanh" in names(found.graph)
    assert len(found.graph) < len(graph)
    late = reduce(graph, holds("Tanh"), seconds=0)  # type: ignore[arg-type]
    assert (late.ending, late.graph, late.tries) == ("time", graph, 0)


def test_the_command_says_when_time_was_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    save(chain("Abs", "Tanh"), model)
    assert run(["reduce", str(model), "--check", "false", "--seconds", "0", "-o", str(out)]) == 0
    assert "when time was up" in capsys.readouterr().out
    assert out.exists()
