"""ONNX Runtime's attention with a cache, as its model builder writes it, compiled, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

import graphopt
from graphopt.errors import ExecutionError
from graphopt.ir.constants import Array
from graphopt.ir.text import parse
from graphopt.lowering.lower.grouped_queries import with_parts_apart
from graphopt.runtime.onnxruntime import Region

pytest.importorskip("onnxruntime")

HEADS, GROUPS, SIZE = 4, 2, 16
FLOAT, INT32 = 1, 6


def _model(is_packed: bool, turns: bool, **attrs: Any) -> ModelProto:
    """GroupQueryAttention with keys and values of the past."""
    cache: list[int | str] = ["b", GROUPS, "past", SIZE]
    shapes: dict[str, tuple[int, list[int | str]]] = {
        "q": (FLOAT, ["b", "s", (HEADS + 2 * GROUPS * is_packed) * SIZE]),
        **({} if is_packed else dict.fromkeys("kv", (FLOAT, ["b", "s", GROUPS * SIZE]))),
        "past_key": (FLOAT, cache), "past_value": (FLOAT, cache), "lengths": (INT32, ["b"]), "total": (INT32, []),
    }  # fmt: skip
    angles = np.arange(64)[:, None] * 10.0 ** -np.arange(SIZE // 2)
    tables = [numpy_helper.from_array(f(angles).astype(np.float32), n) for n, f in (("cos", np.cos), ("sin", np.sin))]
    names = ["q", *(["", ""] if is_packed else "kv"), "past_key", "past_value", "lengths", "total"]
    names += ["cos", "sin"] if turns else []
    outputs = ["y", "present_key", "present_value"]
    node = helper.make_node("GroupQueryAttention", names, outputs, domain="com.microsoft", num_heads=HEADS,
                            kv_num_heads=GROUPS, do_rotary=int(turns), **attrs)  # fmt: skip
    given = [helper.make_tensor_value_info(n, t, shape) for n, (t, shape) in shapes.items()]
    made = [helper.make_tensor_value_info(n, FLOAT, None if n == "y" else [*cache[:2], "all", SIZE]) for n in outputs]
    graph = helper.make_graph([node], "g", given, made, tables if turns else [])
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


@pytest.mark.parametrize(
    ("is_packed", "turns", "attrs", "steps"),
    [
        (False, False, {"softcap": 5.0, "scale": 0.5}, (2, 5, 1, 1)),
        (False, True, {"local_window_size": 3}, (1, 5, 1, 3, 1)),
        (True, False, {"local_window_size": 2}, (2, 5, 1, 1)),
        (True, True, {"rotary_interleaved": 1}, (1, 5, 1, 3, 1)),
    ],
)
def test_grouped_queries_with_a_cache_are_those_of_onnx_runtime(
    is_packed: bool, turns: bool, attrs: dict[str, float], steps: tuple[int, ...]
) -> None:
    """Of one batch or of two: then ONNX Runtime takes one token at a time behind others."""
    model = _model(is_packed, turns, **attrs)
    peer = Region(model.SerializeToString())
    plain = graphopt.compile(model, strict=True, verify="off")
    kept = graphopt.compile(model, strict=True, verify="off")
    state = kept.bind_state()
    rng = np.random.default_rng(0)
    batch, *news = steps
    pasts: list[Array] = [np.zeros((batch, GROUPS, 0, SIZE), np.float32)] * 2
    for new in news:
        count = pasts[0].shape[2] + new
        width = (HEADS + 2 * GROUPS * is_packed) * SIZE
        given = [rng.standard_normal((batch, new, width), np.float32)]
        given += [] if is_packed else [rng.standard_normal((batch, new, GROUPS * SIZE), np.float32) for _ in range(2)]
        lengths = [np.full(batch, count - 1, np.int32), np.array(count, np.int32)]
        want = peer(*given, *pasts, *lengths)
        assert want is not None
        for one, other in zip(want, plain(*given, *pasts, *lengths).values(), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
        got = kept(*given, *lengths)
        assert list(got) == ["y"]
        np.testing.assert_allclose(got["y"], want[0], rtol=1e-4, atol=1e-5)
        pasts = list(want[1:])
    assert state.length == sum(news)


def test_sequences_of_different_lengths_are_refused() -> None:
    with graphopt.compile(_model(True, False), strict=True, verify="off") as compiled:
        compiled.bind_state()
        x = np.zeros((2, 3, (HEADS + 2 * GROUPS) * SIZE), np.float32)
        with pytest.raises(ExecutionError, match="sequences of different lengths"):
            compiled(x, np.array([2, 1], np.int32), np.array(3, np.int32))


def test_attention_of_parts_that_are_apart_stays() -> None:
    graph = parse("""\
q: float32[b, s, 32]
k: float32[b, s, 16]
lengths: int32[b]
total: int32[]
y = com.microsoft::GroupQueryAttention(q, k, k, _, _, lengths, total, num_heads=4, kv_num_heads=2)
return y
""")
    assert with_parts_apart(graph) is graph
