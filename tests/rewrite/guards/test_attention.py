"""Attention, normalizations and activations are found in what exporters write, and compute the same afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphopt.ir import onnx_io
from graphopt.ir.constants import Constant
from graphopt.ir.evaluate import run
from graphopt.ir.text import parse
from graphopt.optimize import optimize_graph
from graphopt.rewrite.guards import attention, constant_queries
from graphopt.run.report import Report
from graphopt.target import target

ort = pytest.importorskip("onnxruntime")
CORPUS = Path(__file__).parents[2] / "corpus"
OPEN = {"b": 2, "n": 5}
"""What open sizes are when a model is run."""

FOUND = [
    ("torch/sdpa", "ort", "matmul-scales multi-head-scaled"),
    ("torch/sdpa_23", "portable", "attention-without-heads"),
    ("torchscript/sdpa_open", "ort", "multi-head-scaled"),
    ("torchscript/sdpa_bool", "ort", "nan-guard-product multi-head-scaled-masked"),
    ("torch/sdpa_causal", "ort", "multi-head-causal"),
    ("torch/attend_cached", "portable", "attention-past"),
    ("torch/cross", "ort", "multi-head-flat"),
    ("torch/bert_eager", "ort", "multi-head-scaled-masked sum-layer-norm"),
    ("torchscript/bert_eager", "ort", "multi-head-scaled-masked gelu-ort"),
    ("torch/vit", "ort", "nan-guard-mask add-zeros multi-head-scaled layer-norm-product"),
    ("torch/gpt2_last", "ort", "picked-rows gelu-tanh-first-ort"),
    ("torch/t5_encoder", "ort", "softmax-masks multi-head-masked rms-norm-ort"),
    ("torch/llama", "ort", "rotary-constant attention-groups"),
    ("torch/llama_eager", "ort", "rotary-constant-ort rms-norm-ort"),
    ("torch/llama_open", "ort", "angles-twice unsqueeze-twice rotary-ort"),
    ("torch/rotary", "portable", "rotary rotary-part"),
    ("torch/lora", "portable", "merge-update-bias"),
    ("torch/rms", "portable", "rms-norm"),
    ("torch/half_norms", "portable", "layer-norm-cast"),
    ("torchscript/half_norms", "ort", "rms-norm-cast-ort layer-norm-cast"),
    ("torch/layer_norms", "portable", "layer-norm-channels layer-norm-scale"),
    ("torch/grouped", "portable", "group-norm-apart"),
    ("torch/activations", "ort", "gelu-bracket-ort gelu-tanh-first-ort quick-gelu"),
    ("torch/activations_20", "portable", "gelu-tanh-first"),
    ("tensorflow/bert", "ort", "layer-norm-keras row-mean"),
]


@pytest.mark.parametrize(("name", "place", "rules"), FOUND, ids=[f"{name}-{place}" for name, place, _ in FOUND])
def test_found_and_right(name: str, place: str, rules: str) -> None:
    graph = onnx_io.load(CORPUS / f"{name}.onnx")
    result, report = optimize_graph(graph, target=target(place))
    acted = names(report)
    assert set(rules.split()) <= acted, f"of {rules.split()}, {sorted(set(rules.split()) - acted)} did not act"
    before, after = session((CORPUS / f"{name}.onnx").read_bytes()), session(onnx_io.to_bytes(result))
    given = feeds(before)
    for a, b in zip(before.run(None, given), after.run(None, given), strict=True):
        half = a.dtype == np.float16
        np.testing.assert_allclose(a, b, rtol=1e-2 if half else 1e-3, atol=1e-2 if half else 1e-5)


def names(report: Report) -> set[str]:
    return {rewrite.rule for rewrite in report.rewrites}


def session(model: bytes) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def feeds(model: Any) -> dict[str, Any]:
    """Random inputs: tokens that exist, masks that leave every row something."""
    random, made = np.random.default_rng(0), {}
    for value in model.get_inputs():
        shape = [n if isinstance(n, int) else OPEN.get(n, 3) for n in value.shape]
        if "bool" in value.type or (value.name == "mask" and "int" in value.type):
            dtype = {"tensor(bool)": bool, "tensor(int32)": np.int32}.get(value.type, np.int64)
            made[value.name] = np.tril(np.ones(shape)).astype(dtype) if len(shape) > 2 else np.ones(shape, dtype)
        elif "int" in value.type:
            made[value.name] = random.integers(1, 20, shape).astype(np.int32 if "32" in value.type else np.int64)
        else:
            made[value.name] = random.standard_normal(shape).astype(np.float16 if "16" in value.type else np.float32)
    return made


def test_heads_fit() -> None:
    assert attention.heads_fit((1, 4, 5, 8), (1, 4, 8, 7), (1, 4, 7, 6))
    assert attention.heads_fit((1, 4, 5, 8), (1, 1, 8, 7), (1, 1, 7, 6))
    assert not attention.heads_fit((1, 4, 5, 8), (1, 2, 8, 7), (1, 2, 7, 6))
    assert not attention.heads_match((1, 4, 5, 8), (1, 1, 8, 7), (1, 1, 7, 6))


def test_trailing_axes() -> None:
    assert attention.trailing((-1,), 3) == -1
    assert attention.trailing((2, 1), 3) == -2
    with pytest.raises(ValueError, match="last"):
        attention.trailing((0,), 3)


def test_all_before() -> None:
    assert attention.all_before((1,), 3)
    assert not attention.all_before((-1,), 3)


def test_rows_of_constants() -> None:
    twice = Constant.of(np.array([[1.0, 2, 1, 2], [3, 4, 3, 4]], np.float32))
    assert constant_queries.period(twice) == 2
    assert constant_queries.period(Constant.of(np.array([1.0, 2, 3], np.float32))) == 3
    mask = Constant.of(np.where(np.tril(np.ones((3, 3), bool)), 0, -np.inf).astype(np.float32))
    assert constant_queries.causal(mask)
    assert constant_queries.row_high(mask) == 0
    assert constant_queries.causal(Constant.of(np.tril(np.ones((3, 3), bool))))
    assert not constant_queries.causal(Constant.of(np.zeros((3, 3), np.float32)))
    assert constant_queries.row_high(Constant.of(np.full((2, 2), -np.inf, np.float32))) == -np.inf


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_a_mask_is_causal_by_the_least_number_of_its_dtype(dtype: str) -> None:
    lower = np.tril(np.ones((3, 3), bool))
    least = float(ml_dtypes.finfo(dtype).min)
    for blank, is_causal in ((-np.inf, True), (least, True), (-1e4, False)):
        mask = Constant.of(np.where(lower, 0, blank).astype(dtype))
        assert constant_queries.causal(mask) == is_causal
        assert constant_queries.row_high(mask) == 0


GROUPED = """
q: float32[b, 8, s, 64]
k: float32[b, 2, t, 64]
v: float32[b, 2, t, 64]
m: float32[b, 1, s, t]
r = Concat(Shape(k, end=1), [8], Shape(k, start=2), axis=0)
kr = Reshape(Expand(Unsqueeze(k, [2]), [1, 2, 4, 1, 64]), r)
vr = Reshape(Expand(Unsqueeze(v, [2]), [1, 2, 4, 1, 64]), r)
p = Softmax(Add(MatMul(Mul(q, 0.3), Mul(Transpose(kr, perm=[0, 1, 3, 2]), 0.3)), m), axis=-1)
y = MatMul(p, vr)
return y
"""

BATCHED = """
k: float32[b, 2, t, 64]
q: float32[b, 8, s, 64]
r = Concat([-1], Shape(k, start=2, end=3), [64], axis=0)
z = Concat(Shape(k, end=2), [64], Shape(k, start=2, end=3), axis=0)
kt = Reshape(Transpose(Reshape(k, r), perm=[0, 2, 1]), z)
y = MatMul(q, Concat(kt, kt, kt, kt, axis=1))
return y
"""


@pytest.mark.parametrize("place", ["portable", "ort"])
def test_keys_and_values_of_groups_are_not_repeated(place: str) -> None:
    graph = parse(GROUPED)
    result, report = optimize_graph(graph, target=target(place))
    assert {"keys-of-groups", "values-of-groups"} <= names(report)
    assert "Expand" not in {node.op for node in result.nodes()}
    random = np.random.default_rng(0)
    for b, s, t in ((2, 3, 5), (1, 1, 7), (0, 3, 5), (2, 0, 5), (1, 1, 1)):
        shapes = {"q": (b, 8, s, 64), "k": (b, 2, t, 64), "v": (b, 2, t, 64), "m": (b, 1, s, t)}
        given = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        np.testing.assert_allclose(run(graph, given)["y"], run(result, given)["y"], rtol=1e-4, atol=1e-5)


def test_keys_that_are_repeated_in_another_order_stay() -> None:
    graph = parse("""
        q: float32[1, 4, s, 256]
        k: float32[1, 2, 512, 256]
        kr = Reshape(Expand(Unsqueeze(k, [2]), [2, 2, 1, 512, 256]), [1, 4, 512, 256])
        y = MatMul(q, Transpose(kr, perm=[0, 1, 3, 2]))
        return y
    """)
    result, report = optimize_graph(graph, target=target("ort"))
    assert "keys-of-groups" not in names(report)
    random = np.random.default_rng(0)
    given = {"q": random.standard_normal((1, 4, 1, 256), np.float32), "k": random.random((1, 2, 512, 256), np.float32)}
    np.testing.assert_allclose(run(graph, given)["y"], run(result, given)["y"], rtol=1e-3, atol=1e-3)


def test_keys_that_are_transposed_as_a_batch_are_transposed_with_their_heads() -> None:
    graph = parse(BATCHED)
    result, report = optimize_graph(graph, target=target("ort"))
    assert "heads-transposed" in names(report)
    random = np.random.default_rng(0)
    for b, s, t in ((2, 3, 5), (1, 1, 1), (1, 0, 3)):
        shapes = {"q": (b, 8, s, 64), "k": (b, 2, t, 64)}
        given = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        np.testing.assert_allclose(run(graph, given)["y"], run(result, given)["y"], rtol=1e-4, atol=1e-5)


FROM_BATCH = """
x: float32[s, b, 768]
r = Concat(Shape(x, end=1), Mul(Shape(x, start=1, end=2), [4]), [64], axis=0)
h = Concat(Shape(x, start=1, end=2), [4], Shape(x, end=1), [64], axis=0)
z = Concat(Shape(x, start=1, end=2), [4], [64], Shape(x, end=1), axis=0)
qx, kx, vx = Split(x, [256, 256, 256], axis=2)
q = Reshape(Transpose(Reshape(qx, r), perm=[1, 0, 2]), h)
k = Reshape(Transpose(Reshape(kx, r), perm=[1, 2, 0]), z)
v = Reshape(Transpose(Reshape(vx, r), perm=[1, 0, 2]), h)
y = MatMul(Softmax(Mul(MatMul(q, k), 0.125), axis=-1), v)
return y
"""


def test_heads_that_are_split_off_the_batch_are_found() -> None:
    graph = parse(FROM_BATCH)
    result, report = optimize_graph(graph, target=target("ort"))
    assert {"heads-from-batch", "heads-from-batch-last"} <= names(report)
    random = np.random.default_rng(0)
    for s, b in ((5, 2), (1, 1), (3, 1), (1, 4)):
        given = {"x": random.standard_normal((s, b, 768)).astype(np.float32)}
        np.testing.assert_allclose(run(graph, given)["y"], run(result, given)["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("of_values", "ops"), [(8, 1), (6, 5)])
def test_heads_are_apart_where_keys_and_values_have_one_size_as_onnx_runtime_demands(of_values: int, ops: int) -> None:
    graph = parse(f"""\
graph apart (ir 10, opset 21)
q: float32[2, 3, 16]
k: float32[2, 2, 5, 8]
v: float32[2, 2, 5, {of_values}]
kt = Transpose(k, perm=[0, 2, 1, 3])
kf = Reshape(kt, [0, 0, 16])
vt = Transpose(v, perm=[0, 2, 1, 3])
vf = Reshape(vt, [0, 0, {2 * of_values}])
y = com.microsoft::MultiHeadAttention(q, kf, vf, num_heads=2)
return y
""")
    made, _ = optimize_graph(graph, target=target("ort"))
    assert sum(node.op not in ("Input", "Constant") for node in made.nodes()) == ops
    session = ort.InferenceSession(onnx_io.to_proto(made).SerializeToString())
    session.run(None, {i.name: np.zeros(i.shape, np.float32) for i in session.get_inputs()})
