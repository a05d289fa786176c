"""Ops that ONNX says in other ops: after their bodies are inlined nests compute them, and they give what they did."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import graphopt
from graphopt.ir import evaluate, onnx_io
from graphopt.ir.constants import Constant
from graphopt.ir.infer import infer
from graphopt.ir.suite import suite
from graphopt.ir.text import parse
from graphopt.ir.tolerance import error
from graphopt.lowering.lower import expand
from graphopt.lowering.lower.expand import dequantized, expanded
from graphopt.lowering.lower.lower import Unlowered, lower
from graphopt.rewrite.passes.simplify import simplify

CASES = [
    "test_linear_attention_gated_delta_gqa",
    "test_causal_conv_with_state_silu_with_past_state",
    "test_flexattention_score_mod",
]


def _linear_attention() -> onnx.ModelProto:
    names = ["q", "k", "v"]
    node = helper.make_node(
        "LinearAttention", names, ["y", "state"], q_num_heads=2, kv_num_heads=2, update_rule="linear"
    )
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3, 8]) for n in names]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "state")]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)])


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_left_to_reference(name: str) -> None:
    model = next(model for found, model in suite() if found == name)
    graph = simplify(expanded(onnx_io.load(model)))
    assert not [made for made in lower(graph, infer(graph)).values() if isinstance(made, Unlowered)]


def test_what_is_compiled_computes_the_op() -> None:
    model = _linear_attention()
    random = np.random.default_rng(0)
    feeds = {n: random.uniform(-1, 1, (1, 3, 8)).astype(np.float32) for n in "qkv"}
    with graphopt.compile(model, strict=True) as compiled:
        got = compiled(feeds)
    want = ReferenceEvaluator(model).run(None, feeds)
    for a, b in zip(want, got.values(), strict=True):
        assert error(a, b) <= 1.0


def test_other_graphs_stay_as_they_are() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    graph = onnx_io.load(helper.make_model(helper.make_graph([node], "g", values[:1], values[1:])))
    assert expanded(graph) is graph


@pytest.mark.parametrize("direction", [0, 1])
def test_a_scan_of_opset_8_is_one_within_another(direction: int) -> None:
    proto = onnx.parser.parse_model(f"""<ir_version: 4, opset_import: ["" : 8]>
    g (float[b,2] init, float[b,n,2] x, float[2] w) => (float[b,2] y, float[b,n,2] z) {{
      y, z = Scan <body: graph = body (float[2] s, float[2] v) => (float[2] s2, float[2] o) {{
        p = Mul(v, w) s2 = Add(s, p) o = Sub(s2, v)
      }}, num_scan_inputs = 1, directions = [{direction}]> ("", init, x)
    }}""")
    compiled = graphopt.compile(proto, jobs=0)
    assert not compiled.report.unlowered
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for b, n in ((1, 3), (2, 4)):
        shapes = {"init": (b, 2), "x": (b, n, 2), "w": (2,)}
        feeds = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
        found = compiled(feeds)
        for name, want in zip("yz", session.run(None, feeds), strict=True):
            np.testing.assert_allclose(found[name], want, rtol=1e-6)


QUANTIZED = """x: float32[n, 2, 5, 5] w = int8[2, 2, 1, 1]{1, 2, 3, 4} s = 0.5 z = int8[]{1}
    f = DequantizeLinear(w, s, z) y = Conv(x, f) return y"""


def test_weights_that_each_run_would_dequantize_become_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse(QUANTIZED)
    made = dequantized(graph)
    (conv,) = (n for n in made.nodes() if n.op == "Conv")
    constant = made.constant_of(conv.inputs[1])
    assert constant is not None
    assert constant.array.reshape(-1).tolist() == [0.0, 0.5, 1.0, 1.5]
    compiled = graphopt.compile(graph, jobs=0)
    assert not any(n.op == "DequantizeLinear" for n in compiled.graph.nodes())
    x = np.random.default_rng(0).standard_normal((3, 2, 5, 5)).astype(np.float32)
    want = np.einsum("nchw,oc->nohw", x, np.array([[0.0, 0.5], [1.0, 1.5]], np.float32))
    np.testing.assert_allclose(compiled({"x": x})["y"], want, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(expand, "LARGE", 3)
    assert dequantized(graph) is graph


def test_what_depends_on_an_input_is_not_dequantized_ahead() -> None:
    graph = parse("x: int8[n] s: float32[] y = DequantizeLinear(x, s) return y")
    assert dequantized(graph) is graph


@pytest.mark.parametrize("z", ["", ", z"])
@pytest.mark.parametrize("bias", ["_", "b"])
@pytest.mark.parametrize(
    "activation",
    [
        "",
        ', activation="Relu"',
        ', activation="Tanh"',
        ', activation="Clip", activation_params=[-0.2, 0.3]',
        ', activation="HardSigmoid", activation_params=[0.3, 0.4]',
        ', activation="LeakyRelu", activation_params=[0.2]',
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_convolutions_are_apart_from_their_activations(dtype: str, activation: str, bias: str, z: str) -> None:
    """So that they are rewritten as all others are."""
    random = np.random.default_rng(0)
    w, b = (Constant.of(random.uniform(-0.2, 0.2, shape).astype(dtype)) for shape in ((16, 24, 3, 3), (16,)))
    graph = parse(
        f"""x: {dtype}[2, 24, 9, 11]
z: {dtype}[2, 16, 9, 11]
w = {dtype}[16, 24, 3, 3]{{#0}}
b = {dtype}[16]{{#1}}
y = com.microsoft::FusedConv(x, w, {bias}{z}, pads=[1, 1, 1, 1]{activation})
return y""",
        [w, b],
    )
    made = simplify(expanded(graph))
    assert "com.microsoft::FusedConv" not in {node.op for node in made.nodes()}
    feeds = {
        name: random.standard_normal(shape).astype(dtype)
        for name, shape in (("x", (2, 24, 9, 11)), ("z", (2, 16, 9, 11)))
    }
    (want,) = evaluate.run(graph, feeds).values()
    (found,) = graphopt.compile(graph, jobs=0)(feeds).values()
    assert error(want, found) <= 1


@pytest.mark.parametrize("activation", ['activation="Softsign"', 'activation="Clip"'])
def test_other_activations_stay_where_they_are(activation: str) -> None:
    graph = parse(
        f"x: float32[1, 2, 3]\nw: float32[4, 2, 1]\ny = com.microsoft::FusedConv(x, w, {activation})\nreturn y"
    )
    assert expanded(graph) is graph
