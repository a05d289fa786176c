"""Tiny ``transformers`` models as modules that take tensors by position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import nn

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
         "vocab_size": 40, "max_position_embeddings": 16}  # fmt: skip


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


def llama(**more: Any) -> Any:
    return hf.LlamaConfig(**{**SMALL, "num_attention_heads": 4, "num_key_value_heads": 2, "use_cache": False, **more})


def t5() -> Any:
    return hf.T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, vocab_size=40, use_cache=False,
                       relative_attention_num_buckets=8, feed_forward_proj="gated-gelu")  # fmt: skip


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


class LastToken(nn.Module):
    """The logits of the last token only, taken after the head computed all."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.model(ids, attention_mask=mask).logits[:, -1]
