"""Quantized models: what rules ask of scales and zero points, and what becomes of models of the corpus."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import graphopt
from graphopt.ir.evaluate import run
from graphopt.ir.graph import CONSTANT, Graph, Value
from graphopt.ir.onnx_io import load
from graphopt.ir.text import parse
from graphopt.optimize import optimize_graph
from graphopt.rewrite.guards.comparison import Unknown
from graphopt.rewrite.guards.quantization import all_zero, has_step, is_bias_scale, least, saturates
from graphopt.rewrite.rule.rule import Soundness
from graphopt.run.report import Report
from graphopt.target import CPU, ORT, PORTABLE, Target

CORPUS = Path(__file__).parents[2] / "corpus" / "quantized"


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


@pytest.mark.usefixtures("exact_integers")
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


@pytest.mark.usefixtures("exact_integers")
@pytest.mark.parametrize("name", ["cnn_qdq", "block_qdq", "block_int4", "trained"])
@pytest.mark.parametrize("target", ["portable", "ort"])
def test_weights_stay_quantized(name: str, target: str) -> None:
    made, _ = optimized(name, target)
    start = load(CORPUS / f"{name}.onnx")
    assert stored(made) <= 1.02 * stored(start) + 64
    if name == "trained":  # its weights were floats
        assert stored(made) < 0.3 * stored(start)


@pytest.mark.usefixtures("exact_integers")
def test_moves_between_dequantization_and_quantization_move_integers() -> None:
    made, report = optimized("block_qdq", "ort")
    assert {"move-quantized-to", "requantize-same"} <= fired(report)
    assert len(made) < 100


WEIGHTS = ", ".join(str(n * 37 % 127 - 60) for n in range(64))


def quantized_network(zero: str, step: str = "0.05") -> Graph:
    """Convolutions with a pool and a sum between them, in the form that ``quantize_static`` writes: what is quantized
    is dequantized at once."""
    return parse(f"""x: float32[1, 8, 8, 8]
z = {zero}
w = int8[8, 8, 1, 1]{{{WEIGHTS}}}
s = {step}
q0 = QuantizeLinear(x, s, z)
a = DequantizeLinear(q0, s, z)
v = int8[]{{0}}
f = DequantizeLinear(w, 0.01, v)
b = Conv(a, f)
q1 = QuantizeLinear(b, s, z)
d = DequantizeLinear(q1, s, z)
m = MaxPool(d, kernel_shape=[2, 2], strides=[2, 2])
q2 = QuantizeLinear(m, s, z)
e = DequantizeLinear(q2, s, z)
c = Conv(e, f)
q3 = QuantizeLinear(c, s, z)
g = DequantizeLinear(q3, s, z)
h = Add(g, e)
q4 = QuantizeLinear(h, s, z)
y = DequantizeLinear(q4, s, z)
return y""")


def signed_activations(graph: Graph) -> set[str]:
    """The ops on integers whose first operand is of bytes with signs."""
    products = [n for n in graph.nodes() if "QLinear" in n.op or n.op.endswith("QGemm")]
    zeros = [(n.op, n.inputs[2]) for n in products]
    return {op for op, zero in zeros if zero is not None and graph.constant_of(zero).dtype == "int8"}  # type: ignore[union-attr]


@pytest.mark.parametrize("target", [CPU, ORT, PORTABLE], ids=["cpu", "ort", "portable"])
def test_scales_that_are_vectors_of_one_element_are_those_of_the_tensor(target: Target) -> None:
    scalars, _ = optimize_graph(quantized_network("uint8[]{5}"), target=target)
    vectors, report = optimize_graph(quantized_network("uint8[1]{5}", "float32[1]{0.05}"), target=target)
    assert "scalar-scale" in fired(report)
    assert sorted(n.op for n in vectors.nodes()) == sorted(n.op for n in scalars.nodes())


@pytest.mark.parametrize("zero", ["int8[]{0}", "int8[]{-128}", "int8[]{5}"])
def test_onnx_runtime_gets_activations_without_signs(zero: str) -> None:
    made, report = optimize_graph(quantized_network(zero), target=ORT)
    assert "unsigned-activations" in fired(report)
    ops = [n.op for n in made.nodes()]
    assert ops.count("QLinearConv") == 2
    assert "com.microsoft::QLinearAdd" in ops
    assert not signed_activations(made)
    x = np.linspace(-9, 9, 512, dtype=np.float32).reshape(1, 8, 8, 8)
    exact, report = optimize_graph(quantized_network(zero), target=ORT, policy=Soundness.EXACT)
    assert "unsigned-activations" in fired(report)
    assert np.array_equal(run(exact, {"x": x})["y"], run(quantized_network(zero), {"x": x})["y"])


def test_what_has_signs_where_it_comes_in_is_not_multiplied_as_it_is() -> None:
    graph = parse(f"""x: int8[1, 64, 28, 28]
w = int8[64, 64, 1, 1]{{{", ".join([WEIGHTS] * 64)}}}
z = int8[]{{0}}
a = DequantizeLinear(x, 0.05, z)
f = DequantizeLinear(w, 0.01, z)
c = Conv(a, f)
y = QuantizeLinear(c, 0.05, z)
return y""")
    made, _ = optimize_graph(graph, target=ORT)
    assert not signed_activations(made)
    assert "QLinearConv" in {n.op for n in optimize_graph(graph, target=CPU)[0].nodes()}


def test_where_pairs_stay_nothing_comes_between_them() -> None:
    made, _ = optimize_graph(quantized_network("int8[]{0}"), target=PORTABLE)
    made_by = {Value(n.id): n.op for n in made.nodes()}
    read = [made_by[n.inputs[0]] for n in made.nodes() if n.op == "MaxPool" and n.inputs[0] is not None]
    assert read == ["DequantizeLinear"]


def test_quantization_does_what_a_relu_before_it_did() -> None:
    made, report = optimized("trained", "portable")
    assert "quantized-relu" in fired(report)
    assert "Relu" not in {n.op for n in made.nodes()}


def test_dynamic_quantization_is_one_op() -> None:
    made, report = optimized("mlp_dynamic", "ort")
    assert sum(n.op == "com.microsoft::DynamicQuantizeMatMul" for n in made.nodes()) == 3
    assert {"product-to-float-bias", "dynamic-product"} <= fired(report)


@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_weights_of_four_bits_stay_in_the_form_that_onnx_runtime_looks_for(name: str) -> None:
    made, report = optimized(f"block_{name}", "ort")
    assert not {"four-bit-product", "four-bit-product-zeros"} & fired(report)
    assert "DequantizeLinear" in {n.op for n in made.nodes()}


def four_bit_products(block: int, second: str = "y = Relu(a)") -> Graph:
    """A product by weights of four bits, and what follows it."""
    return parse(f"""x: float32[4, 96]
w = int4[96, 96]{{3, ...}}
s = float32[{96 // block}, 96]{{0.01, ...}}
d = DequantizeLinear(w, s, axis=0, block_size={block})
a = MatMul(x, d)
{second}
return y""")


def test_nothing_hides_a_product_by_four_bits_from_onnx_runtime() -> None:
    made, _ = optimize_graph(four_bit_products(32, "y = Mul(a, 0.3)"), target=ORT)
    assert [n.op for n in made.nodes() if "MatMul" in n.op] == ["MatMul"]


def test_weights_of_four_bits_that_two_products_read_are_multiplied_as_they_are() -> None:
    made, report = optimize_graph(four_bit_products(32, "r = Relu(a)\ny = MatMul(r, d)"), target=ORT)
    assert "four-bit-product" in fired(report)
    assert sum(n.op == "com.microsoft::MatMulNBits" for n in made.nodes()) == 2


def test_onnx_runtime_has_no_products_by_blocks_that_are_no_power_of_two() -> None:
    made, _ = optimize_graph(four_bit_products(24, "r = Relu(a)\ny = MatMul(r, d)"), target=ORT)
    assert "com.microsoft::MatMulNBits" not in {n.op for n in made.nodes()}


def requantized(first: float, second: float) -> Graph:
    return parse(f"""x: float32[4]
z = uint8[]{{3}}
a = QuantizeLinear(x, {first}, z)
b = DequantizeLinear(a, {first}, z)
y = QuantizeLinear(b, {second}, z)
return y""")


def test_two_changes_of_scale_are_one_only_where_approximations_are_allowed() -> None:
    narrower = requantized(0.75, 0.5)
    assert len(optimize_graph(narrower, policy=Soundness.REALS)[0]) == 3
    assert len(optimize_graph(narrower, policy=Soundness.APPROX)[0]) == 1


def test_a_change_of_scale_that_cuts_off_more_than_the_next_is_kept() -> None:
    assert len(optimize_graph(requantized(0.5, 0.75), policy=Soundness.APPROX)[0]) == 3


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


def test_a_trained_model_keeps_the_narrower_range_that_it_was_trained_with() -> None:
    model = (CORPUS / "trained_symmetric.onnx").read_bytes()  # scales of 0.04 before 0.05
    _, report = graphopt.optimize(model, policy="approx", verify="off", return_report=True)
    assert "requantize" not in fired(report)
