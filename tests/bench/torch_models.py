"""Ten architectures as torch runs them, as its inductor compiles them and as graphopt does, in turns.

    python -m tests.bench.torch_models [NAME ...] [--threads 1] [--seconds 2]

The models are mostly those of transformers' default configurations, with random weights. Each engine runs in turn for
some calls, and the least time of a call in each turn counts; ratios are those of the medians over turns.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch
import transformers as hf

from graphopt.frontends.torch.backend import backend
from tests.frontends.torch.architectures import Architecture, Tagger

TURNS = 7


def _images(size: int) -> Callable[[int], Mapping[str, torch.Tensor]]:
    return lambda batch: {"pixel_values": torch.randn(batch, 3, size, size)}


def _words(length: int) -> Callable[[int], Mapping[str, torch.Tensor]]:
    return lambda batch: {"input_ids": torch.randint(0, 99, (batch, length))}


MODELS: Mapping[str, Architecture] = {
    "ResNet-50": Architecture(lambda: hf.ResNetForImageClassification(hf.ResNetConfig()), _images(224)),
    "MobileNetV2": Architecture(lambda: hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config()), _images(224)),
    "ConvNeXt-T": Architecture(lambda: hf.ConvNextForImageClassification(hf.ConvNextConfig()), _images(224)),
    "ViT-B/16": Architecture(lambda: hf.ViTForImageClassification(hf.ViTConfig()), _images(224)),
    "BERT base": Architecture(lambda: hf.BertModel(hf.BertConfig()), _words(128)),
    "GPT-2": Architecture(lambda: hf.GPT2LMHeadModel(hf.GPT2Config(use_cache=False)), _words(128)),
    "Llama, 8 layers of 1024": Architecture(
        lambda: hf.LlamaForCausalLM(
            hf.LlamaConfig(
                vocab_size=32000,
                hidden_size=1024,
                intermediate_size=2816,
                num_hidden_layers=8,
                num_attention_heads=16,
                num_key_value_heads=4,
                use_cache=False,
            )
        ),
        _words(64),
    ),
    "T5 encoder, small": Architecture(lambda: hf.T5EncoderModel(hf.T5Config()), _words(128)),
    "Whisper encoder, tiny": Architecture(
        lambda: hf.models.whisper.modeling_whisper.WhisperEncoder(
            hf.WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
        ),
        lambda batch: {"input_features": torch.randn(batch, 80, 3000)},
    ),
    "LSTM tagger": Architecture(Tagger, _words(64)),
}


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="for one turn of one engine")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch._dynamo.config.allow_rnn = True
    warnings.simplefilter("ignore")
    print("| model | torch | inductor | graphopt | over torch | over inductor | err |\n|---|---|---|---|---|---|---|")
    for name in given.names:
        print(row(name, given.seconds), flush=True)


def row(name: str, seconds: float) -> str:
    """Milliseconds of a call for each engine, the ratios, and the largest difference from torch's largest element."""
    model, inputs = MODELS[name].model(), MODELS[name].inputs(1)
    engines: dict[str, Any] = {"torch": model}
    with torch.inference_mode():
        wanted = _first(model(**inputs))
        for engine, chosen in (("inductor", "inductor"), ("graphopt", backend)):
            made = torch.compile(model, backend=chosen)
            try:
                found = _first(made(**inputs))
            except Exception as error:  # a compiler of C++ that is not there, say
                print(f"{name}: {engine}: {type(error).__name__}: {str(error).splitlines()[0]}")
                continue
            engines[engine] = made
        error = float((found - wanted).abs().max() / wanted.abs().max())
        times = in_turns(engines, inputs, seconds)
    cells = [f"{times[e] * 1e3:.2f}" if e in times else "-" for e in ("torch", "inductor", "graphopt")]
    ratios = [f"{times[e] / times['graphopt']:.2f}x" if e in times else "-" for e in ("torch", "inductor")]
    return f"| {name} | {' | '.join([*cells, *ratios])} | {error:.0e} |"


def in_turns(engines: Mapping[str, Any], inputs: Mapping[str, Any], seconds: float) -> dict[str, float]:
    """The median over turns of the least seconds of a call."""
    least: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(TURNS):
        for name, run in engines.items():
            times, end = [], time.perf_counter() + seconds
            while not times or time.perf_counter() < end:
                start = time.perf_counter()
                run(**inputs)
                times.append(time.perf_counter() - start)
            least[name].append(min(times))
    return {name: median(times) for name, times in least.items()}


def _first(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else next(iter(result.values()))


if __name__ == "__main__":
    main()
