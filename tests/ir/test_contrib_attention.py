"""What graphopt takes ONNX Runtime's attention ops to compute is what that runtime computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.evaluate import evaluate
from graphopt.ir.graph import Attrs

ort = pytest.importorskip("onnxruntime")
RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def in_runtime(op: str, attrs: dict[str, Any], arrays: list[Any], n_outputs: int) -> list[Any]:
    from onnx import helper

    feeds = {f"i{i}": a for i, a in enumerate(arrays) if a is not None}
    node = helper.make_node(
        op,
        [f"i{i}" if a is not None else "" for i, a in enumerate(arrays)],
        [f"o{i}" for i in range(n_outputs)],
        domain="com.microsoft",
        **attrs,
    )
    types = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in feeds.items()}
    inputs = [helper.make_tensor_value_info(n, types[n], a.shape) for n, a in feeds.items()]
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info(o) for o in node.output])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


CAUSAL = np.where(np.tril(np.ones((5, 5), bool)), 0.0, -np.inf).astype(np.float32)[None, None]
LENGTHS, TOTAL = np.full(2, 4, np.int32), np.array(5, np.int32)
ANGLES = floats(6, 4)
BYTES = RANDOM.integers(0, 256, (2, 2, 2, 4), dtype=np.uint8)
STEPS = np.abs(floats(1, 2, 1, 8)) + np.float32(0.1)
CASES: dict[str, tuple[str, dict[str, Any], list[Any], int]] = {
    "plain": ("MultiHeadAttention", {"num_heads": 2}, [floats(2, 5, 16) for _ in range(3)], 1),
    "scale": ("MultiHeadAttention", {"num_heads": 2, "scale": 1.0}, [floats(2, 5, 16) for _ in range(3)], 1),
    "causal": ("MultiHeadAttention", {"num_heads": 2, "unidirectional": 1}, [floats(2, 5, 16) for _ in range(3)], 1),
    "mask": (
        "MultiHeadAttention",
        {"num_heads": 2},
        [*(floats(2, 5, 16) for _ in range(3)), None, None, CAUSAL],
        1,
    ),
    "bias": ("MultiHeadAttention", {"num_heads": 2}, [*(floats(2, 5, 16) for _ in range(3)), floats(48)], 1),
    "cross": ("MultiHeadAttention", {"num_heads": 2}, [floats(2, 5, 16), floats(2, 7, 16), floats(2, 7, 6)], 1),
    "with heads": ("MultiHeadAttention", {"num_heads": 2}, [floats(2, 5, 16), *(floats(2, 2, 7, 8) for _ in "kv")], 1),
    "past": (
        "MultiHeadAttention",
        {"num_heads": 2},
        [*(floats(2, 5, 16) for _ in range(3)), None, None, None, floats(2, 2, 3, 8), floats(2, 2, 3, 8)],
        3,
    ),
    "packed": ("Attention", {"num_heads": 2}, [floats(2, 5, 8), floats(8, 48), floats(48)], 1),
    "packed, masked": (
        "Attention",
        {"num_heads": 2, "scale": 0.5},
        [floats(2, 5, 8), floats(8, 48), floats(48), None, None, floats(1, 2, 5, 5)],
        1,
    ),
    "groups": (
        "GroupQueryAttention",
        {"num_heads": 4, "kv_num_heads": 2},
        [floats(2, 5, 32), floats(2, 5, 16), floats(2, 5, 16), None, None, LENGTHS, TOTAL],
        3,
    ),
    "groups, sequences of different lengths": (
        "GroupQueryAttention",
        {"num_heads": 4, "kv_num_heads": 2, "local_window_size": 3, "softcap": 2.0},
        [
            floats(2, 1, 32), floats(2, 1, 16), floats(2, 1, 16), floats(2, 2, 7, 8), floats(2, 2, 7, 8),
            np.array([7, 3], np.int32), np.array(8, np.int32),
        ],
        3,
    ),
    "groups, a buffer with room": (
        "GroupQueryAttention",
        {"num_heads": 4, "kv_num_heads": 2},
        [
            floats(1, 2, 32), floats(1, 2, 16), floats(1, 2, 16), floats(1, 2, 7, 8), floats(1, 2, 7, 8),
            np.array([4], np.int32), np.array(5, np.int32),
        ],
        3,
    ),
    "groups, not causal": (
        "GroupQueryAttention",
        {"num_heads": 4, "kv_num_heads": 2, "causal": 0, "scale": 0.3},
        [floats(2, 5, 32), floats(2, 5, 16), floats(2, 5, 16), None, None, LENGTHS, TOTAL],
        1,
    ),
    "groups, kept in bytes": (
        "GroupQueryAttention",
        {"num_heads": 4, "kv_num_heads": 2, "k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR",
         "kv_cache_bit_width": 8},
        [floats(2, 1, 32), floats(2, 1, 16), floats(2, 1, 16), *(BYTES.view(np.int8).reshape(2, 2, 1, 8),) * 2,
         np.full(2, 1, np.int32), np.array(2, np.int32), *[None] * 5, *(np.array([0.05], np.float32),) * 2],
        3,
    ),
    "groups, kept in nibbles": (
        "GroupQueryAttention",
        {"num_heads": 4, "kv_num_heads": 2, "k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL",
         "kv_cache_bit_width": 4},
        [floats(2, 1, 32), 4 * floats(2, 1, 16), floats(2, 1, 16), BYTES, BYTES[::-1].copy(),
         np.full(2, 2, np.int32), np.array(3, np.int32), *[None] * 5, STEPS, STEPS],
        3,
    ),
    "rotary": ("RotaryEmbedding", {}, [floats(2, 3, 5, 8), np.array([0]), ANGLES, ANGLES + 1], 1),
    "rotary, places": (
        "RotaryEmbedding",
        {"num_heads": 3, "interleaved": 1},
        [floats(2, 5, 24), np.array([[0, 1, 2, 3, 4], [5, 4, 3, 2, 1]]), ANGLES, ANGLES + 1],
        1,
    ),
    "embedding": (
        "EmbedLayerNormalization",
        {"epsilon": 1e-5},
        [
            np.array([[1, 2, 0]], np.int32), np.array([[0, 1, 1]], np.int32), floats(4, 8), floats(6, 8), floats(2, 8),
            floats(8), floats(8),
        ],
        2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_meaning_is_the_runtimes(name: str) -> None:
    op, attrs, arrays, n_outputs = CASES[name]
    given = [None if a is None else Constant.of(a) for a in arrays]
    made = evaluate(f"com.microsoft::{op}", Attrs(attrs), given, n_outputs, 17)
    for ours, theirs in zip(made, in_runtime(op, attrs, arrays, n_outputs), strict=True):
        np.testing.assert_allclose(ours.array, theirs, rtol=1e-4, atol=1e-5)
