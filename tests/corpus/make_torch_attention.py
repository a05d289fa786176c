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
from pathlib import Path
from typing import Any

import onnx
import torch
from attention_cases import CASES, Case
from modules.transformer import Only

HERE = Path(__file__).parent
LIMIT = 45_000

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
