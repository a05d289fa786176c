"""Attention in tiles, compiled, against what the reference computes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import graphopt
from graphopt.ir import evaluate
from graphopt.ir.constants import Array
from graphopt.ir.graph import Attrs
from graphopt.ir.tolerance import error


def _floats(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("is_open", [False, True])
def test_tiles_of_queries_meet_tiles_of_keys(is_open: bool) -> None:
    """More queries and keys than a tile has, some hidden and some that nobody sees, in whole tiles and in parts."""
    q, k, v = _floats(1, 4, 70, 24), _floats(1, 2, 150, 24, seed=2), _floats(1, 2, 150, 20, seed=3)
    mask = np.where(_floats(70, 150, seed=4) > -0.5, _floats(70, 150, seed=5) * 4, -np.inf).astype(np.float32)
    mask[3] = -np.inf
    arrays = dict(zip("qkvm", (q * 9, k, v, mask), strict=True))
    sizes = {70: "i", 150: "j"} if is_open else {}
    inputs = [helper.make_tensor_value_info(n, 1, [sizes.get(e, e) for e in a.shape]) for n, a in arrays.items()]
    node = helper.make_node("Attention", [*arrays], ["y"], is_causal=1)
    model = helper.make_model(helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", 1, None)]))
    with graphopt.compile(model, strict=True, optimize=False) as compiled:
        got = compiled(arrays)["y"]
    (want,) = evaluate.compute("Attention", Attrs({"is_causal": 1}), [*arrays.values()], 1)
    assert error(np.asarray(want), got) <= 1.0
    assert not got[0, :, 3].any()


@pytest.mark.parametrize("hidden", [-np.inf, np.finfo(np.float32).min, -5.0])
def test_tiles_that_masks_hide_are_left_out(hidden: float) -> None:
    """Keys behind a query's own, and the first ones (padding), which hide whole tiles; one query sees nothing."""
    q, k, v = _floats(2, 2, 130, 16) * 9, _floats(2, 2, 200, 16, seed=2), _floats(2, 2, 200, 16, seed=3)
    queries, keys = np.indices((130, 200))
    is_seen = (keys <= queries + 70) & (keys >= np.array([0, 80]).reshape(2, 1, 1))
    is_seen[0, 40] = False
    arrays = dict(zip("qkvm", (q, k, v, np.where(is_seen, 0, hidden).astype(np.float32)[:, None]), strict=True))
    inputs = [helper.make_tensor_value_info(n, 1, a.shape) for n, a in arrays.items()]
    node = helper.make_node("Attention", [*arrays], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", 1, None)]))
    with graphopt.compile(model, strict=True, optimize=False) as compiled:
        got = compiled(arrays)["y"]
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3) / 4 + arrays["m"].astype(np.float64)
    top = scores.max(-1, keepdims=True)
    shares = np.exp(scores - np.where(np.isfinite(top), top, 0))
    want = shares @ v / np.maximum(shares.sum(-1, keepdims=True), 1e-300)
    if np.isfinite(hidden) and hidden < -1e30:  # in float32 nothing is left of the scores of a query that sees nothing
        want[0, :, 40], want[1, :, :10] = v[0].mean(1), v[1].mean(1)[:, None]
    np.testing.assert_allclose(got, want, atol=2e-6)


def _written_out(mask: list[int | str] | None, opset: int) -> ModelProto:
    """Attention of 3 heads of 8, as exporters write it out, of open sizes."""
    held = [numpy_helper.from_array(a, n) for n, a in (
        ("apart", np.array([0, 0, 3, 8])), ("together", np.array([0, 0, 24])), ("root", np.float32(8**0.5))
    )]  # fmt: skip
    nodes = []
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes.append(helper.make_node("Reshape", [name, "apart"], [f"{name}4"]))
        nodes.append(helper.make_node("Transpose", [f"{name}4"], [f"{name}t"], perm=perm))
    nodes.append(helper.make_node("MatMul", ["qt", "kt"], ["products"]))
    nodes.append(helper.make_node("Div", ["products", "root"], ["scores"]))
    nodes += [] if mask is None else [helper.make_node("Add", ["scores", "m"], ["masked"])]
    nodes.append(helper.make_node("Softmax", ["scores" if mask is None else "masked"], ["shares"], axis=-1))
    nodes.append(helper.make_node("MatMul", ["shares", "vt"], ["weighed"]))
    nodes.append(helper.make_node("Transpose", ["weighed"], ["turned"], perm=[0, 2, 1, 3]))
    nodes.append(helper.make_node("Reshape", ["turned", "together"], ["y"]))
    sides = {"q": ["b", "s", 24], "k": ["b", "t", 24], "v": ["b", "t", 24]} | ({} if mask is None else {"m": mask})
    inputs = [helper.make_tensor_value_info(n, 1, e) for n, e in sides.items()]
    outputs = [helper.make_tensor_value_info("y", 1, ["b", "s", 24])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize(
    ("mask", "opset"), [(None, 13), (["b", 1, 1, "t"], 17), ([1, 1, "s", "t"], 13), (["b", 3, "s", "t"], 20)]
)
def test_attention_that_is_written_out_is_found(mask: list[int | str] | None, opset: int) -> None:
    model = _written_out(mask, opset)
    peer = ReferenceEvaluator(model)
    with graphopt.compile(model, strict=True) as compiled:
        assert [n.op.endswith("Attention") for n in compiled.graph.nodes()].count(True) == 1
        assert compiled.report.calls == 2, "parts of keys, and all else"
        for sizes in ({"b": 2, "s": 70, "t": 67}, {"b": 1, "s": 1, "t": 1}, {"b": 0, "s": 3, "t": 2}):
            b, s, t = sizes.values()
            arrays = {"q": _floats(b, s, 24) * 9, "k": _floats(b, t, 24, seed=2), "v": _floats(b, t, 24, seed=3)}
            if mask is not None:
                added = _floats(*(sizes[e] if isinstance(e, str) else e for e in mask), seed=4)
                arrays["m"] = np.where((added < -0.5) & (np.arange(t) > 0), -np.inf, added * 4).astype(np.float32)
            (want,) = peer.run(None, arrays)
            assert error(np.asarray(want), compiled(arrays)["y"]) <= 1.0


def test_numbers_that_are_none_stay_where_they_are() -> None:
    """NaN in a query, in a key that all see, and an infinite value."""
    arrays = {"q": _floats(1, 5, 24), "k": _floats(1, 6, 24, seed=2), "v": _floats(1, 6, 24, seed=3)}
    arrays["q"][0, 2, 3] = np.nan
    arrays["v"][0, 1, 20] = np.inf
    model = _written_out(None, 17)
    with graphopt.compile(model, strict=True) as compiled:
        got = compiled(arrays)["y"]
        np.testing.assert_array_equal(np.isnan(got[0, :, :8]).all(1), np.arange(5) == 2)
        assert np.isinf(got[0, :, 20]).all()
        (want,) = ReferenceEvaluator(model).run(None, arrays)
        assert error(np.asarray(want), got) <= 1.0
        arrays["k"][0, 4, 0] = np.nan
        got = compiled(arrays)["y"]
        assert np.isnan(got[..., :8]).all()
        assert not np.isnan(got[..., 8:16]).any()
