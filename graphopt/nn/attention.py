"""Attention modules: projections of queries, keys and values, heads, and the output projection."""

from __future__ import annotations

from typing import Any, overload

from graphopt.errors import UsageError
from graphopt.nn import functions
from graphopt.nn.functions import Past
from graphopt.nn.initial import uniform
from graphopt.nn.layers import Linear
from graphopt.nn.module import Module
from graphopt.nn.scope import Operand
from graphopt.nn.tensor import Parameter, Tensor


class Attention(Module):
    """Attention with a projection each for queries, keys, values and results, named as decoders name them.

    ``kv_heads`` fewer than ``heads`` share keys and values among neighbouring heads of queries, ``rotary`` is the base
    by which positions turn queries and keys, and ``causal`` lets no query see keys behind its own place.

    >>> print(nn.export(nn.Attention(8, heads=2, causal=True), WORDS, parameters="inputs"))
    graph ...
    %8: float32[n, words, 8] = MatMul(%6, %7)
    return %8 as y
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        *,
        bias: bool = False,
        causal: bool = False,
        rotary: float | None = None,
        dtype: str = "float32",
    ) -> None:
        """``head_dim`` is dim / heads, and ``kv_heads`` is heads, if they are not given."""
        self.heads, self.kv_heads = heads, kv_heads or heads
        self.causal, self.rotary = causal, rotary
        if heads < 1 or heads % self.kv_heads or (head_dim is None and dim % heads):
            raise UsageError(f"{dim} features cannot be split into {heads} heads, or these into {kv_heads} groups")
        size = head_dim or dim // heads
        self.q_proj = Linear(dim, heads * size, bias, dtype=dtype)
        self.k_proj = Linear(dim, self.kv_heads * size, bias, dtype=dtype)
        self.v_proj = Linear(dim, self.kv_heads * size, bias, dtype=dtype)
        self.o_proj = Linear(heads * size, dim, bias, dtype=dtype)

    @overload
    def forward(
        self, x: Tensor, mask: Operand = None, positions: Tensor | None = None, past: None = None
    ) -> Tensor: ...
    @overload
    def forward(
        self, x: Tensor, mask: Operand = None, positions: Tensor | None = None, *, past: Past
    ) -> tuple[Tensor, Past]: ...
    def forward(
        self, x: Tensor, mask: Operand = None, positions: Tensor | None = None, past: Past | None = None
    ) -> Tensor | tuple[Tensor, Past]:
        """[batch, length, dim] to the same. ``mask`` is as in ``nn.attention``; ``positions`` [batch, length] are 0, 1,
        ... if they are not given, or go on from the past.

        ``past`` are keys and values of tokens before these, [batch, kv_heads, tokens, head_dim]: what comes back is the
        result, and those with the new ones behind them. A compiled model keeps them (``bind_state``)."""
        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.rotary is not None:
            if positions is None:
                first = 0 if past is None else past[0].shape[2]
                positions = functions.broadcast_to(functions.arange(first + x.shape[1], start=first), x.shape[:2])
            query = functions.rotary(query, positions, heads=self.heads, base=self.rotary)
            key = functions.rotary(key, positions, heads=self.kv_heads, base=self.rotary)
        kind: dict[str, Any] = {"heads": self.heads, "kv_heads": self.kv_heads, "causal": self.causal}
        if past is None:
            projected: Tensor = self.o_proj(functions.attention(query, key, value, mask, **kind))
            return projected
        attended, present = functions.attention(query, key, value, mask, past=past, **kind)
        return self.o_proj(attended), present


class MultiheadAttention(Module):
    """torch's module of that name, batches first: one weight projects queries, keys and values.

    >>> print(nn.export(nn.MultiheadAttention(8, 2), WORDS, parameters="inputs"))
    graph ...
    %18: float32[n, words, 8] = Add(%17, out_proj.bias)
    return %18 as y
    """

    def __init__(self, embed_dim: int, num_heads: int, bias: bool = True, *, dtype: str = "float32") -> None:
        if num_heads < 1 or embed_dim % num_heads:
            raise UsageError(f"{embed_dim} features cannot be split into {num_heads} heads")
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.in_proj_weight = Parameter((3 * embed_dim, embed_dim), dtype, uniform(embed_dim))
        self.in_proj_bias = Parameter((3 * embed_dim,), dtype, uniform(embed_dim)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Operand = None,
        causal: bool = False,
    ) -> Tensor:
        """[batch, length, embed_dim] to the same; keys are the queries, and values the keys, if they are not given.
        ``mask`` is as in ``nn.attention``: True where a query sees a key."""
        key = query if key is None else key
        q, k, v = map(self._projected, range(3), (query, key, key if value is None else value))
        projected: Tensor = self.out_proj(functions.attention(q, k, v, mask, heads=self.num_heads, causal=causal))
        return projected

    def _projected(self, part: int, x: Tensor) -> Tensor:
        """By which third of the weight."""
        rows = slice(part * self.embed_dim, (part + 1) * self.embed_dim)
        bias = None if self.in_proj_bias is None else self.in_proj_bias[rows]
        return functions.linear(x, self.in_proj_weight[rows], bias)
