"""Counts the ops that ONNX Runtime makes of several by itself, of models and of what becomes of them: what is lost.

    python -m tests.bench.fusions [--target NAME] [PART ...]

The models are those of ``tests/corpus`` and those of architectures that come with onnx; PART is a part of their names.
A fused op is lost where there are fewer, and more of what it would have taken up, and not because there is less to
fuse. A line names a model of which something is lost, and the last line says how many there are in all.
"""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

import graphopt
from tests.corpus.covered import models

Ops = Mapping[str, int]

ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid", "Elu", "Softplus")
NORMS = ("LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization")
SKIPS = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
PRODUCTS = ("MatMul", "FusedMatMul", "Gemm", "FusedGemm")
GELUS = ("Gelu", "FastGelu", "BiasGelu")
ATTENTIONS = ("Attention", "MultiHeadAttention", "GroupQueryAttention")
PAIRS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger")

FUSED: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("FusedConv",): (ACTIVATIONS, ("Conv", "FusedConv")),
    ("FusedGemm",): (ACTIVATIONS, PRODUCTS),
    ("FusedMatMul",): (("Transpose", "Mul", "Div"), PRODUCTS),
    (*NORMS, *SKIPS): (("ReduceMean",), ()),
    SKIPS: (("Add",), SKIPS + NORMS),
    ("EmbedLayerNormalization",): (("Gather",), ()),
    GELUS: (("Erf", "Tanh"), ()),
    ("QuickGelu",): (("Sigmoid",), ("Conv", "FusedConv", *PRODUCTS)),
    ATTENTIONS: (("Softmax",), ()),
    ("MatMulNBits",): (("DequantizeLinear",), ()),
    ("QLinearConv", "QLinearMatMul", "QGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"): (PAIRS, ()),
    ("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearConcat", "QLinearSoftmax"): (PAIRS, ()),
    ("QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearWhere", "QLinearReduceMean"): (PAIRS, ()),
}
"""Ops that stand for one another, what they leave where they are not found, and what they are found around, if not
everywhere."""


def loaded_ops(path: str | Path) -> Counter[str]:
    """The ops of a model, bodies included, once ONNX Runtime has fused what it fuses, the layouts of devices apart."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    with TemporaryDirectory() as folder:
        options.optimized_model_filepath = f"{folder}/fused.onnx"
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        fused = onnx.load(options.optimized_model_filepath, load_external_data=False)
    return Counter(node.op_type for node in _nodes(fused.graph))


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _nodes(body)


def lost(before: Ops, after: Ops) -> dict[str, int]:
    """How many fused ops there are no more, by the first of those that stand for them."""
    found: dict[str, int] = {}
    for kinds, (left, around) in FUSED.items():
        fewer = _falls(kinds, before, after)
        spread = -_falls(left, before, after)
        n = min(fewer, spread) - max(_falls(around, before, after), 0)
        if n > 0:
            found[kinds[0]] = n
    return found


def _falls(ops: tuple[str, ...], before: Ops, after: Ops) -> int:
    return sum(before.get(op, 0) - after.get(op, 0) for op in ops)


def lost_by(path: Path, target: str) -> dict[str, int]:
    """How many fused ops optimizing a model for a target loses."""
    before = loaded_ops(path)
    with TemporaryDirectory() as folder:
        output = Path(folder) / "out.onnx"
        graphopt.optimize(path, output=output, target=target, verify="off")
        return lost(before, loaded_ops(output))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="parts of the names of models")
    parser.add_argument("--target", default="portable")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    light = Path(onnx.__file__).parent / "backend/test/data/light"
    paths = [*models(), *((path.name, path) for path in sorted(light.glob("*.onnx")))]
    paths = [(name, path) for name, path in paths if not given.parts or any(part in name for part in given.parts)]
    total: Counter[str] = Counter()
    for name, path in paths:
        try:
            found = lost_by(path, given.target)
        except Exception as error:  # the runtime does not take all models of the corpus
            print(f"{name}: {str(error).strip().splitlines()[0][:100]}")
            continue
        total.update(found)
        if found:
            print(f"{name}: lost {found}", flush=True)
    print(f"{len(paths)} models, lost {dict(total)}")


if __name__ == "__main__":
    main()
