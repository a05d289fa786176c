from __future__ import annotations

from contextlib import suppress
from random import Random

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from graphopt.errors import GraphoptError, InvalidModelError, LimitError
from graphopt.ir.functions import expanded_size
from graphopt.ir.graph import AttrRef, Attrs, Graph, Node
from graphopt.ir.onnx_io import load, to_bytes, to_proto
from graphopt.ir.structure import same
from graphopt.ir.types import TensorType, Unranked, symbol
from tests.ir.onnx_io.model_zoo import ZOO, model, plain


def node(graph: Graph, op: str) -> Node:
    (found,) = [n for n in graph.nodes() if n.op == op]
    return found


def named(graph: Graph, *values: object) -> list[str]:
    return ["" if v is None else graph.names[v] for v in values]  # type: ignore[index]


# -- what becomes what


def test_inputs_nodes_and_outputs() -> None:
    graph = load(plain())
    assert named(graph, *graph.inputs) == ["x"]
    assert graph.output_names == ["y"]
    assert [n.op for n in graph.order()] == ["Input", "Constant", "Add", "Relu"]
    assert named(graph, *node(graph, "Add").inputs) == ["x", "w"]
    assert graph.types[graph.inputs[0]] == TensorType("float32", (symbol("N"), 4))
    assert graph.opset == 18


def test_initializers_listed_as_inputs_are_constants_up_to_ir_3() -> None:
    graph = load(ZOO["initializers_listed_as_inputs"]())
    assert named(graph, *graph.inputs) == ["x"]
    graph = load(ZOO["overridable_initializers"]())
    assert named(graph, *graph.inputs) == ["x", "w"]
    assert graph.producer(graph.inputs[1]).attrs["default"].array.tolist() == [1, 2, 3, 4]  # type: ignore[union-attr]


def test_every_spelling_of_a_constant_is_a_constant() -> None:
    graph = load(ZOO["constants"]())
    found = {graph.names[n.outputs[0]]: graph.constant_of(n.outputs[0]) for n in graph.nodes() if n.op == "Constant"}
    elements = {name: (c.dtype, c.array.tolist()) for name, c in found.items() if c is not None}
    assert elements == {
        "w": ("float32", [1, 2, 3, 4]),
        "c_value": ("float32", [1, 2]),
        "c_value_float": ("float32", 1.5),
        "c_value_floats": ("float32", [1, 2.5]),
        "c_value_int": ("int64", 3),
        "c_value_ints": ("int64", [3, 4]),
        "c_value_string": ("string", "s"),
        "c_value_strings": ("string", ["s", "t"]),
        "c_sparse_value": ("float32", [[0, 3], [4, 0]]),
    }


def test_missing_inputs_are_none_and_trailing_ones_are_cut() -> None:
    graph = load(ZOO["missing_inputs_and_outputs"]())
    first, second = [n for n in graph.nodes() if n.op == "Clip"]
    assert named(graph, *first.inputs) == ["x", "", "m"]
    assert named(graph, *second.inputs) == ["a", "m"]
    lstm = node(graph, "LSTM")
    assert len(lstm.inputs) == 3
    assert lstm.n_outputs == 3


def test_bodies_are_closed_and_list_what_they_capture() -> None:
    graph = load(ZOO["bodies"]())
    outer_if, loop = node(graph, "If"), node(graph, "Loop")
    assert named(graph, *outer_if.inputs) == ["p", "outer", "x", "p"]
    assert outer_if.captures == 3
    for body in outer_if.bodies.values():
        assert named(body, *body.inputs) == ["outer", "x", "p"]
    assert named(graph, *loop.inputs) == ["n", "p", "x", "y", "outer"]
    assert loop.captures == 2
    step = loop.bodies["body"]
    assert named(step, *step.inputs) == ["i", "go", "s", "y", "outer"]


def test_functions_are_graphs_with_references() -> None:
    graph = load(ZOO["functions"]())
    outer = graph.functions["local::outer", ""]
    assert outer.attributes == ("unused",)
    assert outer.defaults == Attrs(alpha=0.25)
    assert node(outer.body, "LeakyRelu").attrs == Attrs(alpha=AttrRef("alpha", 1))
    assert node(outer.body, "Constant@13").attrs == Attrs(value_float=AttrRef("alpha", 1))
    assert graph.functions["local::inner", ""].body.outputs[1] is None
    assert graph.functions["local::inner", ""].body.opset == 17


def test_a_repeated_number_is_not_written_out() -> None:
    graph = load(ZOO["repeated_numbers"]())
    (big,) = [v for v, name in graph.names.items() if name == "big"]
    constant = graph.constant_of(big)
    assert constant is not None
    assert (constant.dtype, constant.shape, constant.nbytes) == ("float32", (300, 200), 4)
    assert node(graph, "ConstantOfShape").inputs == node(graph, "Shape").outputs


def test_sizes_that_nobody_named_are_equal_to_no_other() -> None:
    graph = load(ZOO["anonymous_sizes"]())
    type = graph.types[graph.inputs[0]]
    assert isinstance(type, TensorType)
    assert isinstance(type.shape, tuple)
    name = graph.names[graph.inputs[0]]
    assert [*type.shape[:5]] == [symbol(f"{name}.{axis}") for axis in range(5)]
    assert len(set(type.shape)) == 8
    unranked = load(ZOO["other_types"]())
    (value,) = [v for v, name in unranked.names.items() if name == "unranked"]
    assert isinstance(unranked.types[value].shape, Unranked)  # type: ignore[union-attr]


def test_nodes_in_any_order_are_sorted() -> None:
    proto = ZOO["bodies"]()
    shuffled = ModelProto()
    shuffled.CopyFrom(proto)
    del shuffled.graph.node[:]
    shuffled.graph.node.extend(reversed(proto.graph.node))
    assert same(load(shuffled), load(proto)) is None
    assert to_proto(load(shuffled)) == proto


# -- models that ONNX forbids


def broken(text: str) -> ModelProto:
    return model(f"agraph (float[2] x) => (float[2] y) {{ {text} }}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = Add(x, b) b = Neg(a) y = Neg(b)", r"an unnamed Add node is part of a cycle"),
        ("y = Add(x, y)", "cycle"),
        ("y = Add(x, nowhere)", r"the model: an unnamed Add node: value 'nowhere' is not defined"),
        ("y = Neg(x) y = Neg(x)", "value 'y' is defined twice"),
        ("x = Neg(x) y = Neg(x)", "cycle|defined twice"),
        ("z = Neg(x)", "the graph's output: value 'y' is not defined"),
        ("y = If(x) <then_branch = g () => (float[2] t) { t = Neg(lost) }>", r"then_branch': .*'lost' is not defined"),
    ],
)
def test_graphs_that_do_not_hold_together(text: str, message: str) -> None:
    with pytest.raises(InvalidModelError, match=message) as caught:
        load(broken(text))
    assert "\n" not in str(caught.value)


def test_errors_name_the_file_and_the_node(tmp_path: pytest.TempPathFactory) -> None:
    path = tmp_path / "m.onnx"  # type: ignore[operator]
    proto = broken("y = Add(x, nowhere)")
    proto.graph.node[0].name = "bad\nname"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(InvalidModelError, match=r"m\.onnx: node 'bad\\nname' \(Add\): value 'nowhere'"):
        load(path)


def test_doubles_are_refused() -> None:
    for change, message in (
        (lambda p: p.graph.input.append(p.graph.input[0]), "two inputs have the same name"),
        (lambda p: p.graph.initializer.append(p.graph.initializer[0]), "initializer 'w' is defined twice"),
        (
            lambda p: p.functions.extend(ZOO["functions"]().functions[1:] * 2),
            "function 'local::inner' is defined twice",
        ),
        (
            lambda p: p.graph.node[0].attribute.extend([helper.make_attribute("__a", 1)] * 2),
            "attribute '__a' is given twice",
        ),
    ):
        proto = plain()
        change(proto)
        with pytest.raises(InvalidModelError, match=message):
            load(proto)


def test_attributes_of_the_wrong_type_are_refused() -> None:
    with pytest.raises(InvalidModelError, match="attribute 'axis' is STRING, the op wants INT"):
        load(broken('y = Softmax<axis = "last">(x)'))
    assert load(broken('y = custom.Softmax<axis = "last">(x)')).opset == 18


def test_nodes_that_are_no_calls_of_their_op_are_refused() -> None:
    for body, message in (
        ("y = Relu(x, x)", r"Relu\): 2 inputs, Relu has 1 in opset 18|Relu node: 2 inputs, Relu has 1 in opset 18"),
        ("y = Relu()", "0 inputs, Relu has 1"),
        ("y, z = Relu(x)", "2 outputs, Relu has 1"),
        ("y = Relu<foo = 1>(x)", "unknown attribute 'foo'; Relu has none in opset 18"),
        ("y = Nope(x)", "ONNX has no op 'Nope'"),
        ("y = Gelu(x)", "Gelu needs opset 20, the model has 18"),
    ):
        with pytest.raises(InvalidModelError, match=message):
            load(broken(body))
    for body in ("y = Relu<__foo = 1>(x)", "y = Affine(x)", "y = Scatter(x, x, x)", "y = custom.Relu<foo = 1>(x, x)"):
        assert load(broken(body)).opset == 18


def test_an_ir_version_that_is_too_new_is_refused() -> None:
    proto = plain()
    proto.ir_version = onnx.IR_VERSION
    assert load(proto).header.ir_version == onnx.IR_VERSION
    proto.ir_version = 99
    with pytest.raises(InvalidModelError, match="IR version 99 is newer than the installed onnx package knows"):
        load(proto)


def test_an_opset_that_is_too_new_is_refused() -> None:
    proto = plain()
    proto.opset_import[0].version = 999
    with pytest.raises(InvalidModelError, match="opset 999 is newer than the installed onnx package knows"):
        load(proto)


def test_a_function_that_calls_itself_is_refused() -> None:
    proto = ZOO["functions"]()
    proto.functions[1].node.append(helper.make_node("outer", ["a"], ["again"], domain="local"))
    with pytest.raises(InvalidModelError, match=r"function 'local::(inner|outer)' calls itself"):
        load(proto)


def test_functions_nested_without_end_are_counted_not_expanded() -> None:
    proto = model("agraph (float[2] x) => (float[2] y) { y = local.f25(x) }")
    proto.opset_import.add(domain="local", version=1)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    for level in range(26):
        op, domain = ("Neg", "") if level == 0 else (f"f{level - 1}", "local")
        nodes = [helper.make_node(op, ["x"], ["t"], domain=domain), helper.make_node(op, ["t"], ["y"], domain=domain)]
        proto.functions.append(helper.make_function("local", f"f{level}", ["x"], ["y"], nodes, imports))
    graph = load(proto)
    assert expanded_size(graph) == 2**26
    with pytest.raises(LimitError, match="would expand to 67108864 nodes, at most 1000"):
        expanded_size(graph, 1000)


def test_a_model_without_an_opset_is_refused() -> None:
    proto = plain()
    del proto.opset_import[:]
    with pytest.raises(InvalidModelError, match="names no opset"):
        load(proto)
    proto.ir_version = 2
    assert load(proto).opset == 1


@pytest.mark.parametrize(
    ("dims", "raw", "message"),
    [
        ([2**31, 2**31], b"\0" * 16, r"float32\[2147483648, 2147483648\] takes 18446744073709551616 bytes, .* has 16"),
        ([-4], b"\0" * 16, r"shape \[-4\] has a negative dimension"),
        ([5], b"\0" * 16, "takes 20 bytes"),
        ([3], b"\0" * 16, "takes 12 bytes"),
        ([5000], b"\0" * 16, "takes 20000 bytes"),
    ],
)
def test_tensors_whose_bytes_do_not_fit(dims: list[int], raw: bytes, message: str) -> None:
    proto = plain()
    proto.graph.initializer.append(TensorProto(name="t", data_type=1, dims=dims, raw_data=raw))
    with pytest.raises(InvalidModelError, match=f"initializer 't': .*{message}"):
        load(proto.SerializeToString())


def test_a_repeated_number_may_not_have_a_negative_size() -> None:
    proto = broken("s = Constant<value_ints = [-2]>() y = ConstantOfShape(s)")
    with pytest.raises(InvalidModelError, match="negative"):
        load(proto)


def test_a_huge_repeated_number_takes_no_memory() -> None:
    graph = load(broken("s = Constant<value_ints = [1099511627776]>() y = ConstantOfShape(s)"))
    assert to_proto(graph) == broken("s = Constant<value_ints = [1099511627776]>() y = ConstantOfShape(s)")
    constant = graph.constant_of(graph.outputs[0])
    assert constant is not None
    assert len(constant.digest) == 16


def test_a_huge_sparse_tensor_is_refused_when_it_is_read() -> None:
    proto = plain()
    values = helper.make_tensor("s", TensorProto.FLOAT, [1], [3.0])
    indices = helper.make_tensor("", TensorProto.INT64, [1], [5])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2**40]))
    graph = load(proto)
    assert to_proto(graph) == proto
    (value,) = [v for v, name in graph.names.items() if name == "s"]
    constant = graph.constant_of(value)
    assert constant is not None
    with pytest.raises(LimitError, match="1099511627776 elements"):
        _ = constant.array


def test_names_that_are_no_text_are_refused() -> None:
    for where in ("doc about", "first", "adds", "agraph"):
        proto = ZOO["words_everywhere"]()
        proto.doc_string = "doc about"
        data = proto.SerializeToString().replace(where.encode(), b"\xff" * len(where))
        with pytest.raises(InvalidModelError, match="is not text"):
            load(data)


def test_damaged_files_are_errors_of_ours() -> None:
    random = Random(0)
    wholes = [build().SerializeToString() for build in ZOO.values()]
    for _ in range(1000):
        data = bytearray(random.choice(wholes))
        for _ in range(random.randint(1, 3)):
            data[random.randrange(len(data))] = random.choice([random.randrange(256), 0, 255])
        with suppress(GraphoptError):
            to_bytes(load(bytes(data)))


# -- legacy forms that need to know types


def test_old_forms_are_read_with_what_inference_knows() -> None:
    graph = load(ZOO["old_forms"]())
    assert [n.op for n in graph.nodes() if "@" in n.op] == ["LogSoftmax@1"]
    clip = node(graph, "Clip")
    assert [graph.constant_of(v).array.tolist() for v in clip.inputs[1:]] == [0, 6]  # type: ignore[union-attr]
    assert node(graph, "Resize").attrs["coordinate_transformation_mode"] == "asymmetric"
    assert node(graph, "Softmax").attrs == Attrs(axis=1)
    ancient = load(ZOO["ancient_forms"]())
    assert [n.op for n in ancient.nodes() if n.op not in ("Input", "Constant")] == [
        "Add@1", "Relu", "BatchNormalization", "Cast", "Cast", "Mul", "PRelu@1", "Dropout@1"
    ]  # fmt: skip


def test_reading_does_not_change_the_message() -> None:
    proto = ZOO["bodies"]()
    before = proto.SerializeToString()
    graph = load(proto)
    graph.update(node(graph, "Relu").id, op="Neg")
    to_proto(graph)
    assert proto.SerializeToString() == before


def test_light_models_keep_their_size_in_memory() -> None:
    proto = onnx.ModelProto()
    proto.CopyFrom(ZOO["large_weights"]())
    graph = load(proto.SerializeToString())
    (large,) = [v for v, name in graph.names.items() if name == "large"]
    constant = graph.constant_of(large)
    assert constant is not None
    assert np.array_equal(constant.array, np.arange(5000))


def test_constants_without_a_value_are_refused() -> None:
    node = helper.make_node("Constant", [], ["y"])
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])
    with pytest.raises(InvalidModelError, match="it has none of value, value_float"):
        load(helper.make_model(graph))
