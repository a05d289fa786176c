"""Attention as torch modules have it: fused, packed, causal, across sequences, with a cache; rotary embeddings."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import nn


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


class Multihead(nn.Module):
    """torch's own multi-head attention."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


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
