"""Feature ops are what ONNX Runtime computes, whatever their attributes are, for tables of no, one and some rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import graphopt
from graphopt.ir import onnx_io
from graphopt.ir.evaluate import compute, run
from graphopt.ir.features import FEATURES
from graphopt.ir.graph import Attrs
from graphopt.ir.infer import infer
from graphopt.ir.tolerance import error

ort = pytest.importorskip("onnxruntime")
Array: TypeAlias = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
LABELS = ("a", "b", "c", "d")


def model(op: str, inputs: Mapping[str, Array], outputs: int, attrs: Mapping[str, Any], domain_opset: int = 3) -> bytes:
    """The bytes of a model of one call, in which the number of rows is open."""
    infos = [
        helper.make_tensor_value_info(
            name, 8 if a.dtype == object else helper.np_dtype_to_tensor_dtype(a.dtype), ["n", *a.shape[1:]]
        )
        for name, a in inputs.items()
    ]
    names = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, list(inputs), names, domain="ai.onnx.ml", **attrs)
    results = [helper.make_empty_tensor_value_info(name) for name in names]
    graph = helper.make_graph([node], "g", infos, results)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", domain_opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def session(made: bytes) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(made, options, providers=["CPUExecutionProvider"])


def check(
    op: str,
    inputs: Mapping[str, Array],
    outputs: int,
    attrs: Mapping[str, Any],
    is_compiled: bool = True,
    domain_opset: int = 3,
    rows: tuple[int, ...] = (0, 1, 7),
) -> None:
    """Assert that evaluation and a program make of the first rows of inputs what ONNX Runtime does, and inference its
    types."""
    made = model(op, inputs, outputs, attrs, domain_opset)
    graph, runtime = onnx_io.load(made), session(made)
    facts = infer(graph)
    compiled = graphopt.compile(made, jobs=0, cache=False, verify="off") if is_compiled else None
    assert compiled is None or not compiled.report.unlowered
    for n in rows:
        feeds = {name: array[:n] for name, array in inputs.items()}
        wanted = dict(zip(graph.output_names, runtime.run(None, feeds), strict=True))
        for found in filter(None, (run(graph, feeds), compiled and compiled(feeds))):
            for value, (name, want) in zip(graph.outputs, wanted.items(), strict=True):
                assert value is not None
                kind = "string" if want.dtype == object else want.dtype.name
                assert (facts[value].dtype, facts[value].rank) == (kind, want.ndim)
                assert found[name].shape == want.shape
                if kind == "string":
                    assert found[name].tolist() == want.tolist()
                else:
                    assert error(want, found[name]) <= 1, (n, name, want, found[name])


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def numbers(*shape: int) -> list[float]:
    return [float(n) for n in floats(*shape).reshape(-1)]


X = floats(7, 3)
GAPS = np.where(RNG.random((7, 3)) < 0.4, np.nan, X).astype(np.float32)
WHOLE = RNG.integers(0, 5, (7, 3))
TABLES: Mapping[str, tuple[str, Array, dict[str, Any]]] = {
    "scaled": ("Scaler", X, {"offset": numbers(3), "scale": numbers(3)}),
    "scaled by one": ("Scaler", X, {"offset": [0.5], "scale": [2.0]}),
    "scaled whole numbers": ("Scaler", WHOLE, {"offset": numbers(3), "scale": numbers(3)}),
    "scaled doubles": ("Scaler", X.astype(np.float64), {"offset": numbers(3), "scale": numbers(3)}),
    **{f"rows by {norm}": ("Normalizer", np.where(RNG.random((7, 1)) < 0.4, 0, X), {"norm": norm})
       for norm in ("MAX", "L1", "L2")},
    "rows of whole numbers": ("Normalizer", WHOLE, {"norm": "L2"}),
    "binary": ("Binarizer", X, {"threshold": 0.25}),
    "gaps": ("Imputer", GAPS, {"imputed_value_floats": numbers(3), "replaced_value_float": float("nan")}),
    "gaps by one": ("Imputer", GAPS, {"imputed_value_floats": [7.0], "replaced_value_float": float("nan")}),
    "gaps of whole numbers": ("Imputer", WHOLE, {"imputed_value_int64s": [9, 8, 7], "replaced_value_int64": 2}),
    "one hot": ("OneHotEncoder", WHOLE, {"cats_int64s": [3, 1, 4], "zeros": 1}),
    "one hot of floats": ("OneHotEncoder", 3 * X, {"cats_int64s": [0, -1, 1, 2], "zeros": 1}),
    "codes": (
        "LabelEncoder", WHOLE, {"keys_int64s": [1, 7, 3], "values_floats": [0.5, -2.0, 8.0], "default_float": 9.0},
    ),
    "codes by default": ("LabelEncoder", WHOLE, {"keys_int64s": [1, 3], "values_int64s": [30, 40]}),
    "codes of floats": (
        "LabelEncoder", GAPS,
        {"keys_floats": [float("nan"), float(X[0, 0])], "values_int64s": [5, 6], "default_int64": 0},
    ),
    "texts": (
        "LabelEncoder", WHOLE, {"keys_int64s": [1, 3], "values_strings": ["one", "three"], "default_string": "?"},
    ),
    "joined": ("FeatureVectorizer", X, {"inputdimensions": [3]}),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_tables(name: str) -> None:
    op, x, attrs = TABLES[name]
    check(op, {"x": x}, 1, attrs, domain_opset=4)  # before, NaN was no key in ONNX Runtime


def test_tables_beside_each_other() -> None:
    some = (1, 7)  # ONNX Runtime ends the process where there are no rows
    check("FeatureVectorizer", {"x": X, "y": floats(7, 2)}, 1, {"inputdimensions": [3, 2]}, rows=some)


def test_columns() -> None:
    feeds = {"x": floats(3, 4), "places": np.array([2, 0, 2])}
    made = model("ArrayFeatureExtractor", feeds, 1, {})
    (want,) = session(made).run(None, feeds)
    assert np.array_equal(run(onnx_io.load(made), feeds)["y0"], want)
    assert np.array_equal(graphopt.compile(made, jobs=0, cache=False)(feeds)["y0"], want)


@pytest.mark.parametrize(("shape", "places"), [((3, 4), [3, 0]), ((2, 3, 4), [[3, 0, 1]]), ((4,), [1])])
def test_columns_of_other_tables(shape: tuple[int, ...], places: Any) -> None:
    op, arrays = "ai.onnx.ml::ArrayFeatureExtractor", [floats(*shape), np.array(places)]
    (want,) = ReferenceEvaluator(helper.make_node("ArrayFeatureExtractor", ["x", "y"], ["z"], domain="ai.onnx.ml")).run(
        None, dict(zip("xy", arrays, strict=True))
    )
    (got,) = compute(op, Attrs(), arrays, 1)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_binary_of_numbers_that_are_no_integers(dtype: str) -> None:
    x = np.array([-1, 0, 1], dtype)
    (got,) = compute("ai.onnx.ml::Binarizer", Attrs(threshold=-0.5), [x], 1)
    assert got.dtype == dtype
    assert got.tolist() == [0, 1, 1]


TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
SOME_COMPILED = ("LOGISTIC", "SOFTMAX_ZERO")
"""Those of which programs are made: they are ONNX's ops."""


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_regressions(transform: str, targets: int) -> None:
    attrs = {"coefficients": numbers(targets, 3), "targets": targets, "post_transform": transform}
    check("LinearRegressor", {"x": X}, 1, attrs, transform in SOME_COMPILED)
    attrs["intercepts"] = numbers(targets)
    check("LinearRegressor", {"x": np.abs(X) / 9}, 1, attrs, is_compiled=False)


@pytest.mark.parametrize("scores", [1, 2, 4])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_classes(transform: str, scores: int) -> None:
    if scores == 1 and transform == "PROBIT":
        pytest.skip("ONNX Runtime leaves half of the scores as memory was")
    many = max(scores, 2)
    attrs = {"coefficients": numbers(scores, 3), "intercepts": numbers(scores), "post_transform": transform}
    labels = [5, 2, 9, 7][:many]
    check("LinearClassifier", {"x": X}, 2, {**attrs, "classlabels_ints": labels}, transform in SOME_COMPILED)
    check("LinearClassifier", {"x": WHOLE}, 2, {**attrs, "classlabels_strings": LABELS[:many]}, transform == "NONE")


KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
PARAMETERS = [0.4, 0.3, 3.0]


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS)
def test_regressions_by_support_vectors(kernel: str, one_class: int) -> None:
    attrs = {"kernel_type": kernel, "kernel_params": PARAMETERS, "rho": [0.1], "one_class": one_class}
    supported = {"n_supports": 5, "support_vectors": numbers(5, 3), "coefficients": numbers(5)}
    check("SVMRegressor", {"x": X}, 1, {**attrs, **supported})
    check("SVMRegressor", {"x": X}, 1, {**attrs, "n_supports": 0, "coefficients": numbers(3)}, is_compiled=False)


def separated(classes: int, kernel: str, with_shares: bool, transform: str) -> dict[str, Any]:
    counts, pairs = [3, 2, 4, 1][:classes], classes * (classes - 1) // 2
    shares = {"prob_a": [-abs(a) - 0.5 for a in numbers(pairs)], "prob_b": numbers(pairs)} if with_shares else {}
    return {
        "kernel_type": kernel, "kernel_params": PARAMETERS, "rho": numbers(pairs), "vectors_per_class": counts,
        "support_vectors": numbers(sum(counts), 3), "coefficients": numbers(classes - 1, sum(counts)),
        "post_transform": transform, **shares,
    }  # fmt: skip


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("with_shares", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_classes_by_support_vectors(kernel: str, with_shares: bool, classes: int) -> None:
    attrs = separated(classes, kernel, with_shares, "NONE")
    check("SVMClassifier", {"x": X}, 2, {**attrs, "classlabels_ints": [4, 2, 0, 7][:classes]}, kernel == "RBF")
    check("SVMClassifier", {"x": X}, 2, {**attrs, "classlabels_strings": LABELS[:classes]}, is_compiled=False)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("with_shares", [False, True])
@pytest.mark.parametrize("transform", TRANSFORMS[1:4])
def test_transformed_classes_by_support_vectors(transform: str, with_shares: bool, classes: int) -> None:
    attrs = separated(classes, "RBF", with_shares, transform)
    check("SVMClassifier", {"x": X}, 2, {**attrs, "classlabels_ints": [4, 2, 0][:classes]}, is_compiled=False)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("positive", [False, True])
def test_classes_by_planes(classes: int, positive: bool) -> None:
    coefficients = [abs(c) if positive else c for c in numbers(classes, 3)]
    attrs = {"kernel_params": PARAMETERS, "rho": [0.2], "coefficients": coefficients}
    check("SVMClassifier", {"x": X}, 2, {**attrs, "classlabels_ints": [4, 2, 0][:classes]}, is_compiled=False)


def test_what_is_not_said_is_left_to_a_runtime() -> None:
    attrs = {"keys_strings": ["a", "b"], "values_int64s": [1, 2]}
    x = np.array(["b", "c"], object)
    made = model("LabelEncoder", {"x": x}, 1, attrs)
    graph = onnx_io.load(made)
    value = graph.outputs[0]
    assert value is not None
    assert infer(graph)[value].dtype == "int64"
    assert run(graph, {"x": x})["y0"].tolist() == [2, -1]
    compiled = graphopt.compile(made, jobs=0, cache=False)
    assert [op for _, op, *_ in compiled.report.unlowered] == ["ai.onnx.ml::LabelEncoder"]
    assert compiled({"x": x})["y0"].tolist() == [2, -1]


def test_every_op_is_tried() -> None:
    tried = {op for op, *_ in TABLES.values()} | {"ArrayFeatureExtractor", "LinearClassifier", "LinearRegressor"}
    assert FEATURES.keys() == {f"ai.onnx.ml::{op}" for op in (*tried, "SVMClassifier", "SVMRegressor")}
