"""Attention is found in forms that few models have, at other heads, sizes, batches and opsets than an export's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.run.attentions import CHEAPER
from graphopt.target import ORT, PORTABLE, Target

ort = pytest.importorskip("onnxruntime")

CAPPED = "Attention.softcap"
FREE_CAP = replace(PORTABLE, prices=replace(PORTABLE.prices, elements={**PORTABLE.prices.elements, CAPPED: 0.0}))
"""A runtime that caps scores while it computes them."""
SLOW_NODES = replace(ORT, prices=replace(ORT.prices, node=1e-3))
"""ONNX Runtime, where each node takes so long that the fewest are chosen."""

HEADS = [(1, 1, 8), (2, 1, 64), (4, 4, 80), (12, 4, 8)]
"""Heads of queries, of keys, and their size."""


class Builder:
    """Nodes and constants of a graph of float32 inputs, in the order in which they are asked for."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def __call__(self, op: str, *inputs: str | Any, output: str = "", **attributes: Any) -> str:
        """The name of what an op gives; inputs that are no names are constants."""
        name = output or f"v{len(self.nodes)}"
        given = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        self.nodes.append(helper.make_node(op, given, [name], **attributes))
        return name

    def constant(self, value: Any) -> str:
        """The name of a constant: integers are int64, other numbers float32."""
        array = np.asarray(value)
        name = f"c{len(self.constants)}"
        self.constants[name] = array.astype(np.float32) if array.dtype.kind == "f" else array
        return name

    def model(
        self, inputs: Mapping[str, list[Any]], outputs: Mapping[str, list[Any]], opset: int, dtypes: Mapping[str, int]
    ) -> onnx.ModelProto:
        """The model of what was asked for."""
        typed = [
            [helper.make_tensor_value_info(n, dtypes.get(n, TensorProto.FLOAT), s) for n, s in values.items()]
            for values in (inputs, outputs)
        ]
        held = [numpy_helper.from_array(a, n) for n, a in self.constants.items()]
        graph = helper.make_graph(self.nodes, "g", *typed, held)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def optimized(model: onnx.ModelProto, target: str | Target, **options: Any) -> tuple[onnx.ModelProto, Any]:
    """The optimized model and its report."""
    result, report = graphopt.optimize(model, target=target, return_report=True, **options)
    return result, report


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def outputs(model: onnx.ModelProto, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime computes, its own rewrites off."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results: list[np.ndarray] = session.run(None, dict(given))
    return results


def agree(one: onnx.ModelProto, other: onnx.ModelProto, given: Mapping[str, np.ndarray]) -> None:
    """Fails where two models differ in ONNX Runtime."""
    for a, b in zip(outputs(one, given), outputs(other, given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# -- scores that a tanh caps (Gemma 2)


def capped(heads: int, groups: int, size: int, opset: int, batch: int | str, cap: float = 5.0) -> onnx.ModelProto:
    """Attention with capped scores and a mask of choices; keys and values are repeated for heads that share them."""
    b = Builder()
    shared = {}
    for name in "kv":
        repeated = b("Expand", b("Unsqueeze", name, [2]), [1, 1, heads // groups, 1, 1])
        shared[name] = b("Reshape", repeated, [0, heads, -1, size]) if groups != heads else name
    scores = b("Mul", b("MatMul", "q", b("Transpose", shared["k"], perm=[0, 1, 3, 2])), size**-0.5)
    scores = b("Mul", b("Tanh", b("Div", scores, cap)), cap)
    mask = b("Where", "seen", 0.0, np.finfo(np.float32).min)
    b("MatMul", b("Softmax", b("Add", scores, mask), axis=-1), shared["v"], output="y")
    rows, keys = [batch, heads, "s", size], [batch, groups, "t", size]
    given = {"q": rows, "k": keys, "v": keys, "seen": [batch, 1, "s", "t"]}
    return b.model(given, {"y": rows}, opset, {"seen": TensorProto.BOOL})


def capped_feeds(heads: int, groups: int, size: int, batch: int, s: int = 5, t: int = 7) -> dict[str, np.ndarray]:
    """Inputs whose scores the cap bends; one row sees nothing."""
    seen = np.tri(s, t, t - s, dtype=bool)[None, None].repeat(batch, 0)
    seen[:, :, 0] = False
    keys = (batch, groups, t, size)
    return {
        "q": 3 * drawn(batch, heads, s, size),
        "k": 3 * drawn(*keys, seed=1),
        "v": drawn(*keys, seed=2),
        "seen": seen,
    }


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("batch", [1, "batch"])
@pytest.mark.parametrize(("heads", "groups", "size"), HEADS)
def test_capped_scores_are_an_attribute(heads: int, groups: int, size: int, batch: int | str, opset: int) -> None:
    model = capped(heads, groups, size, opset, batch)
    result, report = optimized(model, FREE_CAP, verify="off")
    (attention,) = [node for node in result.graph.node if node.op_type == "Attention"]
    assert {a.name: a.f for a in attention.attribute}["softcap"] == 5.0
    assert "Tanh" not in ops(result)
    assert report.attentions.told == "1 of 1 are one op"
    agree(model, result, capped_feeds(heads, groups, size, 1 if batch == 1 else 2))


def test_a_cap_is_written_out_where_it_is_faster_so() -> None:
    model = capped(4, 4, 8, 23, 1)
    result, report = optimized(model, "ort", verify="off")
    assert "Tanh" in ops(result)
    assert report.attentions.told == f"0 of 1 are one op; 1 not: {CHEAPER}"


def test_a_cap_waits_for_the_opset_that_has_it() -> None:
    _, report = optimized(capped(4, 4, 8, 18, 1), "ort", verify="off")
    assert report.attentions.told == "0 of 1 are one op; 1 not: Attention needs opset 23, the model has 18"


def test_a_cap_below_zero_is_written_out() -> None:
    model = capped(4, 4, 8, 23, 1, cap=-5.0)
    result, _ = optimized(model, FREE_CAP, verify="off")
    assert "Tanh" in ops(result)
    agree(model, result, capped_feeds(4, 4, 8, 1))


@pytest.mark.parametrize("expanded", [[2, 1, 1, 1, 1], [2, 1, 1, 1, 1, 1]])
@pytest.mark.parametrize("is_one_op", [True, False])
def test_heads_that_are_repeated_one_after_another_are_not_groups(is_one_op: bool, expanded: list[int]) -> None:
    """Of two heads, repeated as a whole, the third is the first again; in groups it is the second."""
    b = Builder()
    shared = {name: b("Reshape", b("Expand", b("Unsqueeze", name, [2]), expanded), [1, 4, -1, 8]) for name in "kv"}
    if is_one_op:
        b("Attention", "q", shared["k"], shared["v"], output="y")
    else:
        scores = b("Mul", b("MatMul", "q", b("Transpose", shared["k"], perm=[0, 1, 3, 2])), 8**-0.5)
        b("MatMul", b("Softmax", scores, axis=-1), shared["v"], output="y")
    rows, keys = [1, 4, 5, 8], [1, 2, 7, 8]
    model = b.model({"q": rows, "k": keys, "v": keys}, {"y": rows}, 23, {})
    for target in ("ort", "portable", SLOW_NODES):
        result, _ = optimized(model, target, verify="off")
        agree(model, result, {"q": drawn(*rows), "k": drawn(*keys, seed=1), "v": drawn(*keys, seed=2)})


# -- heads in the batch, and a bias of each head's keys (Bloom)


def biased(heads: int, size: int, opset: int) -> onnx.ModelProto:
    """Attention of one product for all of queries, keys and values behind a past, with its heads in the batch; how long
    the bias of keys is says nothing but its own name."""
    b = Builder()
    length = b("Shape", "x", start=1, end=2)
    rows = b("Shape", "x", start=0, end=1)
    parts = b("Reshape", "x", b("Concat", rows, length, [heads, 3, size], axis=0))
    q, k, v = (b("Transpose", b("Gather", parts, np.int64(i), axis=3), perm=[0, 2, 1, 3]) for i in range(3))
    keys, values = b("Concat", "pk", k, axis=2, output="k"), b("Concat", "pv", v, axis=2, output="v")
    many = b("Mul", rows, [heads])
    folded = b("Reshape", q, b("Concat", many, length, [size], axis=0))
    behind = b("Concat", many, [-1, size], axis=0)
    scores = b("MatMul", folded, b("Transpose", b("Reshape", keys, behind), perm=[0, 2, 1]))
    bias = b("Reshape", "bias", b("Concat", many, [1, -1], axis=0))
    scores = b("Add", b("Mul", scores, size**-0.5), bias)
    scores = b("Reshape", scores, b("Concat", rows, [heads], length, [-1], axis=0))
    weights = b("Softmax", b("Add", scores, "mask"), axis=-1)
    y = b("MatMul", b("Reshape", weights, b("Concat", many, length, [-1], axis=0)), b("Reshape", values, behind))
    y = b("Transpose", b("Reshape", y, b("Concat", rows, [heads], length, [size], axis=0)), perm=[0, 2, 1, 3])
    b("Reshape", y, b("Concat", rows, length, [heads * size], axis=0), output="y")
    past, present = ["batch", heads, "past", size], ["batch", heads, "present", size]
    given: dict[str, list[Any]] = {"x": ["batch", "s", 3 * heads * size], "pk": past, "pv": past}
    given |= {"bias": ["batch", heads, 1, "total"], "mask": ["batch", 1, "s", "t"]}
    return b.model(given, {"y": ["batch", "s", heads * size], "k": present, "v": present}, opset, {})


@pytest.mark.parametrize("opset", [17, 18, 20])
@pytest.mark.parametrize(("heads", "size"), [(2, 80), (3, 64), (12, 8)])
def test_heads_in_the_batch_with_a_bias_of_keys_are_one_op(heads: int, size: int, opset: int) -> None:
    model = biased(heads, size, opset)
    result, report = optimized(model, SLOW_NODES, verify="off")
    assert report.attentions.told == "1 of 1 are one op"
    assert ops(result).count("MultiHeadAttention") == 1
    for batch, s, past in ((1, 3, 4), (2, 3, 0), (3, 1, 6)):
        lengths = (batch, heads, past, size)
        given = {
            "x": drawn(batch, s, 3 * heads * size),
            "pk": drawn(*lengths, seed=1),
            "pv": drawn(*lengths, seed=2),
            "bias": drawn(batch, heads, 1, past + s, seed=3),
            "mask": drawn(batch, 1, s, past + s, seed=4),
        }
        agree(model, result, given)


# -- rotary embeddings of neighbouring pairs (GPT-J, GLM, Cohere)


def paired(heads: int, size: int, part: int, opset: int, is_behind: bool, is_late: bool) -> onnx.ModelProto:
    """Heads, before time or behind it, of which a part is turned: its neighbours by one angle. Angles are repeated by
    Tile, or, where they are doubled before their cosine is taken (``is_late``), by Expand."""
    b = Builder()
    shape = ["batch", "s", heads, size] if is_behind else ["batch", heads, "s", size]
    turned = b("Slice", "x", [0], [part], [3]) if part < size else "x"
    angles = b("Mul", "positions", [[10.0 ** -(k / part) for k in range(part // 2)]])
    factors = []
    for op in ("Cos", "Sin"):
        single = b("Unsqueeze", angles if is_late else b(op, angles), [3])
        both = b("Expand", single, [1, 1, 1, 2]) if is_late else b("Tile", single, [1, 1, 1, 2])
        double = b("Reshape", both, [0, 0, part])
        factors.append(b("Unsqueeze", b(op, double) if is_late else double, [2 if is_behind else 1]))
    odd, even = (b("Slice", turned, [i], [np.iinfo(np.int64).max], [3], [2]) for i in (1, 0))
    stacked = b("Concat", b("Unsqueeze", b("Neg", odd), [4]), b("Unsqueeze", even, [4]), axis=-1)
    swapped = b("Reshape", stacked, [0, 0, heads, part] if is_behind else [0, heads, -1, part])
    whole = b("Add", b("Mul", turned, factors[0]), b("Mul", swapped, factors[1]))
    rest = [b("Slice", "x", [part], [size], [3])] if part < size else []
    b("Concat", whole, *rest, axis=-1, output="y")
    return b.model({"x": shape, "positions": ["batch", "s", 1]}, {"y": shape}, opset, {})


@pytest.mark.parametrize(
    ("opset", "target", "part", "is_behind", "is_late"),
    [(17, "ort", 4, True, False), (18, "ort", 8, False, True), (23, "portable", 4, True, True)],
)
def test_neighbouring_pairs_are_an_interleaved_embedding(
    opset: int, target: str, part: int, is_behind: bool, is_late: bool
) -> None:
    model = paired(3, 8, part, opset, is_behind, is_late)
    result, _ = optimized(model, target, verify="off")
    (found,) = [node for node in result.graph.node if node.op_type == "RotaryEmbedding"]
    assert "interleaved" in [a.name for a in found.attribute]
    assert not {"Neg", "Slice", "Tile"} & {*ops(result)}
    for batch, s in ((1, 1), (2, 3), (3, 2), (1, 5), (2, 1)):
        positions = np.random.default_rng(s).integers(0, 50, (batch, s, 1)).astype(np.float32)
        agree(model, result, {"x": drawn(batch, *((s, 3) if is_behind else (3, s)), 8), "positions": positions})
