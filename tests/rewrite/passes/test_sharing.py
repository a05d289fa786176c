"""Equal nodes and constants become one; what is random or only looks equal does not. Bodies hold the constants that
nobody else reads."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from graphopt.ir import onnx_io
from graphopt.ir.constants import Constant
from graphopt.ir.evaluate import run
from graphopt.ir.graph import CONSTANT, Graph, Node
from graphopt.ir.text import parse, show
from graphopt.rewrite.passes import PASSES
from graphopt.rewrite.passes.control import CAPTURES
from graphopt.rewrite.passes.dead import UNUSED
from graphopt.rewrite.passes.sharing import COMMON, DUPLICATES, OWN
from graphopt.rewrite.passes.simplify import simplify


def shared(text: str) -> str:
    made = show(simplify(parse(text), passes=(UNUSED, DUPLICATES, COMMON)))
    return "; ".join(line.strip() for line in made.split("\n") if " = " in line)


XY = "x: float32[2] y: float32[2] "


def test_equal_nodes() -> None:
    assert shared(XY + "z = Add(Neg(x), Neg(x)) return z") == "%0 = Neg(x); z = Add(%0, %0)"
    assert shared(XY + "z = Sub(Add(x, y), Add(y, x)) return z") == "%0 = Add(x, y); z = Sub(%0, %0)"
    assert shared(XY + "z = Sub(Sub(x, y), Sub(y, x)) return z").count("Sub") == 3


def test_a_chain_of_equal_nodes() -> None:
    assert shared(XY + "z = Add(Exp(Abs(Neg(x))), Exp(Abs(Neg(x)))) return z").count("=") == 4


def test_attributes_tell_nodes_apart_but_not_their_defaults() -> None:
    x = "x: float32[2, 2] "
    assert shared(x + "z = Add(Softmax(x, axis=0), Softmax(x, axis=1)) return z").count("Softmax") == 2
    assert shared(x + "z = Add(Softmax(x, axis=-1), Softmax(x)) return z").count("Softmax") == 1


def test_random_nodes_stay_apart() -> None:
    made = shared(XY + "z = Add(RandomNormal(shape=[2]), RandomNormal(shape=[2])) return z")
    assert made.count("RandomNormal") == 2


def test_outputs_keep_their_names() -> None:
    graph = simplify(parse(XY + "a = Neg(x) b = Neg(x) return a, b"), passes=(UNUSED, DUPLICATES, COMMON))
    assert graph.output_names == ["a", "b"]
    assert graph.outputs[0] == graph.outputs[1]


def test_equal_constants() -> None:
    assert shared(XY + "z = Add(Add(x, 1.0), 1.0) return z").count("1.0") == 1
    graph = parse(XY + "z = Mul(Add(x, float32[2]{1.0, 2.0}), float32[2]{1.0, 2.0}) return z")
    made = simplify(graph, passes=(DUPLICATES, UNUSED))
    assert sum(n.op == "Constant" for n in made.nodes()) == 1
    apart = parse(XY + "z = Mul(Add(x, 0.0), -0.0) return z")
    assert simplify(apart, passes=(DUPLICATES,)) is apart


def test_equal_bodies() -> None:
    branch = "If(c | x, then_branch={{ q: ? r = Neg(q) return r }}, else_branch={{ q: ? r = {}(q) return r }})"
    source = "c: bool[] x: float32[2] a = {} b = {} y = Add(a, b) return y"
    same = source.format(branch.format("Abs"), branch.format("Abs"))
    other = source.format(branch.format("Abs"), branch.format("Exp"))
    assert shared(same).count("If(") == 1
    assert shared(other).count("If(") == 2


LARGE = np.linspace(-1, 1, 1000, dtype=np.float32)
ONE_READER = """x: float32[1000] c: bool[] w: float32[1000]
    y = If(c | x, w, then_branch={ q: ? v: ? r = Mul(q, v) return r }, else_branch={ q: ? v: ? r = Neg(q) return r })
    return y"""
TWO_READERS = ONE_READER.replace("Neg(q)", "Add(q, v)")


def with_weights(text: str) -> Graph:
    """The graph with its input w made a constant."""
    graph = parse(text)
    (old,) = [v for v in graph.inputs if graph.names[v] == "w"]
    graph.replace(old, graph.add_constant(Constant.of(LARGE), "w"))
    graph.remove(old.node)
    return graph


def branch(graph: Graph) -> Node:
    return next(n for n in graph.nodes() if n.op == "If")


def constants(graph: Graph) -> int:
    return sum(n.op == CONSTANT for n in graph.nodes())


def test_a_constant_moves_into_the_body_that_reads_it() -> None:
    graph = with_weights(ONE_READER)
    made = simplify(graph, passes=(UNUSED, OWN, CAPTURES))
    node = branch(made)
    assert constants(made) == 0
    assert node.captures == 1
    assert {name: constants(body) for name, body in node.bodies.items()} == {"then_branch": 1, "else_branch": 0}
    assert "w" in node.bodies["then_branch"].names.values()
    for condition in (True, False):
        inputs = {"x": LARGE, "c": np.array(condition)}
        np.testing.assert_array_equal(run(graph, inputs)["y"], run(made, inputs)["y"])


def test_a_constant_of_several_bodies_stays() -> None:
    graph = with_weights(TWO_READERS)
    assert simplify(graph, passes=(UNUSED, OWN, CAPTURES)) is graph


def test_a_constant_that_is_read_outside_stays() -> None:
    graph = with_weights(ONE_READER.replace("return y", "z = Add(y, w)\n    return z"))
    assert simplify(graph, passes=(UNUSED, OWN, CAPTURES)) is graph


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
