"""Constants of magnitudes that lie far apart: what guards say of them, and rounding on purpose that stays."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import graphopt
from graphopt.ir.constants import Constant
from graphopt.ir.text import parse
from graphopt.optimize import optimize_graph
from graphopt.rewrite.guards.comparison import Unknown
from graphopt.rewrite.guards.magnitudes import ConstantElements, absorbs, addable, cancels, mergeable, moderate

MAGIC = {"float16": 1.5 * 2.0**10, "float32": 1.5 * 2.0**23, "float64": 1.5 * 2.0**52}
"""What rounds a number of each dtype to an integer when it is added and subtracted."""
UNKNOWN = ConstantElements(None)


def numbers(*elements: float, dtype: str = "float32") -> ConstantElements:
    return ConstantElements(Constant.of(np.array(elements).astype(getattr(ml_dtypes, dtype, dtype)), dtype))


@pytest.mark.parametrize(
    ("dtype", "most"), [("float16", 32.0), ("bfloat16", 16.0), ("float32", 4096.0), ("float64", 2.0**26)]
)
def test_half_of_the_digits_are_left_of_what_a_constant_is_added_to(dtype: str, most: float) -> None:
    assert not absorbs(numbers(0.5, -most, dtype=dtype))
    assert absorbs(numbers(0.5, -most * 1.25, dtype=dtype))
    assert absorbs(numbers(-np.inf, dtype=dtype))
    assert not absorbs(UNKNOWN)
    with pytest.raises(Unknown):
        absorbs(numbers(1, dtype="int32"))


def test_two_terms_cancel_where_their_sum_is_much_smaller() -> None:
    assert cancels(numbers(1000.0), numbers(-1000.0))
    assert cancels(numbers(5000.0), numbers(-4999.0))
    assert not cancels(numbers(1000.0), numbers(-999.0))
    assert not cancels(numbers(0.0), numbers(0.0))
    assert not cancels(numbers(), numbers())
    assert cancels(numbers(np.inf), numbers(-np.inf))
    assert not cancels(numbers(1.0), UNKNOWN)


def test_elements_of_a_bias_cancel_by_chance() -> None:
    generator = np.random.default_rng(0)
    one, other = (generator.standard_normal(5000) for _ in range(2))
    other[7] = -one[7]
    assert mergeable(numbers(*one), numbers(*other))
    assert not mergeable(numbers(*one), numbers(*-one))
    other[8], one[8] = -MAGIC["float32"], MAGIC["float32"]
    assert not mergeable(numbers(*one), numbers(*other))


def test_many_constants_are_added_where_no_two_in_a_row_cancel() -> None:
    rng, seen = np.random.default_rng(0), set()
    special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 5000.0, -4999.5, 1e-8])
    for trial in range(300):
        count, size = rng.integers(1, 6), rng.integers(0, 5)
        rows = rng.standard_normal((count, size)) * 10.0 ** rng.integers(-3, 4)
        if trial % 2 and size:
            rows[rng.integers(count), rng.integers(size)] = rng.choice(special)
        if trial % 3 == 0 and count > 1:
            rows[1] = -rows[0]
        terms = [numbers(*row) for row in rows]
        expected = not any(map(absorbs, terms)) and not any(map(cancels, terms, terms[1:]))
        assert addable(terms) == expected
        assert addable([*terms, UNKNOWN]) == expected
        one = numbers(1.0)
        assert addable([*terms, one]) == (expected and not cancels(terms[-1], one))
        seen.add(expected)
    assert seen == {True, False}
    with pytest.raises(Unknown):
        addable([ConstantElements(Constant.of(np.array([1]))), ConstantElements(Constant.of(np.array([2])))])


def test_factors_are_moderate_within_half_of_the_exponents() -> None:
    assert moderate(numbers(1 / 255, 0.0), numbers(4.4))
    assert moderate(numbers(0.0), numbers(1e10), UNKNOWN)
    assert moderate(numbers(1e-30, 1.0))
    assert not moderate(numbers(1e38))
    assert not moderate(numbers(1e-38))
    assert not moderate(numbers(1e15), numbers(1e15))
    assert not moderate(numbers(np.inf))
    assert not moderate(numbers(1000.0, dtype="float16"))
    assert moderate(UNKNOWN)


# -- idioms


def model(text: str) -> ModelProto:
    """A model with one graph, as ONNX's parser reads it."""
    return parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> g {text}')


def run(model: ModelProto, **given: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, given)[0]


def assert_kept(model: ModelProto, tolerance: float = 0.0, **given: Any) -> None:
    """What ``optimize`` and ``compile`` make by default gives what the model gives."""
    expected = run(model, **given)
    for target in ("portable", "ort"):
        made = run(graphopt.optimize(model, target=target, verify="off"), **given)
        np.testing.assert_allclose(made, expected, rtol=tolerance, atol=tolerance)
    (made,) = graphopt.compile(model)(given).values()
    np.testing.assert_allclose(made, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", MAGIC)
@pytest.mark.parametrize("step", [1.0, 0.25])
def test_rounding_by_a_sum_stays(dtype: str, step: float) -> None:
    name = {"float32": "float", "float64": "double"}.get(dtype, dtype)
    made = model(f"({name}[8] x) => ({name}[8] y) <float c={{0.0}}> {{ a = Add(x, c) b = Sub(a, c) y = Mul(b, b) }}")
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(MAGIC[dtype] * step, dtype), "c"))
    x, c = np.array([0.2, 0.5, 0.7, 1.2, 2.6, 3.4, -1.6, 100.3], dtype), np.array(MAGIC[dtype] * step, dtype)
    expected = ((x + c) - c) ** 2
    for target in ("portable", "ort"):
        # not by ONNX Runtime, which adds halves in single precision and rounds in the end
        optimized = ReferenceEvaluator(graphopt.optimize(made, target=target, verify="off"))
        np.testing.assert_array_equal(optimized.run(None, {"x": x})[0], expected)
    np.testing.assert_array_equal(graphopt.compile(made)({"x": x})["y"], expected)


@pytest.mark.parametrize(
    "body",
    [
        "a = Sub(c, x) y = Sub(c, a)",
        "a = Sub(x, half) b = Add(a, c) y = Sub(b, c)",
        "a = Add(x, half) b = Sub(a, c) y = Add(b, c)",
        "a = Div(x, tenth) b = Add(a, c) d = Sub(b, c) y = Mul(d, tenth)",
        "a = Mul(x, tenth) b = Add(a, c) d = Sub(b, c) y = Div(d, tenth)",
        "a = Add(x, c) b = Sub(x, c) y = Add(a, b)",
        "a = Add(x, c) m = ReduceMean <keepdims = 1> (a) b = Sub(m, c) y = Add(x, b)",
        "a = Sub(x, c) b = Add(a, c) y = Softmax(b)",
    ],
)
def test_rounding_stays_among_other_terms_and_factors(body: str) -> None:
    given = "<float c={12582912.0}, float half={0.5}, float tenth={0.1}>"
    x = np.array([0.21, 0.53, 0.7, 1.2, 2.6, 3.4, -1.6, 100.3], np.float32)
    assert_kept(model(f"(float[8] x) => (float[8] y) {given} {{ {body} }}"), 1e-6, x=x)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("op", ["Conv", "Gemm", "MatMul"])
def test_a_product_is_rounded_behind_it(op: str, bias: bool) -> None:
    """Fake quantization of activations, as training writes it: what is rounded is a product with weights."""
    generator = np.random.default_rng(0)
    shape, weights = ((1, 4, 3, 3), (4, 4, 1, 1)) if op == "Conv" else ((3, 4), (4, 4))
    w = numpy_helper.from_array(generator.standard_normal(weights).astype(np.float32), "w")
    b = numpy_helper.from_array(generator.standard_normal(4).astype(np.float32), "b")
    c, s = (numpy_helper.from_array(np.array(v, np.float32), n) for n, v in (("c", MAGIC["float32"]), ("s", 0.1)))
    inputs = ["x", "w", "b"] if bias and op != "MatMul" else ["x", "w"]
    steps = [("Div", "p", "s"), ("Add", "q", "c"), ("Sub", "r", "c"), ("Mul", "t", "s")]
    nodes = [helper.make_node(op, inputs, ["p"])]
    nodes += [helper.make_node(f, [a, k], [o]) for (f, a, k), o in zip(steps, "qrtu", strict=True)]
    nodes.append(helper.make_node(op, ["u", "w"], ["y"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [w, b, c, s])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert_kept(made, 1e-5, x=generator.standard_normal(shape).astype(np.float32))


def ops(text: str) -> list[str]:
    """The ops that are left of a graph under the default policy."""
    result, _ = optimize_graph(parse(text))
    return sorted(n.op for n in result.nodes() if n.inputs)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("a = Add(x, [0.25])\n y = Sub(a, [0.5])", ["Add"]),
        ("a = Sub(x, [123.675])\n y = Div(a, [58.395])", ["Mul", "Sub"]),
        ("a = Mul(x, [0.00392156886])\n b = Sub(a, [0.485])\n y = Div(b, [0.229])", ["Add", "Mul"]),
        ("a = Mul(x, [0.125])\n y = Mul(a, [3.0])", ["Mul"]),
        ("a = Mul(x, [2.0])\n b = Mul(x, [3.0])\n y = Add(a, b)", ["Mul"]),
        ("a = Sigmoid(x)\n b = Log(a)\n y = Exp(b)", ["Sigmoid"]),
        ("a = Sigmoid(x)\n b = Exp(a)\n y = Log(b)", ["Sigmoid"]),
        ("a = Relu(x)\n b = Sqrt(a)\n y = Mul(b, b)", ["Relu"]),
    ],
)
def test_constants_of_common_magnitudes_are_merged(body: str, left: list[str]) -> None:
    assert ops(f"x: float32[8]\n {body}\n return y\n") == left


@pytest.mark.parametrize(
    "body",
    [
        "a = Mul(x, [1e38])\n b = Mul(x, [-1e38])\n y = Add(a, b)",
        "a = Mul(x, [1e38])\n y = Mul(a, [1e-38])",
        "a = Log(x)\n y = Exp(a)",
        "a = Exp(x)\n y = Log(a)",
        "b = Sqrt(x)\n y = Mul(b, b)",
    ],
)
def test_what_overflows_or_is_not_defined_everywhere_stays(body: str) -> None:
    assert len(ops(f"x: float32[8]\n {body}\n return y\n")) == body.count("=")


def test_a_maximum_with_zero_has_the_sign_of_the_runtime() -> None:
    made = model("(float[4] x) => (float[4] y) <float z={0.0}> { m = Max(x, z) y = Reciprocal(m) }")
    x = np.full(4, -0.0, np.float32)
    for policy in ("exact", "finite"):
        np.testing.assert_array_equal(run(graphopt.optimize(made, policy=policy), x=x), run(made, x=x))
