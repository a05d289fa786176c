"""Attention ops of ONNX Runtime: semantics in ONNX's ``Attention``, and type inference."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.ir.call import ApplyOp, Arrays, OpCall
from graphopt.ir.constants import Array
from graphopt.ir.graph import Attrs
from graphopt.ir.infer_shapes import Types
from graphopt.ir.ops import attribute
from graphopt.ir.types import Size, TensorType

DOMAIN = "com.microsoft::"
K_SCALE = 12
"""Which input of GroupQueryAttention holds the steps of keys that are kept in few bits."""


# -- what they compute


def multi_head_attention(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """Queries [B, S, W] attend to keys and values, given so or with heads, and as many of the past."""
    q, k, v, bias, padding, mask, past_k, past_v, *rest = [*x, *[None] * 10][:10]
    if k is None or v is None or padding is not None or any(r is not None for r in rest):
        raise NotImplementedError("packed inputs, padding masks and buffers for the past")
    assert q is not None
    if mask is not None and mask.ndim != 4:
        raise ValueError(f"a mask has 4 axes, not {mask.ndim}")
    heads: Any = attribute(DOMAIN + "MultiHeadAttention", attrs, "num_heads")
    if bias is not None:
        parts = np.split(bias, np.cumsum([q.shape[2], k.shape[2]]))
        q, k, v = (t + b for t, b in zip((q, k, v), parts, strict=True))
    q4, k4, v4 = (t if t.ndim == 4 else _with_heads(t, heads) for t in (q, k, v))
    y, present_k, present_v = _attend(apply, attrs, q4, k4, v4, mask, past_k, past_v, attrs.get("unidirectional", 0))
    return _without_heads(y), present_k, present_v


def packed_attention(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """One product for queries, keys and values, and the attention of the result to itself."""
    data, weights, bias, padding, past, mask, *rest = [*x, *[None] * 7][:7]
    if padding is not None or past is not None or any(r is not None for r in rest) or attrs.get("do_rotary"):
        raise NotImplementedError("padding masks, a past, and rotary embeddings")
    assert data is not None
    assert weights is not None
    heads: Any = attribute(DOMAIN + "Attention", attrs, "num_heads")
    (product,) = apply("MatMul", [data, weights])
    product = product if bias is None else product + bias
    third = weights.shape[1] // 3
    sizes: Any = attrs.get("qkv_hidden_sizes") or (third, third, third)
    q, k, v = (_with_heads(t, heads) for t in np.split(product, np.cumsum(sizes)[:2], axis=-1))
    y, _, _ = _attend(apply, attrs, q, k, v, mask, None, None, attrs.get("unidirectional", 0))
    return (_without_heads(y),)


def group_query_attention(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """Queries attend causally to fewer heads of keys and values, and to as many of the past as each sequence has: those
    that are new stand behind these, in a buffer that has room for the longest, and zeros behind them. Where keys and
    values are kept as integers of few bits, new ones are rounded, too, before they are attended to."""
    op = DOMAIN + "GroupQueryAttention"
    q, k, v, past_k, past_v, lengths, total, cos, sin, positions, mask, sink, *rest = [*x, *[None] * 17][:17]
    k_scale, v_scale, *rest = rest
    if k is None or v is None or any(r is not None for r in (cos, sin, positions, sink, *rest)):
        raise NotImplementedError("packed inputs, rotary embeddings, sinks and norms")
    if attrs.get("smooth_softmax", 0) not in (0, -1) or attrs.get("sliding_window_cache"):
        raise NotImplementedError("a smooth softmax, and a cache that slides")
    assert q is not None
    assert lengths is not None
    assert total is not None
    heads, groups = (int(attribute(op, attrs, n)) for n in ("num_heads", "kv_num_heads"))  # type: ignore[arg-type]
    q4, *new = (t if t.ndim == 4 else _with_heads(t, n) for t, n in ((q, heads), (k, groups), (v, groups)))
    is_packed, steps = attribute(op, attrs, "kv_cache_bit_width") == 4, list[Array]()
    if k_scale is not None and v_scale is not None:
        steps = [s.reshape(() if s.size == 1 else (1, groups, 1, -1)) for s in (k_scale, v_scale)]
        new = [_few_bits(t, step, is_packed) for t, step in zip(new, steps, strict=True)]
    (batch, _, count, _), longest = q4.shape, int(total.reshape(()))
    # queries of the first call stand at the beginning, also of sequences that are shorter than others
    begins = np.zeros(batch, np.int64) if longest == count else lengths.reshape(-1).astype(np.int64) + 1 - count
    present = new
    if past_k is not None and past_v is not None:
        room = max(longest, past_k.shape[2])
        present = [np.zeros((*t.shape[:2], room, t.shape[3]), t.dtype) for t in new]
        for held, past, added in zip(present, (past_k, past_v), new, strict=True):
            for b, first in enumerate(begins):
                held[b, :, :first] = past[b, :, :first]
                held[b, :, first : first + count] = added[b]
    keys, values = [_of_few_bits(t, s, is_packed) for t, s in zip(present, steps, strict=True)] if steps else present
    place, key = (begins[:, None] + np.arange(count))[:, None, :, None], np.arange(keys.shape[2])
    window: Any = attribute(op, attrs, "local_window_size")
    is_seen = key <= place if attribute(op, attrs, "causal") else key < (begins + count)[:, None, None, None]
    is_seen = is_seen & (place - key < window) if window >= 0 else is_seen
    hidden = np.where(is_seen, 0.0, -np.inf).astype(q.dtype)
    if mask is not None:
        hidden[..., : mask.shape[-1]] = hidden[..., : mask.shape[-1]] + mask
    y, *_ = _attend(apply, attrs, q4, keys, values, hidden, None, None, 0)
    return _without_heads(y), *present


def _few_bits(x: Array, step: Array, is_packed: bool) -> Array:
    """Numbers in steps, as int8; or as nibbles that are 8 more, the first of two neighbours in the lower half."""
    low, high = (-8, 7) if is_packed else (-128, 127)
    steps = np.clip(np.rint(x / step), low, high).astype(np.int8)
    if not is_packed:
        return steps
    nibbles = (steps - low).astype(np.uint8)
    return nibbles[..., ::2] | nibbles[..., 1::2] << np.uint8(4)


def _of_few_bits(kept: Array, step: Array, is_packed: bool) -> Array:
    """The numbers that are kept so."""
    if is_packed:
        halves = np.stack((kept & np.uint8(15), kept >> np.uint8(4)), -1)
        kept = halves.reshape(*kept.shape[:-1], -1).astype(np.int8) - np.int8(8)
    return kept.astype(step.dtype) * step


def _attend(
    apply: ApplyOp,
    attrs: Attrs,
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    past_k: Array | None,
    past_v: Array | None,
    causal: object,
) -> tuple[Array, Array, Array]:
    """Attention with heads, and the keys and values with those of the past before them."""
    if past_k is not None and past_v is not None:
        k, v = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
    present = k, v
    if causal:
        rows, columns = np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2], np.arange(k.shape[2])
        hidden = np.where(columns <= rows, 0.0, -np.inf).astype(q.dtype)
        mask = hidden if mask is None else mask + hidden
    k, v = (np.repeat(t, q.shape[1] // t.shape[1], axis=1) for t in (k, v))
    scale: Any = attrs.get("scale") or q.shape[-1] ** -0.5
    scores = q @ k.swapaxes(-1, -2) * q.dtype.type(scale)
    if cap := float(attrs.get("softcap") or 0.0):  # type: ignore[arg-type]
        scores = np.tanh(scores / cap) * q.dtype.type(cap)
    (weights,) = apply("Softmax", [scores if mask is None else scores + mask], axis=-1)
    return weights @ v, *present


def _with_heads(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def _without_heads(x: Array) -> Array:
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def rotary_embedding(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """Pairs of elements are turned by the angles of their positions."""
    data, positions, cos, sin = x
    assert data is not None
    assert positions is not None
    assert cos is not None
    assert sin is not None
    if attrs.get("scale", 1.0) != 1.0 or attrs.get("is_packed_batching"):
        raise NotImplementedError("scaled and packed rotary embeddings")
    heads, width = int(attrs.get("num_heads", 0) or 0), 2 * cos.shape[1]  # type: ignore[arg-type]
    x4 = data if data.ndim == 4 else _with_heads(data, heads or data.shape[2] // width)
    length = x4.shape[2]
    at = positions + np.arange(length) if positions.ndim == 1 else positions
    c, s = cos[at].reshape(-1, 1, length, width // 2), sin[at].reshape(-1, 1, length, width // 2)
    part, rest = x4[..., :width], x4[..., width:]
    if attrs.get("interleaved"):
        a, b = part[..., ::2], part[..., 1::2]
        turned = np.stack((a * c - b * s, a * s + b * c), -1).reshape(part.shape)
    else:
        a, b = part[..., : width // 2], part[..., width // 2 :]
        turned = np.concatenate((a * c - b * s, a * s + b * c), -1)
    y = np.concatenate((turned, rest), -1)
    return (y if data.ndim == 4 else _without_heads(y),)


def embed_layer_normalization(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """The sum of embeddings of words, positions and segments, normalized."""
    ids, segments, words, places, kinds, scale, shift, mask, positions = [*x, *[None] * 9][:9]
    if mask is not None:
        raise NotImplementedError("a mask")
    assert ids is not None
    assert words is not None
    assert places is not None
    total = words[ids] + places[np.arange(ids.shape[1])[None] if positions is None else positions]
    if kinds is not None and segments is not None:
        total = total + kinds[segments]
    epsilon: Any = attribute(DOMAIN + "EmbedLayerNormalization", attrs, "epsilon")
    (y,) = apply("LayerNormalization", [total, scale, shift], axis=-1, epsilon=epsilon)
    return y, np.zeros(ids.shape[0], np.int32), total


# -- the types of their outputs


def infer_multi_head_attention(call: OpCall) -> Types:
    """The attended values, and the keys and values with those of the past before them."""
    q, k, v, past = call.shape(0), call.shape(1), call.shape(2), call.shape(6)
    heads = call.integer("num_heads")
    if q is None or k is None or v is None or len(q) != 3 or not heads:
        return [call.tensor(call.shape_of_its_own("attention", port), port) for port in range(3)]
    k4, v4 = (t if len(t) == 4 else (t[0], heads, t[1], t[2] // heads) for t in (k, v))
    total: Size = k4[2] + past[2] if past is not None and len(past) == 4 else k4[2]
    shapes = [(q[0], q[1], v4[3] * heads), (*k4[:2], total, k4[3]), (*v4[:2], total, v4[3])]
    return [call.tensor(shape, port) for port, shape in enumerate(shapes)]


def infer_packed_attention(call: OpCall) -> Types:
    """The attended values."""
    x, w = call.shape(0), call.shape(1)
    if x is None or w is None or len(x) != 3 or len(w) != 2:
        return [call.tensor(call.shape_of_its_own("attention"))]
    sizes = call.integers("qkv_hidden_sizes")
    return [call.tensor((*x[:2], sizes[2] if sizes else w[1] // 3))]


def infer_group_query_attention(call: OpCall) -> Types:
    """The attended values, and the keys and values with those of the past before them, in a buffer that grows unless
    it is known to have room."""
    q, k, v, past = call.shape(0), call.shape(1), call.shape(2), call.shape(3)
    heads, groups = call.integer("num_heads"), call.integer("kv_num_heads")
    is_packed = call.integer("kv_cache_bit_width") == 4
    bytes_ = "uint8" if is_packed else "int8"
    kept = call.dtype(3) if call.has(3) else bytes_ if call.has(K_SCALE) else call.out_dtype()
    if q is None or k is None or v is None or len(q) != 3 or not {len(k), len(v)} <= {3, 4} or not groups:
        shapes: Any = [call.shape_of_its_own("attention", port) for port in range(3)]
    else:
        k4, v4 = (t if len(t) == 4 else (t[0], groups, t[1], t[2] // groups) for t in (k, v))
        total: Size = k4[2] + past[2] if past is not None and len(past) == 4 else k4[2]
        longest = call.element(6)
        if past is not None and len(past) == 4 and isinstance(past[2], int) and isinstance(longest, int):
            total = max(past[2], longest)
        widths = [t[3] // 2 if is_packed else t[3] for t in (k4, v4)]
        shapes = [(q[0], q[1], v4[3] * heads), (*k4[:2], total, widths[0]), (*v4[:2], total, widths[1])]
    types = [call.out_dtype(), kept, kept]
    return [None if dtype is None else TensorType(dtype, shape) for dtype, shape in zip(types, shapes, strict=True)]


def infer_embed_layer_normalization(call: OpCall) -> Types:
    """The normalized embeddings, an index that nobody uses, their sum."""
    ids, words = call.shape(0), call.shape(2)
    if ids is None or words is None or len(ids) != 2 or len(words) != 2:
        return [call.tensor(call.shape_of_its_own("embedding", port), port) for port in range(3)]
    shape = (*ids, words[1])
    return [call.tensor(shape, 0), call.tensor(ids[:1], 1), call.tensor(shape, 2)]
