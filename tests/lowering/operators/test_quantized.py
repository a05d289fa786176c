"""Quantization against ONNX's cases, at ties and beyond the limits, and ONNX Runtime's ops between two roundings."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphopt
from graphopt.ir import evaluate
from graphopt.ir.constants import Array
from graphopt.ir.graph import Attr, Attrs
from graphopt.lowering.operators.operation import NotLowered
from graphopt.lowering.operators.quantized import TABLE
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import Shape, agree, cases_of, check, computed, not_lowered

BYTES = ("uint8", "int8")


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


@pytest.mark.parametrize("dtype", [*BYTES, "uint16", "int16"])
def test_ties_and_limits(dtype: str) -> None:
    x = np.array([0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 1e6, -1e6, np.inf, -np.inf], np.float32)
    for zero in (0, 3):
        got = computed("QuantizeLinear", [x, np.array(1, np.float32), np.array(zero, dtype)])[0]
        info = np.iinfo(dtype)
        want = np.clip(np.rint(x.astype(np.float64)) + zero, info.min, info.max).astype(dtype)
        assert np.array_equal(got, want)


@given(st.lists(st.floats(-300, 300, width=32), min_size=1, max_size=8), st.integers(0, 255))
@settings(max_examples=40, deadline=None)
def test_any_numbers_are_quantized_as_the_reference_does(numbers: list[float], zero: int) -> None:
    agree("QuantizeLinear", [np.array(numbers, np.float32), np.array(0.7, np.float32), np.array(zero, np.uint8)])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_by_axis(axis: int) -> None:
    random = np.random.default_rng(1)
    x = random.normal(0, 50, (2, 3, 4)).astype(np.float32)
    n = x.shape[axis]
    scale = random.uniform(0.5, 2, n).astype(np.float32)
    zero = random.integers(-5, 5, n).astype(np.int8)
    names: list[str | int] = ["a", "b", "c"]
    shapes: list[Shape] = [names, (names[axis],), (names[axis],)]
    for given_shapes in (None, shapes):
        agree("QuantizeLinear", [x, scale, zero], given_shapes, axis=axis)
        codes = random.integers(-128, 128, x.shape).astype(np.int8)
        agree("DequantizeLinear", [codes, scale, zero], given_shapes, axis=axis)
    agree("QuantizeLinear", [x, scale], axis=axis)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_one_scale_for_all(shape: tuple[int, ...]) -> None:
    codes = np.random.default_rng(2).integers(-128, 128, (2, 3)).astype(np.int8)
    scale, zero = np.full(shape, 0.25, np.float32), np.full(shape, -7, np.int8)
    agree("DequantizeLinear", [codes, scale, zero], [("n", "m"), shape, shape])
    agree("DequantizeLinear", [codes.astype(np.int32) * 1000, scale])
    agree("DequantizeLinear", [codes, scale.astype(np.float16), zero])
    agree("QuantizeLinear", [codes.astype(np.float32), scale, zero], [("n", "m"), shape, shape])


def test_by_block() -> None:
    random = np.random.default_rng(3)
    codes = random.integers(-128, 128, (2, 6)).astype(np.int8)
    scale, zero = random.uniform(0.5, 2, (2, 3)).astype(np.float32), random.integers(-5, 5, (2, 3)).astype(np.int8)
    agree("DequantizeLinear", [codes, scale, zero], [("n", 6), ("n", 3), ("n", 3)], axis=1, block_size=2)
    agree("QuantizeLinear", [codes.astype(np.float32) * 3, scale, zero], axis=1, block_size=2)


def test_halves_are_divided_in_halves() -> None:
    x = np.linspace(-60, 60, 41).astype(np.float16)
    agree("QuantizeLinear", [x, np.array(0.3, np.float16), np.array(1, np.int8)])


def test_the_scale_comes_from_the_numbers() -> None:
    for x in ([-3.0, 7.5, 0.1], [2.0, 5.0, 3.0], [-5.0, -1.0, -2.0], [0.0, 0.0, 0.0]):
        agree("DynamicQuantizeLinear", [np.array(x, np.float32)], [("n",)], n_outputs=3)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (1, 1), (5, 7)])
def test_the_scale_of_any_number_of_numbers(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    if x.size:
        agree("DynamicQuantizeLinear", [x], n_outputs=3)
        agree("DynamicQuantizeLinear", [x], [["n", "m"][: x.ndim]], n_outputs=3)
    else:
        assert computed("DynamicQuantizeLinear", [x], n_outputs=3)[0].shape == shape
    if x.size > 1:
        x.flat[1] = np.nan
        assert np.isnan(computed("DynamicQuantizeLinear", [x], n_outputs=3)[1])


# -- ONNX Runtime's ops


def near(op: str, arrays: list[Array | None], shapes: list[Shape | None] | None = None, **attrs: Attr) -> None:
    """Asserts that the op gives the reference's codes, but for one step at a tie that is rounded the other way."""
    got = computed(f"com.microsoft::{op}", arrays, shapes, **attrs)[0]
    (want,) = evaluate.compute(f"com.microsoft::{op}", Attrs(attrs), arrays, 1)
    assert got.dtype == want.dtype
    assert np.abs(got.astype(int) - want.astype(int)).max(initial=0) <= 1
    assert (got == want).mean() > 0.9


def codes(dtype: str, *shape: int) -> Array:
    """Codes over the whole range."""
    info = np.iinfo(dtype)
    return np.random.default_rng(4).integers(info.min, info.max + 1, shape).astype(dtype)


def parameters(dtype: str, scale: float, zero: int) -> list[Array | None]:
    """A scale and a zero point."""
    return [np.array(scale, np.float32), np.array(zero, dtype)]


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_two_operands(op: str, dtype: str) -> None:
    a, b = codes(dtype, 4, 6), codes(dtype, 6)
    last = parameters(dtype, 0.47 if op == "QLinearAdd" else 5.1, 3)  # few ties
    arrays = [a, *parameters(dtype, 0.25, 1), b, *parameters(dtype, 0.5, 2), *last]
    near(op, arrays)
    near(op, arrays, [("n", 6), (), (), (6,), (), (), (), ()])
    if dtype == "uint8":  # without zero points, the reference knows no other
        arrays[2] = arrays[5] = arrays[7] = None
        near(op, arrays)


@pytest.mark.parametrize("zero", [0, 1, 4])
@pytest.mark.parametrize("dtype", BYTES)
def test_sums_are_onnxruntimes_at_ties(dtype: str, zero: int) -> None:
    """Half of these stand between two codes."""
    ort = pytest.importorskip("onnxruntime")
    x, y = (np.random.default_rng(seed).permutation(codes(dtype, 40, 30).reshape(-1)) for seed in (0, 1))
    arrays = [x, *parameters(dtype, 0.02, zero), y, *parameters(dtype, 0.02, 3), *parameters(dtype, 0.04, zero)]
    names = [f"x{k}" for k in range(8)]
    node = onnx.helper.make_node("QLinearAdd", names, ["y"], domain="com.microsoft")
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    told = [onnx.helper.make_tensor_value_info(n, code, [1200]) for n in ("x0", "x3", "y")]
    held = [onnx.numpy_helper.from_array(a, n) for n, a in zip(names, arrays, strict=True) if n not in ("x0", "x3")]
    graph = onnx.helper.make_graph([node], "sum", told[:2], told[2:], held)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    feeds = {"x0": x, "x3": y}
    (want,) = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_array_equal(graphopt.compile(model, jobs=0)(feeds)["y"], want)


@pytest.mark.parametrize("dtype", BYTES)
def test_one_operand(dtype: str) -> None:
    x = codes(dtype, 4, 6)
    every = np.arange(256, dtype=np.uint8).astype(dtype)
    near("QLinearSigmoid", [every, *parameters(dtype, 0.05, 1), *parameters(dtype, 1 / 256, 0)])
    near("QLinearSigmoid", [every.reshape(4, 64), *parameters(dtype, 0.05, 1), *parameters(dtype, 1 / 256, 0)])
    near("QLinearLeakyRelu", [x, *parameters(dtype, 0.05, 1), *parameters(dtype, 0.04, 2)], alpha=0.1)
    near("QLinearSoftmax", [x, *parameters(dtype, 0.05, 1), *parameters(dtype, 1 / 256, 0)], axis=-1, opset=13)


@pytest.mark.parametrize("dtype", BYTES)
def test_choices_and_concatenations(dtype: str) -> None:
    x, y = codes(dtype, 4, 6), codes(dtype, 4, 6)
    first, second, last = parameters(dtype, 0.5, 1), parameters(dtype, 0.25, 2), parameters(dtype, 0.3, 3)
    near("QLinearWhere", [x > 3, x, *first, y, *second, *last])
    for axis in (0, 1):
        part = y[:2] if axis == 0 else y[:, :2]
        near("QLinearConcat", [*last, x, *first, part, *second, x, *second], axis=axis)


@pytest.mark.parametrize("dtype", BYTES)
def test_pools(dtype: str) -> None:
    arrays = [codes(dtype, 1, 2, 4, 5), *parameters(dtype, 0.5, 1), *parameters(dtype, 0.25, 2)]
    near("QLinearGlobalAveragePool", arrays, [("n", 2, "h", 5), (), (), (), ()])
    for padded in (0, 1):
        near("QLinearAveragePool", arrays, kernel_shape=(2, 3), pads=(1, 1, 0, 1), count_include_pad=padded)
    with pytest.raises(NotLowered, match="with the channels last"):
        computed("com.microsoft::QLinearGlobalAveragePool", arrays, channels_last=1)
