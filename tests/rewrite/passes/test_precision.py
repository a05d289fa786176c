"""Half precision computed in float32: which nodes are, and what stays as it is read and written."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import graphopt
from graphopt.ir.graph import Graph, Value
from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.rewrite.passes.precision import in_single_precision

HEAD = "graph g (ir 10, opset 21)\n"


def dtypes(graph: Graph) -> dict[str, list[str | None]]:
    """By op, the dtype of each node's first output."""
    facts = infer(graph)
    found: dict[str, list[str | None]] = {}
    for node in graph.order():
        found.setdefault(node.op, []).append(facts[Value(node.id)].dtype)
    return found


def converted(text: str) -> dict[str, list[str | None]]:
    """What becomes of a graph, whose outputs keep their types."""
    graph = parse(HEAD + text)
    made = in_single_precision(graph)
    before, after = infer(graph), infer(made)
    for old, new in zip(graph.outputs, made.outputs, strict=True):
        assert old is not None
        assert new is not None
        assert before[old].dtype == after[new].dtype
    assert made.output_names == graph.output_names
    return dtypes(made)


def test_products_with_weights_and_what_reads_them_are_in_float32() -> None:
    found = converted("""
x: float16[n, 4]
w = float16[4, 4]{0.5, ...}
b = float16[4]{0.25, ...}
h = Add(x, b)
p = MatMul(h, w)
r = Relu(p)
s = Add(r, x)
y: float16[n, 4] = Softmax(s, axis=-1)
return y
""")
    assert found["MatMul"] == found["Relu"] == found["Softmax"] == ["float32"]
    assert found["Add"] == ["float16", "float32"], "the first reads nothing that is computed in float32"
    assert found["Cast"] == ["float32", "float32", "float16"], "one for each value that is read in another dtype"


def test_caches_are_moved_and_read_in_half_precision() -> None:
    found = converted("""
x: float16[1, 4]
past: float16[n, 4]
w = float16[4, 4]{0.5, ...}
k = MatMul(x, w)
present: float16[n + 1, 4] = Concat(past, k, axis=0)
t = Transpose(present, perm=[1, 0])
scores: float16[1, n + 1] = MatMul(k, t)
return present, scores
""")
    assert found["MatMul"] == ["float32", "float16"]
    assert found["Concat"] == found["Transpose"] == ["float16"]
    assert "float32" not in found["Cast"][1:], "the cache is never converted"


def test_what_only_moves_elements_stays_where_they_are() -> None:
    found = converted("""
i: int64[n]
table = float16[8, 4]{0.5, ...}
w = float16[4, 6]{0.5, ...}
e = Gather(table, i, axis=0)
p = MatMul(e, w)
a, b = Split(p, axis=1, num_outputs=2)
y: float16[n, 6] = Concat(b, a, axis=1)
return y
""")
    assert found["Gather"] == ["float16"]
    assert found["Split"] == found["Concat"] == ["float32"]


def test_casts_to_half_precision_stay_and_others_of_wide_values_go() -> None:
    graph = parse(
        HEAD
        + """
x: float16[n, 4]
mask: float32[n, 4]
w = float16[4, 4]{0.5, ...}
low = Cast(mask, to=10)
p = MatMul(x, w)
s = Add(p, low)
y: float32[n, 4] = Cast(s, to=1)
return y
"""
    )
    made = in_single_precision(graph)
    found = dtypes(made)
    assert found["Cast"].count("float16") == 1, "what is beyond float16 is infinite, as the model has it"
    (last,) = (v for v in made.outputs if v is not None)
    producer = made.producer(last)
    assert producer.op == "Cast"
    assert infer(made)[producer.inputs[0]].dtype == "float32"  # type: ignore[index]


@pytest.mark.parametrize("text", ["x: float32[4]\ny: float32[4] = Relu(x)\nreturn y\n",
                                  "x: float16[4]\ny: float16[4] = Relu(x)\nreturn y\n"])  # fmt: skip
def test_a_graph_without_such_products_is_itself(text: str) -> None:
    graph = parse(HEAD + text)
    assert in_single_precision(graph) is graph


def layers(dtype: type, rows: int | str) -> tuple[bytes, dict[str, np.ndarray]]:
    """A convolution, a pool, a product by tied weights that a loop repeats, and a normalization."""
    rng = np.random.default_rng(0)
    kind = TensorProto.FLOAT16 if dtype is np.float16 else TensorProto.BFLOAT16
    held = {
        "k": rng.standard_normal((6, 3, 3, 3)) / 5, "w": rng.standard_normal((6, 6)) / 3, "g": rng.random(6),
        "c": rng.standard_normal(6),
    }  # fmt: skip
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["product"]),
            helper.make_node("Tanh", ["product"], ["next"]),
            helper.make_node("Identity", ["on"], ["goes_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", kind, None),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", kind, None),
        ],
    )
    nodes = [
        helper.make_node("Conv", ["x", "k", "c"], ["conv"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("GlobalAveragePool", ["relu"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Loop", ["times", "always", "flat"], ["looped"], body=body),
        helper.make_node("LayerNormalization", ["looped", "g"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", kind, [rows, 3, 8, 8])
    tensors = [numpy_helper.from_array(a.astype(dtype), n) for n, a in held.items()]
    tensors += [numpy_helper.from_array(np.array(3), "times"), numpy_helper.from_array(np.array(True), "always")]
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info("y", kind, None)], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return made.SerializeToString(), {"x": rng.standard_normal((2, 3, 8, 8)).astype(dtype)}


def convolved(compiled: graphopt.CompiledModel) -> set[str | None]:
    """The dtypes of what convolutions of a program make."""
    facts = infer(compiled.graph)
    return {facts[Value(n.id)].dtype for n in compiled.graph.order() if "Conv" in n.op}


@pytest.mark.parametrize(("dtype", "apart"), [(np.float16, 0.02), (ml_dtypes.bfloat16, 0.2)])
@pytest.mark.parametrize("rows", [2, "n"])
def test_programs_of_half_precision_compute_in_float32(dtype: type, apart: float, rows: int | str) -> None:
    model, feeds = layers(dtype, rows)
    want = ReferenceEvaluator(model).run(None, feeds)[0]
    with graphopt.compile(model, jobs=0, verify="off", strict=True) as compiled:
        got = compiled(feeds)["y"]
        assert convolved(compiled) == {"float32"}
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), atol=apart)
    with graphopt.compile(model, jobs=0, verify="off", policy="exact") as compiled:
        assert "float32" not in convolved(compiled)
