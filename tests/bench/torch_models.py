"""Ten architectures as torch runs them, as its inductor compiles them and as graphopt does.

    python -m tests.bench.torch_models [NAME ...] [--threads 1] [--seconds 1]

The models are mostly those of transformers' default configurations, with random weights. All of a row is measured in
one run, engines taking turns, the least of bursts: milliseconds of each engine, the ratios to graphopt, the seconds
that the first call of graphopt took, and the error as a multiple of what is allowed.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import transformers as hf

from graphopt.frontends.torch.backend import backend
from graphopt.ir.tolerance import error
from tests.bench.turns import Table, arguments, burst, geometric_mean, keep_to_cores, least
from tests.frontends.torch.architectures import Architecture, Tagger

TABLE = Table(
    "model",
    14,
    "torch:10.2f inductor:10.2f graphopt:10.2f to_torch:10.2f to_inductor:13.2f first:8.1f error:9.2g",
)


def _images(size: int) -> Callable[[int], Mapping[str, torch.Tensor]]:
    return lambda batch: {"pixel_values": torch.randn(batch, 3, size, size)}


def _words(length: int) -> Callable[[int], Mapping[str, torch.Tensor]]:
    return lambda batch: {"input_ids": torch.randint(0, 99, (batch, length))}


MODELS: Mapping[str, Architecture] = {
    "resnet50": Architecture(lambda: hf.ResNetForImageClassification(hf.ResNetConfig()), _images(224)),
    "mobilenet_v2": Architecture(lambda: hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config()), _images(224)),
    "convnext_t": Architecture(lambda: hf.ConvNextForImageClassification(hf.ConvNextConfig()), _images(224)),
    "vit_b16": Architecture(lambda: hf.ViTForImageClassification(hf.ViTConfig()), _images(224)),
    "bert_base": Architecture(lambda: hf.BertModel(hf.BertConfig()), _words(128)),
    "gpt2": Architecture(lambda: hf.GPT2LMHeadModel(hf.GPT2Config(use_cache=False)), _words(128)),
    "llama_8x1024": Architecture(
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
    "t5_small": Architecture(lambda: hf.T5EncoderModel(hf.T5Config()), _words(128)),
    "whisper_tiny": Architecture(
        lambda: hf.models.whisper.modeling_whisper.WhisperEncoder(
            hf.WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
        ),
        lambda batch: {"input_features": torch.randn(batch, 80, 3000)},
    ),
    "lstm": Architecture(Tagger, _words(64)),
}
ENGINES: Mapping[str, Any] = {"torch": None, "inductor": "inductor", "graphopt": backend}


def figures(name: str, seconds: float) -> list[float]:
    """What a line says of a model; an engine that does not run here took no number of seconds."""
    model, inputs = MODELS[name].model(), MODELS[name].inputs(1)
    torch._dynamo.reset()
    times, calls, results = dict.fromkeys(ENGINES, math.nan), {}, {}
    for engine, chosen in ENGINES.items():
        run = partial(model if chosen is None else torch.compile(model, backend=chosen), **inputs)
        start = time.perf_counter()
        try:
            results[engine] = _first(run())
        except Exception as why:
            if engine != "inductor":  # it wants a compiler of C++, which may not be there
                raise
            print(f"{name}: {engine}: {type(why).__name__}: {str(why).splitlines()[0]}")
            continue
        calls[engine], first = run, time.perf_counter() - start
    timers = [partial(burst, call, seconds) for call in calls.values()]
    times.update(zip(calls, least(*timers), strict=True))
    away = float(error(results["torch"].numpy(), results["graphopt"].numpy()))
    mine = times["graphopt"]
    return [*(t * 1e3 for t in times.values()), times["torch"] / mine, times["inductor"] / mine, first, away]


def _first(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else next(iter(result.values()))


def main() -> None:
    parser = arguments(__doc__, f"of {', '.join(MODELS)}")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn of an engine")
    given = parser.parse_args()
    keep_to_cores(given.threads)
    torch.set_num_threads(given.threads)
    torch._dynamo.config.allow_rnn = True
    warnings.simplefilter("ignore")
    print(TABLE.heading)
    found = []
    with torch.no_grad():  # weights that are made in inference mode tell of no changes, and would be no constants
        for name in given.names or MODELS:
            found.append(figures(name, given.seconds))
            print(TABLE.line(name, *found[-1]), flush=True)
    for engine, column in (("torch", 3), ("inductor", 4)):
        print(f"to {engine}: {geometric_mean(row[column] for row in found)}")


if __name__ == "__main__":
    main()
