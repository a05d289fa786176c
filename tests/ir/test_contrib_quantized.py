"""What is said of ONNX Runtime's quantized ops is what it computes."""

from typing import Any

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.evaluate import evaluate
from graphopt.ir.graph import Attrs

ort = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)


def bytes_of(*shape: int, dtype: str = "uint8") -> np.ndarray[Any, Any]:
    return RNG.integers(0 if dtype == "uint8" else -90, 90, shape).astype(dtype)


def scale(value: float) -> np.ndarray[Any, Any]:
    return np.asarray(value, np.float32)


def zero(value: int, dtype: str = "uint8") -> np.ndarray[Any, Any]:
    return np.asarray(value, dtype)


X = (bytes_of(2, 3, 6, 6), scale(0.1), zero(20))
A, B = (bytes_of(4, 8), scale(0.1), zero(20)), (bytes_of(4, 8), scale(0.05), zero(9))
W = (bytes_of(8, 5, dtype="int8"), scale(0.02), zero(3, "int8"))
Y = (scale(0.08), zero(30))
CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("QuantizeLinear", [RNG.normal(size=(4, 8)).astype(np.float32), *Y], {}),
    ("DequantizeLinear", [*A], {}),
    ("DequantizeLinear", [W[0], RNG.random(5).astype(np.float32), bytes_of(5, dtype="int8")], {"axis": 1}),
    ("QLinearAdd", [*A, *B, *Y], {}),
    ("QLinearMul", [*A, *B, *Y], {}),
    ("QLinearSigmoid", [*A, scale(1 / 256), zero(0)], {}),
    ("QLinearLeakyRelu", [*A, *Y], {"alpha": 0.25}),
    ("QLinearSoftmax", [*A, scale(1 / 256), zero(0)], {"axis": -1, "opset": 13}),
    ("QLinearAveragePool", [*X, *Y], {"kernel_shape": (2, 2), "strides": (2, 2)}),
    ("QLinearGlobalAveragePool", [*X, *Y], {}),
    ("Inverse", [RNG.normal(size=(2, 5, 5)).astype(np.float32)], {}),
    ("NhwcMaxPool", [bytes_of(2, 7, 6, 3)], {"kernel_shape": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1)}),
    ("QLinearConcat", [*Y, *A, *B], {"axis": 1}),
    ("QLinearWhere", [RNG.random((4, 8)) < 0.5, *A, *B, *Y], {}),
    ("QGemm", [*A, *W, RNG.integers(-900, 900, 5).astype(np.int32), *Y], {}),
    ("QGemm", [*A, *W, RNG.integers(-900, 900, 5).astype(np.int32)], {}),
    ("MatMulIntegerToFloat", [A[0], W[0], A[1], W[1], A[2], W[2]], {}),
    ("DynamicQuantizeMatMul", [RNG.normal(size=(4, 8)).astype(np.float32), W[0], W[1], W[2]], {}),
    *(
        (
            "MatMulNBits",
            [
                RNG.normal(size=(3, 28)).astype(np.float32),
                RNG.integers(0, 256, (5, 2, 2 * bits)).astype(np.uint8),
                RNG.random(10).astype(np.float32),
                RNG.integers(0, 256, 5 * bits // 4).astype(np.uint8),
            ],
            {"K": 28, "N": 5, "bits": bits, "block_size": 16, "accuracy_level": level},
        )
        for bits, level in ((4, 0), (4, 4), (8, 4))
    ),
]


@pytest.mark.parametrize(("op", "inputs", "attrs"), CASES, ids=[c[0] for c in CASES])
def test_ops_compute_what_the_runtime_does(op: str, inputs: list[Any], attrs: dict[str, Any]) -> None:
    from onnx import helper, numpy_helper

    feeds = {f"i{k}": np.asarray(a) for k, a in enumerate(inputs)}
    constants = [Constant.of(a) for a in feeds.values()]
    (want,) = evaluate(f"com.microsoft::{op}", Attrs(attrs), constants, 1, 17)
    node = helper.make_node(op, list(feeds), ["y"], domain="com.microsoft", **attrs)
    kind = helper.np_dtype_to_tensor_dtype(want.array.dtype)
    weights = [numpy_helper.from_array(a, name) for name, a in feeds.items()]
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", kind, want.array.shape)], weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {})
    if want.array.dtype == np.float32:
        np.testing.assert_allclose(got, want.array, rtol=1e-3, atol=1e-3)
    else:
        assert np.abs(got.astype(int) - want.array.astype(int)).max() <= 1
