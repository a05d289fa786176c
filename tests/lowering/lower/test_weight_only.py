"""Products with dequantized weights read the weights as they are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.ir import onnx_io
from graphopt.ir.bfloat import PRODUCT as MIXED_PRODUCT
from graphopt.ir.text import parse
from graphopt.lowering.lower import expand
from graphopt.lowering.lower.weight_only import PRODUCT, mixed_products, packed_products
from graphopt.runtime import cpu

CODES = {"int4": (-8, 8), "uint4": (0, 16), "int8": (-128, 128), "uint8": (0, 256)}
K, N = 96, 37


def model(
    dtype: str, granularity: str, layout: str, has_zeros: bool, depth: int = K, floats: int = TensorProto.FLOAT
) -> onnx.ModelProto:
    """A product of ``x`` by dequantized weights, which lie by rows, by columns, or are turned before; with a bias where
    the product is a Gemm."""
    rng, is_turned = np.random.default_rng(0), layout != "rows"
    shape = (N, depth) if is_turned else (depth, N)
    along = 1 if is_turned else 0
    blocks = tuple(n // 32 if k == along else n for k, n in enumerate(shape))
    sizes: dict[str, tuple[int, ...]] = {"tensor": (), "column": (N,), "row": (depth,), "block": blocks}
    size, kind = sizes[granularity], getattr(TensorProto, dtype.upper())
    scales = (rng.random(size) * 0.1 + 0.01).astype(np.float16 if floats == TensorProto.FLOAT16 else np.float32)
    held = [
        helper.make_tensor("w", kind, shape, rng.integers(*CODES[dtype], shape).reshape(-1).tolist()),
        numpy_helper.from_array(scales, "s"),
    ]
    if has_zeros:
        held.append(helper.make_tensor("z", kind, size, rng.integers(*CODES[dtype], size).reshape(-1).tolist()))
    axes: dict[str, dict[str, Any]] = {
        "column": {"axis": 1 - along},
        "row": {"axis": along},
        "block": {"axis": along, "block_size": 32},
    }
    nodes = [helper.make_node("DequantizeLinear", [t.name for t in held], ["f"], **axes.get(granularity, {}))]
    if layout == "gemm":
        held.append(numpy_helper.from_array(rng.standard_normal(N).astype(scales.dtype), "c"))
        nodes.append(helper.make_node("Gemm", ["x", "f", "c"], ["y"], transB=1))
    else:
        if is_turned:
            nodes.append(helper.make_node("Transpose", ["f"], ["t"], perm=[1, 0]))
        nodes.append(helper.make_node("MatMul", ["x", "t" if is_turned else "f"], ["y"]))
    values = [helper.make_tensor_value_info(name, floats, ["n", k]) for name, k in (("x", depth), ("y", N))]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def run(made: onnx.ModelProto | graphopt.Graph, x: np.ndarray, folder: Path) -> np.ndarray:
    """What ONNX Runtime makes of ``x``; its optimizations would round it to bytes."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if isinstance(made, graphopt.Graph):
        onnx_io.save(made, folder / "packed.onnx")
        made = onnx.load(folder / "packed.onnx")
    (y,) = onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, {"x": x})
    return np.asarray(y)


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("layout", ["rows", "columns", "gemm"])
@pytest.mark.parametrize("granularity", ["tensor", "column", "block"])
@pytest.mark.parametrize("dtype", CODES)
def test_products_read_codes(dtype: str, granularity: str, layout: str, has_zeros: bool, tmp_path: Path) -> None:
    made = model(dtype, granularity, layout, has_zeros)
    packed = packed_products(onnx_io.load(made))
    assert PRODUCT in [n.op for n in packed.nodes()]
    x = np.random.default_rng(1).standard_normal((3, K)).astype(np.float32)
    np.testing.assert_allclose(run(packed, x, tmp_path), run(made, x, tmp_path), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("floats", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_large_weights_are_not_dequantized_by_each_run(monkeypatch: pytest.MonkeyPatch, floats: int) -> None:
    monkeypatch.setattr(expand, "LARGE", 3)
    made = model("int4", "block", "rows", True, floats=floats)
    with graphopt.compile(made, jobs=0, verify="require") as compiled:
        ops = [n.op for n in compiled.graph.nodes()]
        assert "DequantizeLinear" not in ops
        assert PRODUCT in ops


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (model("int8", "column", "rows", False, depth=40), "columns are no blocks of 16 elements"),
        (model("int8", "row", "rows", False), "elements of a column have scales of their own"),
    ],
)
def test_what_the_op_cannot_say_stays(made: onnx.ModelProto, why: str) -> None:
    read = onnx_io.load(made)
    assert packed_products(read) is read, why


@pytest.mark.parametrize(("size", "is_packed"), [(N, True), (1, False)])
def test_a_bias_is_one_of_columns(size: int, is_packed: bool) -> None:
    made = model("int8", "column", "gemm", False)
    bias = next(t for t in made.graph.initializer if t.name == "c")
    bias.CopyFrom(numpy_helper.from_array(np.ones(size, np.float32), "c"))
    packed = packed_products(onnx_io.load(made))
    assert (PRODUCT in [n.op for n in packed.nodes()]) == is_packed


def test_a_product_without_weights_stays() -> None:
    graph = parse("x: float32[2, 2] y = MatMul(x, x) return y")
    (node,) = (n for n in graph.nodes() if n.op == "MatMul")
    graph.update(node.id, inputs=node.inputs[:1])
    assert packed_products(graph) is graph


# -- weights that are numbers of half precision


def _numbers(*shape: int, dtype: type = ml_dtypes.bfloat16) -> np.ndarray:
    drawn = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
    return drawn.astype(dtype).astype(np.float32)


def _products(rows: int | str, weights: np.ndarray, dtype: type = ml_dtypes.bfloat16) -> onnx.ModelProto:
    """A product, and a Gemm with a bias by weights that are turned."""
    held = {"w": weights, "u": _numbers(33, 40, dtype=dtype), "b": np.full(33, 1.01, np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Gemm", ["y", "u", "b"], ["z"], transB=1)]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, k]) for n, k in (("x", 48), ("z", 33))]
    tensors = [numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _ops(graph: graphopt.Graph) -> list[str]:
    return [n.op for n in graph.order() if n.op.endswith(("MatMul", "Gemm", "Add"))]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_weights_that_are_numbers_of_half_precision_are_read_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dtype: type
) -> None:
    made = _products("n", _numbers(48, 40, dtype=dtype), dtype)
    read = onnx_io.load(made)
    assert mixed_products(read) is read, "they stay in a cache"
    monkeypatch.setattr(cpu, "cache_bytes", lambda level: 0 if level == 2 else 1 << 15)
    assert _ops(mixed_products(read)) == [MIXED_PRODUCT, MIXED_PRODUCT, "Add"]
    x = np.random.default_rng(1).standard_normal((3, 48)).astype(np.float32)
    with graphopt.compile(made, jobs=0, verify="require") as compiled:
        assert MIXED_PRODUCT in [n.op for n in compiled.graph.nodes()]
        np.testing.assert_allclose(compiled(x)["z"], run(made, x, tmp_path), rtol=1e-4, atol=1e-4)


def test_other_weights_and_those_that_many_rows_read_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "cache_bytes", lambda level: 0 if level == 2 else 1 << 15)
    changed = _numbers(48, 40)
    changed[-1, -1] = 1.01
    assert _ops(mixed_products(onnx_io.load(_products("n", changed)))) == ["MatMul", MIXED_PRODUCT, "Add"]
    read = onnx_io.load(_products(64, _numbers(48, 40)))
    assert mixed_products(read) is read
