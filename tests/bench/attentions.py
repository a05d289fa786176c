"""Transformers as torch's two exporters write them: attentions found for ONNX Runtime, and what they are worth there.

    python -m tests.bench.attentions [NAME ...] [--ways dynamo,torchscript] [--size 256] [--past 64] [--keep FOLDER]
                                     [--formats qdq,projections,dynamic,int4]

It wants torch, transformers and onnxscript beside ONNX Runtime. Models have random weights of one seed, and open sizes
of batch, sequence and past. A line is an export: how many softmaxes it has, how many attentions are one op after
``graphopt.optimize`` with the target ``ort``, the time of the original by that of the result (processor time of one
thread, in turns), and the greatest difference of outputs by their scale. ``--keep`` is a folder of exports, which
are read from there where they are. ``--compiled`` has ``graphopt.compile`` in the place of ``optimize``. ``--formats``
adds a line for each quantized form that ONNX Runtime's tools make of an export: static with Q/DQ pairs, the same around
products with weights alone, dynamic, and weights of four bits.
"""

from __future__ import annotations

import argparse
import io
import logging
import re
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers as hf
from torch import nn

import graphopt
from graphopt.ir import onnx_io
from tests.bench.turns import burst, geometric_mean, least, session

LAYERS, VOCABULARY, HEADS = 2, 1000, 8
PAST = "past_key_values"
Open = Mapping[str, Mapping[int, str]]


@dataclass
class Case:
    """A module of tensors by position: their names, shapes by the sizes of names, and the names of outputs."""

    make: Callable[[], nn.Module]
    inputs: Mapping[str, tuple[str, tuple[int | str, ...]]]
    outputs: Sequence[str] = ("output",)
    opset: int = 18
    words: int = VOCABULARY


class Positional(nn.Module):
    """A model of transformers as a function of named tensors by position, whose first output is given."""

    def __init__(self, model: nn.Module, names: Sequence[str], **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.names, args, strict=True)), **self.fixed)[0]


class Decoder(nn.Module):
    """A decoder step with its cache: past keys and values of each layer in, longer ones out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor, *past: torch.Tensor
    ) -> Any:
        cache = hf.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        out = self.model(
            input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=True,
        )
        return (out.logits, *(t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)))


class CrossDecoder(nn.Module):
    """A step of a decoder of two inputs: the encoder's states, and a cache of both kinds of attention."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, states: torch.Tensor, *past: torch.Tensor) -> Any:
        cache = hf.EncoderDecoderCache(hf.DynamicCache(), hf.DynamicCache())
        for layer in range(len(past) // 4):
            own = past[4 * layer : 4 * layer + 2]
            cross = past[4 * layer + 2 : 4 * layer + 4]
            cache.self_attention_cache.update(*own, layer)
            cache.cross_attention_cache.update(*cross, layer)
            cache.is_updated[layer] = True
        out = self.model(
            decoder_input_ids=ids, encoder_outputs=(states,), past_key_values=cache, use_cache=True, return_dict=True
        )
        return (out.logits, *(t for layer in cache.self_attention_cache.layers for t in (layer.keys, layer.values)))


def decoder(kind: Any, config: Any, attention: str = "sdpa") -> Case:
    """A decoder with its cache, of whatever heads its configuration has."""
    config._attn_implementation = attention
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    pairs = [f"{PAST}.{i}.{part}" for i in range(config.num_hidden_layers) for part in ("key", "value")]
    inputs: dict[str, tuple[str, tuple[int | str, ...]]] = {
        "input_ids": ("tokens", ("batch", "seq")),
        "attention_mask": ("ones", ("batch", "past+seq")),
        "position_ids": ("positions", ("batch", "seq")),
    }
    inputs |= dict.fromkeys(pairs, ("float", ("batch", heads, "past", width)))
    outputs = ("logits", *(name.replace(PAST, "present") for name in pairs))
    return Case(lambda: Decoder(kind(config)), inputs, outputs, words=config.vocab_size)


def crossed(kind: Any, config: Any, heads: int, width: int, states: int, attention: str = "sdpa") -> Case:
    """A decoder with cross attention and its caches."""
    config._attn_implementation = attention
    layers = getattr(config, "num_decoder_layers", None) or config.decoder_layers
    own = [f"past.{i}.{part}" for i in range(layers) for part in ("key", "value", "cross_key", "cross_value")]
    inputs: dict[str, tuple[str, tuple[int | str, ...]]] = {
        "ids": ("tokens", ("batch", "seq")),
        "states": ("float", ("batch", "source", states)),
    }
    inputs |= {n: ("float", ("batch", heads, "source" if "cross" in n else "past", width)) for n in own}
    outputs = [n.replace("past", "present") for n in own if "cross" not in n]
    return Case(lambda: CrossDecoder(kind(config)), inputs, ("logits", *outputs))


def encoder(kind: Any, config: Any, inputs: Mapping[str, tuple[str, tuple[int | str, ...]]], **fixed: Any) -> Case:
    """A model that gives its first output for these inputs."""
    config._attn_implementation = fixed.pop("attention", "sdpa")
    names = list(inputs)
    return Case(lambda: Positional(kind(config), names, **fixed), inputs)


def cases(size: int) -> dict[str, Case]:
    """The models, of this width."""
    shape = {
        "hidden_size": size,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 4 * size,
        "vocab_size": VOCABULARY,
    }
    grouped = {**shape, "num_key_value_heads": 2}
    text: dict[str, tuple[str, tuple[int | str, ...]]] = {
        "input_ids": ("tokens", ("batch", "seq")),
        "attention_mask": ("ones", ("batch", "seq")),
    }
    image: dict[str, tuple[str, tuple[int | str, ...]]] = {"pixel_values": ("float", ("batch", 3, 64, 64))}
    vision = {**{k: v for k, v in shape.items() if k != "vocab_size"}, "image_size": 64, "patch_size": 8}
    t5 = hf.T5Config(d_model=size, d_kv=size // HEADS, d_ff=4 * size, num_layers=LAYERS, num_heads=HEADS,
                     vocab_size=VOCABULARY, feed_forward_proj="gated-gelu", use_cache=False)  # fmt: skip
    whisper = hf.WhisperConfig(d_model=size, encoder_layers=LAYERS, decoder_layers=LAYERS, vocab_size=VOCABULARY,
                               encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=4 * size,
                               decoder_ffn_dim=4 * size, max_source_positions=100, pad_token_id=0, bos_token_id=1,
                               eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None,
                               begin_suppress_tokens=None)  # fmt: skip
    gpt2 = hf.GPT2Config(n_embd=size, n_layer=LAYERS, n_head=HEADS, vocab_size=VOCABULARY)
    neox = hf.GPTNeoXConfig(**shape)
    gptj = hf.GPTJConfig(
        n_embd=size, n_layer=LAYERS, n_head=HEADS, vocab_size=VOCABULARY, rotary_dim=size // HEADS // 2
    )
    mixtral = hf.MixtralConfig(**grouped, num_local_experts=4, num_experts_per_tok=2)
    sam = hf.SamVisionConfig(hidden_size=size, num_hidden_layers=LAYERS, num_attention_heads=HEADS, image_size=64,
                             patch_size=8, output_channels=32, window_size=4, global_attn_indexes=[1],
                             mlp_dim=4 * size)  # fmt: skip
    layer = {"dropout": 0.0, "batch_first": True}
    sequence: tuple[int | str, ...] = ("batch", "seq", size)
    return {
        "bert": encoder(hf.BertModel, hf.BertConfig(**shape), text),
        "bert_eager": encoder(hf.BertModel, hf.BertConfig(**shape), text, attention="eager"),
        "gpt2": decoder(hf.GPT2LMHeadModel, gpt2),
        "gpt2_eager": decoder(hf.GPT2LMHeadModel, gpt2, "eager"),
        "llama": decoder(hf.LlamaForCausalLM, hf.LlamaConfig(**grouped)),
        "llama_eager": decoder(hf.LlamaForCausalLM, hf.LlamaConfig(**grouped), "eager"),
        "qwen2": decoder(hf.Qwen2ForCausalLM, hf.Qwen2Config(**grouped)),
        "qwen3": decoder(hf.Qwen3ForCausalLM, hf.Qwen3Config(**grouped, head_dim=size // HEADS)),
        "gemma": decoder(hf.GemmaForCausalLM, hf.GemmaConfig(**grouped, head_dim=size // HEADS)),
        "gemma2": decoder(hf.Gemma2ForCausalLM, hf.Gemma2Config(**grouped, head_dim=size // HEADS), "eager"),
        "gemma3": decoder(hf.Gemma3ForCausalLM, hf.Gemma3TextConfig(**grouped, head_dim=size // HEADS)),
        "phi3": decoder(hf.Phi3ForCausalLM, hf.Phi3Config(**grouped, pad_token_id=0)),
        "mistral": decoder(hf.MistralForCausalLM, hf.MistralConfig(**grouped, sliding_window=32)),
        "mixtral": decoder(hf.MixtralForCausalLM, mixtral),
        "neox": decoder(hf.GPTNeoXForCausalLM, neox),
        "gptj": decoder(hf.GPTJForCausalLM, gptj),
        "bloom": decoder(
            hf.BloomForCausalLM,
            hf.BloomConfig(hidden_size=size, n_layer=LAYERS, n_head=HEADS, vocab_size=VOCABULARY),
            "eager",
        ),
        "t5_encoder": encoder(hf.T5EncoderModel, t5, text, attention="eager"),
        "t5_decoder": crossed(hf.T5ForConditionalGeneration, t5, HEADS, size // HEADS, size, "eager"),
        "whisper_encoder": encoder(
            hf.models.whisper.modeling_whisper.WhisperEncoder,
            whisper,
            {"input_features": ("float", ("batch", 80, 200))},
        ),
        "whisper_decoder": crossed(hf.WhisperForConditionalGeneration, whisper, HEADS, size // HEADS, size),
        "clip_text": encoder(hf.CLIPTextModel, hf.CLIPTextConfig(**shape), text),
        "clip_vision": encoder(hf.CLIPVisionModel, hf.CLIPVisionConfig(**vision), image),
        "vit": encoder(hf.ViTModel, hf.ViTConfig(**vision), image),
        "dinov2_open": encoder(
            hf.Dinov2Model,
            hf.Dinov2Config(
                hidden_size=size, num_hidden_layers=LAYERS, num_attention_heads=HEADS, image_size=64, patch_size=8
            ),
            {"pixel_values": ("float", ("batch", 3, "height", "width"))},
        ),
        "sam_vision": encoder(hf.models.sam.modeling_sam.SamVisionEncoder, sam, image),
        "torch_encoder": Case(
            lambda: nn.TransformerEncoderLayer(size, HEADS, 4 * size, **layer), {"x": ("float", sequence)}
        ),
        "torch_decoder": Case(
            lambda: nn.TransformerDecoderLayer(size, HEADS, 4 * size, **layer),
            {"x": ("float", sequence), "memory": ("float", ("batch", "source", size))},
        ),
        "torch_encoder_first": Case(
            lambda: nn.TransformerEncoderLayer(size, HEADS, 4 * size, dropout=0.0, norm_first=True),
            {"x": ("float", ("seq", "batch", size))},
        ),
    }


def shape_of(wanted: Sequence[int | str], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """A shape in numbers."""
    return tuple(n if isinstance(n, int) else sum(sizes[part] for part in n.split("+")) for n in wanted)


def feeds(case: Case, sizes: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Arrays for the inputs of a model of these sizes."""
    random = np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {}
    for name, (kind, wanted) in case.inputs.items():
        shape = shape_of(wanted, sizes)
        if kind == "tokens":
            out[name] = random.integers(0, case.words, shape)
        elif kind == "ones":
            out[name] = np.ones(shape, np.int64)
        elif kind == "positions":
            out[name] = np.broadcast_to(sizes["past"] + np.arange(shape[1]), shape).copy()
        else:
            out[name] = random.standard_normal(shape).astype(np.float32)
    return out


def exported(case: Case, way: str, sizes: Mapping[str, int]) -> bytes:
    """The model as one of torch's exporters writes it. Whatever the exporter raises."""
    torch.manual_seed(0)
    model = case.make().eval()
    args = tuple(torch.from_numpy(a) for a in feeds(case, sizes).values())
    names = list(case.inputs)
    axes = {n: {i: s for i, s in enumerate(shape) if isinstance(s, str)} for n, (_, shape) in case.inputs.items()}
    with torch.no_grad():
        if way == "torchscript":
            target = io.BytesIO()
            written = {n: {i: s.replace("+", "_") for i, s in a.items()} for n, a in axes.items()}
            torch.onnx.export(model, args, target, input_names=names, output_names=list(case.outputs), dynamo=False,
                              opset_version=17, dynamic_axes=written)  # fmt: skip
            return target.getvalue()
        shapes = [dict(a) for a in axes.values()]
        program = torch.onnx.export(model, args, input_names=names, output_names=list(case.outputs), dynamo=True,
                                    opset_version=case.opset, verbose=False,
                                    dynamic_shapes=by_parameter(model, shapes))  # fmt: skip
        proto: onnx.ModelProto = program.model_proto
        return proto.SerializeToString()


def by_parameter(model: nn.Module, shapes: list[Any]) -> Any:
    """Open sizes in the form of the parameters of ``forward``: those of ``*args`` are a tuple of their own."""
    import inspect

    parameters = inspect.signature(model.forward).parameters.values()
    single = [p for p in parameters if p.kind is not inspect.Parameter.VAR_POSITIONAL]
    if len(single) == len(list(parameters)):
        return tuple(shapes)
    return (*shapes[: len(single)], tuple(shapes[len(single) :]))


def quantized(data: bytes, form: str, given: Mapping[str, np.ndarray]) -> bytes:
    """A model in a quantized form, by ONNX Runtime's own tools; static scales come from one run."""
    from onnxruntime import quantization
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    class Once(quantization.CalibrationDataReader):  # type: ignore[misc]
        samples = iter([given])

        def get_next(self) -> Mapping[str, np.ndarray] | None:
            return next(self.samples, None)

    if form == "int4":
        quantizer = MatMulNBitsQuantizer(onnx.load_from_string(data), block_size=32, is_symmetric=True)
        quantizer.process()
        packed: bytes = quantizer.model.model.SerializeToString()
        return packed
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "before.onnx"), Path(folder, "after.onnx")
        before.write_bytes(data)
        if form in ("qdq", "projections"):
            graph, only = onnx.load_from_string(data).graph, form == "projections"
            held = {i.name for i in graph.initializer}
            left = [n.name for n in graph.node if only and n.op_type == "MatMul" and n.input[1] not in held]
            kinds = ["MatMul"] if only else None
            quantization.quantize_static(before, after, Once(), op_types_to_quantize=kinds, nodes_to_exclude=left)
        else:
            quantization.quantize_dynamic(before, after)
        return after.read_bytes()


ATTENTION = re.compile("Attention$")


def count(proto: onnx.ModelProto) -> Counter[str]:
    """How often each op is there, functions and bodies left out."""
    return Counter(node.op_type for node in proto.graph.node)


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ways", default="dynamo,torchscript")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--past", type=int, default=64)
    parser.add_argument("--seq", type=int, default=16)
    parser.add_argument("--target", default="ort")
    parser.add_argument("--opset", type=int)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--formats", default="")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.backends.mha.set_fastpath_enabled(False)  # its one op is known to no exporter
    known = cases(options.size)
    sizes = {"batch": 2, "seq": options.seq, "past": options.past, "source": 24, "height": 64, "width": 48}
    print(f"{'model':34} {'softmax':>7} {'found':>5} {'left':>4} {'nodes':>11} {'speed':>6} {'error':>8}")
    ratios = []
    for name in options.names or known:
        for way in options.ways.split(","):
            label = f"{way}/{name}"
            path = options.keep / f"{way}_{name}.onnx" if options.keep else None
            try:
                data = path.read_bytes() if path and path.exists() else exported(known[name], way, sizes)
            except Exception as error:
                reason = (str(error).strip() or "?").splitlines()[0]
                print(f"{label:34} not exported: {type(error).__name__}: {reason[:90]}")
                continue
            if path:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            ratios.append(line(label, data, known[name], sizes, options))
            for form in filter(None, options.formats.split(",")):
                inputs = {i.name for i in session(data).get_inputs()}
                given = {n: a for n, a in feeds(known[name], sizes).items() if n in inputs}
                ratios.append(line(f"{label} {form}", quantized(data, form, given), known[name], sizes, options))
    print(f"{'geometric mean':34} {geometric_mean([r for r in ratios if r]):>38}")


def line(label: str, data: bytes, case: Case, sizes: Mapping[str, int], options: Any) -> float | None:
    """The line of an export; its ratio."""
    before = onnx.load_from_string(data)
    try:
        start = time.process_time()
        one, names = session(data), [output.name for output in before.graph.output]
        given = feeds(case, sizes)
        given = {n: a for n, a in given.items() if n in {i.name for i in one.get_inputs()}}
        if options.compiled:
            model = graphopt.compile(before, verify="off")
            after = onnx_io.to_proto(model.graph)

            def run() -> list[np.ndarray]:
                results = model(given)
                return [results[name] for name in names]
        else:
            after = graphopt.optimize(before, target=options.target, verify="off", opset=options.opset)
            two = session(after.SerializeToString())

            def run() -> list[np.ndarray]:
                return list(two.run(None, given))

        expected, got = one.run(None, given), run()
        seconds = time.process_time() - start
        worst = max(
            float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-9))
            for a, b in zip(expected, got, strict=True)
            if a.size
        )
        first, second = least(
            lambda: burst(lambda: one.run(None, given), 0.05, time.process_time),
            lambda: burst(run, 0.05, time.process_time),
            rounds=options.rounds,
        )
    except Exception as error:
        print(f"{label:34} failed: {type(error).__name__}: {str(error).strip()[:200]}")
        return None
    had, has = count(before), count(after)
    attentions = sum(n for op, n in has.items() if ATTENTION.search(op))
    print(
        f"{label:34} {had['Softmax'] + had['Attention']:7} {attentions:5} {has['Softmax']:4} "
        f"{len(before.graph.node):5}>{len(after.graph.node):5} {first / second:6.2f} {worst:8.1e} {seconds:6.1f} s",
        flush=True,
    )
    return first / second


if __name__ == "__main__":
    main()
