"""Attention and rotary embeddings against ONNX's node tests and what the reference computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphopt.ir.constants import Array
from graphopt.lowering.operators.attention import TABLE
from graphopt.lowering.operators.operation import NotLowered
from tests.lowering.operators.lowered import agree, cases_of, check, computed, not_lowered

MS = "com.microsoft::"


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Any) -> None:
    check(case)


def test_every_case_is_lowered() -> None:
    assert not_lowered(TABLE) == set()


def _floats(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


# -- ONNX's op


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_sizes_that_are_not_known(batch: int) -> None:
    q, k, v = _floats(batch, 2, 3, 4), _floats(batch, 2, 5, 4, seed=2), _floats(batch, 2, 5, 6, seed=3)
    shapes = [("b", 2, "i", 4), ("b", 2, "j", 4), ("b", 2, "j", 6)]
    agree("Attention", [q, k, v], shapes, is_causal=1)
    agree("Attention", [q, k, v, _floats(3, 5, seed=4)], [*shapes, ("i", "j")])
    past = [_floats(batch, 2, 7, n, seed=5) for n in (4, 6)]
    whole = [*shapes, None, ("b", 2, "p", 4), ("b", 2, "p", 6)]
    agree("Attention", [q, k, v, None, *past], whole, n_outputs=3, is_causal=1)


def test_heads_side_by_side_share_keys() -> None:
    q, k, v = _floats(2, 3, 16), _floats(2, 5, 8, seed=2), _floats(2, 5, 6, seed=3)
    shapes = [("b", "i", 16), ("b", "j", 8), ("b", "j", 6)]
    agree("Attention", [q, k, v], shapes, q_num_heads=4, kv_num_heads=2, softcap=0.5)
    agree("Attention", [q, k, v], shapes, n_outputs=3, q_num_heads=4, kv_num_heads=2)


def test_a_row_that_sees_nothing_is_zero() -> None:
    mask = np.array([[True, False], [False, False]])
    q, k, v = (_floats(1, 1, 2, 4, seed=s) for s in range(3))
    (y,) = computed("Attention", [q, k, v, mask])
    assert np.all(y[0, 0, 1] == 0)
    np.testing.assert_allclose(y[0, 0, 0], v[0, 0, 0], rtol=1e-6)


# -- ONNX Runtime's ops


def test_multi_head_attention() -> None:
    op = MS + "MultiHeadAttention"
    q, k, v = _floats(2, 3, 8), _floats(2, 5, 8, seed=2), _floats(2, 5, 12, seed=3)
    agree(op, [q, k, v], [("b", "i", 8), ("b", "j", 8), ("b", "j", 12)], num_heads=2)
    agree(op, [q, k, v, _floats(28), None, _floats(1, 2, 3, 5)], num_heads=2, scale=0.3)
    past = [_floats(2, 2, 4, n, seed=5) for n in (4, 6)]
    agree(op, [q, k, v, None, None, None, *past], n_outputs=3, num_heads=2, unidirectional=1)
    agree(op, [q, _floats(2, 2, 5, 4), _floats(2, 2, 5, 6)], num_heads=2)


def test_packed_attention() -> None:
    op = MS + "Attention"
    x, w, bias = _floats(2, 3, 8), _floats(8, 24, seed=2), _floats(24, seed=3)
    agree(op, [x, w, bias], [("b", "s", 8), (8, 24), (24,)], num_heads=2)
    agree(op, [x, w, None, None, None, _floats(2, 2, 3, 3)], num_heads=2, unidirectional=1)
    agree(op, [x, _floats(8, 20, seed=2), _floats(20)], num_heads=2, qkv_hidden_sizes=(8, 8, 4))


def test_group_query_attention() -> None:
    op = MS + "GroupQueryAttention"
    q, k, v = _floats(2, 3, 16), _floats(2, 3, 8, seed=2), _floats(2, 3, 8, seed=3)
    past = [_floats(2, 2, 4, 4, seed=s) for s in (5, 6)]
    lengths, total = np.array([6, 6], np.int32), np.array([7], np.int32)
    agree(op, [q, k, v, *past, lengths, total], n_outputs=3, num_heads=4, kv_num_heads=2)
    agree(op, [q, k, v, *past, np.array([6, 3], np.int32), total], n_outputs=3, num_heads=4, kv_num_heads=2)
    alone = [q, k, v, None, None, np.array([2, 2], np.int32), np.array([3], np.int32)]
    agree(op, alone, n_outputs=3, num_heads=4, kv_num_heads=2)


@pytest.mark.parametrize(
    ("op", "place", "attrs"),
    [("MultiHeadAttention", 4, {"num_heads": 2}), ("Attention", 3, {"num_heads": 2})],
)
def test_padding_masks_are_left_to_reference(op: str, place: int, attrs: dict[str, Any]) -> None:
    inputs: list[Array | None] = [_floats(2, 3, 8), *(_floats(2, 3, 8), _floats(2, 3, 8))]
    if op == "Attention":
        inputs = [_floats(2, 3, 8), _floats(8, 24)]
    inputs += [None] * (place - len(inputs))
    with pytest.raises(NotLowered, match=f"input {place}"):
        computed(MS + op, [*inputs, np.ones((2, 3), np.int32)], **attrs)


# -- rotary embeddings


def test_a_softmax_with_a_one_more_is_left_to_others() -> None:
    q, k = _floats(2, 3, 16), _floats(2, 3, 8)
    inputs = [q, k, k, None, None, np.array([2, 2], np.int32), np.array([3], np.int32)]
    with pytest.raises(NotLowered, match="smooth_softmax"):
        computed(MS + "GroupQueryAttention", inputs, num_heads=4, kv_num_heads=2, smooth_softmax=1)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embeddings(interleaved: int) -> None:
    x, cos, sin = _floats(2, 3, 4, 10), _floats(9, 4, seed=2), _floats(9, 4, seed=3)
    places = np.array([[0, 3, 8, 1], [2, 2, 5, 0]])
    agree("RotaryEmbedding", [x, cos, sin, places], interleaved=interleaved, rotary_embedding_dim=8)
    flat = x.swapaxes(1, 2).reshape(2, 4, 30)
    shapes = [("b", "s", 30), (9, 4), (9, 4), ("b", "s")]
    agree(
        "RotaryEmbedding",
        [flat, cos, sin, places],
        shapes,
        interleaved=interleaved,
        num_heads=3,
        rotary_embedding_dim=8,
    )
    agree(MS + "RotaryEmbedding", [x, places, cos, sin], interleaved=interleaved)
    agree(MS + "RotaryEmbedding", [x[..., :8], np.array([3]), cos, sin], interleaved=interleaved)
    agree(MS + "RotaryEmbedding", [flat[..., :24].copy(), places, cos, sin], interleaved=interleaved)
