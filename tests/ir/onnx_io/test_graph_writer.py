"""What is written when a graph is not as it was read."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime import InferenceSession

from graphopt.errors import InvalidModelError
from graphopt.ir.constants import Constant
from graphopt.ir.graph import NO_ATTRS, AttrRef, Attrs, Function, Graph, Header, Node, Origin, Value
from graphopt.ir.onnx_io import load, to_proto
from graphopt.ir.structure import same
from graphopt.ir.text import parse
from graphopt.ir.types import TensorType, fresh_symbol, symbol
from graphopt.rewrite.passes.simplify import simplify
from tests.ir.onnx_io.model_zoo import ZOO, model, plain


def node(graph: Graph, op: str) -> Node:
    (found,) = [n for n in graph.nodes() if n.op == op]
    return found


def checked(graph: Graph) -> onnx.ModelProto:
    """The model, which must be valid."""
    proto = to_proto(graph)
    onnx.checker.check_model(proto)
    return proto


def written(graph: Graph) -> onnx.ModelProto:
    """The model, which must be valid and mean the same graph."""
    proto = checked(graph)
    assert same(graph, load(proto)) is None
    return proto


def spelled(proto: onnx.ModelProto) -> list[str]:
    return [f"{', '.join(n.output)} = {n.op_type}({', '.join(n.input)})" for n in proto.graph.node]


def made(opset: int = 18, ir_version: int = 8) -> tuple[Graph, Value]:
    graph = Graph(header=Header(ir_version, (("", opset),)))
    return graph, graph.add_input("x", TensorType("float32", (symbol("N"), 4)))


# -- names


def test_new_values_get_readable_names() -> None:
    graph, x = made()
    for _ in range(2):
        x = graph.add("Neg", (x,)).outputs[0]
    x = graph.add("Add", (x, graph.add_constant(Constant.of(np.float32([1, 2, 3, 4]))))).outputs[0]
    x = graph.add("custom::Strange", (x,), n_outputs=2).outputs[1]
    graph.add_output("y", x)
    proto = to_proto(graph)
    assert [(o.domain, o.version) for o in proto.opset_import] == [("", 18), ("custom", 1)]
    assert spelled(proto) == [
        "Neg_0 = Neg(x)",
        "Neg_1 = Neg(Neg_0)",
        "Add_0 = Add(Neg_1, Constant_0)",
        "Strange_0, y = Strange(Add_0)",
    ]
    assert [i.name for i in proto.graph.initializer] == ["Constant_0"]


def test_new_names_clash_with_no_other() -> None:
    proto = model(
        """agraph (bool p, float[2] Neg_0) => (float[2] y) {
             Neg_2 = Abs(Neg_0)
             y = If (p) <then_branch = g () => (float[2] Neg_1) { Neg_1 = Exp(Neg_2) },
                         else_branch = h () => (float[2] t) { t = Identity(Neg_2) }>
           }"""
    )
    graph = load(proto)
    abs_ = node(graph, "Abs")
    new = graph.add("Neg", abs_.inputs)
    graph.replace(abs_.outputs[0], new.outputs[0])
    assert spelled(written(graph))[-2:] == ["Neg_3 = Neg(Neg_0)", "y = If(p)"]


def test_new_values_are_not_called_what_others_of_the_model_were() -> None:
    graph = load(model("agraph (float[4] x) => (float[4] y) { Neg_0 = Neg (x) y = Abs (Neg_0) }"))
    gone, last = node(graph, "Neg"), node(graph, "Abs")
    (x,) = graph.inputs
    new = graph.add("Neg", (graph.add("Neg", (x,)).outputs[0],)).outputs[0]
    graph.update(last.id, inputs=(new,))
    graph.remove(gone.id)
    assert spelled(written(graph)) == ["Neg_1 = Neg(x)", "Neg_2 = Neg(Neg_1)", "y = Abs(Neg_2)"]


def test_nodes_of_a_graph_that_was_made_have_names_of_their_own() -> None:
    graph = Graph("g", Header(opsets=(("", 21),)))
    value = graph.add_input("x", TensorType("float32", (2,)))
    for name in ("step", "step", "", "step_1", ""):
        (value,) = graph.add("Neg", (value,), origin=Origin(name=name)).outputs
    graph.add_output("y", value)
    assert [n.name for n in to_proto(graph).graph.node] == ["step", "step_1", "", "step_1_1", ""]


def test_an_output_names_its_value() -> None:
    graph = load(plain())
    relu = node(graph, "Relu")
    graph.replace(relu.outputs[0], relu.inputs[0])  # type: ignore[arg-type]
    graph.remove(relu.id)
    assert spelled(written(graph)) == ["y = Add(x, w)"]


def test_the_old_value_of_an_output_makes_room() -> None:
    graph = load(plain())
    relu = node(graph, "Relu")
    graph.outputs[0] = graph.add("Neg", relu.outputs).outputs[0]
    assert spelled(written(graph)) == ["a = Add(x, w)", "Relu_0 = Relu(a)", "y = Neg(Relu_0)"]


def test_outputs_that_are_one_value_or_an_input_are_copies() -> None:
    graph = load(ZOO["many_inputs_and_outputs"]())
    (x,) = graph.inputs
    graph.outputs[:] = [x, x]
    graph.remove(node(graph, "Concat").id)
    graph.remove(node(graph, "Split").id)
    assert spelled(checked(graph)) == ["b = Identity(x)", "s = Identity(x)"]
    graph.outputs[:] = [graph.add("Neg", (x,)).outputs[0]] * 2
    assert spelled(checked(graph)) == ["b = Neg(x)", "s = Identity(b)"]


def test_a_constant_may_be_an_output() -> None:
    graph = load(plain())
    for op in ("Relu", "Add"):
        gone = node(graph, op)
        graph.outputs[0] = gone.inputs[-1]
        graph.remove(gone.id)
    proto = written(graph)
    assert spelled(proto) == []
    assert [i.name for i in proto.graph.initializer] == ["y"]


def test_a_body_that_gives_a_captured_value_copies_it() -> None:
    graph = load(ZOO["bodies"]())
    if_ = node(graph, "If")
    then = if_.bodies["then_branch"].copy()
    add = node(then, "Add")
    then.outputs[0] = add.inputs[0]
    then.remove(add.id)
    graph.update(if_.id, attrs=if_.attrs.with_(then_branch=then))
    body = checked(graph).graph.node[1].attribute[0].g
    assert [(n.op_type, *n.input, *n.output) for n in body.node] == [("Identity", "outer", "t")]


SHADOWED = """
<ir_version: 8, opset_import: ["": 18, "local": 1]>
g (float[n] X, bool c) => (float[n] Y) { Y = local.f(X, c) }
<domain: "local", opset_import: ["": 18]>
f (a, c) => (X) {
    X = If(c) <
        then_branch: graph = yes () => (X) { X = Identity(a) },
        else_branch: graph = no () => (X) { Y = Neg(a) X = Abs(Y) }
    >
}
"""


def test_a_body_hides_no_value_around_it() -> None:
    proto = written(simplify(load(onnx.parser.parse_model(SHADOWED))))
    outside = {"X", "Y", "c"}
    bodies = [a.g for n in proto.graph.node for a in n.attribute]
    assert len(bodies) == 2
    for body in bodies:
        assert outside.isdisjoint(name for n in body.node for name in n.output)
        assert {o.name for o in body.output} <= {name for n in body.node for name in n.output}
    session = InferenceSession(proto.SerializeToString())
    for c, want in ((True, [1, -2]), (False, [1, 2])):
        (found,) = session.run(None, {"X": np.float32([1, -2]), "c": np.array(c)})
        assert found.tolist() == want


# -- what is kept


def test_a_changed_node_keeps_what_is_said_of_it() -> None:
    proto = ZOO["words_everywhere"]()
    proto.graph.node[0].ClearField("domain")
    graph = load(proto)
    add = node(graph, "Add")
    graph.update(add.id, op="Sub")
    after = written(graph)
    proto.graph.node[0].op_type = "Sub"
    assert after == proto


def test_a_new_constant_does_not_move_its_reader() -> None:
    graph = load(plain())
    add = node(graph, "Add")
    graph.update(add.id, inputs=(add.inputs[0], graph.add_constant(Constant.of(np.float32([2])))))
    assert [n.op_type for n in written(graph).graph.node] == ["Add", "Relu"]


def test_types_of_values_that_are_gone_are_gone() -> None:
    proto = ZOO["words_everywhere"]()
    graph = load(proto)
    relu = node(graph, "Relu")
    graph.update(relu.id, inputs=graph.inputs[:1])
    graph.remove(node(graph, "Add").id)
    after = written(graph)
    assert not after.graph.value_info
    assert not after.graph.quantization_annotation


def test_a_type_that_changed_is_written() -> None:
    graph = load(plain())
    (x,) = graph.inputs
    graph.types[x] = TensorType("float32", (8, 4))
    graph.types[graph.outputs[0]] = TensorType("float32", (symbol("N") * 2 + 1, fresh_symbol()))  # type: ignore[index]
    proto = to_proto(graph)
    assert [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim] == [8, 4]
    first, second = proto.graph.output[0].type.tensor_type.shape.dim
    assert (first.dim_param, second.WhichOneof("value")) == ("2*N + 1", None)


def test_new_constants_are_listed_as_inputs_where_the_version_wants_it() -> None:
    graph = load(ZOO["initializers_listed_as_inputs"]())
    add = node(graph, "Add")
    graph.update(add.id, inputs=(add.inputs[0], graph.add_constant(Constant.of(np.float32([2])))))
    proto = written(graph)
    assert [i.name for i in proto.graph.input] == ["w", "x", "Constant_0"]


def test_optional_outputs_that_nobody_reads_are_left_out() -> None:
    graph, x = made()
    dropout = graph.add("Dropout", (x,), n_outputs=2)
    graph.add_output("y", dropout.outputs[0])
    split = graph.add("Split", (x,), Attrs(num_outputs=2, axis=1), n_outputs=2)
    graph.add_output("z", split.outputs[1])
    assert spelled(checked(graph)) == ["y = Dropout(x)", "Split_0, z = Split(x)"]


# -- constants


def test_a_large_repeated_number_is_a_node() -> None:
    graph, x = made()
    for element in (np.float32(0.5), np.int8(3)):
        big = graph.add_constant(Constant.full((400, 4), np.asarray(element)))
        if element.dtype == np.float32:
            graph.add_output("y", graph.add("Add", (x, big)).outputs[0])
    small = graph.add_constant(Constant.full((4,), np.asarray(np.float32(2))))
    graph.add_output("z", graph.add("Add", (x, small)).outputs[0])
    proto = written(graph)
    assert spelled(proto)[0] == "Constant_0 = ConstantOfShape(constant_0)"
    assert len(proto.SerializeToString()) < 1000
    assert [(i.name, list(i.dims)) for i in proto.graph.initializer] == [("Constant_1", [4]), ("constant_0", [2])]


def test_repeated_numbers_of_young_dtypes_are_written_out_in_old_opsets() -> None:
    for opset, op in ((18, None), (21, "ConstantOfShape")):
        graph, _ = made(opset, 10)
        import ml_dtypes

        graph.add_output("y", graph.add_constant(Constant.full((2000,), np.asarray(2.0).astype(ml_dtypes.bfloat16))))
        assert [n.op_type for n in to_proto(graph).graph.node] == ([op] if op else [])


def test_constants_of_functions_and_old_bodies_are_nodes() -> None:
    body = Graph(header=Header(8, (("", 18),)))
    y = body.add("Add", (body.add_input("x"), body.add_constant(Constant.of(np.float32([1]))))).outputs[0]
    body.add_output("y", body.add("ReduceSum", (y, body.add_constant(Constant.of(np.int64([0])))), NO_ATTRS).outputs[0])
    graph, x = made()
    graph.header = Header(8, (("", 18), ("local", 1)))
    graph.functions["local::f", ""] = Function("local", "f", "", body, ("alpha",), opsets=(("", 18),))
    graph.add_output("y", graph.add("local::f", (x,)).outputs[0])
    proto = written(graph)
    assert [n.op_type for n in proto.functions[0].node] == ["Constant", "Add", "Constant", "ReduceSum"]

    text = """agraph (bool p, float[2] x) => (float[2] y) {
                y = If (p) <then_branch = g () => (float[2] t) { t = Neg(x) },
                            else_branch = h () => (float[2] e) { e = Abs(x) }>
              }"""
    old = load(model(text, opset=8, ir_version=3))
    if_ = node(old, "If")
    then = if_.bodies["then_branch"].copy()
    two = then.add_constant(Constant.of(np.float32([2])))
    then.outputs[0] = then.add("Add", (then.outputs[0], two)).outputs[0]
    old.update(if_.id, attrs=if_.attrs.with_(then_branch=then))
    assert [n.op_type for n in written(old).graph.node[0].attribute[0].g.node] == ["Neg", "Constant", "Add"]


def test_a_function_body_may_become_a_model() -> None:
    body = load(ZOO["functions"]()).functions["local::inner", ""].body.copy()
    body.outputs.pop()
    body.output_names.pop()
    assert spelled(to_proto(body)) == ["k = Constant()", "s = ReduceSum(a, k)"]


# -- old opsets


def test_inner_forms_are_written_in_the_opset_of_the_model() -> None:
    graph, x = made(opset=11)
    axes = graph.add_constant(Constant.of(np.int64([1])))
    mean = graph.add("ReduceMean", (x, axes), Attrs(keepdims=0))
    graph.add_output("m", mean.outputs[0])
    proto = written(graph)
    (written_mean,) = proto.graph.node
    assert list(written_mean.input) == ["x"]
    assert {a.name: onnx.helper.get_attribute_value(a) for a in written_mean.attribute} == {"axes": [1], "keepdims": 0}
    assert not proto.graph.initializer


def test_what_an_opset_cannot_say_is_an_error() -> None:
    graph, x = made(opset=11)
    axes = graph.add("Shape", (x,)).outputs[0]
    graph.add_output("m", graph.add("ReduceMean", (x, axes)).outputs[0])
    with pytest.raises(InvalidModelError, match=r"ReduceMean cannot be written in opset 11: axes .* must be constant"):
        to_proto(graph)


def test_old_ops_are_written_under_their_own_name() -> None:
    graph = load(ZOO["ancient_forms"]())
    for old in [n for n in graph.nodes() if "@" in n.op]:
        graph.update(old.id, origin=Node(0, "").origin)
    assert [n.op_type for n in to_proto(graph).graph.node] == [
        "Add", "Relu", "BatchNormalization", "Cast", "Cast", "Mul", "PRelu", "Dropout"
    ]  # fmt: skip
    assert same(load(to_proto(graph)), load(ZOO["ancient_forms"]())) is None


def test_attributes_have_the_type_that_the_schema_wants() -> None:
    graph, x = made()
    graph.header = Header(8, (("", 18), ("custom", 1)))
    y = graph.add("LeakyRelu", (x,), Attrs(alpha=1)).outputs[0]
    attrs = Attrs(a=1, b=1.5, c="s", d=(1, 2), e=(), f=(1, 2.5), g=TensorType("float32", ()), h=("a", "b"))
    graph.add_output("y", graph.add("custom::Strange", (y,), attrs).outputs[0])
    first, second = to_proto(graph).graph.node
    kind = onnx.AttributeProto
    assert first.attribute[0].type == kind.FLOAT
    assert [a.type for a in second.attribute] == [
        kind.INT, kind.FLOAT, kind.STRING, kind.INTS, kind.INTS, kind.FLOATS, kind.TYPE_PROTO, kind.STRINGS
    ]  # fmt: skip


@pytest.mark.parametrize(("value", "kind"), [(3, "ints"), ("a", "ints"), ((1.5, "b"), "ints"), (1 << 70, "ints")])
def test_an_attribute_of_another_type_is_an_error(value: Any, kind: str) -> None:
    graph, x = made()
    graph.add_output("y", graph.add("MaxPool", (x,), Attrs(kernel_shape=value)).outputs[0])
    with pytest.raises(InvalidModelError, match=rf"MaxPool: attribute 'kernel_shape' is {kind}, which .* does not fit"):
        to_proto(graph)


def test_references_of_functions_stay_references() -> None:
    graph = load(ZOO["functions"]())
    function = graph.functions["local::outer", ""]
    leaky = node(function.body, "LeakyRelu")
    function.body.update(leaky.id, op="ThresholdedRelu")
    (first, *_) = to_proto(graph).functions[0].node
    assert first.op_type == "ThresholdedRelu"
    assert first.attribute[0].ref_attr_name == "alpha"
    assert leaky.attrs == Attrs(alpha=AttrRef("alpha", 1))


def test_before_ir_4_inputs_have_the_types_of_the_constants_that_have_their_names_now() -> None:
    declared = [helper.make_tensor_value_info("x", 1, [1]), helper.make_tensor_value_info("c", 7, [2])]
    graph_proto = helper.make_graph(
        [helper.make_node("Expand", ["x", "c"], ["y"])],
        "g",
        declared,
        [helper.make_tensor_value_info("y", 1, [4, 2, 3])],
        [numpy_helper.from_array(np.array([2, 3]), "c")],
    )
    graph = load(helper.make_model(graph_proto, ir_version=3, opset_imports=[helper.make_opsetid("", 13)]))
    expand = node(graph, "Expand")
    x, old = expand.inputs
    new = graph.add_constant(Constant.of(np.array([4, 2, 3])))
    graph.update(expand.id, inputs=(x, new))
    assert old is not None
    graph.remove(old.node)
    graph.names[new] = "c"
    proto = checked(graph)
    sizes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in proto.graph.input}
    assert sizes == {"x": [1], "c": [3]}


def test_a_loop_keeps_the_place_of_a_condition_that_it_lacks() -> None:
    graph = parse("""x: float32[2]
        n = int64[]{3}
        y: float32[3, 2] = Loop(n, _ | x, body={
            i: int64[]
            c: bool[]
            v: float32[2]
            d = Identity(c)
            z: float32[2] = Neg(v)
            return d, z
        })
        return y""")
    (loop,) = [n for n in checked(graph).graph.node if n.op_type == "Loop"]
    assert loop.input[1:] == [""]
    assert same(graph, load(to_proto(graph))) is None


@pytest.mark.parametrize("op", ["Attention", "com.microsoft::MultiHeadAttention"])
@pytest.mark.parametrize("read", ["y", "y, a", "y, b"])
def test_attention_behind_a_past_has_all_that_is_present_whether_it_is_read_or_not(op: str, read: str) -> None:
    is_contrib = ":" in op
    absent, heads = ("_, _, _", "num_heads=2") if is_contrib else ("_", "q_num_heads=2, kv_num_heads=2")
    x, past = "float32[2, 3, 16]", "float32[2, 2, 5, 8]"
    graph = parse(f"""\
graph behind (ir 10, opset 23)
q: {x}
k: {x}
v: {x}
past_k: {past}
past_v: {past}
y, a, b = {op}(q, k, v, {absent}, past_k, past_v, {heads})
return {read}
""")
    proto = checked(graph) if is_contrib else written(graph)
    (made,) = proto.graph.node
    assert len(made.output) == 3
    assert all(made.output)
    rng = np.random.default_rng(0)
    feeds = {i.name: rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim], np.float32)
             for i in proto.graph.input}  # fmt: skip
    got = InferenceSession(proto.SerializeToString()).run(["y"], feeds)[0]
    assert isinstance(got, np.ndarray)
    q, k, v = (feeds[n].reshape(2, 3, 2, 8).transpose(0, 2, 1, 3) for n in "qkv")
    k, v = (np.concatenate((feeds[n], new), axis=2) for n, new in (("past_k", k), ("past_v", v)))
    weights = np.exp(q @ k.swapaxes(2, 3) / np.sqrt(8))
    want = weights / weights.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(got, want.transpose(0, 2, 1, 3).reshape(2, 3, 16), rtol=1e-4, atol=1e-5)
