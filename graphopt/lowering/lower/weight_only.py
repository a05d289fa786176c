"""Weights as they are stored: products with weights that each run would make floats become products with weights of a
few bits, and those with weights that are numbers of half precision read them so, half the bytes, which is exact."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Final

import ml_dtypes
import numpy as np

from graphopt.frozen import dataclass
from graphopt.ir.bfloat import PRODUCT as MIXED_PRODUCT
from graphopt.ir.constants import Array, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.lowering.cpu.library_dispatch import FEW
from graphopt.runtime import cpu

PRODUCT: Final = "com.microsoft::MatMulNBits"
BITS: Final = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8}
"""How many bits codes of a dtype have."""
LEAST_BLOCK: Final = 16
"""Rows of the smallest block that the op knows; all are powers of two."""
FLOATS: Final = ("float32", "float16")


def weights_as_stored(graph: Graph) -> Graph:
    """The graph with products that read weights of a few bits, and of half precision, as such."""
    return mixed_products(packed_products(graph))


def packed_products(graph: Graph) -> Graph:
    """The graph with products by constants that are dequantized in each run as products with packed weights; the graph
    itself where there are none."""
    result = graph
    for node in graph.order():
        found = _weights_of(graph, node)
        if found is None or not _is_plain(graph, node, found.columns):
            continue
        result = graph.copy() if result is graph else result
        codes, scales, zeros = (None if x is None else result.add_constant(Constant.of(x)) for x in found.packed())
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        attrs = Attrs(K=found.depth, N=found.columns, bits=found.bits, block_size=found.block)
        given = (node.inputs[0], codes, scales, zeros, None, bias)
        result.update(node.id, op=PRODUCT, inputs=given, attrs=attrs)
        _forget(result, node.inputs[1])
    return result


def mixed_products(graph: Graph) -> Graph:
    """The graph with products of float32 by weights that are numbers of bfloat16, or of float16, as products by these,
    where there are so many that they come from memory in each run; the graph itself where there are none.

    Checkpoints are often stored in half precision, and exported in float32, or behind a Cast that is folded.
    """
    facts: Mapping[Value, Fact] = {}
    found: list[tuple[Node, Value, bool]] = []
    for node in graph.order():
        weights, turns = node.inputs[1] if len(node.inputs) > 1 else None, bool(node.attrs.get("transB", 0))
        if node.op not in ("MatMul", "Gemm") or weights is None or (constant := graph.constant_of(weights)) is None:
            continue
        if constant.dtype != "float32" or len(constant.shape) != 2 or min(constant.shape) < LEAST_BLOCK:
            continue
        facts = facts or infer(graph)
        if _has_few_rows(facts, node.inputs[0]) and _is_plain(graph, node, constant.shape[0 if turns else 1]):
            found.append((node, weights, turns))
    read = {weights: graph.constant_of(weights) for _, weights, _ in found}
    if sum(c.nbytes for c in read.values() if c is not None) <= cpu.cache_bytes(2):
        return graph
    halves = {weights: _as_halves(c.array) for weights, c in read.items() if c is not None}
    result = graph
    made: dict[tuple[Value, bool], Value] = {}
    for node, weights, turns in found:
        half = halves[weights]
        if half is None:
            continue
        result = graph.copy() if result is graph else result
        if (weights, turns) not in made:
            made[weights, turns] = result.add_constant(Constant.of(half.T if turns else half))
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if bias is None:
            result.update(node.id, op=MIXED_PRODUCT, inputs=(node.inputs[0], made[weights, turns]), attrs=Attrs())
            continue
        total = result.add(MIXED_PRODUCT, (node.inputs[0], made[weights, turns])).outputs[0]
        result.update(node.id, op="Add", inputs=(total, bias), attrs=Attrs())
    return result


def _has_few_rows(facts: Mapping[Value, Fact], x: Value | None) -> bool:
    """Whether a product has so few rows, or may have, that reading its weights is what takes long."""
    shape = None if x is None else facts[x].shape
    if shape is None or len(shape) < 2:
        return False
    return prod(n for n in shape[:-1] if isinstance(n, int)) <= FEW


def _as_halves(array: Array) -> Array | None:
    """The elements as bfloat16 or float16, where that is what they are; None where some are neither."""
    for dtype in (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)):
        if _are_numbers_of(array[:1], dtype) and _are_numbers_of(array, dtype):
            halves: Array = array.astype(dtype)
            return halves
    return None


def _are_numbers_of(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether a dtype has all elements, of which a NaN may be any NaN."""
    with np.errstate(over="ignore"):
        return np.array_equal(array.astype(dtype).astype(array.dtype), array, equal_nan=True)


def _forget(graph: Graph, value: Value | None) -> None:
    """Remove what made a value, where nobody else reads it."""
    if value is not None and value.node in graph and not graph.is_used(value.node):
        inputs = graph.node(value.node).inputs
        graph.remove(value.node)
        for source in inputs:
            _forget(graph, source)


@dataclass(frozen=True, slots=True)
class _Weights:
    """Codes [N, K] without signs, with a scale and a zero point for each block of a row."""

    codes: Array
    scales: Array
    zeros: Array
    bits: int
    block: int

    @property
    def columns(self) -> int:
        return int(self.codes.shape[0])

    @property
    def depth(self) -> int:
        return int(self.codes.shape[1])

    def packed(self) -> tuple[Array, Array, Array | None]:
        """The inputs of the op; it counts from the middle where it has no zero points."""
        blocks, middle = self.depth // self.block, 1 << (self.bits - 1)
        codes = _in_bytes(self.codes, self.bits).reshape(self.columns, blocks, -1)
        zeros = None if (self.zeros == middle).all() else _in_bytes(self.zeros, self.bits)
        return codes, np.ascontiguousarray(self.scales), zeros


def _in_bytes(codes: Array, bits: int) -> Array:
    """Rows of codes in bytes, the lowest bits first."""
    each = 8 // bits
    filled = np.zeros((len(codes), -(-codes.shape[1] // each) * each), np.uint8)
    filled[:, : codes.shape[1]] = codes
    parts = filled.reshape(len(codes), -1, each)
    packed = parts[..., 0]
    for k in range(1, each):
        packed = packed | parts[..., k] << np.uint8(k * bits)
    return packed


def _weights_of(graph: Graph, node: Node) -> _Weights | None:
    """The weights of a product, where they are constants that are dequantized and the op can say so."""
    weights = node.inputs[1] if len(node.inputs) > 1 else None
    if node.op not in ("MatMul", "Gemm") or weights is None:
        return None
    maker, is_turned = graph.producer(weights), bool(node.attrs.get("transB", 0))
    if maker.op == "Transpose" and maker.attrs.get("perm") in ((1, 0), None) and maker.inputs[0] is not None:
        maker, is_turned = graph.producer(maker.inputs[0]), not is_turned
    if maker.op != "DequantizeLinear":
        return None
    codes, scale, zero = (*(graph.constant_of(v) for v in maker.inputs), None)[:3]
    if codes is None or scale is None or (zero is None and len(maker.inputs) > 2):
        return None
    if codes.dtype not in BITS or scale.dtype not in FLOATS or len(codes.shape) != 2 or "output_dtype" in maker.attrs:
        return None
    axis, block = (int(_number(maker, name, value)) for name, value in (("axis", 1), ("block_size", 0)))
    return _blocked(codes, scale, zero, axis % 2, block, is_turned)


def _is_plain(graph: Graph, node: Node, columns: int) -> bool:
    """Whether a product is one of its operands as they are, with a bias for each column, if any."""
    if node.op == "MatMul":
        return True
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    constant = graph.constant_of(bias)
    if node.attrs.get("transA", 0) or _number(node, "alpha", 1.0) != 1.0:
        return False
    return bias is None or (_number(node, "beta", 1.0) == 1.0 and constant is not None and constant.shape == (columns,))


def _number(node: Node, name: str, default: float) -> float:
    value: Any = node.attrs.get(name)
    return default if value is None else float(value)


def _blocked(
    codes: Constant, scale: Constant, zero: Constant | None, axis: int, block: int, is_turned: bool
) -> _Weights | None:
    """The weights by rows of a column each; None where scales go along other blocks than those of a column's rows."""
    numbers, bits = codes.array.astype(np.int16), BITS[codes.dtype]
    least = 0 if codes.dtype.startswith("u") else -(1 << (bits - 1))
    scales = scale.array
    zeros = np.zeros(scales.shape, np.int16) if zero is None else zero.array.astype(np.int16)
    along = 1 if is_turned else 0  # the axis of the rows that are summed up
    depth, columns = codes.shape[along], codes.shape[1 - along]
    if scales.size == 1:
        scales, zeros = (np.broadcast_to(x.reshape(1, 1), (columns, 1)) for x in (scales, zeros))
    elif scales.ndim == 1 and axis == 1 - along:
        scales, zeros = scales[:, None], zeros[:, None]
    elif scales.ndim == 2 and block and axis == along and depth % block == 0:
        scales, zeros = (x if is_turned else x.T for x in (scales, zeros))
    else:
        return None
    rows = block if scales.shape[1] > 1 else depth
    size = rows & -rows  # blocks of the op are powers of two: a longer one is several that are alike
    if size < LEAST_BLOCK or scales.shape[0] != columns or scales.shape[1] * rows != depth:
        return None
    scales, zeros = (np.repeat(x, rows // size, axis=1) for x in (scales, zeros))
    plain = numbers if is_turned else numbers.T
    return _Weights((plain - least).astype(np.uint8), scales, (zeros - least).astype(np.uint8), bits, size)
