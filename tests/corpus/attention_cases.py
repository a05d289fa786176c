"""The transformer models of the corpus: each a module, its arguments, and how it is exported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers as hf
from modules.attention import Attend, AttendCached, Causal, Cross, Multihead, Packed, Rotary
from modules.blocks import Activations, Experts, Grouped, HalfNorms, Lora, Norms, Root, UnetBlock
from modules.transformer import SMALL, Cached, LastToken, llama, only, t5
from torch import nn

IDS = torch.tensor([[3, 5, 7, 11, 2, 6, 4, 1]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1, 0, 0]])
X = torch.randn(1, 8, 16)
PAIR = torch.randn(2, 8, 16)
IMAGE = torch.randn(1, 3, 16, 16)
OLD = (("torchscript", 14, True), ("torch", 18, True))
NEW = (("torch", 20, True), ("torchscript", 17, True))
NEWEST = (("torch", 23, True), ("torchscript", 17, True))


@dataclass
class Case:
    """A module, its arguments, and how it is exported: ``ways`` are (exporter, opset, optimize)."""

    make: Callable[[], nn.Module]
    args: tuple[Any, ...]
    names: tuple[str, ...]
    ways: tuple[tuple[str, int, bool], ...] = (("torchscript", 17, True), ("torch", 18, True))
    dims: dict[str, dict[int, str]] = field(default_factory=dict)


def masked(kind: Any, config: Any, ways: tuple[tuple[str, int, bool], ...], attention: str = "eager") -> Case:
    """A transformers model that takes tokens and a mask of them."""
    make = only(kind, config, "input_ids", "attention_mask", attention=attention)
    return Case(make, (IDS, MASK), ("ids", "mask"), ways)


def translating(kind: Any, config: Any) -> Case:
    """A transformers model that takes tokens, a mask of them, and what is decoded so far."""
    make = only(kind, config, "input_ids", "attention_mask", "decoder_input_ids", attention="eager")
    return Case(make, (IDS, MASK, IDS[:, :4]), ("ids", "mask", "decoder"), NEW[:1])


def gpt2() -> Any:
    """A small GPT-2."""
    return hf.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=40, n_positions=16, use_cache=False)


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
    "multihead": Case(Multihead, (X,), ("x",), (("torchscript", 17, True), ("torch", 20, True))),
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
    "bert": masked(hf.BertModel, hf.BertConfig(**SMALL), OLD, attention="sdpa"),
    "bert_open": Case(
        only(hf.BertModel, hf.BertConfig(**SMALL), "input_ids", "attention_mask"),
        (IDS.repeat(2, 1), MASK.repeat(2, 1)),
        ("ids", "mask"),
        OLD,
        {"ids": {0: "b", 1: "n"}, "mask": {0: "b", 1: "n"}},
    ),
    "bert_eager": masked(hf.BertModel, hf.BertConfig(**SMALL), NEW),
    "distilbert": masked(
        hf.DistilBertModel,
        hf.DistilBertConfig(dim=16, n_layers=1, n_heads=2, hidden_dim=32, vocab_size=40, max_position_embeddings=16),
        OLD,
        attention="sdpa",
    ),
    "deberta": masked(
        hf.DebertaModel,
        hf.DebertaConfig(
            **SMALL,
            relative_attention=True,
            pos_att_type=["c2p", "p2c"],
            max_relative_positions=8,
            type_vocab_size=0,
        ),
        OLD,
    ),
    "gpt2": masked(hf.GPT2LMHeadModel, gpt2(), OLD),
    "gpt2_sdpa": masked(hf.GPT2LMHeadModel, gpt2(), NEW, attention="sdpa"),
    "gpt2_last": Case(
        lambda: LastToken(hf.GPT2LMHeadModel(gpt2())),
        (IDS, MASK),
        ("ids", "mask"),
        OLD,
    ),
    "llama": masked(hf.LlamaForCausalLM, llama(), NEWEST, attention="sdpa"),
    "llama_eager": masked(hf.LlamaForCausalLM, llama(), OLD),
    "llama_open": Case(
        only(hf.LlamaForCausalLM, llama(), "input_ids", "attention_mask", attention="eager"),
        (IDS.repeat(2, 1), MASK.repeat(2, 1)),
        ("ids", "mask"),
        OLD,
        {"ids": {0: "b", 1: "n"}, "mask": {0: "b", 1: "n"}},
    ),
    "llama_cached": Case(
        Cached,
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
    "qwen2": masked(
        hf.Qwen2ForCausalLM,
        hf.Qwen2Config(**{**SMALL, "num_attention_heads": 4}, num_key_value_heads=2, use_cache=False),
        NEWEST,
    ),
    "qwen3": masked(
        hf.Qwen3ForCausalLM,
        hf.Qwen3Config(**{**SMALL, "num_attention_heads": 4}, num_key_value_heads=2, head_dim=4, use_cache=False),
        NEWEST,
    ),
    "gemma": masked(
        hf.GemmaForCausalLM,
        hf.GemmaConfig(**{**SMALL, "num_attention_heads": 2}, num_key_value_heads=1, head_dim=8, use_cache=False),
        OLD,
    ),
    "mistral": masked(
        hf.MistralForCausalLM,
        hf.MistralConfig(
            **{**SMALL, "num_attention_heads": 4}, num_key_value_heads=2, sliding_window=4, use_cache=False
        ),
        NEW,
        attention="sdpa",
    ),
    "neox": masked(hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(**SMALL, use_cache=False), OLD),
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
    "t5_encoder": masked(hf.T5EncoderModel, t5(), OLD),
    "moe": Case(Experts, (X,), ("x",), OLD),
    "t5": translating(hf.T5ForConditionalGeneration, t5()),
    "bart": translating(
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
