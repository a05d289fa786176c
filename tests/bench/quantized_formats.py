"""Times what becomes of every format that ONNX Runtime and others quantize a model to, beside the quantized model.

    python tests/bench/quantized_formats.py [--threads N] [NAME ...]

A row is a small network in one format of ``quantize_static`` (pairs or ops on integers, with or without signs, of
seven, eight or sixteen bits, by tensor or by channel, zero in the middle or not), of ``quantize_dynamic``, of
``MatMulNBitsQuantizer`` (four bits and eight, by each accuracy level), or in pairs around products as quantizers of
other frameworks write them (``pairs``: biases that are floats, zero points left out, weights by columns, scales of a
tensor that are vectors, results that are quantized or not). It says how many milliseconds the input takes in ONNX
Runtime, how many times as fast the model optimized for ``ort`` and for ``portable`` and the compiled program are,
taking turns, and by which part of the largest output theirs differ. Names are parts of those in the first column, such
as ``QOperator`` or ``S8S8``. The last lines are the rows that got slower, measured once more.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from turns import Table, arguments, fastest, keep_to_cores, session

import graphopt

N = helper.make_node
TABLE = Table("", 40, "input:9.3f ort:7.2f portable:10.2f compiled:10.2f differ:10.1e differ:10.1e differ:10.1e")
KINDS = ("S8S8", "U8S8", "U8U8", "S16S8", "U16U8", "S16S16")
SLOWER = 0.95
"""A ratio from which on a row counts as slower: less than that is noise."""


def floats(*shape: int, scale: float = 0.1) -> Any:
    """Random numbers."""
    rng = np.random.default_rng(sum(shape))
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def network(nodes: list[onnx.NodeProto], shape: list[int], out: list[int], held: dict[str, Any]) -> onnx.ModelProto:
    """A model from ``x`` to ``y``."""
    ports = [helper.make_tensor_value_info(name, 1, s) for name, s in (("x", shape), ("y", out))]
    weights = [numpy_helper.from_array(value, name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def images() -> onnx.ModelProto:
    """Convolutions of all kinds, with what stands between them."""
    nodes = [
        N("Conv", ["x", "w0", "b0"], ["a"], pads=[1] * 4), N("Relu", ["a"], ["a1"]),
        N("MaxPool", ["a1"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        N("Conv", ["p", "w1", "b1"], ["c"], pads=[1] * 4), N("Relu", ["c"], ["c1"]),
        N("Conv", ["c1", "w2", "b2"], ["d"], pads=[1] * 4, group=32), N("Sigmoid", ["d"], ["ds"]),
        N("Add", ["ds", "p"], ["e"]), N("Conv", ["e", "w3"], ["f"]), N("LeakyRelu", ["f"], ["f1"], alpha=0.1),
        N("AveragePool", ["f1"], ["f2"], kernel_shape=[2, 2], strides=[2, 2]), N("Concat", ["f2", "f2"], ["h"], axis=1),
        N("GlobalAveragePool", ["h"], ["q"]), N("Flatten", ["q"], ["q1"]),
        N("Gemm", ["q1", "w4", "b4"], ["y"], transB=1),
    ]  # fmt: skip
    held = {
        "w0": floats(32, 16, 3, 3),
        "w1": floats(32, 32, 3, 3),
        "w2": floats(32, 1, 3, 3),
        "w3": floats(32, 32, 1, 1),
    }
    held |= {"w4": floats(10, 64), "b0": floats(32), "b1": floats(32), "b2": floats(32), "b4": floats(10)}
    return network(nodes, [1, 16, 56, 56], [1, 10], held)


def block() -> onnx.ModelProto:
    """A transformer's block with one head."""
    nodes = [
        *(N("MatMul", ["x", f"w{n}"], [n]) for n in "qkv"), N("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        N("MatMul", ["q", "kt"], ["s"]), N("Mul", ["s", "scale"], ["s1"]), N("Softmax", ["s1"], ["p"], axis=-1),
        N("MatMul", ["p", "v"], ["o"]), N("MatMul", ["o", "wo"], ["o1"]), N("Add", ["o1", "x"], ["h"]),
        N("MatMul", ["h", "w1"], ["h1"]), N("Add", ["h1", "b1"], ["h2"]), N("Relu", ["h2"], ["h3"]),
        N("MatMul", ["h3", "w2"], ["h4"]), N("Add", ["h4", "b2"], ["h5"]), N("Add", ["h5", "h"], ["y"]),
    ]  # fmt: skip
    held = {f"w{n}": floats(128, 128) for n in "qkvo"} | {"scale": np.float32(128**-0.5), "w1": floats(128, 512)}
    held |= {"b1": floats(512), "w2": floats(512, 128), "b2": floats(128)}
    return network(nodes, [1, 64, 128], [1, 64, 128], held)


def perceptron() -> onnx.ModelProto:
    """Products with biases."""
    sizes = (256, 512, 512, 64)
    nodes = []
    for k, x in enumerate(("x", "r0", "r1")):
        nodes.append(N("Gemm", [x, f"w{k}", f"b{k}"], [f"a{k}" if k < 2 else "y"], transB=1))
        nodes += [N("Relu", [f"a{k}"], [f"r{k}"])] if k < 2 else []
    held = {f"w{k}": floats(sizes[k + 1], sizes[k]) for k in range(3)}
    return network(nodes, [32, 256], [32, 64], held | {f"b{k}": floats(sizes[k + 1]) for k in range(3)})


class Samples:
    """Inputs to calibrate with."""

    def __init__(self, shape: list[int]) -> None:
        self.left = [{"x": floats(*shape, scale=1.0 + n / 4)} for n in range(4)]

    def get_next(self) -> Any:
        return self.left.pop() if self.left else None


Format = tuple[str, Callable[[Path, Path], None]]
"""A name, and what writes the quantized model of a file."""


def static(shape: list[int]) -> Iterator[Format]:
    """What ``quantize_static`` makes: ops on integers are there for eight bits only."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    types = {"S8": QuantType.QInt8, "U8": QuantType.QUInt8, "S16": QuantType.QInt16, "U16": QuantType.QUInt16}
    for form, kind, channels, seven, middle in product(("QDQ", "QOperator"), KINDS, *[(False, True)] * 3):
        activations, weights = re.findall("[SU][0-9]+", kind)
        if ("16" in kind and form == "QOperator") or (seven and (middle or "16" in kind)):
            continue
        name = f"{form} {kind}{' channels' * channels}{' 7 bits' * seven}{' symmetric' * middle}"
        options = {"ActivationSymmetric": middle, "WeightSymmetric": middle or weights[0] == "S"}
        yield name, partial(
            quantize_static, calibration_data_reader=Samples(shape), quant_format=QuantFormat[form],
            per_channel=channels, reduce_range=seven, activation_type=types[activations], weight_type=types[weights],
            extra_options=options,
        )  # fmt: skip


def dynamic() -> Iterator[Format]:
    """What ``quantize_dynamic`` makes."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    for weights, channels, seven in product(("S8", "U8"), *[(False, True)] * 2):
        name = f"dynamic {weights}{' channels' * channels}{' 7 bits' * seven}"
        kind = QuantType.QInt8 if weights == "S8" else QuantType.QUInt8
        yield name, partial(quantize_dynamic, per_channel=channels, reduce_range=seven, weight_type=kind)


def few_bits() -> Iterator[Format]:
    """What ``MatMulNBitsQuantizer`` makes."""
    from onnxruntime.quantization import QuantFormat
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    def write(source: Path, output: Path, **options: Any) -> None:
        quantizer = MatMulNBitsQuantizer(onnx.load(source), **options)
        quantizer.process()
        onnx.save(quantizer.model.model, output)

    for bits, form, level, middle in product((4, 8), ("QDQ", "QOperator"), (None, 1, 4), (False, True)):
        name = f"{bits} bits {form} level {level}{' symmetric' * middle}"
        options = {"bits": bits, "block_size": 32, "is_symmetric": middle, "accuracy_level": level}
        if level is None or form == "QOperator":  # pairs have no level
            yield name, partial(write, quant_format=QuantFormat[form], **options)


def pairs() -> Iterator[Format]:
    """What quantizers of other frameworks write around products."""
    for activations, *chosen in product(("S8", "U8"), *[(False, True)] * 5):
        words = (" channels", " no zeros", " turned", " all", " vectors")
        name = f"pairs {activations}S8{''.join(w for w, is_chosen in zip(words, chosen, strict=True) if is_chosen)}"
        yield name, partial(write_pairs, "int8" if activations == "S8" else "uint8", *chosen)


def write_pairs(
    dtype: str, channels: bool, no_zeros: bool, turned: bool, all_: bool, vectors: bool, source: Path, output: Path
) -> None:
    """A model whose products take activations of a dtype and weights of int8: with scales by channel, without the zero
    points of weights, with matrices the other way round and a Transpose, with all results quantized, too, or with
    scales of a whole tensor that are vectors of one element."""
    model = onnx.load(source)
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    of_tensor = (1,) if vectors else ()
    held |= {
        "step": np.full(of_tensor, 0.03, np.float32),
        "zero": np.full(of_tensor, 0 if dtype == "int8" else 128, dtype),
    }
    nodes = []

    def rounded(value: str, to: str) -> None:
        """``value`` in steps."""
        nodes.append(N("QuantizeLinear", [value, "step", "zero"], [f"{to}_q"]))
        nodes.append(N("DequantizeLinear", [f"{to}_q", "step", "zero"], [to]))

    for k, node in enumerate(model.graph.node):
        weights = held.get(node.input[1]) if node.op_type in ("Conv", "Gemm", "MatMul") else None
        if weights is not None:
            rows = weights if node.op_type != "MatMul" else weights.T
            largest = np.abs(rows.reshape(len(rows), -1)).max(1) if channels else np.abs(rows).max()
            scale = np.asarray(largest / 127, np.float32)
            steps = np.rint(rows / scale.reshape(-1, *[1] * (rows.ndim - 1))).astype(np.int8)
            scale = scale if channels else scale.reshape(of_tensor)
            is_matrix = rows.ndim == 2
            by_rows = not is_matrix or turned == (node.op_type == "MatMul")
            held |= {
                f"w{k}_q": steps if by_rows else steps.T,
                f"w{k}_s": scale,
                f"w{k}_z": np.zeros_like(scale, np.int8),
            }
            given = [f"w{k}_q", f"w{k}_s", *[f"w{k}_z"] * (not no_zeros)]
            nodes.append(N("DequantizeLinear", given, [f"w{k}_d"], axis=0 if by_rows else 1))
            if is_matrix and turned:
                nodes.append(N("Transpose", [f"w{k}_d"], [f"w{k}_t"], perm=[1, 0]))
            rounded(node.input[0], f"x{k}")
            node.input[0], node.input[1] = f"x{k}", f"w{k}_t" if is_matrix and turned else f"w{k}_d"
        if weights is not None and all_ and node.output[0] != "y":
            result, node.output[0] = node.output[0], f"{node.output[0]}_f"
            nodes.append(node)
            rounded(f"{result}_f", result)
        else:
            nodes.append(node)
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in held.items())
    onnx.save(model, output)


def formats(folder: Path, parts: Sequence[str] = ()) -> Iterator[tuple[str, Path, list[int]]]:
    """Every network in every format that can be had: a name, the quantized model and the shape of its input."""
    for make in (images, block, perceptron):
        made = make()
        shape = [d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim]
        onnx.save(made, folder / "float.onnx")
        for form, write in (*static(shape), *dynamic(), *few_bits(), *pairs()):
            name = f"{make.__name__} {form}"
            if parts and not any(part in name for part in parts):
                continue
            try:
                write(folder / "float.onnx", folder / "in.onnx")
                session(str(folder / "in.onnx"))
            except Exception as error:  # not every format is one of every network
                print(f"{name:40} {str(error).strip().splitlines()[0][:79]}")
                continue
            yield name, folder / "in.onnx", shape


def ratios(paths: Sequence[str], program: Any, shape: list[int], threads: int) -> list[float]:
    """Milliseconds of the first model, how many times as fast the others and its program are, and by how much they
    differ."""
    feeds = {"x": floats(*shape, scale=1.0)}
    calls = [partial(session(p, threads).run, None, feeds) for p in paths] + [lambda: [*program(feeds).values()]]
    want, *found = (call()[0] for call in calls)
    differ = [np.abs(y - want).max() / np.abs(want).max() for y in found]
    before, *after = fastest(*calls)
    return [before * 1e3, *(before / a for a in after), *differ]


def main() -> None:
    given = arguments(__doc__, "parts of the names of rows").parse_args()
    keep_to_cores(given.threads)
    logging.disable(logging.WARNING)
    print(TABLE.heading)
    slower: list[str] = []
    with TemporaryDirectory() as name:
        for label, path, shape in formats(Path(name), given.names):
            paths = [str(path)]
            for target in ("ort", "portable"):
                paths.append(str(path.with_name(f"{target}.onnx")))
                graphopt.optimize(path, output=paths[-1], target=target, verify="off")
            program = graphopt.compile(path, threads=given.threads, verify="off")
            row = ratios(paths, program, shape, given.threads)
            print(TABLE.line(label, *row), flush=True)
            if min(row[1:4]) < SLOWER:
                slower.append(TABLE.line(label, *ratios(paths, program, shape, given.threads)))
    print(f"slower: {len(slower)}", *slower, sep="\n")


if __name__ == "__main__":
    main()
