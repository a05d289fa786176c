"""Products of quantized operands against ONNX's node tests and what the reference computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.errors import ExecutionError, VerificationError
from graphopt.ir.constants import Array
from graphopt.ir.tolerance import error
from graphopt.lowering.cpu import constant_precompute
from graphopt.lowering.link.linked import source_of
from graphopt.lowering.loops.compute import compute
from graphopt.lowering.loops.expressions import Const, cast
from graphopt.lowering.operators import quantized_products
from graphopt.lowering.operators.operation import NotLowered
from graphopt.lowering.operators.quantized_products import TABLE
from graphopt.verify.coarsest import STEP
from tests.lowering.operators.lowered import agree, cases_of, check, computed, not_lowered

MS = "com.microsoft::"


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Any) -> None:
    check(case)


def test_every_case_is_lowered() -> None:
    assert not_lowered(TABLE) == set()


def _bytes(*shape: int, dtype: str = "uint8", seed: int = 0) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def _floats(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def _one(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype)


@pytest.mark.parametrize("dtypes", [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
def test_integer_products(dtypes: tuple[str, str]) -> None:
    a, b = _bytes(2, 3, 5, dtype=dtypes[0]), _bytes(5, 4, dtype=dtypes[1])
    agree("MatMulInteger", [a, b])
    agree("MatMulInteger", [a, b, _one(3, dtypes[0]), _one(5, dtypes[1])])
    agree("MatMulInteger", [a, b, None, _bytes(4, dtype=dtypes[1])])
    agree("MatMulInteger", [a, b, _one(3, dtypes[0])], [("n", "m", 5), (5, 4), ()])
    agree("MatMulInteger", [a[0, 0], b])


def test_zero_points_of_rows() -> None:
    a, b, zeros = _bytes(3, 5), _bytes(5, 4), _bytes(3)
    (got,) = computed("MatMulInteger", [a, b, zeros])
    np.testing.assert_array_equal(got, (a.astype(np.int32) - zeros[:, None]) @ b.astype(np.int32))


def test_integer_convolutions() -> None:
    x, w = _bytes(2, 4, 6, 5), _bytes(6, 2, 3, 3, dtype="int8")
    agree("ConvInteger", [x, w, _one(7, "uint8")], pads=(1, 1, 1, 1), group=2)
    agree("ConvInteger", [x, w[:, :, :1, :1]], strides=(2, 1), group=2)


def test_quantized_convolutions_by_channel() -> None:
    x, w, bias = _bytes(1, 3, 5, 5), _bytes(4, 3, 3, 3, dtype="int8"), np.array([-900, 3, 0, 5000], np.int32)
    scales = np.array([0.01, 0.02, 0.005, 0.03], np.float32)
    quantized = [x, _one(0.1), _one(120, "uint8"), w, scales, np.zeros(4, np.int8), _one(0.7), _one(128, "uint8"), bias]
    agree("QLinearConv", quantized, pads=(1, 1, 1, 1))
    agree("QLinearConv", quantized[:-1], strides=(2, 2))
    agree("QLinearConv", quantized, [("n", 3, "h", "w"), *(a.shape for a in quantized[1:])], dilations=(2, 2))


def test_quantized_products_by_column() -> None:
    a, b = _bytes(3, 5), _bytes(5, 4, dtype="int8")
    scales, zeros = np.array([0.01, 0.02, 0.005, 0.03], np.float32), np.array([1, -2, 0, 4], np.int8)
    agree("QLinearMatMul", [a, _one(0.1), _one(120, "uint8"), b, scales, zeros, _one(0.3), _one(99, "uint8")])


@pytest.mark.parametrize("bias", [False, True])
def test_products_of_integers_as_floats(bias: bool) -> None:
    a, b, scales = _bytes(2, 3, 5), _bytes(5, 4, dtype="int8"), np.array([0.01, 0.02, 0.005, 0.03], np.float32)
    zeros, added = np.array([1, -2, 0, 4], np.int8), _floats(4)
    end = [added] if bias else []
    agree(MS + "MatMulIntegerToFloat", [a, b, _one(0.1), scales, _one(3, "uint8"), zeros, *end])
    agree(MS + "MatMulIntegerToFloat", [a, b, _one(0.1), _one(0.2)])
    agree(MS + "DynamicQuantizeMatMul", [_floats(2, 3, 5), b, scales, zeros, *end])
    agree(MS + "DynamicQuantizeMatMul", [_floats(2, 3, 5), b, _one(0.2)])


@pytest.mark.parametrize("transpose", [0, 1])
def test_quantized_gemm(transpose: int) -> None:
    a, b = _bytes(3, 5), _bytes(*(4, 5)[:: -1 if not transpose else 1], dtype="int8")
    scales, zeros = np.array([0.01, 0.02, 0.005, 0.03], np.float32), np.array([1, -2, 0, 4], np.int8)
    bias = np.array([-900, 3, 0, 5000], np.int32)
    inputs = [a, _one(0.1), _one(120, "uint8"), b, scales, zeros, bias]
    agree(MS + "QGemm", [*inputs, _one(0.4), _one(128, "uint8")], transB=transpose)
    agree(MS + "QGemm", inputs, transB=transpose, alpha=0.5)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("packed_zeros", [False, True])
def test_weights_of_few_bits(bits: int, packed_zeros: bool) -> None:
    k, n, block = 40, 3, 16
    a, b, scales = _floats(2, 2, k), _bytes(n, 3, block * bits // 8), _floats(n * 3, seed=2)
    zeros: list[Array | None] = [_bytes(n * -(-3 * bits // 8), seed=3)] if packed_zeros else []
    agree(MS + "MatMulNBits", [a, b, scales, *zeros], K=k, N=n, bits=bits, block_size=block)
    bias = [*(zeros or [None]), None, _floats(n, seed=4)]
    agree(MS + "MatMulNBits", [a, b, scales, *bias], K=k, N=n, bits=bits, block_size=block)


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("packed_zeros", [False, True])
def test_known_weights_of_few_bits_lie_in_columns(rows: int, bits: int, packed_zeros: bool) -> None:
    """Few rows read them packed, for many they become floats first."""
    k, n, block, blocks = 64, 37, 16, 4
    a, b, scales = _floats(rows, k), _bytes(n, blocks, block * bits // 8), _floats(n * blocks, seed=2)
    given: list[Array | None] = [a, b, scales]
    if packed_zeros:
        given.append(_bytes(n * blocks * bits // 8, seed=3))
    known = set(range(1, len(given)))
    agree(MS + "MatMulNBits", given, known=known, K=k, N=n, bits=bits, block_size=block)


@pytest.mark.parametrize("lead", [(3,), (2, 2), ()], ids=str)
@pytest.mark.parametrize("block", [16, 32])
def test_accuracy_level_4_multiplies_bytes(lead: tuple[int, ...], block: int) -> None:
    """Of any rank, of sizes that are known and open, with zero points and bias, of rows that end within a block."""
    k, n, blocks = 40, 37, -(-40 // block)
    a, b, scales = _floats(*lead, k), _bytes(n, blocks, block // 2), _floats(n, blocks, seed=2)
    zeros, bias = _bytes(n * -(-blocks // 2), seed=3), _floats(n, seed=4)
    attrs: dict[str, Any] = {"K": k, "N": n, "bits": 4, "block_size": block, "accuracy_level": 4}
    operands: list[list[Array | None]] = [[a, b, scales], [a, b, scales.reshape(-1), zeros, None, bias]]
    for given in operands:
        known = {i for i, array in enumerate(given) if i and array is not None}
        agree(MS + "MatMulNBits", given, known=known, **attrs)
        (rough,) = computed(MS + "MatMulNBits", given, known=known, **{**attrs, "accuracy_level": 0})
        (got,) = computed(MS + "MatMulNBits", given, None if not lead else _open(given), known, **attrs)
        assert 1e-5 < error(rough, got, STEP) < 3, "rows are rounded, and only rounded"
    agree(MS + "MatMulNBits", [a, b, scales], **attrs)
    eight = _bytes(n, blocks, block)
    agree(MS + "MatMulNBits", [a, eight, scales], known={1, 2}, **{**attrs, "bits": 8})


def _open(given: list[Array | None]) -> list[Any]:
    """Shapes of which those of the first array are not known but for the last side."""
    shapes: list[Any] = [None if x is None else x.shape for x in given]
    shapes[0] = (*(f"n{i}" for i in range(len(shapes[0]) - 1)), shapes[0][-1])
    return shapes


def test_bytes_are_multiplied_by_our_kernel_as_onnxruntime_does() -> None:
    ort = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    weights = {"b": _bytes(70, 3, 16), "s": rng.random((70, 3), np.float32), "z": _bytes(70, 2, seed=5)}
    model = _nbits(weights, ("m",), K=80, N=70, bits=4, block_size=32, accuracy_level=4)
    special = np.zeros((5, 80), np.float32)
    special[1, 3], special[2, 40], special[3, 79], special[4] = np.nan, np.inf, 1e-44, 3.0
    session = ort.InferenceSession(model.SerializeToString())
    with graphopt.compile(model, strict=True, jobs=1, verify=2) as compiled:
        assert compiled.compiled.report.verification.status == "verified"
        assert any("block_quantized_product" in source_of(p.emitted) for p in compiled.compiled.linked.parts)
        for m in (0, 1, 2, 5):
            a = rng.standard_normal((m, 80), np.float32)
            np.testing.assert_allclose(compiled(a)["y"], session.run(None, {"a": a})[0], rtol=1e-5, atol=1e-5)
        got = compiled(special)["y"]
    assert np.isnan(got[1:3]).all()
    assert (got[[0, 3]] == 0).all()
    np.testing.assert_allclose(got[4], session.run(None, {"a": special})[0][4], rtol=1e-5)


def test_a_wrong_product_in_bytes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    weights = {"b": _bytes(48, 8, 16), "s": rng.random((48, 8), np.float32)}
    model = _nbits(weights, (3,), K=256, N=48, bits=4, block_size=32, accuracy_level=4)

    class Faulty(quantized_products._QuantizedRows):
        """Leaves the last element of each block out of its sums."""

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            sums, codes = self.sums, self.codes
            self.sums = compute(
                sums.shape, lambda *at: sums[at] - cast(codes[(*at, Const(self.block - 1))], "int32"), "int32"
            )

    monkeypatch.setattr(quantized_products, "_QuantizedRows", Faulty)
    with pytest.raises(VerificationError, match="the program is wrong"):
        graphopt.compile(model, strict=True, jobs=1, verify=2)


def _nbits(weights: dict[str, Array], sizes: tuple[str | int, ...], **attrs: Any) -> Any:
    """A model of one product by such weights."""
    node = helper.make_node("MatMulNBits", ["a", *weights], ["y"], domain=MS[:-2], **attrs)
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [*sizes, attrs[k]]) for n, k in (("a", "K"), ("y", "N"))
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(MS[:-2], 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


@pytest.mark.parametrize("sizes", [("m",), ("b", "s")])
def test_known_weights_are_read_in_vectors_and_made_floats_for_many_rows_a_piece_at_a_time(
    sizes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constant_precompute, "LARGE", 0)
    rng = np.random.default_rng(0)
    weights = {"b": _bytes(48, 2, 16), "s": rng.random((48, 2), np.float32)}
    model = _nbits(weights, sizes, K=64, N=48, bits=4, block_size=32)
    with graphopt.compile(model, strict=True, jobs=1) as compiled:
        few, many, choice = [source_of(part.emitted) for part in compiled.compiled.linked.parts]
        assert "gather" not in few + many + choice
        assert "product" not in few
        assert "product_np" in many
        assert "stack(" in many, "floats are made where they are read, and stay in a cache"
        for m in (0, 1, 2, 3, 19):
            a = rng.standard_normal((m, 64) if len(sizes) == 1 else (m, 2, 64)).astype(np.float32)
            codes = np.stack([weights["b"] & 15, weights["b"] >> 4], -1).reshape(48, 2, 32)
            w = ((codes.astype(np.float32) - 8) * weights["s"][..., None]).reshape(48, 64)
            np.testing.assert_allclose(compiled(a)["y"], a @ w.T, rtol=1e-4, atol=1e-4)


def test_reordered_weights_are_left_to_reference() -> None:
    order = np.arange(32, dtype=np.int32)
    with pytest.raises(NotLowered, match="reordered"):
        computed(
            MS + "MatMulNBits", [_floats(1, 32), _bytes(3, 1, 16), _floats(3), None, order], K=32, N=3, block_size=32
        )


def test_compiled() -> None:
    a, b, zeros = _bytes(5, 33), _bytes(33, 19, dtype="int8"), _one(3, "uint8")
    node = helper.make_node("MatMulInteger", ["a", "b", "z"], ["y"])
    kinds = (TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT8)
    inputs = [
        helper.make_tensor_value_info(n, kind, x.shape) for n, kind, x in zip("abz", kinds, (a, b, zeros), strict=True)
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT32, None)]
    model = helper.make_model(helper.make_graph([node], "g", inputs, outputs))
    with graphopt.compile(model, strict=True, optimize=False) as compiled:
        got = compiled(a, b, zeros)["y"]
    np.testing.assert_array_equal(got, (a.astype(np.int32) - 3) @ b.astype(np.int32))


@pytest.mark.parametrize("sizes", [(3,), ("k",)], ids=str)
@pytest.mark.parametrize("place", [1, 4, 5, 6])
def test_scales_and_zeros_are_as_many_as_what_they_are_for(place: int, sizes: tuple[int | str, ...]) -> None:
    inputs = [_bytes(6, 5), _one(0.1), _one(120, "uint8"), _bytes(5, 4, dtype="int8"), _one(0.2), _one(1, "int8")]
    inputs += [_one(0.3), _one(99, "uint8")]
    inputs[place] = np.ones(3, inputs[place].dtype)
    shapes = [sizes if k == place else x.shape for k, x in enumerate(inputs)]
    with pytest.raises(ExecutionError, match="neither 1 nor"):
        computed("QLinearMatMul", inputs, shapes)
