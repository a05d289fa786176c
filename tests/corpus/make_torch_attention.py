"""Writes the transformer models of the corpus: torch modules and tiny ``transformers`` models, by both exporters.

Run it with Python 3.11 and torch 2.13, transformers 5.23, onnx 1.23, onnxscript 0.7, from anywhere:

    python tests/corpus/make_torch_attention.py [NAME ...]

It writes ``torch/NAME.onnx`` (torch.onnx.export with dynamo=True) and ``torchscript/NAME.onnx`` (dynamo=False).
Weights are random, widths tiny; what an exporter notes about the Python source (metadata, doc strings) is dropped.
"""

from __future__ import annotations

import io
import logging
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
import transformers as hf
from torch import nn

HERE = Path(__file__).parent
LIMIT = 45_000
IDS = torch.tensor([[3, 5, 7, 11, 2, 6, 4, 1]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1, 0, 0]])
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
         "vocab_size": 40, "max_position_embeddings": 16}  # fmt: skip


LEFT_OUT = {
    "torch/bart",
    "torch/bloom",
    "torch/gpt2_sdpa",
    "torch/mistral",
    "torch/mixtral",
    "torch/qwen2",
    "torch/rms_torch",
    "torch/sdpa_mask",
    "torch/t5",
    "torchscript/activations_20",
    "torchscript/bart",
    "torchscript/bert_open",
    "torchscript/bloom",
    "torchscript/deberta",
    "torchscript/distilbert",
    "torchscript/encoder_layer",
    "torchscript/gemma",
    "torchscript/gpt2_last",
    "torchscript/gpt2_sdpa",
    "torchscript/grouped",
    "torchscript/llama",
    "torchscript/llama_cached",
    "torchscript/llama_cached_23",
    "torchscript/llama_open",
    "torchscript/mistral",
    "torchscript/mixtral",
    "torchscript/moe",
    "torchscript/neox",
    "torchscript/packed_plain",
    "torchscript/qwen2",
    "torchscript/qwen3",
    "torchscript/rms_torch",
    "torchscript/rms_torch_23",
    "torchscript/rotary",
    "torchscript/sdpa_23",
    "torchscript/sdpa_causal_open",
    "torchscript/swin",
    "torchscript/t5",
    "torchscript/vit",
}
"""Models that are large, or that an exporter cannot write, or that show nothing that others do not."""


@dataclass
class Case:
    """A module, its arguments, and how it is exported: ``ways`` are (exporter, opset, optimize)."""

    make: Callable[[], nn.Module]
    args: tuple[Any, ...]
    names: tuple[str, ...]
    ways: tuple[tuple[str, int, bool], ...] = (("torchscript", 17, True), ("torch", 18, True))
    dims: dict[str, dict[int, str]] = field(default_factory=dict)


class Only(nn.Module):
    """A transformers model as a function of tensors by position, whose first output is given."""

    def __init__(self, model: nn.Module, *names: str, output: str | int = 0, **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.output, self.fixed = model, names, output, fixed

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        out = self.model(**dict(zip(self.names, args, strict=True)), **self.fixed)
        return out[self.output]


def only(
    kind: Any, config: Any, *names: str, attention: str = "sdpa", output: str | int = 0, **fixed: Any
) -> Callable[[], nn.Module]:
    """What makes a transformers model from its configuration, a function of these inputs."""

    def make() -> nn.Module:
        config._attn_implementation = attention
        return Only(kind(config), *names, output=output, **fixed)

    return make


# -- modules of torch's own


class Attend(nn.Module):
    """Self attention through scaled_dot_product_attention."""

    def __init__(self, how: str = "plain", heads: int = 2, width: int = 16) -> None:
        super().__init__()
        self.heads, self.how = heads, how
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.how == "causal")
        return self.o(y.transpose(1, 2).flatten(2))


class AttendCached(Attend):
    """The same for a few new tokens: keys and values of the past are inputs, longer ones are outputs."""

    def forward(self, x: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:  # type: ignore[override]
        q, new_k, new_v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        k, v = torch.cat((k, new_k), 2), torch.cat((v, new_v), 2)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.o(y.transpose(1, 2).flatten(2)), k, v


class Packed(nn.Module):
    """Self attention written out, with one product for queries, keys and values, as in ViT and nanoGPT."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.scale = (width // heads) ** -0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * self.scale) @ k.transpose(-2, -1)
        return self.proj((scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(b, n, c))


class Causal(nn.Module):
    """nanoGPT's attention: a buffer of ones below the diagonal, masked_fill, dropout."""

    def __init__(self, width: int = 16, heads: int = 2, length: int = 16) -> None:
        super().__init__()
        self.heads, self.attn, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("bias", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, c = x.shape
        q, k, v = (t.view(b, n, self.heads, c // self.heads).transpose(1, 2) for t in self.attn(x).split(c, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / (c // self.heads) ** 0.5)
        scores = scores.masked_fill(self.bias[:, :, :n, :n] == 0, float("-inf"))
        y = self.drop(F.softmax(scores, dim=-1)) @ v
        return self.proj(y.transpose(1, 2).contiguous().view(b, n, c))


class Cross(nn.Module):
    """Attention from one sequence to another, einsum style, as in diffusion models."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.o = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        def split(t: torch.Tensor) -> torch.Tensor:
            b, n, c = t.shape
            return t.reshape(b, n, self.heads, c // self.heads).permute(0, 2, 1, 3).reshape(b * self.heads, n, -1)

        q, k, v = split(self.q(x)), split(self.k(context)), split(self.v(context))
        weights = (torch.einsum("b i d, b j d -> b i j", q, k) * self.scale).softmax(dim=-1)
        y = torch.einsum("b i j, b j d -> b i d", weights, v)
        b, n, c = x.shape
        return self.o(y.reshape(b, self.heads, n, -1).permute(0, 2, 1, 3).reshape(b, n, c))


class Root(nn.Module):
    """RMS normalization as LLaMA has it, and divided by the root."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.weight, self.other = nn.Parameter(torch.rand(width) + 0.5), nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        y = y.type_as(x) * self.weight
        return self.other * (y / torch.sqrt((y * y).mean(-1, keepdim=True) + 1e-6))


class Norms(nn.Module):
    """Layer normalizations: torch's own, over channels first (ConvNeXt), without weights, and written out."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm, self.plain = nn.LayerNorm(width), nn.LayerNorm(width, elementwise_affine=False)
        self.weight, self.bias = nn.Parameter(torch.rand(width) + 0.5), nn.Parameter(torch.rand(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        y = (x - mean) / torch.sqrt(variance + 1e-6)
        y = self.weight[:, None, None] * y + self.bias[:, None, None]
        return self.plain(self.norm(y.permute(0, 2, 3, 1)) * 2.0)


class HalfNorms(nn.Module):
    """Normalizations of half-precision numbers that are done in single precision, as LLaMA's and T5's are."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.weight = nn.Parameter((torch.rand(width) + 0.5).half())
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.to(torch.float32)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.norm((self.weight * y.to(torch.float16)).float()).half()


class Grouped(nn.Module):
    """A convolution, a normalization of groups of channels, and SiLU, on many pixels."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, channels, 3, padding=1), nn.GroupNorm(4, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.norm(self.conv(x)))


class UnetBlock(nn.Module):
    """GroupNorm and SiLU before each convolution, a time embedding between, and attention over pixels."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.GroupNorm(4, channels) for _ in range(3))
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(12, channels)
        self.q, self.k, self.v, self.o = (nn.Conv2d(channels, channels, 1) for _ in range(4))

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(F.silu(t))[:, :, None, None]
        x = x + self.conv2(F.silu(self.norm2(h)))
        y = self.norm3(x)
        b, c, high, wide = y.shape
        q, k, v = (f(y).reshape(b, c, high * wide) for f in (self.q, self.k, self.v))
        weights = torch.bmm(q.permute(0, 2, 1), k) * c**-0.5
        y = torch.bmm(v, weights.softmax(dim=2).permute(0, 2, 1)).reshape(b, c, high, wide)
        return x + self.o(y)


class Activations(nn.Module):
    """A small feed-forward layer for each kind of gate and Gelu that models are written with."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(7))
        self.gate = nn.Linear(width, 2 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b, c, d, e, f, g = self.layers
        x = F.gelu(a(x))
        x = F.gelu(b(x), approximate="tanh")
        h = c(x)
        x = 0.5 * h * (1.0 + torch.tanh(0.7978845608028654 * (h + 0.044715 * torch.pow(h, 3.0))))
        h = d(x)
        x = 0.5 * h * (1.0 + torch.tanh(h * 0.7978845608 * (1.0 + 0.044715 * h * h)))
        h = e(x)
        x = h * torch.sigmoid(1.702 * h)
        x = F.silu(f(x)) * g(x)
        y, gate = self.gate(x).chunk(2, dim=-1)
        return y * F.gelu(gate)


class Lora(nn.Module):
    """A linear layer with a low-rank update, and without."""

    def __init__(self, width: int = 16, rank: int = 4) -> None:
        super().__init__()
        self.base = nn.Linear(width, width)
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x)) * 2.0


class Cached(nn.Module):
    """A LLaMA decoder step: keys and values of the past are inputs, longer ones are outputs."""

    def __init__(self, attention: str = "eager") -> None:
        super().__init__()
        config = llama()
        config._attn_implementation = attention
        self.model = hf.LlamaForCausalLM(config)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        cache = hf.DynamicCache()
        cache.update(k, v, 0)
        positions = torch.arange(k.shape[2], k.shape[2] + ids.shape[1]).unsqueeze(0)
        out = self.model(ids, attention_mask=mask, past_key_values=cache, position_ids=positions)
        layer = out.past_key_values.layers[0]
        return out.logits, layer.keys, layer.values


class Experts(nn.Module):
    """A mixture of experts in which every token goes through each, weighted by a softmax over the best two."""

    def __init__(self, width: int = 16, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up, self.down = (nn.Parameter(torch.randn(experts, width, width)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        probabilities = self.router(tokens).softmax(-1)
        best, index = probabilities.topk(2, dim=-1)
        weights = torch.zeros_like(probabilities).scatter(1, index, best)
        hidden = F.relu(torch.bmm(tokens.expand(4, -1, -1), self.up))
        y = torch.bmm(hidden, self.down) * weights.t()[:, :, None]
        return y.sum(0).reshape(x.shape)


class Rotary(nn.Module):
    """Rotary embeddings: interleaved (GPT-J), of a part of each head (GPT-NeoX), of halves."""

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def turn(t: torch.Tensor) -> torch.Tensor:
            a, b = t[..., : t.shape[-1] // 2], t[..., t.shape[-1] // 2 :]
            return torch.cat((-b, a), dim=-1)

        def turn_pairs(t: torch.Tensor) -> torch.Tensor:
            return torch.stack((-t[..., 1::2], t[..., ::2]), dim=-1).flatten(-2)

        half_cos, half_sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
        pair_cos, pair_sin = torch.repeat_interleave(cos, 2, -1), torch.repeat_interleave(sin, 2, -1)
        part, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
        n = part.shape[-1] // 2
        few_cos, few_sin = torch.cat((cos[..., :n],) * 2, -1), torch.cat((sin[..., :n],) * 2, -1)
        return (
            x * half_cos + turn(x) * half_sin,
            x * pair_cos + turn_pairs(x) * pair_sin,
            torch.cat((part * few_cos + turn(part) * few_sin, rest), dim=-1),
        )


def llama(**more: Any) -> Any:
    return hf.LlamaConfig(**{**SMALL, "num_attention_heads": 4, "num_key_value_heads": 2, "use_cache": False, **more})


def t5() -> Any:
    return hf.T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, vocab_size=40, use_cache=False,
                       relative_attention_num_buckets=8, feed_forward_proj="gated-gelu")  # fmt: skip


X = torch.randn(1, 8, 16)
PAIR = torch.randn(2, 8, 16)
IMAGE = torch.randn(1, 3, 16, 16)
OLD = (("torchscript", 14, True), ("torch", 18, True))
NEW = (("torch", 20, True), ("torchscript", 17, True))
NEWEST = (("torch", 23, True), ("torchscript", 17, True))

CASES: dict[str, Case] = {
    "sdpa": Case(Attend, (X,), ("x",), NEW),
    "sdpa_23": Case(Attend, (X,), ("x",), (("torch", 23, True),)),
    "sdpa_open": Case(Attend, (PAIR,), ("x",), OLD, {"x": {0: "b", 1: "n"}}),
    "sdpa_causal": Case(lambda: Attend("causal"), (X,), ("x",), OLD),
    "sdpa_causal_open": Case(lambda: Attend("causal"), (PAIR,), ("x",), OLD, {"x": {0: "b", 1: "n"}}),
    "sdpa_mask": Case(Attend, (X, torch.randn(1, 1, 8, 8)), ("x", "mask"), OLD),
    "sdpa_bool": Case(Attend, (X, torch.ones(1, 1, 8, 8, dtype=torch.bool).tril()), ("x", "mask"), OLD),
    "packed": Case(Packed, (X,), ("x",), OLD),
    "packed_plain": Case(Packed, (X,), ("x",), (("torch", 18, False),)),
    "nanogpt": Case(Causal, (X,), ("x",), OLD),
    "cross": Case(Cross, (X, torch.randn(1, 5, 16)), ("x", "context"), OLD),
    "multihead": Case(lambda: Multihead(), (X,), ("x",), (("torchscript", 17, True), ("torch", 20, True))),
    "encoder_layer": Case(
        lambda: nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True), (X,), ("x",), OLD
    ),
    "rms_torch": Case(lambda: nn.RMSNorm(16, eps=1e-6), (X,), ("x",), (("torch", 18, True),)),
    "rms_torch_23": Case(lambda: nn.RMSNorm(16, eps=1e-6), (X,), ("x",), (("torch", 23, True),)),
    "rms": Case(Root, (X,), ("x",), NEWEST),
    "rms_18": Case(Root, (X,), ("x",), (("torch", 18, False), ("torchscript", 13, True))),
    "layer_norms": Case(Norms, (torch.randn(2, 8, 4, 4),), ("x",), (("torchscript", 13, True), ("torch", 18, True))),
    "unet_block": Case(
        UnetBlock,
        (torch.randn(1, 8, 6, 6), torch.randn(1, 12)),
        ("x", "t"),
        (("torchscript", 17, True), ("torch", 21, True)),
    ),
    "half_norms": Case(HalfNorms, (X.half(),), ("x",), (("torchscript", 17, True), ("torch", 23, True))),
    "grouped": Case(Grouped, (torch.randn(1, 3, 64, 64),), ("x",), (("torch", 21, True),)),
    "activations": Case(Activations, (X,), ("x",), (("torchscript", 17, True), ("torch", 18, True))),
    "activations_20": Case(Activations, (X,), ("x",), (("torch", 20, False),)),
    "lora": Case(Lora, (X,), ("x",), OLD),
    "rotary": Case(
        Rotary, (torch.randn(1, 2, 6, 8), torch.randn(1, 1, 6, 4), torch.randn(1, 1, 6, 4)), ("x", "cos", "sin"), NEWEST
    ),
    "bert": Case(
        only(hf.BertModel, hf.BertConfig(**SMALL), "input_ids", "attention_mask"), (IDS, MASK), ("ids", "mask"), OLD
    ),
    "bert_open": Case(
        only(hf.BertModel, hf.BertConfig(**SMALL), "input_ids", "attention_mask"),
        (IDS.repeat(2, 1), MASK.repeat(2, 1)),
        ("ids", "mask"),
        OLD,
        {"ids": {0: "b", 1: "n"}, "mask": {0: "b", 1: "n"}},
    ),
    "bert_eager": Case(
        only(hf.BertModel, hf.BertConfig(**SMALL), "input_ids", "attention_mask", attention="eager"),
        (IDS, MASK),
        ("ids", "mask"),
        NEW,
    ),
    "distilbert": Case(
        only(
            hf.DistilBertModel,
            hf.DistilBertConfig(
                dim=16, n_layers=1, n_heads=2, hidden_dim=32, vocab_size=40, max_position_embeddings=16
            ),
            "input_ids",
            "attention_mask",
        ),
        (IDS, MASK),
        ("ids", "mask"),
        OLD,
    ),
    "deberta": Case(
        only(
            hf.DebertaModel,
            hf.DebertaConfig(
                **SMALL,
                relative_attention=True,
                pos_att_type=["c2p", "p2c"],
                max_relative_positions=8,
                type_vocab_size=0,
            ),
            "input_ids",
            "attention_mask",
            attention="eager",
        ),
        (IDS, MASK),
        ("ids", "mask"),
        OLD,
    ),
    "gpt2": Case(
        only(
            hf.GPT2LMHeadModel,
            hf.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=40, n_positions=16, use_cache=False),
            "input_ids",
            "attention_mask",
            attention="eager",
        ),
        (IDS, MASK),
        ("ids", "mask"),
        OLD,
    ),
    "gpt2_sdpa": Case(
        only(
            hf.GPT2LMHeadModel,
            hf.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=40, n_positions=16, use_cache=False),
            "input_ids",
            "attention_mask",
        ),
        (IDS, MASK),
        ("ids", "mask"),
        NEW,
    ),
    "gpt2_last": Case(
        lambda: LastToken(
            hf.GPT2LMHeadModel(
                hf.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=40, n_positions=16, use_cache=False)
            )
        ),
        (IDS, MASK),
        ("ids", "mask"),
        OLD,
    ),
    "llama": Case(
        only(hf.LlamaForCausalLM, llama(), "input_ids", "attention_mask"), (IDS, MASK), ("ids", "mask"), NEWEST
    ),
    "llama_eager": Case(
        only(hf.LlamaForCausalLM, llama(), "input_ids", "attention_mask", attention="eager"),
        (IDS, MASK),
        ("ids", "mask"),
        OLD,
    ),
    "llama_open": Case(
        only(hf.LlamaForCausalLM, llama(), "input_ids", "attention_mask", attention="eager"),
        (IDS.repeat(2, 1), MASK.repeat(2, 1)),
        ("ids", "mask"),
        OLD,
        {"ids": {0: "b", 1: "n"}, "mask": {0: "b", 1: "n"}},
    ),
    "llama_cached": Case(
        lambda: Cached(),
        (IDS[:, :2], torch.ones(1, 7, dtype=torch.int64), torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4)),
        ("ids", "mask", "k", "v"),
        OLD,
    ),
    "llama_cached_23": Case(
        lambda: Cached("sdpa"),
        (IDS[:, :2], torch.ones(1, 7, dtype=torch.int64), torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4)),
        ("ids", "mask", "k", "v"),
        (("torch", 23, True),),
    ),
    "attend_cached": Case(
        AttendCached,
        (X[:, :2], torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8)),
        ("x", "k", "v"),
        (("torch", 23, True), ("torchscript", 17, True)),
    ),
    "qwen2": Case(
        only(
            hf.Qwen2ForCausalLM,
            hf.Qwen2Config(**{**SMALL, "num_attention_heads": 4}, num_key_value_heads=2, use_cache=False),
            "input_ids",
            "attention_mask",
            attention="eager",
        ),
        (IDS, MASK),
        ("ids", "mask"),
        NEWEST,
    ),
    "qwen3": Case(
        only(
            hf.Qwen3ForCausalLM,
            hf.Qwen3Config(**{**SMALL, "num_attention_heads": 4}, num_key_value_heads=2, head_dim=4, use_cache=False),
            "input_ids",
            "attention_mask",
            attention="eager",
        ),
        (IDS, MASK),
        ("ids", "mask"),
        NEWEST,
    ),
    "gemma": Case(
        only(
            hf.GemmaForCausalLM,
            hf.GemmaConfig(**{**SMALL, "num_attention_heads": 2}, num_key_value_heads=1, head_dim=8, use_cache=False),
            "input_ids",
            "attention_mask",
            attention="eager",
        ),
        (IDS, MASK),
        ("ids", "mask"),
        OLD,
    ),
    "mistral": Case(
        only(
            hf.MistralForCausalLM,
            hf.MistralConfig(
                **{**SMALL, "num_attention_heads": 4}, num_key_value_heads=2, sliding_window=4, use_cache=False
            ),
            "input_ids",
            "attention_mask",
        ),
        (IDS, MASK),
        ("ids", "mask"),
        NEW,
    ),
    "neox": Case(
        only(
            hf.GPTNeoXForCausalLM,
            hf.GPTNeoXConfig(**SMALL, use_cache=False),
            "input_ids",
            "attention_mask",
            attention="eager",
        ),
        (IDS, MASK),
        ("ids", "mask"),
        OLD,
    ),
    "mixtral": Case(
        only(
            hf.MixtralForCausalLM,
            hf.MixtralConfig(
                **SMALL, num_key_value_heads=2, num_local_experts=2, num_experts_per_tok=1, use_cache=False
            ),
            "input_ids",
            attention="eager",
        ),
        (IDS,),
        ("ids",),
        OLD,
    ),
    "t5_encoder": Case(
        only(hf.T5EncoderModel, t5(), "input_ids", "attention_mask", attention="eager"),
        (IDS, MASK),
        ("ids", "mask"),
        OLD,
    ),
    "moe": Case(Experts, (X,), ("x",), OLD),
    "t5": Case(
        only(
            hf.T5ForConditionalGeneration, t5(), "input_ids", "attention_mask", "decoder_input_ids", attention="eager"
        ),
        (IDS, MASK, IDS[:, :4]),
        ("ids", "mask", "decoder"),
        NEW[:1],
    ),
    "bart": Case(
        only(
            hf.BartModel,
            hf.BartConfig(
                d_model=16,
                encoder_layers=1,
                decoder_layers=1,
                encoder_attention_heads=2,
                decoder_attention_heads=2,
                encoder_ffn_dim=32,
                decoder_ffn_dim=32,
                vocab_size=40,
                max_position_embeddings=16,
                use_cache=False,
            ),
            "input_ids",
            "attention_mask",
            "decoder_input_ids",
            attention="eager",
        ),
        (IDS, MASK, IDS[:, :4]),
        ("ids", "mask", "decoder"),
        NEW[:1],
    ),
    "whisper_encoder": Case(
        only(
            hf.models.whisper.modeling_whisper.WhisperEncoder,
            hf.WhisperConfig(
                d_model=16,
                encoder_layers=1,
                encoder_attention_heads=2,
                encoder_ffn_dim=32,
                num_mel_bins=4,
                max_source_positions=8,
            ),
            "input_features",
        ),
        (torch.randn(1, 4, 16),),
        ("mel",),
        OLD,
    ),
    "clip_text": Case(
        only(hf.CLIPTextModel, hf.CLIPTextConfig(**SMALL, eos_token_id=2), "input_ids", attention="eager"),
        (IDS,),
        ("ids",),
        OLD,
    ),
    "vit": Case(
        only(
            hf.ViTModel,
            hf.ViTConfig(
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=32,
                image_size=16,
                patch_size=8,
            ),
            "pixel_values",
        ),
        (IMAGE,),
        ("image",),
        OLD,
    ),
    "swin": Case(
        only(
            hf.SwinModel,
            hf.SwinConfig(image_size=16, patch_size=2, embed_dim=8, depths=[2], num_heads=[2], window_size=4),
            "pixel_values",
            attention="eager",
        ),
        (IMAGE,),
        ("image",),
        NEW[:1],
    ),
    "bloom": Case(
        only(
            hf.BloomForCausalLM,
            hf.BloomConfig(hidden_size=16, n_layer=1, n_head=2, vocab_size=40, use_cache=False),
            "input_ids",
            attention="eager",
        ),
        (IDS,),
        ("ids",),
        OLD,
    ),
}


class Multihead(nn.Module):
    """torch's own multi-head attention."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class LastToken(nn.Module):
    """The logits of the last token only, taken after the head computed all."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.model(ids, attention_mask=mask).logits[:, -1]


def export(case: Case, exporter: str, opset: int, optimize: bool) -> bytes:
    """The module as a model, by one of the two exporters."""
    torch.manual_seed(0)
    model = case.make().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # a fresh layer norm is all ones and zeros
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
        if exporter == "torchscript":
            target = io.BytesIO()
            torch.onnx.export(model, case.args, target, input_names=list(case.names), dynamo=False, opset_version=opset,
                              dynamic_axes=case.dims or None)  # fmt: skip
            proto = onnx.load_from_string(target.getvalue())
        else:
            dims = {name: torch.export.Dim(name, max=16) for sizes in case.dims.values() for name in sizes.values()}
            shapes: Any = tuple({axis: dims[name] for axis, name in case.dims.get(n, {}).items()} for n in case.names)
            if isinstance(model, Only):
                shapes = (shapes,)  # its arguments are one tuple
            program = torch.onnx.export(model, case.args, input_names=list(case.names), dynamo=True,
                                        opset_version=opset,
                                        optimize=optimize, verbose=False,
                                        dynamic_shapes=shapes if dims else None)  # fmt: skip
            proto = program.model_proto
    return bare(proto).SerializeToString()


def bare(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model without notes about the source that it came from."""
    del proto.metadata_props[:]
    for graph in (proto.graph, *proto.functions):
        del graph.metadata_props[:]
        graph.doc_string = ""
        for node in graph.node:
            del node.metadata_props[:]
            node.doc_string = ""
        for value in (*graph.value_info, *getattr(graph, "input", ()), *getattr(graph, "output", ())):
            if not isinstance(value, str):
                del value.metadata_props[:]
    for tensor in proto.graph.initializer:
        del tensor.metadata_props[:]
        tensor.doc_string = ""
    return proto


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.backends.mha.set_fastpath_enabled(False)  # its one op is known to no exporter
    for name in names or CASES:
        for exporter, opset, optimize in CASES[name].ways:
            if f"{exporter}/{name}" in LEFT_OUT:
                continue
            path = HERE / exporter / f"{name}.onnx"
            try:
                data = export(CASES[name], exporter, opset, optimize)
            except Exception as error:  # some modules are beyond one of the exporters
                print(f"{exporter}/{name}: {type(error).__name__}: {str(error).strip().splitlines()[:1]}", flush=True)
                continue
            if len(data) > LIMIT:
                print(f"{exporter}/{name}: {len(data)} bytes are too many", flush=True)
                continue
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            print(f"{exporter}/{name}: opset {opset}, {len(data)} bytes", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
