"""Composite ops are what ONNX Runtime computes, or its documentation says where it has them on other devices alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest
from onnx import helper, numpy_helper

import graphopt
from graphopt.ir import onnx_io
from graphopt.ir.composites import COMPOSITES
from graphopt.ir.evaluate import run
from graphopt.ir.features import FEATURES
from graphopt.ir.infer import infer
from graphopt.ir.trees import TREES

ort = pytest.importorskip("onnxruntime")
Array: TypeAlias = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def scales(*shape: int) -> Array:
    return np.asarray(RNG.random(shape) * 0.02 + 0.01, np.float32)


def codes(*shape: int, dtype: str = "uint8") -> Array:
    low, high = {"uint8": (0, 256), "int8": (-120, 120), "int4": (-8, 8), "uint4": (0, 16)}[dtype]
    return RNG.integers(low, high, shape).astype(getattr(ml_dtypes, dtype, dtype))


class Case:
    """A call: inputs that are lists are initializers, and the oracle is ONNX Runtime unless a function is given."""

    def __init__(
        self,
        op: str,
        inputs: Sequence[Any],
        attrs: dict[str, Any],
        outputs: int = 1,
        oracle: Callable[..., Any] | None = None,
    ) -> None:
        self.inputs: dict[str, Array | None] = {}
        weights, names = [], []
        for k, given in enumerate(inputs):
            name = "" if given is None else f"x{k}"
            names.append(name)
            if isinstance(given, list):
                weights.append(numpy_helper.from_array(np.asarray(given[0]), name))
            self.inputs[name] = None if given is None else np.asarray(given[0] if isinstance(given, list) else given)
        constant = {w.name for w in weights}
        self.feeds = {n: a for n, a in self.inputs.items() if a is not None and n not in constant}
        infos = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(a.dtype), [*(f"n{n}" for n in a.shape[:-1]), *a.shape[-1:]]
            )
            for name, a in self.feeds.items()
        ]
        self.names = [f"y{k}" for k in range(outputs)]
        node = helper.make_node(op, names, self.names, domain="com.microsoft", **attrs)
        results = [helper.make_empty_tensor_value_info(name) for name in self.names]
        graph = helper.make_graph([node], "g", infos, results, weights)
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        self.model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        self.op, self.given, self.attrs, self.oracle = op, inputs, attrs, oracle

    def expected(self) -> Sequence[Array]:
        if self.oracle is not None:
            wanted = self.oracle(*(g[0] if isinstance(g, list) else g for g in self.given), **self.attrs)
            return wanted if isinstance(wanted, tuple) else (wanted,)
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        providers = ["CPUExecutionProvider"]
        session = ort.InferenceSession(self.model.SerializeToString(), options, providers=providers)
        return list(session.run(None, self.feeds))


def lstm(
    ways: int, direction: str, signed: bool = True, by_column: bool = False, bias: bool = True, steps: int = 5
) -> Case:
    dtype, middle = ("int8", 0) if signed else ("uint8", 128)
    parameters = (ways, 16) if by_column else (ways,)
    zero = np.full(parameters, middle, dtype)
    weights = [[codes(ways, n, 16, dtype=dtype)] for n in (6, 4)]
    states = [None, None] if bias else [floats(ways, 3, 4), floats(ways, 3, 4)]
    quantized = [[scales(*parameters)], [zero], [scales(*parameters)], [zero]]
    inputs = [floats(steps, 3, 6), *weights, floats(ways, 32) if bias else None, None, *states, None, *quantized]
    return Case("DynamicQuantizeLSTM", inputs, {"hidden_size": 4, "direction": direction}, 3)


def attention(mask: object = None, past: Array | None = None, by_column: bool = False, causal: int = 0) -> Case:
    shape = (24,) if by_column else ()
    inputs = [codes(2, 5, 8), [codes(8, 24, dtype="int8")], floats(24), scales(), [scales(*shape)]]
    zeros = [np.uint8(128), [np.zeros(shape, np.int8)]]
    mask = None if mask is None else np.asarray(mask, np.int32)
    attrs = {"num_heads": 2, "unidirectional": causal}
    return Case("QAttention", [*inputs, mask, *zeros, past], attrs, 1 if past is None else 2)


def conv(x: tuple[int, ...], w: tuple[int, ...], dtype: str = "int8", bias: bool = False, **attrs: Any) -> Case:
    many = w[0] if dtype == "int8" else 1
    weights = [[codes(*w, dtype=dtype)], [scales(many)[0] if many == 1 else scales(many)]]
    zero = [np.zeros(many, dtype)] if many > 1 else [np.uint8(100)]
    more = [[RNG.integers(-500, 500, w[0]).astype(np.int32)]] if bias else []
    y = [[np.float32(0.3)], [np.uint8(128)]]
    return Case("QLinearConv", [codes(*x), [scales()], [np.uint8(120)], *weights, zero, *y, *more], attrs)


def rows(
    dtype: str,
    shape: tuple[int, ...],
    places: object,
    blocks: tuple[int, ...],
    zeros: tuple[int, ...] = (),
    **attrs: int,
) -> Case:
    more = [[codes(*zeros, dtype=dtype)]] if zeros else []
    inputs = [[codes(*shape, dtype=dtype)], np.array(places), [scales(*blocks)], *more]
    return Case("GatherBlockQuantized", inputs, {"block_size": 16, "quantize_axis": 1, **attrs})


# -- ops that ONNX Runtime does not have on CPU


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    from math import erf

    return x * 0.5 * (1 + np.vectorize(erf, otypes="f")(x / np.sqrt(2)))


def added(x: Array, bias: Array, skip: Array) -> Array:
    return x + bias + skip


def split_gelu(x: Array, bias: Array) -> Array:
    left, right = np.split(x + bias, 2, axis=-1)
    return left * gelu(right)


def group_norm(
    x: Array, gamma: Array, beta: Array, *, groups: int, activation: int, channels_last: int = 1, epsilon: float = 1e-5
) -> Array:
    images = np.moveaxis(x, -1, 1) if channels_last else x
    parts = images.astype(np.float32).reshape(len(x), groups, -1)
    mean, variance = parts.mean(-1, keepdims=True), parts.var(-1, keepdims=True)
    normal = ((parts - mean) / np.sqrt(variance + epsilon)).reshape(images.shape)
    y = normal * gamma.reshape(-1, 1, 1) + beta.reshape(-1, 1, 1)
    y = y * sigmoid(y) if activation else y
    return (np.moveaxis(y, 1, -1) if channels_last else y).astype(x.dtype)


def skip_group_norm(
    x: Array, gamma: Array, beta: Array, skip: Array, bias: Array | None = None, **attrs: Any
) -> tuple[Array, Array]:
    total = x + (skip[:, None, None] if skip.ndim == 2 else skip) + (0 if bias is None else bias)
    return group_norm(total, gamma, beta, **attrs), total


def quantized_mean(
    x: Array, scale: Array, zero: Array, y_scale: Array, y_zero: Array, *, axes: list[int], keepdims: int
) -> Array:
    mean = ((x.astype(np.float32) - zero) * scale).mean(tuple(axes), keepdims=bool(keepdims))
    return np.clip(np.rint(mean / y_scale) + y_zero, 0, 255).astype(np.uint8)


def channels_last(
    x: Array, w: Array, bias: Array | None = None, z: Array | None = None, *, activation: str = "", **attrs: Any
) -> Array:
    from graphopt.ir.constants import Constant
    from graphopt.ir.evaluate import evaluate
    from graphopt.ir.graph import Attrs

    given = [np.moveaxis(x, -1, 1), w, bias]
    found = evaluate("Conv", Attrs(attrs), [None if a is None else Constant.of(a) for a in given], 1, 21)
    y = np.moveaxis(found[0].array, 1, -1) + (0 if z is None else z)
    return np.maximum(y, 0) if activation == "Relu" else y


def activated_product(a: Array, b: Array, *, activation: str, activation_alpha: float = 0.0, **attrs: int) -> Array:
    y = a @ (b.swapaxes(-1, -2) if attrs.get("transB") else b)
    if activation == "Softmax":
        return np.exp(y) / np.exp(y).sum(attrs["activation_axis"], keepdims=True)
    return np.where(y > 0, y, activation_alpha * y)


def transform(x: Array, *, signal_ndim: int, onesided: int = 1) -> Array:
    y = np.fft.rfftn(x, axes=range(-signal_ndim, 0))
    return np.stack((y.real, y.imag), -1).astype(np.float32)


def inverse(x: Array, *, signal_ndim: int) -> Array:
    return np.fft.irfftn(x[..., 0] + 1j * x[..., 1], axes=range(-signal_ndim, 0)).astype(np.float32)


CODED = {"K": 32, "N": 5, "block_size": 16}
NORM = {"groups": 2, "activation": 1, "epsilon": 1e-4}
PAST = floats(2, 2, 2, 3, 4)
CASES: dict[str, Case] = {
    "lstm": lstm(1, "forward"),
    "lstm of one step": lstm(1, "forward", steps=1),
    "lstm backwards, by column": lstm(1, "reverse", by_column=True),
    "lstm both ways, unsigned": lstm(2, "bidirectional", signed=False),
    "lstm both ways from states, by column": lstm(2, "bidirectional", by_column=True, bias=False),
    "attention": attention(),
    "attention, causal, by column": attention(by_column=True, causal=1),
    "attention to keys": attention([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]),
    "attention to the first keys": attention([3, 5]),
    "attention to keys of each query": attention(RNG.integers(0, 2, (2, 5, 5)) | np.eye(5, dtype=int)),
    "attention behind a past": attention(past=PAST, causal=1),
    "attention to keys behind a past": attention([[1, 1, 0, 0, 0, 1, 1, 1], [1] * 8], PAST, causal=1),
    "conv": conv((2, 6, 7, 3), (4, 3, 3, 3), bias=True, channels_last=1, pads=(1, 1, 1, 1), strides=(2, 1)),
    "conv, channels in front, unsigned": conv((2, 3, 6, 7), (4, 3, 3, 3), "uint8", pads=(1, 1, 1, 1)),
    "conv of each channel": conv((2, 6, 7, 4), (4, 1, 3, 3), channels_last=1, group=4),
    "conv of no image": conv((0, 6, 7, 3), (4, 3, 3, 3), bias=True, channels_last=1),
    "product": Case("TransposeMatMul", [floats(2, 4, 3), floats(2, 5, 4)], {"alpha": 0.5, "transA": 1, "transB": 1}),
    "upper": Case("Trilu", [floats(2, 4, 5), np.int64(1)], {"upper": 1}),
    "lower": Case("Trilu", [floats(4, 5)], {"upper": 0}),
    "rows of int4": rows("int4", (6, 32), [[1, -1], [0, 4]], (6, 2)),
    "no rows": rows("int4", (6, 32), np.zeros((2, 0), np.int64), (6, 2)),
    "rows of uint4 from zeros": rows("uint4", (6, 32), [1, 5], (6, 2), (6, 2)),
    "a row of uint4": rows("uint4", (6, 32), 2, (6, 2)),
    "rows of halves": rows("uint8", (6, 16), [[1, 5]], (6, 2)),
    "rows of halves from zeros": rows("uint8", (6, 16), [[1, 5]], (6, 2), (6, 1)),
    "rows of bytes": rows("uint8", (6, 32), [[1, 5]], (6, 2), bits=8),
    "columns": rows("int4", (32, 6), [1, -1], (2, 6), quantize_axis=0, gather_axis=1),
    "codes of nf4": Case("MatMulBnb4", [floats(2, 3, 32), [codes(80)], [scales(10)]], {**CODED, "quant_type": 1}),
    "codes of fp4": Case("MatMulBnb4", [floats(3, 32), [codes(80)], [scales(10)]], {**CODED, "quant_type": 0}),
    "unique": Case("Unique", [np.array([3, 1, 1, 2, 3, 0], np.float32)], {}, 3),
    "sums": Case("BiasAdd", [floats(2, 6, 8), floats(8), floats(2, 6, 8)], {}, oracle=added),
    "sums in half precision": Case(
        "BiasAdd", [a.astype(np.float16) for a in (floats(2, 6), floats(6), floats(2, 6))], {}, oracle=added
    ),
    "split": Case("BiasSplitGelu", [floats(2, 3, 8), floats(8)], {}, oracle=split_gelu),
    "norm": Case("GroupNorm", [floats(2, 3, 5, 4), floats(4), floats(4)], NORM, oracle=group_norm),
    "norm in half precision, channels in front": Case(
        "GroupNorm", [floats(2, 4, 3, 5).astype(np.float16), floats(4), floats(4)],
        {**NORM, "channels_last": 0, "activation": 0}, oracle=group_norm,
    ),
    "norm of a sum": Case(
        "SkipGroupNorm", [floats(2, 3, 5, 4), floats(4), floats(4), floats(2, 3, 5, 4), floats(4)], NORM, 2,
        skip_group_norm,
    ),
    "norm of a sum with numbers for channels": Case(
        "SkipGroupNorm", [floats(2, 3, 5, 4), floats(4), floats(4), floats(2, 4)], NORM, 2, skip_group_norm
    ),
    "mean": Case(
        "QLinearReduceMean", [codes(2, 3, 4), scales(), np.uint8(120), scales(), np.uint8(9)],
        {"axes": [1, 2], "keepdims": 1}, oracle=quantized_mean,
    ),
    "channels last": Case(
        "NhwcConv", [floats(2, 5, 6, 3), floats(4, 3, 3, 3)], {"pads": (1, 1, 1, 1)}, oracle=channels_last
    ),
    "channels last with a sum": Case(
        "NhwcFusedConv", [floats(1, 5, 6, 3), floats(4, 3, 1, 1), floats(4), floats(1, 5, 6, 4)],
        {"activation": "Relu"}, oracle=channels_last,
    ),
    "a convolution with limits": Case(
        "FusedConv", [floats(1, 3, 5, 6), floats(4, 3, 3, 3), floats(4)],
        {"activation": "Clip", "activation_params": (-0.2, 0.3)},
    ),
    "a convolution with a sum": Case(
        "FusedConv", [floats(1, 3, 5, 6), floats(4, 3, 1, 1), floats(4), floats(1, 4, 5, 6)],
        {"activation": "HardSigmoid", "activation_params": (0.3, 0.4)},
    ),
    "shares of a product": Case(
        "FusedMatMulActivation", [floats(3, 4), floats(5, 4)],
        {"activation": "Softmax", "activation_axis": -1, "transB": 1}, oracle=activated_product,
    ),
    "leaky product": Case(
        "FusedMatMulActivation", [floats(2, 3, 4), floats(4, 5)], {"activation": "LeakyRelu", "activation_alpha": 0.5},
        oracle=activated_product,
    ),
    "transform": Case("Rfft", [floats(3, 8)], {"signal_ndim": 1}, oracle=transform),
    "transform of planes": Case("Rfft", [floats(2, 6, 8)], {"signal_ndim": 2}, oracle=transform),
    "inverse": Case("Irfft", [transform(floats(3, 8), signal_ndim=1)], {"signal_ndim": 1}, oracle=inverse),
    "inverse of planes": Case("Irfft", [transform(floats(2, 6, 8), signal_ndim=2)], {"signal_ndim": 2}, oracle=inverse),
}  # fmt: skip


def test_every_composite_op_is_tried() -> None:
    assert {
        f"com.microsoft::{case.op}" for case in CASES.values()
    } == COMPOSITES.keys() - FEATURES.keys() - TREES.keys()


@pytest.mark.usefixtures("exact_integers")
@pytest.mark.parametrize("name", CASES)
def test_a_composite_op_is_what_the_runtime_computes(name: str) -> None:
    case = CASES[name]
    expected = case.expected()
    graph = onnx_io.load(case.model.SerializeToString())
    facts = infer(graph)
    for value, want in zip(graph.outputs, expected, strict=True):
        assert value is not None
        assert facts[value].dtype == str(want.dtype)
        assert facts[value].rank == want.ndim
    compiled = graphopt.compile(case.model, jobs=0, cache=False)
    assert not compiled.report.unlowered
    tolerance = 2e-2 if "half" in name else 1 if expected[0].dtype == np.uint8 else 2e-5
    for found in (run(graph, case.feeds), compiled(case.feeds)):
        for output, want in zip(case.names, expected, strict=True):
            assert found[output].dtype == want.dtype
            assert found[output].shape == want.shape
            np.testing.assert_allclose(found[output].astype("f"), want.astype("f"), rtol=tolerance % 1, atol=tolerance)


@pytest.mark.parametrize(
    ("op", "attrs", "n"),
    [("Rfft", {"normalized": 1, "signal_ndim": 1}, 1), ("QAttention", {"num_heads": 2, "do_rotary": 1}, 5)],
)
def test_a_call_that_nobody_says_is_left_as_it_is(op: str, attrs: dict[str, Any], n: int) -> None:
    inputs = [floats(3, 8)] if n == 1 else [codes(2, 5, 8), codes(8, 24), floats(24), scales(), scales()]
    graph = onnx_io.load(Case(op, inputs, attrs).model.SerializeToString())
    value = graph.outputs[0]
    assert value is not None
    assert infer(graph)[value].rank is None
