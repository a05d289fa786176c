"""Ops that onnx's reference implementation gets wrong are computed as ONNX says."""

from __future__ import annotations

import math
from itertools import product
from math import erf

import numpy as np
import pytest
from onnx import helper, numpy_helper

from graphopt.ir.constants import Constant
from graphopt.ir.evaluate import evaluate, run
from graphopt.ir.graph import Attrs
from graphopt.ir.onnx_io import load, to_proto
from graphopt.ir.text import parse


@pytest.mark.parametrize(("size", "channels"), [(3, 3), (5, 4), (4, 6), (1, 2)])
def test_lrn_sums_over_neighbouring_channels(size: int, channels: int) -> None:
    x = np.random.default_rng(0).normal(size=(1, channels, 2, 3)).astype(np.float32)
    want = np.empty_like(x)
    for c in range(channels):
        first, last = c - (size - 1) // 2, c + -(-(size - 1) // 2)
        total = sum(x[:, k] ** 2 for k in range(max(first, 0), min(last, channels - 1) + 1))
        want[:, c] = x[:, c] / (1.0 + 0.5 / size * total) ** 0.75
    (got,) = evaluate("LRN", Attrs(size=size, alpha=0.5), [Constant.of(x)], 1, 17)
    np.testing.assert_allclose(got.array, want, rtol=1e-6)
    graph = parse(f"x: float32[1, {channels}, 2, 3] y = LRN(x, size={size}, alpha=0.5) return y")
    np.testing.assert_allclose(run(graph, {"x": x})["y"], want, rtol=1e-6)


def test_what_graphs_compute_in_double_precision_is_not_rounded_to_single() -> None:
    x = np.array([[0.1], [0.2], [0.3]]).reshape(1, 3, 1)
    graph = parse("x: float64[1, 3, 1] y = LRN(x, size=3, alpha=0.5, bias=0.75) return y")
    sums = np.array([0.05, 0.14, 0.13]).reshape(x.shape)
    np.testing.assert_allclose(run(graph, {"x": x})["y"], x / (0.75 + 0.5 / 3 * sums) ** 0.75, rtol=1e-14)


def test_the_error_function_of_double_precision_is_not_rounded_to_single() -> None:
    x = np.array([0.1, 0.5, 1.5, np.nan])
    want = np.array([erf(v) for v in x])
    np.testing.assert_array_equal(run(parse("x: float64[4] y = Erf(x) return y"), {"x": x})["y"], want)
    single = x.astype(np.float32)
    (got,) = evaluate("Erf", Attrs(), [Constant.of(single)], 1, 17)
    np.testing.assert_array_equal(got.array, np.array([erf(v) for v in single], np.float32))


@pytest.mark.parametrize("opset", [7, 9, 13, 14, 17])
def test_batches_are_normalized_by_the_mean_and_the_variance_that_are_given(opset: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(2, 3, size=(2, 3, 4)).astype(np.float32)
    scale, shift, mean, variance = (rng.random((3, 1)).astype(np.float32) for _ in range(4))
    values = [*zip(["s", "b", "m", "v"], (scale, shift, mean, variance), strict=True)]
    graph = helper.make_graph(
        [helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], momentum=0.5, epsilon=0.25)],
        "batch",
        [helper.make_tensor_value_info("x", 1, x.shape)],
        [helper.make_tensor_value_info("y", 1, x.shape)],
        [numpy_helper.from_array(array[:, 0], name) for name, array in values],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    want = scale * (x - mean) / np.sqrt(variance + 0.25) + shift
    np.testing.assert_allclose(run(load(model), {"x": x})["y"], want, rtol=1e-5, atol=1e-5)
    attrs = Attrs(momentum=0.5, epsilon=0.25)
    constants = [Constant.of(a) for a in (x, *(a[:, 0] for a in (scale, shift, mean, variance)))]
    (got,) = evaluate("BatchNormalization", attrs, constants, 1, opset)
    np.testing.assert_allclose(got.array, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_indices_out_of_range_are_no_class(axis: int) -> None:
    indices = np.array([[-4, -3, -1], [0, 2, 3]])
    text = f"i: int64[2, 3] d = 3 v = [5.0, 7.0] y = OneHot(i, d, v, axis={axis}) return y"
    got = run(parse(text), {"i": indices})["y"]
    whole = np.moveaxis(got, axis, -1)
    assert [np.flatnonzero(row == 7).tolist() for row in whole.reshape(6, 3)] == [[], [0], [2], [0], [2], []]
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(to_proto(parse(text)).SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"i": indices})[0], got)


def test_the_value_of_an_optional_is_the_value() -> None:
    x = np.arange(6).reshape(3, 2)
    graph = parse("x: int64[n, 2] o = Optional(x) y = OptionalGetElement(o) z = OptionalHasElement(o) return y, z")
    got = run(graph, {"x": x})
    np.testing.assert_array_equal(got["y"], x)
    assert got["z"]


def test_a_sixth_is_a_sixth_in_double_precision() -> None:
    x = np.array([-4.0, -2.9, 0.5, 7.0])
    got = run(parse("x: float64[4] y = HardSwish(x) return y"), {"x": x})["y"]
    np.testing.assert_allclose(got, x * np.clip(x / 6 + 0.5, 0, 1), rtol=1e-15)


@pytest.mark.parametrize("shift", ["", ", b"])
def test_layers_of_halves_are_normalized_in_single_precision(shift: str) -> None:
    x = np.array([[1.342, 1.31, 1.3]], np.float16)
    given = {"x": x, "s": np.array([0.5, 1, 2], np.float16)} | ({"b": np.ones(3, np.float16)} if shift else {})
    bias = "b: float16[3]" if shift else ""
    text = f"x: float16[1, 3] s: float16[3] {bias} y = LayerNormalization(x, s{shift}) return y"
    wide = x.astype(np.float64)
    want = (wide - wide.mean()) / np.sqrt(wide.var() + 1e-5) * given["s"] + given.get("b", 0)
    np.testing.assert_allclose(run(parse(text), given)["y"], want, atol=3e-3)


def test_a_norm_within_another_op_is_computed_as_it_is_alone() -> None:
    rng = np.random.default_rng(0)
    x, s, b = (rng.standard_normal(n).astype(np.float16) for n in ((1, 2, 2), 2, 2))
    feeds = {"x": x, "zero": np.zeros_like(x), "s": s, "b": b}
    text = "x: float16[1, 2, 2] zero: float16[1, 2, 2] s: float16[2] b: float16[2] y = {} return y"
    alone = parse(text.format("LayerNormalization(x, s, b, epsilon=0.01)"))
    within = parse(text.format("com.microsoft::SkipLayerNormalization(x, zero, s, b, epsilon=0.01)"))
    np.testing.assert_array_equal(run(alone, feeds)["y"], run(within, feeds)["y"])


@pytest.mark.parametrize("index", [2, -3])
def test_elements_are_gathered_within_the_axis_only(index: int) -> None:
    graph = parse("x: float32[2] i: int64[2] y = GatherElements(x, i) return y")
    feeds = {"x": np.arange(2, dtype=np.float32), "i": np.array([-2, 1])}
    np.testing.assert_array_equal(run(graph, feeds)["y"], [0, 1])
    with pytest.raises(IndexError):
        run(graph, {**feeds, "i": np.array([0, index])})


@pytest.mark.parametrize(("p", "want"), [(1, [[0.25, -0.75], [0, 0]]), (2, [[0.1**0.5, -(0.9**0.5)], [0, 0]])])
def test_norms_are_sums_of_magnitudes(p: int, want: list[list[float]]) -> None:
    x = np.array([[1, -3], [0, 0]], np.float32)
    got = run(parse(f"x: float32[2, 2] y = LpNormalization(x, p={p}) return y"), {"x": x})["y"]
    assert np.allclose(got, want, rtol=1e-6, atol=0)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_what_gelu_leaves_of_numbers_below_zero_is_as_precise_as_its_dtype(approximate: str) -> None:
    x = np.array([-5.0, -4.2222743, -1.0, 0.0, 2.0])
    got = run(parse(f'x: float64[5] y = Gelu(x, approximate="{approximate}") return y'), {"x": x})["y"]
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    want = [e / 2 * math.erfc(-e / math.sqrt(2)) for e in x] if approximate == "none" else x / (1 + np.exp(-2 * inner))
    np.testing.assert_allclose(got, want, rtol=1e-9)


def test_elements_of_a_long_vector_are_gathered() -> None:
    x, at = np.arange(100.0), np.array([99, 0, -1, 7])
    graph = parse("x: float64[100] at: int64[4] y = GatherElements(x, at, axis=0) return y")
    assert run(graph, {"x": x, "at": at})["y"].tolist() == [99, 0, 99, 7]


@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_convolution_is_the_adjoint_of_a_convolution(groups: int) -> None:
    """With groups, holes and margins: the products of either with the other's input are alike."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(4, 6 // groups, 2, 3))
    x, y = rng.normal(size=(2, 6, 11, 10)), rng.normal(size=(2, 4, 5, 4))
    how: dict[str, object] = {
        "group": groups, "strides": (2, 3), "dilations": (2, 1), "pads": (0, 1, 0, 1), "kernel_shape": (2, 3),
    }  # fmt: skip
    one, other = (
        evaluate(op, Attrs(**how), [Constant.of(images), Constant.of(weights)], 1, 22)[0].array
        for op, images in (("Conv", x), ("ConvTranspose", y))
    )
    assert (one.shape, other.shape) == (y.shape, x.shape)
    assert np.isclose((one * y).sum(), (x * other).sum())


def test_a_batch_without_elements_is_normalized() -> None:
    graph = parse("x: float32[0, 4] s: float32[4] b: float32[4] y = GroupNormalization(x, s, b, num_groups=2) return y")
    ones = np.ones(4, np.float32)
    assert run(graph, {"x": np.ones((0, 4), np.float32), "s": ones, "b": ones})["y"].shape == (0, 4)


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_the_largest_of_windows_with_other_pads_before_and_behind(dtype: type) -> None:
    x = -1 - np.random.default_rng(0).integers(0, 100, (2, 1, 4, 5)).astype(dtype)
    for pads in product((0, 1), repeat=4):
        (got,) = evaluate("MaxPool", Attrs(kernel_shape=(2, 2), pads=pads), [Constant.of(x)], 1, 17)
        top, left, bottom, right = pads
        rows, columns = range(-top, 3 + bottom), range(-left, 4 + right)
        windows = [x[:, :, max(i, 0) : i + 2, max(j, 0) : j + 2].max((2, 3)) for i in rows for j in columns]
        want = np.stack(windows, -1).reshape(2, 1, len(rows), len(columns))
        np.testing.assert_array_equal(got.array, want)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("zeros", [(3, 2), (4,)])
def test_quantized_convolutions_have_scales_of_channels_in_any_number_of_axes(
    axes: int, zeros: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(axes)
    x = rng.integers(0, 256, (2, 1, *[5, 4, 2][-axes:]), dtype=np.uint8)
    w = rng.integers(0, 256, (2, 1, *[2, 2, 1][-axes:]), dtype=np.uint8)
    scales, w_zeros = np.array([1.0, 0.5], np.float32), np.array(zeros, np.uint8)
    given = [x, np.float32(0.25), np.uint8(7), w, scales, w_zeros, np.float32(40), np.uint8(3)]
    (got,) = evaluate("QLinearConv", Attrs(), [Constant.of(np.asarray(g)) for g in given], 1, 21)
    shape = (2, *(1,) * (axes + 1))
    weights = (w - w_zeros.astype(float).reshape(-1, *shape[1:])) * scales.reshape(shape)
    (exact,) = evaluate("Conv", Attrs(), [Constant.of(a) for a in ((x - 7.0) * 0.25, weights)], 1, 21)
    np.testing.assert_array_equal(got.array, np.round(np.clip(exact.array / 40 + 3, 0, 255)).astype(np.uint8))


@pytest.mark.parametrize("shape", [(2, 6, 5, 3), (1, 4, 1), (3, 6)])
def test_groups_with_a_large_mean_keep_their_digits(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x = rng.random(shape, np.float32) + 100
    scale, shift = rng.random((2, shape[1]), np.float32)
    given = [Constant.of(v) for v in (x, scale, shift)]
    (got,) = evaluate("GroupNormalization", Attrs(num_groups=2), given, 1, 21)
    parts = x.astype(np.float64).reshape(shape[0], 2, -1)
    normal = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-5)
    wide = [v.reshape(-1, *[1] * (len(shape) - 2)) for v in (scale, shift)]
    np.testing.assert_allclose(got.array, normal.reshape(shape) * wide[0] + wide[1], rtol=1e-3, atol=1e-4)
