from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.errors import GraphoptError
from graphopt.ir import evaluate as evaluation
from graphopt.ir import ops, tabular
from graphopt.ir.composites import COMPOSITES
from graphopt.ir.constants import Constant
from graphopt.ir.contrib import CONTRIB
from graphopt.ir.contrib_semantics import MEANINGS
from graphopt.ir.evaluate import EvaluationError, evaluate, run, runner
from graphopt.ir.graph import Attrs, Graph, Header
from graphopt.ir.text import parse
from graphopt.ir.types import TensorType
from tests.ir import test_bfloat, test_blocked, test_contrib_attention, test_contrib_quantized, test_winograd
from tests.ir.backend_cases import Case, cases


def compute(op: str, *inputs: object, n_outputs: int = 1, limit: int = 1 << 20, **attrs: Any) -> Any:
    given = [v if isinstance(v, Constant) or v is None else Constant.of(np.asarray(v)) for v in inputs]
    found = evaluate(op, Attrs(attrs), given, n_outputs, 21, limit)
    return found[0] if n_outputs == 1 else found


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


# -- what numpy computes in its place

_SPECIAL = [0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e-40]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", sorted(evaluation._IN_NUMPY))
def test_numpy_computes_what_the_reference_implementation_does_bit_by_bit(op: str, dtype: type) -> None:
    square: Any = np.resize(np.array(_SPECIAL, dtype), (4, 5)) * np.array([[1], [2], [-1], [0.1]], dtype)
    row, rng = square[:1], np.random.default_rng(0)
    factors: list[Any] = [rng.standard_normal(shape).astype(dtype) for shape in ((4, 3), (3, 5))]
    tall, wide = factors
    cases: dict[str, list[tuple[list[Any], dict[str, Any]]]] = {
        "Gemm": [
            ([tall, wide, row], {"alpha": 0.625, "beta": 0.375}),
            ([tall, wide], {}),
            ([tall.T, wide, None], {"transA": 1}),
            ([tall.T, wide.T, square], {"transA": 1, "transB": 1, "beta": 0.0}),
        ],
        "MatMul": [([tall, wide], {}), ([tall[0], wide], {}), ([np.stack([tall, tall]), wide], {})],
        "Transpose": [([square], {}), ([square[None]], {"perm": (2, 0, 1)})],
    }
    schema = ops.schema(op)
    assert schema is not None
    usual: list[tuple[list[Any], dict[str, Any]]] = [
        (arrays[: schema.min_inputs], {}) for arrays in ([square, row], [square[0, 0], square[:0]])
    ]
    for arrays, attrs in cases.get(op, usual):
        assert evaluation._in_numpy(op, arrays) is not None
        (found,) = evaluation.compute(op, Attrs(attrs), arrays, 1)
        with np.errstate(all="ignore"):
            (want,) = evaluation._reference(op, Attrs(attrs), arrays, 1)
        assert (found.dtype, found.shape) == (want.dtype, np.shape(want))
        np.testing.assert_array_equal(found, want)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(want))


def test_integers_and_mixed_dtypes_are_left_to_the_reference_implementation() -> None:
    whole, single, double = np.array([7, -7]), f32(1, 2), np.array([1.0, 2.0])
    assert evaluation._in_numpy("Div", [whole, whole]) is None
    assert evaluation._in_numpy("Add", [single, double]) is None
    np.testing.assert_array_equal(compute("Div", whole, np.array([2, 2])).array, [3, -3])


# -- what onnx's own tests expect

REFUSED = {
    "Bernoulli": "random",
    "Dropout": "random",
    "ImageDecoder": "needs a decoder",
    "If": "has bodies",
    "Loop": "has bodies",
    "RegexFullMatch": "its time has no bound",
    "Scan": "has bodies",
    "Scan@8": "has bodies",
    "SplitToSequence": "gives a sequence",
    "ai.onnx.preview::FlexAttention": "has bodies",
}


def difference(case: Case) -> str | None:
    """What evaluation gets wrong, in words."""
    try:
        found = evaluate(case.node.op, case.node.attrs, case.inputs, case.node.n_outputs, case.opset)
    except EvaluationError as error:
        refused = case.node.op in REFUSED or "shift_ge_width" in case.name
        return None if refused else f"{case.name}: {error}"
    for actual, expected in zip(found, case.outputs, strict=True):
        if expected is None:
            continue
        if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
            return f"{case.name}: {actual}, not {expected}"
        if actual.dtype != "string" and not close(actual.array, expected.array):
            return f"{case.name}: the elements differ"
    return None


def close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind not in "fc":
        a, b = a.astype(np.float64), b.astype(np.float64)
    return np.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True)


def test_onnx_tests_come_out_as_they_expect() -> None:
    assert [problem for case in cases() if (problem := difference(case)) is not None] == []


# -- dtypes


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float16", "float64"])
def test_narrow_floats(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    found = (
        compute("Neg", np.array([1, -2], kind))
        if dtype != "float8_e4m3fn"
        else compute("Cast", np.array([-1, 2], kind), to=1)
    )
    assert found.array.astype(np.float32).tolist() == [-1.0, 2.0]


def test_four_bit_integers() -> None:
    found = compute("Cast", np.array([-8, 7], ml_dtypes.int4), to=7)
    assert found == Constant.of(np.array([-8, 7]))


def test_strings() -> None:
    assert compute("Concat", np.array(["a"], object), np.array(["b"], object), axis=0).array.tolist() == ["a", "b"]


# -- what is refused


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("Div", [np.array([1, 2]), np.array([1, 0])], {}),
        ("Mod", [np.array([1, 2]), np.array([1, 0])], {}),
        ("Div", [np.array([-(2**31)], np.int32), np.array([-1], np.int32)], {}),
        ("BitShift", [np.array([1], np.uint8), np.array([8], np.uint8)], {"direction": "LEFT"}),
        ("Cast", [f32(np.nan)], {"to": 7}),
        ("Cast", [f32(3e9)], {"to": 6}),
        ("Cast", [f32(-1)], {"to": 2}),
        ("Pow", [np.array([2]), np.array([-1])], {}),
        ("ReduceMean", [np.zeros((0, 2), np.float32)], {}),
        ("RandomNormal", [], {"shape": (3,)}),
        ("their::Op", [f32(1)], {}),
        ("Add", [f32(1, 2), f32(1, 2, 3)], {}),
        ("If", [np.array(True)], {"then_branch": Graph(), "else_branch": Graph()}),
        ("SequenceConstruct", [f32(1)], {}),
        ("Gather", [f32(1), np.array([3])], {}),
    ],
)
def test_what_has_no_value_is_not_made_up(op: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> None:
    with pytest.raises(EvaluationError):
        compute(op, *inputs, **attrs)


def test_floats_divide_by_zero() -> None:
    found = compute("Div", f32(1, 0, -1), f32(0, 0, 0)).array
    assert found[0] == np.inf
    assert np.isnan(found[1])
    assert found[2] == -np.inf


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("Expand", [f32(1, 2), np.array([2**40, 2])]),
        ("Tile", [f32(1, 2), np.array([2**40])]),
        ("Range", [np.array(0), np.array(2**40), np.array(1)]),
        ("Range", [np.array(0.0), np.array(2.0**40), np.array(1.0)]),
        ("OneHot", [np.arange(9), np.array(2**40), f32(0, 1)]),
        ("Pad", [f32(1), np.array([0, 2**40])]),
        ("Resize", [f32(1, 2), None, f32(2.0**30)]),
        ("NonZero", [np.ones(2**16)]),
    ],
)
def test_what_would_be_too_large_is_not_tried(op: str, inputs: Sequence[Any]) -> None:
    with pytest.raises(EvaluationError, match="over the limit"):
        compute(op, *inputs)


def test_refusals_are_errors_of_ours() -> None:
    assert issubclass(EvaluationError, GraphoptError)


# -- one element repeated


def full(value: float, *shape: int, dtype: str = "float32") -> Constant:
    return Constant.full(shape, np.asarray(value, dtype))


def test_one_element_stays_one_element() -> None:
    large = full(2.0, 1 << 20, 1 << 20)
    for found, element, shape in [
        (compute("Add", large, f32(3)), 5.0, large.shape),
        (compute("Clip", large, None, np.float32(1)), 1.0, large.shape),
        (compute("Cast", large, to=7), 2, large.shape),
        (compute("Reshape", large, np.array([-1])), 2.0, (1 << 40,)),
        (compute("Transpose", full(1.0, 1 << 30, 2)), 1.0, (2, 1 << 30)),
        (compute("Expand", full(1.0, 1), np.array([1 << 40])), 1.0, (1 << 40,)),
        (compute("ConstantOfShape", np.array([1 << 40])), 0.0, (1 << 40,)),
        (compute("ConstantOfShape", np.array([1 << 40]), value=Constant.of(f32(7))), 7.0, (1 << 40,)),
        (compute("Concat", large, large, axis=0), 2.0, (1 << 21, 1 << 20)),
        (compute("Split", large, n_outputs=2, num_outputs=2)[1], 2.0, (1 << 19, 1 << 20)),
    ]:
        assert found.splat is not None
        assert found.splat == element
        assert found.shape == shape
        assert found.dtype == found.splat.dtype.name


def test_one_element_is_held_to_the_same_rules() -> None:
    with pytest.raises(EvaluationError):
        compute("Div", full(1, 9, dtype="int64"), full(0, 9, dtype="int64"))


def test_signed_zeros_are_not_one_element() -> None:
    found = compute("Concat", full(0.0, 4), full(-0.0, 4), axis=0)
    assert found.splat is None
    assert np.signbit(found.array).tolist() == [False] * 4 + [True] * 4


@settings(deadline=None)
@given(st.floats(width=32), st.floats(width=32), st.sampled_from(["Add", "Mul", "Div", "Max", "Less"]))
def test_one_element_comes_out_as_many_do(a: float, b: float, op: str) -> None:
    """Of ops that IEEE 754 rounds: numpy's powers of many elements differ from those of one in the last place."""
    repeated = compute(op, full(a, 2, 3), full(b, 3))
    written = compute(op, np.full((2, 3), a, np.float32), np.full(3, b, np.float32))
    assert repeated.splat is not None
    assert repeated.array.tobytes() == written.array.tobytes()


# -- graphs


def test_floats_that_numpy_widens_are_what_the_graph_declares() -> None:
    graph = parse("""
        r: float32[] t: int64[] x: float32[2]
        y, v, h = ai.onnx.preview.training::Adam(r, t, x, x, x, x)
        return y, v, h
    """)
    graph.types |= {v: TensorType("float32", (2,)) for v in graph.outputs if v is not None}
    feeds = {"r": np.array(0.1, np.float32), "t": np.array(3), "x": np.array([1, 2], np.float32)}
    assert [array.dtype.name for array in run(graph, feeds).values()] == ["float32"] * 3


def test_a_graph_runs() -> None:
    graph = parse("x: float32[n, 2]\nw: float32[2, 2]\ny = Relu(MatMul(x, w))\nreturn y")
    found = run(graph, {"x": np.array([[1, 1], [-1, -1]], np.float32), "w": np.array([[1, 2], [3, 4]], np.float32)})
    assert list(found) == ["y"]
    assert found["y"].tolist() == [[4.0, 6.0], [0.0, 0.0]]


# -- ONNX Runtime's own ops, against ONNX Runtime

NORMAL = np.random.default_rng(0).standard_normal
CONTRIB_CASES: dict[str, tuple[str, Sequence[tuple[int, ...] | None], dict[str, Any], int]] = {
    "gelu": ("com.microsoft::Gelu", [(3, 4)], {}, 1),
    "fast gelu": ("com.microsoft::FastGelu", [(3, 4)], {}, 1),
    "fast gelu of a bias": ("com.microsoft::FastGelu", [(3, 4), (4,)], {}, 1),
    "quick gelu": ("com.microsoft::QuickGelu", [(3, 4)], {}, 1),
    "quick gelu with alpha": ("com.microsoft::QuickGelu", [(3, 4)], {"alpha": 0.5}, 1),
    "bias gelu": ("com.microsoft::BiasGelu", [(3, 4), (4,)], {}, 1),
    "affine": ("Affine", [(3, 4)], {"alpha": 0.25, "beta": -1.5}, 1),
    "scaled tanh": ("ScaledTanh", [(3, 4)], {"alpha": 1.5, "beta": 0.5}, 1),
    "matmul": ("com.microsoft::FusedMatMul", [(2, 3, 4), (2, 4, 5)], {"alpha": 0.25}, 1),
    "matmul transposed": ("com.microsoft::FusedMatMul", [(2, 4, 3), (5, 4)], {"transA": 1, "transB": 1}, 1),
    "matmul of rows before batches": (
        "com.microsoft::FusedMatMul", [(2, 4, 3), (4, 2, 5)], {"transA": 1, "transBatchB": 1}, 1,
    ),
    "matmul of both": (
        "com.microsoft::FusedMatMul", [(3, 2, 1, 4), (4, 2, 6, 5)], {"transBatchA": 1, "transBatchB": 1}, 1,
    ),
    "gemm": ("com.microsoft::FusedGemm", [(3, 4), (5, 4), (5,)], {"transB": 1, "activation": "Relu"}, 1),
    "gemm leaky": (
        "com.microsoft::FusedGemm", [(3, 4), (4, 5)], {"activation": "LeakyRelu", "activation_alpha": 0.5}, 1,
    ),
    "conv": ("com.microsoft::FusedConv", [(1, 3, 5, 5), (4, 3, 3, 3), (4,)], {"activation": "Relu"}, 1),
    "conv clipped": (
        "com.microsoft::FusedConv",
        [(1, 3, 5, 5), (4, 3, 3, 3)],
        {"activation": "Clip", "activation_params": (0.0, 1.5), "pads": (1, 1, 1, 1)},
        1,
    ),
    "conv hard sigmoid": (
        "com.microsoft::FusedConv",
        [(1, 3, 5, 5), (4, 3, 3, 3)],
        {"activation": "HardSigmoid", "activation_params": (0.2, 0.5)},
        1,
    ),
    "conv and sum": (
        "com.microsoft::FusedConv", [(1, 3, 5, 5), (4, 3, 3, 3), (4,), (1, 4, 3, 3)], {"activation": "Relu"}, 1,
    ),
    "skip norm": ("com.microsoft::SkipLayerNormalization", [(2, 3, 4), (2, 3, 4), (4,), (4,), (4,)], {}, 1),
    "skip norm and sum": (
        "com.microsoft::SkipLayerNormalization", [(2, 3, 4), (2, 3, 4), (4,), None, (4,)], {"epsilon": 1e-3}, 4,
    ),
    "skip rms norm": ("com.microsoft::SkipSimplifiedLayerNormalization", [(2, 3, 4), (2, 3, 4), (4,), (4,)], {}, 4),
    "rms norm": ("SimplifiedLayerNormalization", [(2, 3, 4), (4,)], {"epsilon": 1e-3}, 1),
}  # fmt: skip


@pytest.mark.parametrize("call", ["SequenceMap(SequenceConstruct(x))", "Scatter(x, i, x)"], ids=["no body", "no op"])
def test_a_graph_that_the_reference_implementation_does_not_take_is_refused(call: str) -> None:
    graph = parse(f"x: float32[2], i: int64[2] y: ? = {call} return y")
    with pytest.raises(EvaluationError, match=r"does not take the graph: [^\n]*$"):
        runner(graph)


def test_every_op_of_the_table_is_tried() -> None:
    tried = {op for op, *_ in CONTRIB_CASES.values()}
    others = [op for op, *_ in test_contrib_quantized.CASES] + [op for op, *_ in test_contrib_attention.CASES.values()]
    tried |= {op if "::" in op else f"com.microsoft::{op}" for op in others}
    tried |= test_bfloat.TRIED | test_blocked.TRIED | test_winograd.TRIED
    assert tried >= set(CONTRIB) - set(COMPOSITES) - set(tabular.MEANINGS)  # which have tests of their own
    assert set(MEANINGS) - set(COMPOSITES) <= set(CONTRIB) <= set(MEANINGS)


@pytest.mark.parametrize("name", list(CONTRIB_CASES))
def test_contrib_ops_mean_what_onnx_runtime_computes(name: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    from graphopt.ir.infer import infer
    from graphopt.ir.onnx_io import to_bytes

    op, shapes, attrs, n_outputs = CONTRIB_CASES[name]
    opset = 9 if op in ops.EXPERIMENTAL - {"SimplifiedLayerNormalization"} else 21  # the last that it has those in
    graph = Graph(header=Header(opsets=(("", opset), ("com.microsoft", 1))))
    arrays = [None if s is None else NORMAL(s).astype(np.float32) for s in shapes]
    values = [
        None if a is None else graph.add_input(f"x{i}", TensorType("float32", a.shape)) for i, a in enumerate(arrays)
    ]
    node = graph.add(op, tuple(values), Attrs(attrs), n_outputs)
    kept = [0] if n_outputs == 1 else [0, 3]  # the statistics are not computed on every device
    for port in kept:
        graph.add_output(f"y{port}", node.outputs[port])
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
    facts = infer(graph)
    session = ort.InferenceSession(to_bytes(graph), providers=["CPUExecutionProvider"])
    expected = dict(zip(graph.output_names, session.run(None, feeds), strict=True))
    ours = run(graph, feeds)
    alone = evaluate(op, Attrs(attrs), [None if a is None else Constant.of(a) for a in arrays], n_outputs, opset)
    for port in kept:
        assert facts[node.outputs[port]].shape == expected[f"y{port}"].shape
        np.testing.assert_allclose(ours[f"y{port}"], expected[f"y{port}"], rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(alone[port].array, expected[f"y{port}"], rtol=2e-5, atol=2e-5)
