"""Models that use one feature of ONNX each: what reading and writing must carry without loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper, parser

ZOO: dict[str, Callable[[], ModelProto]] = {}

FLOAT = TensorProto.FLOAT


def feature(build: Callable[[], ModelProto]) -> Callable[[], ModelProto]:
    ZOO[build.__name__] = build
    return build


def model(text: str, opset: int = 18, ir_version: int = 8) -> ModelProto:
    """A model from ONNX's text form, without its header."""
    return parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "custom" : 1]>\n{text}')


def tensor(name: str, array: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


@feature
def plain() -> ModelProto:
    return model("agraph (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> { a = Add(x, w) y = Relu(a) }")


@feature
def words_everywhere() -> ModelProto:
    made = plain()
    made.doc_string, made.domain, made.model_version = "about\nthe model", "a.b", 7
    made.producer_name, made.producer_version = "us", "1.0"
    made.graph.doc_string = "about the graph"
    for holder in (made, made.graph, made.graph.node[0], made.graph.input[0], made.graph.initializer[0]):
        holder.metadata_props.add(key="k", value="v")
    made.graph.node[0].name, made.graph.node[0].doc_string = "first", "adds"
    made.graph.node[1].name = ""
    made.graph.input[0].doc_string = made.graph.output[0].doc_string = "a value"
    made.graph.input[0].type.denotation = "IMAGE"
    made.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    made.graph.initializer[0].doc_string = "weights"
    made.graph.value_info.append(helper.make_tensor_value_info("a", FLOAT, ["N", 4]))
    made.graph.value_info.append(helper.make_tensor_value_info("nobody", FLOAT, [1]))
    del made.graph.value_info[1]
    annotation = made.graph.quantization_annotation.add(tensor_name="a")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    return made


@feature
def training() -> ModelProto:
    made = plain()
    info = made.training_info.add()
    info.initialization.name = "init"
    info.initialization.output.append(helper.make_tensor_value_info("w0", FLOAT, [4]))
    info.initialization.node.append(helper.make_node("Constant", [], ["w0"], value=tensor("", np.zeros(4, np.float32))))
    info.initialization_binding.add(key="w", value="w0")
    return made


@feature
def devices() -> ModelProto:
    made = plain()
    made.configuration.add(name="two", num_devices=2)
    made.graph.node[0].device_configurations.add(configuration_id="two", pipeline_stage=1)
    return made


DTYPES = [
    np.float32, np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64, np.bool_, np.float16, np.float64, np.uint32,
    np.uint64, np.complex64, np.complex128, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz, ml_dtypes.uint4, ml_dtypes.int4, ml_dtypes.float4_e2m1fn,
    ml_dtypes.float8_e8m0fnu, ml_dtypes.uint2, ml_dtypes.int2,
]  # fmt: skip


def of_every_dtype() -> list[tuple[TensorProto, np.ndarray[Any, Any]]]:
    """A tensor of each dtype, and its elements: as raw bytes, and in a list."""
    made = []
    for dtype in DTYPES:
        array = np.array([[0, 1, 1], [1, 0, 1], [0, 0, 1]]).astype(dtype)
        name = np.dtype(dtype).name
        made.append((tensor(f"raw_{name}", array), array))
        number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        flat = array.reshape(-1)
        made.append((helper.make_tensor(f"list_{name}", number, array.shape, flat.tolist()), array))
    words = np.array(["a", "", "ü\n"], dtype=object)
    made.append((helper.make_tensor("strings", TensorProto.STRING, [3], [w.encode() for w in words]), words))
    return made


@feature
def dtypes() -> ModelProto:
    made = plain()
    made.graph.initializer.extend(proto for proto, _ in of_every_dtype())
    made.graph.initializer.append(helper.make_tensor("octets", TensorProto.STRING, [1], [b"\xff\xfe"]))
    made.graph.initializer.append(helper.make_tensor("nothing", FLOAT, [0, 3], []))
    made.graph.initializer.append(helper.make_tensor("scalar", FLOAT, [], [2.0]))
    return made


@feature
def large_weights() -> ModelProto:
    made = plain()
    made.graph.initializer.append(tensor("large", np.arange(5000, dtype=np.float32)))
    made.graph.initializer.append(helper.make_tensor("listed", FLOAT, [5000], [1.0] * 5000))
    made.graph.node.append(helper.make_node("Constant", [], ["c"], value=tensor("t", np.arange(3000, dtype=np.int64))))
    return made


def sparse(name: str) -> onnx.SparseTensorProto:
    values = helper.make_tensor(name, FLOAT, [2], [3.0, 4.0])
    return helper.make_sparse_tensor(values, helper.make_tensor("", TensorProto.INT64, [2, 2], [0, 1, 1, 0]), [2, 2])


@feature
def constants() -> ModelProto:
    made = plain()
    spellings: dict[str, Any] = {
        "value": tensor("inner name", np.float32([1, 2])),
        "value_float": 1.5,
        "value_floats": [1.0, 2.5],
        "value_int": 3,
        "value_ints": [3, 4],
        "value_string": b"s",
        "value_strings": [b"s", b"t"],
        "sparse_value": sparse(""),
    }
    for name, value in spellings.items():
        made.graph.node.append(helper.make_node("Constant", [], [f"c_{name}"], name=f"n_{name}", **{name: value}))
    return made


@feature
def sparse_initializers() -> ModelProto:
    made = plain()
    made.graph.sparse_initializer.append(sparse("s"))
    return made


@feature
def initializers_listed_as_inputs() -> ModelProto:
    made = plain()
    made.ir_version = 3
    made.graph.input.insert(0, helper.make_tensor_value_info("w", FLOAT, [4]))
    return made


@feature
def overridable_initializers() -> ModelProto:
    made = plain()
    made.graph.input.append(helper.make_tensor_value_info("w", FLOAT, [4]))
    made.graph.initializer.insert(0, tensor("z", np.float32([1])))
    return made


@feature
def missing_inputs_and_outputs() -> ModelProto:
    made = model("agraph (float[2, 3, 4] x, float m, float[1, 8, 4] w, float[1, 8, 2] r) => (float[1, 3, 2] h) {}")
    made.graph.node.extend(
        [
            helper.make_node("Clip", ["x", "", "m"], ["a"]),
            helper.make_node("Clip", ["a", "m", ""], ["b"]),
            helper.make_node("LSTM", ["b", "w", "r", "", "", "", "", ""], ["", "h", ""], hidden_size=2),
        ]
    )
    return made


@feature
def many_inputs_and_outputs() -> ModelProto:
    return model(
        "agraph (float[6] x) => (float[2] b, float[6] s) <int64[3] parts = {1, 2, 3}> "
        "{ a, b, c = Split<axis = 0>(x, parts) s = Concat<axis = 0>(c, a, b) }"
    )


@feature
def bodies() -> ModelProto:
    return model(
        """agraph (bool p, float[2] x, int64 n) => (float[2] y, float[2] z, float[k, 2] zs) {
             outer = Relu(x)
             y = If (p) <
               then_branch = then () => (float[2] t) <float[2] w = {1, 2}> { t = Add(outer, w) },
               else_branch = other () => (float[2] e) {
                 inner = Neg(x)
                 e = If (p) <then_branch = g1 () => (float[2] f) { f = Add(inner, outer) },
                             else_branch = g2 () => (float[2] g) {
                               c = Constant<value_floats = [1.0, 2.0]>()
                               g = Mul(c, x)
                             }>
               }
             >
             z, zs = Loop (n, p, x) <
               body = step (int64 i, bool go, float[2] s) => (bool go2, float[2] s2, float[2] out) {
                 go2 = Identity(go)
                 s2 = Add(s, y)
                 out = Mul(s2, outer)
               }
             >
           }"""
    )


@feature
def scan() -> ModelProto:
    return model(
        """agraph (float[3, 2] xs, float[2] s0, float[2] bias) => (float[2] s, float[3, 2] ys) {
             s, ys = Scan <num_scan_inputs = 1, body = step (float[2] a, float[2] x) => (float[2] a2, float[2] y) {
               a2 = Add(a, x)
               y = Add(a2, bias)
             }> (s0, xs)
           }"""
    )


@feature
def a_body_that_gives_an_outer_value() -> ModelProto:
    return model(
        """agraph (bool p, float[2] x) => (float[2] y) {
             r = Relu(x)
             y = If (p) <then_branch = g1 () => (float[2] r) {}, else_branch = g2 () => (float[2] e) { e = Neg(r) }>
           }"""
    )


@feature
def functions() -> ModelProto:
    made = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18, "local" : 1]>
        agraph (float[4] x) => (float[4] y, float[4] z) { y = local.outer<alpha = 0.5>(x) z = local.inner(x, y) }
        <domain: "local", opset_import: ["" : 18, "local" : 1], doc_string: "calls">
        outer <alpha: float = 0.25, unused> (x) => (y) {
          l = LeakyRelu<alpha: float = @alpha>(x)
          c = Constant<value_float: float = @alpha>()
          m = Mul(l, c)
          y = local.inner(m)
        }
        <domain: "local", opset_import: ["" : 17]>
        inner (a, b) => (s, nowhere) { k = Constant<value_int = 1>() s = ReduceSum(a, k) }
        """
    )
    made.functions[0].value_info.append(helper.make_tensor_value_info("m", FLOAT, [4]))
    made.functions[0].metadata_props.add(key="k", value="v")
    return made


@feature
def overloads() -> ModelProto:
    made = functions()
    del made.functions[0], made.graph.output[0]
    made.functions[0].overload = "two"
    other = made.functions.add()
    other.CopyFrom(made.functions[0])
    other.overload = "one"
    del made.graph.node[:]
    made.graph.node.append(helper.make_node("inner", ["x"], ["t"], domain="local", overload="one"))
    made.graph.node.append(helper.make_node("inner", ["t"], ["z"], domain="local", overload="two"))
    return made


@feature
def other_types() -> ModelProto:
    made = plain()
    element = helper.make_tensor_type_proto(FLOAT, ["N", None])
    opaque = onnx.TypeProto()
    opaque.opaque_type.domain, opaque.opaque_type.name = "d", "n"
    mapping = onnx.TypeProto()
    mapping.map_type.key_type = TensorProto.INT64
    mapping.map_type.value_type.CopyFrom(element)
    kinds = {
        "sequence": helper.make_sequence_type_proto(element),
        "optional": helper.make_optional_type_proto(helper.make_sequence_type_proto(element)),
        "sparse": helper.make_sparse_tensor_type_proto(FLOAT, [2, 2]),
        "opaque": opaque,
        "map": mapping,
        "maps": helper.make_sequence_type_proto(mapping),
        "unranked": helper.make_tensor_type_proto(FLOAT, None),
        "untyped": onnx.TypeProto(),
    }
    for name, kind in kinds.items():
        made.graph.input.append(helper.make_value_info(name, kind))
    made.graph.input.add(name="unheard of")
    made.graph.node.append(helper.make_node("Optional", [], ["o"], type=element))
    made.graph.node.append(helper.make_node("Strange", [], ["p"], domain="custom", type=opaque))
    return made


@feature
def anonymous_sizes() -> ModelProto:
    made = model("agraph (float[N] x) => (float[N] y) { y = Relu(x) }")
    for info in (made.graph.input[0], made.graph.output[0]):
        info.CopyFrom(helper.make_tensor_value_info(info.name, FLOAT, [None, "?", "", -1, 0, "a b", "N", 3]))
        info.type.tensor_type.shape.dim[2].dim_param = ""
    return made


@feature
def attributes_of_every_kind() -> ModelProto:
    made = plain()
    node = helper.make_node("Strange", ["x"], ["s"], domain="custom", overload="")
    graph = model("inner () => (float[4] t) { t = Neg(x) }").graph
    plain_type = helper.make_tensor_type_proto(FLOAT, [1])
    for name, value in {
        "f": 0.1, "i": -1, "s": b"text", "octets": b"\xff", "fs": [0.5, 1.0], "is_": [1, 2], "ss": [b"a", b"\xff"],
        "t": tensor("t", np.float32([1])), "ts": [tensor("t", np.float32([1])), tensor("u", np.arange(2000))],
        "g": graph, "gs": [graph, graph], "sp": sparse("v"), "sps": [sparse("v"), sparse("w")], "tp": plain_type,
        "tps": [plain_type, plain_type],
    }.items():  # fmt: skip
        node.attribute.append(helper.make_attribute(name, value, doc_string="doc of " + name))
    for name, kind in (
        ("none_f", AttributeProto.FLOATS),
        ("none_i", AttributeProto.INTS),
        ("none_s", AttributeProto.STRINGS),
    ):
        node.attribute.append(helper.make_attribute(name, [], attr_type=kind))
    made.graph.node.append(node)
    return made


@feature
def outputs_that_nobody_makes() -> ModelProto:
    made = plain()
    made.graph.output.append(made.graph.input[0])
    made.graph.output.append(helper.make_tensor_value_info("w", FLOAT, [4]))
    return made


@feature
def repeated_numbers() -> ModelProto:
    made = model("agraph (float[N] x) => (float[N] y) <int64[2] shape = {300, 200}> { y = Relu(x) }")
    value = tensor("v", np.float32([2.5]))
    made.graph.node.append(helper.make_node("ConstantOfShape", ["shape"], ["big"], value=value))
    made.graph.node.append(helper.make_node("ConstantOfShape", ["shape"], ["zeros"]))
    made.graph.node.append(helper.make_node("Shape", ["x"], ["n"]))
    made.graph.node.append(helper.make_node("ConstantOfShape", ["n"], ["open"]))
    return made


@feature
def the_long_name_of_the_domain() -> ModelProto:
    made = plain()
    made.opset_import[0].domain = "ai.onnx"
    made.graph.node[0].domain = "ai.onnx"
    return made


@feature
def names_of_all_sorts() -> ModelProto:
    made = plain()
    for index, name in enumerate(['"); import os #', "a\nb", "nul\0", "ü", " "]):
        made.graph.node.append(helper.make_node("Neg", ["x"], [name], name=name + str(index)))
    return made


@feature
def old_forms() -> ModelProto:
    return model(
        """agraph (float[2, 1, 3] x) => (float[2, 3] y) {
             q = Squeeze<axes = [1]>(x)
             u = Unsqueeze<axes = [-1]>(q)
             c = Clip<min = 0.0, max = 6.0>(u)
             d, mask = Dropout<ratio = 0.1>(c)
             r = ReduceMean<keepdims = 0, axes = [2]>(d)
             p = Pad<pads = [0, 0, 0, 1], value = 1.5>(r)
             s = Slice<starts = [0], ends = [3], axes = [1]>(p)
             v, i = TopK<k = 2, axis = 1>(s)
             a, b = Split<axis = 1>(v)
             n = Upsample<mode = "nearest", scales = [1.0, 2.0]>(a)
             m = Softmax(n)
             y = LogSoftmax<axis = 0>(m)
           }""",
        opset=8,
        ir_version=4,
    )


@feature
def ancient_forms() -> ModelProto:
    return model(
        """agraph (float[2, 3, 4, 4] x, float[3] b, float[3] s) => (float[2, 3, 4, 4] y) {
             a = Add<broadcast = 1, axis = 1>(x, b)
             c = Relu<consumed_inputs = [0]>(a)
             d = BatchNormalization<is_test = 1, epsilon = 0.1>(c, s, b, b, s)
             e = Cast<to = "DOUBLE">(d)
             f = Cast<to = "FLOAT">(e)
             g = Mul<broadcast = 1>(f, f)
             h = PRelu(g, s)
             y = Dropout(h)
           }""",
        opset=5,
        ir_version=3,
    )
