"""Ten architectures from transformers and torch, small and with random weights, each with inputs for any batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf

VOCABULARY = 99


@dataclass(frozen=True)
class Architecture:
    """How to make a model, and keyword arguments for it with a batch of so many."""

    make: Callable[[], torch.nn.Module]
    inputs: Callable[[int], Mapping[str, torch.Tensor]]

    def model(self) -> torch.nn.Module:
        """The model with the same random weights each time, for inference."""
        torch.manual_seed(0)
        model = self.make().eval()
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name.endswith("running_var"):
                    buffer.uniform_(0.5, 1.5)
                elif name.endswith("running_mean"):
                    buffer.normal_(0, 0.2)
        return model


class Tagger(torch.nn.Module):
    """Classifies the words of a sentence by an LSTM that reads both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, 16)
        self.lstm = torch.nn.LSTM(16, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.head = torch.nn.Linear(48, 5)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(input_ids))[0])


def images(size: int) -> Callable[[int], Mapping[str, torch.Tensor]]:
    return lambda batch: {"pixel_values": _random((batch, 3, size, size))}


def words(length: int = 7, masked: bool = False) -> Callable[[int], Mapping[str, torch.Tensor]]:
    def inputs(batch: int) -> Mapping[str, torch.Tensor]:
        ids = torch.randint(0, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(batch))
        mask = torch.ones_like(ids)
        mask[1:, length - 2 :] = 0
        return {"input_ids": ids, "attention_mask": mask} if masked else {"input_ids": ids}

    return inputs


def _random(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(shape[0]))


_TINY: Mapping[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}

ARCHITECTURES: Mapping[str, Architecture] = {
    "resnet": Architecture(
        lambda: hf.ResNetForImageClassification(
            hf.ResNetConfig(embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], layer_type="bottleneck")
        ),
        images(32),
    ),
    "mobilenet": Architecture(
        lambda: hf.MobileNetV2ForImageClassification(
            hf.MobileNetV2Config(depth_multiplier=0.25, image_size=32, finegrained_output=False)
        ),
        images(32),
    ),
    "convnext": Architecture(
        lambda: hf.ConvNextForImageClassification(
            hf.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], image_size=32)
        ),
        images(32),
    ),
    "vit": Architecture(
        lambda: hf.ViTForImageClassification(hf.ViTConfig(**_TINY, image_size=16, patch_size=8)), images(16)
    ),
    "bert": Architecture(
        lambda: hf.BertForSequenceClassification(
            hf.BertConfig(**_TINY, vocab_size=VOCABULARY, max_position_embeddings=32)
        ),
        words(masked=True),
    ),
    "gpt2": Architecture(
        lambda: hf.GPT2LMHeadModel(
            hf.GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=4, use_cache=False)
        ),
        words(),
    ),
    "llama": Architecture(
        lambda: hf.LlamaForCausalLM(
            hf.LlamaConfig(
                **_TINY, vocab_size=VOCABULARY, num_key_value_heads=2, max_position_embeddings=32, use_cache=False
            )
        ),
        words(),
    ),
    "t5": Architecture(
        lambda: hf.T5EncoderModel(
            hf.T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
        ),
        words(masked=True),
    ),
    "whisper": Architecture(
        lambda: hf.models.whisper.modeling_whisper.WhisperEncoder(
            hf.WhisperConfig(
                d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64, max_source_positions=16
            )
        ),
        lambda batch: {"input_features": _random((batch, 80, 32))},
    ),
    "lstm": Architecture(Tagger, words()),
}
