"""Quantized models: what rules ask of scales and zero points, and what becomes of models of the corpus."""

from functools import cache
from pathlib import Path

import pytest

import graphopt
from graphopt.ir.graph import CONSTANT, Graph, Value
from graphopt.ir.onnx_io import load
from graphopt.ir.text import parse
from graphopt.optimize import optimize_graph
from graphopt.report import Report
from graphopt.rewrite.comparison import Unknown
from graphopt.rewrite.quantization import all_zero, has_step, is_bias_scale, least, saturates
from graphopt.rewrite.rule import Soundness
from graphopt.target import CPU, ORT, PORTABLE

CORPUS = Path(__file__).parents[1] / "corpus" / "quantized"


@cache
def optimized(name: str, target: str) -> tuple[Graph, Report]:
    """The model, optimized and compared with the original."""
    model = (CORPUS / f"{name}.onnx").read_bytes()
    made, report = graphopt.optimize(model, target=target, return_report=True, verify="require")
    return load(made), report


def fired(report: Report) -> set[str]:
    return {r.rule for r in report.rewrites}


def stored(graph: Graph) -> int:
    """The bytes of the constants that are matrices."""
    found = (graph.constant_of(Value(n.id)) for n in graph.nodes() if n.op == CONSTANT)
    return sum(c.nbytes for c in found if c is not None and len(c.shape) > 1)


def test_ranges() -> None:
    assert (least("uint8"), least("int8")) == (0, -128)
    with pytest.raises(Unknown):
        least("float32")


def test_steps_are_positive_and_far_from_the_limits_of_floats() -> None:
    assert has_step(0.1)
    assert has_step((0.1, 2.0))
    assert not any(map(has_step, (0.0, -0.1, 1e-38, float("inf"), float("nan"), (0.1, 0.0), ())))


def test_a_clip_is_superfluous_where_its_bounds_are_at_the_ends() -> None:
    assert saturates("uint8", 0.1, 0, 0.0, 25.5)
    assert saturates("uint8", 0.1, 0, -1.0, 30.0)
    assert not saturates("uint8", 0.1, 0, 0.1, 25.5)
    assert not saturates("uint8", 0.1, 0, 0.0, 25.4)
    assert not saturates("int8", 0.1, 0, 0.0, 25.5)
    assert not saturates("uint8", 0.0, 0, 0.0, 25.5)


def test_biases_have_the_scale_of_the_product() -> None:
    assert is_bias_scale(0.02, 0.1, 0.2)
    assert is_bias_scale((0.02, 0.03), (0.1,), (0.2, 0.3))
    assert not is_bias_scale(0.03, 0.1, 0.2)
    assert not is_bias_scale((0.02, 0.02), 0.1, (0.2, 0.3))
    assert not is_bias_scale((0.02, 0.02), 0.1, (0.2, 0.2, 0.2))
    assert all_zero((0, 0))
    assert not all_zero(3)


def test_convolutions_and_what_is_between_them_run_on_integers() -> None:
    made, report = optimized("cnn_qdq_channels", "ort")
    ops = {n.op for n in made.nodes()}
    assert {"QLinearConv", "com.microsoft::QLinearAdd", "com.microsoft::QGemm", "com.microsoft::QLinearConcat"} <= ops
    assert not ops & {"Conv", "Add", "Gemm", "Concat", "Sigmoid"}
    assert {"quantized-conv", "quantized-pool", "quantized-leaky-relu", "move-quantized"} <= fired(report)


def test_programs_run_products_and_convolutions_on_integers() -> None:
    graph = load((CORPUS / "cnn_qdq_channels.onnx").read_bytes())
    made, report = optimize_graph(graph, target=CPU)
    ops = {n.op for n in made.nodes()}
    assert {"quantized-conv", "quantized-gemm-float"} & fired(report)
    assert "QLinearConv" in ops
    assert not ops & {"Conv", "Gemm", "com.microsoft::QLinearAdd"}


@pytest.mark.parametrize("name", ["cnn_qdq", "block_qdq", "block_int4", "trained"])
@pytest.mark.parametrize("target", ["portable", "ort"])
def test_weights_stay_quantized(name: str, target: str) -> None:
    made, _ = optimized(name, target)
    start = load(CORPUS / f"{name}.onnx")
    assert stored(made) <= 1.02 * stored(start) + 64
    if name == "trained":  # its weights were floats
        assert stored(made) < 0.3 * stored(start)


def test_moves_between_dequantization_and_quantization_move_integers() -> None:
    made, report = optimized("block_qdq", "portable")
    assert {"move-quantized-to", "requantize-same"} <= fired(report)
    assert len(made) < 100


def test_quantization_does_what_a_relu_before_it_did() -> None:
    made, report = optimized("trained", "portable")
    assert "quantized-relu" in fired(report)
    assert "Relu" not in {n.op for n in made.nodes()}


def test_dynamic_quantization_is_one_op() -> None:
    made, report = optimized("mlp_dynamic", "ort")
    assert sum(n.op == "com.microsoft::DynamicQuantizeMatMul" for n in made.nodes()) == 3
    assert {"product-to-float-bias", "dynamic-product"} <= fired(report)


@pytest.mark.parametrize(("name", "rule"), [("int4", "four-bit-product"), ("uint4", "four-bit-product-zeros")])
def test_weights_of_four_bits_are_multiplied_as_they_are(name: str, rule: str) -> None:
    made, report = optimized(f"block_{name}", "ort")
    assert rule in fired(report)
    assert "com.microsoft::MatMulNBits" in {n.op for n in made.nodes()}


def test_two_changes_of_scale_are_one_only_where_approximations_are_allowed() -> None:
    text = """x: float32[4]
a = QuantizeLinear(x, 0.5, z)
b = DequantizeLinear(a, 0.5, z)
y = QuantizeLinear(b, 0.75, z)
return y""".replace("a = ", "z = uint8[]{3}\na = ", 1)
    graph = parse(text)
    assert len(optimize_graph(graph, policy=Soundness.REALS)[0]) == 3
    assert len(optimize_graph(graph, policy=Soundness.APPROX)[0]) == 1


@pytest.mark.parametrize("target", [PORTABLE, ORT], ids=["portable", "ort"])
def test_dequantized_constants_are_moved_but_not_computed(target: object) -> None:
    graph = parse("""x: float32[2, 600]
w = int8[600, 600]{7, ...}
d = DequantizeLinear(w, 0.5)
t = Transpose(d, perm=[1, 0])
y = MatMul(x, t)
return y""")
    made, _ = optimize_graph(graph, target=target)  # type: ignore[arg-type]
    assert "DequantizeLinear" in {n.op for n in made.nodes()}
    assert all(c.dtype == "int8" for n in made.nodes() if (c := made.constant_of(Value(n.id))) and len(c.shape) > 1)


def test_changes_of_scale_in_a_row_are_one_in_a_trained_model() -> None:
    model = (CORPUS / "trained_symmetric.onnx").read_bytes()
    _, report = graphopt.optimize(model, policy="approx", verify="off", return_report=True)
    assert "requantize" in fired(report)
