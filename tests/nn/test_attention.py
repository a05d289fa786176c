"""Attention by its definition, and a decoder as a user writes one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt import nn
from graphopt.errors import UsageError
from graphopt.ir.constants import Array
from tests.nn.test_layers import Of, alike, floats, run


def heads_of(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def attended(q: Array, k: Array, v: Array, seen: Any, heads: int, kv_heads: int, scale: float | None = None) -> Array:
    """Attention, where ``seen`` says which scores count or what is added to them."""
    q, k, v = heads_of(q, heads), heads_of(k, kv_heads), heads_of(v, kv_heads)
    k, v = (np.repeat(t, heads // kv_heads, 1) for t in (k, v))
    scores = q @ k.swapaxes(-1, -2) * (scale or q.shape[-1] ** -0.5)
    scores = np.where(seen, scores, -np.inf) if np.asarray(seen).dtype == bool else scores + seen
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    found = shares / shares.sum(-1, keepdims=True) @ v
    return found.transpose(0, 2, 1, 3).reshape(*found.shape[::2], -1)


Q, K, V = floats(2, 5, 16), floats(2, 5, 8), floats(2, 5, 8)


@pytest.mark.parametrize("scale", [None, 0.3])
def test_heads_share_keys_and_values(scale: float | None) -> None:
    module = Of(lambda q, k, v: nn.attention(q, k, v, heads=4, kv_heads=2, scale=scale))
    assert alike(attended(Q, K, V, True, 4, 2, scale), run(module, Q, K, V)["y"])


def test_masks() -> None:
    causal = np.tril(np.ones((5, 5), bool))
    seen = floats(2, 1, 5, 5) > 0
    seen[..., 0] = True
    added = floats(4, 5, 5)
    module = Of(lambda q, k, v: nn.attention(q, k, v, heads=4, kv_heads=2, causal=True))
    assert alike(attended(Q, K, V, causal, 4, 2), run(module, Q, K, V)["y"])
    for mask in (seen, added):
        module = Of(lambda q, k, v, m: nn.attention(q, k, v, m, heads=4, kv_heads=2))
        assert alike(attended(Q, K, V, mask, 4, 2), run(module, Q, K, V, mask)["y"])


def turned(x: Array, positions: Array, heads: int, base: float) -> Array:
    """Rotary embedding by complex numbers."""
    parts = x.reshape(*x.shape[:2], heads, 2, -1)
    half = parts.shape[-1]
    angles = positions[..., None, None] * base ** (-np.arange(half) / half)
    found = (parts[..., 0, :] + 1j * parts[..., 1, :]) * np.exp(1j * angles)
    return np.stack([found.real, found.imag], -2).reshape(x.shape)


def test_positions_turn_queries_and_keys() -> None:
    places = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    module = Of(lambda x, p: nn.rotary(x, p, heads=2, base=100.0))
    assert alike(turned(Q, places, 2, 100.0), run(module, Q, places)["y"])


@pytest.mark.parametrize(("kv_heads", "rotary"), [(None, None), (2, 1e4)])
def test_a_module_of_attention(kv_heads: int | None, rotary: float | None) -> None:
    layer = nn.Attention(16, 4, kv_heads, bias=True, causal=True, rotary=rotary).initialize()
    w = layer.state_dict()
    q, k, v = (Q @ w[f"{n}_proj.weight"].T + w[f"{n}_proj.bias"] for n in "qkv")
    if rotary is not None:
        q, k = (turned(t, np.arange(5)[None], n, rotary).astype(np.float32) for t, n in ((q, 4), (k, 2)))
    found = attended(q, k, v, np.tril(np.ones((5, 5), bool)), 4, kv_heads or 4)
    assert alike(found @ w["o_proj.weight"].T + w["o_proj.bias"], run(layer, Q)["y"])


@pytest.mark.parametrize("bias", [True, False])
def test_a_module_with_one_projection(bias: bool) -> None:
    layer, memory = nn.MultiheadAttention(16, 4, bias).initialize(), floats(2, 7, 16)
    w = layer.state_dict()
    rows = np.split(w["in_proj_weight"], 3)
    offsets = np.split(w["in_proj_bias"], 3) if bias else [0, 0, 0]
    q, k, v = (x @ r.T + o for x, r, o in zip((Q, memory, memory), rows, offsets, strict=True))
    wanted = attended(q, k, v, True, 4, 4) @ w["out_proj.weight"].T + w.get("out_proj.bias", 0)
    assert alike(wanted, run(layer, Q, memory)["y"])


class Block(nn.Module):
    def __init__(self, dim: int) -> None:
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(dim, 1e-6), nn.RMSNorm(dim, 1e-6)
        self.self_attn = nn.Attention(dim, 4, 2, causal=True, rotary=1e4)
        self.gate_proj, self.up_proj = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)
        self.down_proj = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        h = self.post_attention_layernorm(x)
        return x + self.down_proj(nn.silu(self.gate_proj(h)) * self.up_proj(h))


class Decoder(nn.Module):
    def __init__(self, words: int, dim: int, depth: int) -> None:
        self.embed_tokens = nn.Embedding(words, dim)
        self.layers = nn.ModuleList([Block(dim) for _ in range(depth)])
        self.norm = nn.RMSNorm(dim, 1e-6)
        self.lm_head = nn.Linear(dim, words, bias=False)
        self.lm_head.weight = self.embed_tokens.weight

    def forward(self, ids: nn.Tensor) -> dict[str, nn.Tensor]:
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return {"logits": self.lm_head(self.norm(x))[:, -1]}


def by_numpy(w: dict[str, Array], ids: Array) -> Array:
    """The decoder's last logits, written out."""

    def norm(x: Array, name: str) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w[f"{name}.weight"]

    x, length = w["embed_tokens.weight"][ids], ids.shape[1]
    for k in (0, 1):
        at = f"layers.{k}"
        h = norm(x, f"{at}.input_layernorm")
        q, key, v = (h @ w[f"{at}.self_attn.{n}_proj.weight"].T for n in "qkv")
        q, key = (turned(t, np.arange(length)[None], n, 1e4) for t, n in ((q, 4), (key, 2)))
        seen = attended(q, key, v, np.tril(np.ones((length, length), bool)), 4, 2)
        x = x + seen @ w[f"{at}.self_attn.o_proj.weight"].T
        h = norm(x, f"{at}.post_attention_layernorm")
        gate = h @ w[f"{at}.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[f"{at}.up_proj.weight"].T)) @ w[f"{at}.down_proj.weight"].T
    return (norm(x, "norm") @ w["embed_tokens.weight"].T)[:, -1]


@pytest.mark.slow
def test_a_decoder_runs_for_any_batch_and_length() -> None:
    net = Decoder(50, 32, 2).initialize(7)
    module = nn.export(net, {"ids": "int64[batch, length]"})
    model = graphopt.compile(module)
    assert model.report.unlowered == ()
    for shape in ((1, 1), (3, 6)):
        ids = np.random.default_rng(1).integers(0, 50, shape)
        wanted = by_numpy(net.state_dict(), ids)
        assert np.abs(model(ids)["logits"] - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="16 features cannot be split into 3 heads"):
        nn.Attention(16, 3)
    with pytest.raises(UsageError, match="into 4 heads, or these into 3 groups"):
        nn.Attention(16, 4, 3)
    with pytest.raises(UsageError, match="16 features cannot be split into 3 heads"):
        nn.MultiheadAttention(16, 3)


def test_a_past_is_attended_to_and_goes_on() -> None:
    module = nn.Attention(16, heads=4, kv_heads=2, causal=True, rotary=10000.0).initialize(seed=0)
    whole = graphopt.compile(nn.export(module, {"x": "float32[batch, length, 16]"}))

    class Cached(nn.Module):
        def __init__(self) -> None:
            self.attention = module

        def forward(self, x: Any, key: Any, value: Any) -> Any:
            attended, (keys, values) = self.attention(x, past=(key, value))
            return {"y": attended, "keys": keys, "values": values}

    types = dict.fromkeys(("key", "value"), "float32[batch, 2, past, 4]")
    cached = graphopt.compile(nn.export(Cached(), {"x": "float32[batch, length, 16]", **types}))
    x = floats(2, 9, 16)
    want = whole(x)["y"]
    parts: dict[str, Any] = dict.fromkeys(("keys", "values"), np.empty((2, 2, 0, 4), np.float32))
    for first, last in ((0, 5), (5, 6), (6, 9)):
        parts = dict(cached(x[:, first:last], parts["keys"], parts["values"]))
        assert alike(want[:, first:last], parts["y"])
    state = cached.bind_state({"key": "keys", "value": "values"})
    for first, last in ((0, 5), (5, 6), (6, 9)):
        assert alike(want[:, first:last], cached(x[:, first:last])["y"])
    assert state.length == 9


def test_numbers_from_an_open_size() -> None:
    found = run(Of(lambda x: nn.arange(x.shape[1], start=x.shape[0])), np.zeros((3, 7), np.float32))
    np.testing.assert_array_equal(found["y"], np.arange(3, 7))
