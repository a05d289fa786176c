"""Times what becomes of models that other tools made of a model: in float16, optimized by ONNX Runtime, or quantized.

    python tests/bench/converted.py MODEL.onnx ... [--kinds half,optimized,static] [--seed N] [--threads N]

A row is a model as one tool leaves it, the first as it is: ONNX Runtime's conversion to float16, its extended
optimizations, its dynamic and static quantization and ``MatMulNBitsQuantizer``, whose formats are drawn from the seed
and the model's name. It says how many milliseconds ONNX Runtime takes, how many times as fast the model optimized for
``ort`` and for ``portable`` and the compiled program are, all taking turns, how many nodes the program left out, and
by how many tolerances the program's results differ, which for rounded numbers may be many. All are verified as they
are made; what a tool or we refuse is told in a line.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from speed import feeds
from turns import Table, arguments, fastest, keep_to_cores, session

import graphopt
from graphopt.ir.tolerance import error

TABLE = Table("", 44, "input:9.3f ort:7.2f portable:10.2f compiled:10.2f left:6 error:10.2g")
Inputs = Mapping[str, Any]
Conversion = Callable[[Path, Path, Inputs, random.Random], str]
"""Writes what a tool makes of a model, and says how."""


def unchanged(given: Path, made: Path, inputs: Inputs, drawn: random.Random) -> str:
    """The model itself, to compare the others with."""
    onnx.save(onnx.load(given), made)
    return ""


def half(given: Path, made: Path, inputs: Inputs, drawn: random.Random) -> str:
    """float16, with inputs and outputs of their own types or not."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    keeps = drawn.random() < 0.5
    onnx.save(convert_float_to_float16(onnx.load(given), keep_io_types=keeps), made)
    return "inputs kept" if keeps else ""


def optimized(given: Path, made: Path, inputs: Inputs, drawn: random.Random) -> str:
    """What ONNX Runtime makes of it for any processor, which has ops of its own."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(made)
    ort.InferenceSession(str(given), options, providers=["CPUExecutionProvider"])
    return ""


def dynamic(given: Path, made: Path, inputs: Inputs, drawn: random.Random) -> str:
    """Weights in bytes, and operands that each run quantizes."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    by_channel, kind = drawn.random() < 0.5, drawn.choice([QuantType.QInt8, QuantType.QUInt8])
    quantize_dynamic(given, made, per_channel=by_channel, weight_type=kind)
    return f"{kind.name} {'by channel' * by_channel}"


class Samples:
    """The inputs to calibrate with."""

    def __init__(self, inputs: Inputs) -> None:
        self.left = [dict(inputs)]

    def get_next(self) -> Any:
        return self.left.pop() if self.left else None


def static(given: Path, made: Path, inputs: Inputs, drawn: random.Random) -> str:
    """Pairs of QuantizeLinear and DequantizeLinear, or ops on integers."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    form = drawn.choice([QuantFormat.QDQ, QuantFormat.QOperator])
    wide = (QuantType.QUInt16, QuantType.QInt16) if form is QuantFormat.QDQ else ()
    activations, by_channel = drawn.choice([QuantType.QUInt8, QuantType.QInt8, *wide]), drawn.random() < 0.5
    ops = drawn.choice([None, ["MatMul", "Conv", "Gemm"]])
    extra = {"WeightSymmetric": drawn.random() < 0.7, "DedicatedQDQPair": drawn.random() < 0.3}
    quantize_static(
        given, made, Samples(inputs), quant_format=form, activation_type=activations, weight_type=QuantType.QInt8,
        per_channel=by_channel, op_types_to_quantize=ops, extra_options=extra,
    )  # fmt: skip
    return f"{form.name} {activations.name} {'by channel' * by_channel}"


def bits(given: Path, made: Path, inputs: Inputs, drawn: random.Random) -> str:
    """Weights of four or eight bits in blocks."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    count, block, level = drawn.choice([4, 8]), drawn.choice([16, 32, 64, 128]), drawn.choice([None, 0, 4])
    quantizer = MatMulNBitsQuantizer(
        onnx.load(given), bits=count, block_size=block, is_symmetric=drawn.random() < 0.5, accuracy_level=level
    )
    quantizer.process()
    quantizer.model.save_model_to_file(str(made))
    return f"{count} bits by {block}, level {level}"


KINDS: Mapping[str, Conversion] = {f.__name__: f for f in (unchanged, half, optimized, dynamic, static, bits)}


def fitting(path: Path, inputs: Inputs) -> Inputs:
    """The inputs in the dtypes that a converted model wants."""
    graph = onnx.load(path, load_external_data=False).graph
    codes = {i.name: i.type.tensor_type.elem_type for i in graph.input}
    return {n: a.astype(onnx.helper.tensor_dtype_to_np_dtype(codes[n])) for n, a in inputs.items() if n in codes}


def row(path: Path, name: str, inputs: Inputs, threads: int, folder: Path) -> str:
    """The line of a converted model."""
    files = [path]
    for target in ("ort", "portable"):
        files.append(folder / f"{target}.onnx")
        graphopt.optimize(path, output=files[-1], target=target, on_mismatch="refuse")
    calls = [partial(session(str(file), threads).run, None, inputs) for file in files]
    with graphopt.compile(path, threads=threads) as program:
        want, got = calls[0](), program(inputs).values()
        off = max((float(error(np.asarray(a), np.asarray(b))) for a, b in zip(want, got, strict=True)), default=0.0)
        given, *others = fastest(*calls, partial(program, inputs))
        return TABLE.line(name, 1e3 * given, *(given / t for t in others), len(program.report.unlowered), off)


def main() -> None:
    """Prints the table."""
    parser = arguments(__doc__, "models to convert", "MODEL")
    parser.add_argument("--kinds", default=",".join(KINDS), help=", ".join(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    keep_to_cores(given.threads)
    logging.disable(logging.WARNING)
    print(TABLE.heading)
    for path in map(Path, given.names):
        inputs = feeds(path, {}, given.threads)
        for kind in given.kinds.split(","):
            with TemporaryDirectory() as folder:
                made, how = Path(folder, "made.onnx"), ""
                try:
                    how = KINDS[kind](path, made, inputs, random.Random(f"{given.seed} {path.stem} {kind}"))
                    print(row(made, f"{path.stem} {kind} {how}", fitting(made, inputs), given.threads, Path(folder)))
                except Exception as refused:  # whatever a tool, or an engine that is to take its result, raises
                    print(f"{path.stem} {kind} {how}: {type(refused).__name__}: {str(refused).splitlines()[:1]}")


if __name__ == "__main__":
    main()
