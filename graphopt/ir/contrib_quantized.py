"""Quantized ops of ONNX Runtime: operands and semantics; they dequantize, do what the plain op does, and quantize."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.ir import ops
from graphopt.ir.call import ApplyOp, Arrays, OpCall, Semantics
from graphopt.ir.constants import Array
from graphopt.ir.graph import Attrs
from graphopt.ir.infer_shapes import Types
from graphopt.ir.types import Shape, TensorType

IN_BYTES = 4
"""The ``accuracy_level`` of MatMulNBits with which rows may be rounded to bytes, in the blocks of the weights,"""
LARGEST = 127
"""of which this is what the largest element of a block becomes."""
LEAST_BITS = 4
"""Weights of fewer bits are multiplied by rows as they are, as ONNX Runtime does."""


def is_in_bytes(attrs: Attrs) -> bool:
    """Whether a MatMulNBits of these attributes rounds rows to bytes."""
    bits = attrs.get("bits", 4)
    return attrs.get("accuracy_level") == IN_BYTES and isinstance(bits, int) and bits >= LEAST_BITS


# -- what they compute


def _dequantized(apply: ApplyOp, x: Array | None, scale: Array | None, zero: Array | None, *, axis: int = 0) -> Array:
    assert x is not None
    assert scale is not None
    if scale.ndim > 1:  # by matrix and column
        return (x.astype(np.float32) - (0 if zero is None else zero.astype(np.float32))) * scale
    return apply("DequantizeLinear", [x, scale, zero], axis=axis)[0]


def _quantized(apply: ApplyOp, x: Array, scale: Array | None, zero: Array | None) -> tuple[Array, ...]:
    return apply("QuantizeLinear", [x, scale, zero])


def unary(op: str) -> Semantics:
    """An op of one operand: its scale and zero point, then those of the result."""

    def compute(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
        plain: dict[str, Any] = {n: a for n, a in attrs.items() if n not in ("opset", "channels_last")}
        if attrs.get("channels_last"):
            raise NotImplementedError("channels last")
        (y,) = apply(op, [_dequantized(apply, *x[:3])], **plain)
        return _quantized(apply, y, x[3], x[4] if len(x) > 4 else None)

    return compute


def binary(op: str) -> Semantics:
    """An op of two operands, each with scale and zero point, then those of the result."""

    def compute(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
        (y,) = apply(op, [_dequantized(apply, *x[:3]), _dequantized(apply, *x[3:6])])
        return _quantized(apply, y, x[6], x[7] if len(x) > 7 else None)

    return compute


def where(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """A choice between two quantized tensors."""
    (y,) = apply("Where", [x[0], _dequantized(apply, *x[1:4]), _dequantized(apply, *x[4:7])])
    return _quantized(apply, y, x[7], x[8])


def concat(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """The scale and zero point of the result come first."""
    parts = [_dequantized(apply, x[i], x[i + 1], x[i + 2]) for i in range(2, len(x), 3)]
    axis: Any = attrs.get("axis", 0)
    return _quantized(apply, apply("Concat", parts, axis=axis)[0], x[0], x[1])


def gemm(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """A product with 32-bit biases in the scale of the product; without a scale for it the result is float."""
    a, sa, za, b, sb, zb, c, sy, zy = [*x, *[None] * 9][:9]
    assert sa is not None
    assert sb is not None
    across = 0 if attrs.get("transB") else 1
    y = apply("Gemm", [_dequantized(apply, a, sa, za), _dequantized(apply, b, sb, zb, axis=across)], **dict(attrs))[0]
    if c is not None:
        alpha: Any = attrs.get("alpha", 1.0)
        y = y + c.astype(np.float32) * np.asarray(sa * sb * alpha)
    return (y.astype(np.float32),) if sy is None else _quantized(apply, y.astype(np.float32), sy, zy)


def integer_product(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """A product of integers, scaled, with a bias."""
    a, b, sa, sb, za, zb, bias = [*x, *[None] * 7][:7]
    assert a is not None
    assert b is not None
    assert sa is not None
    assert sb is not None
    if any(t is not None and t.ndim > 1 for t in (sa, sb, zb)) or (za is not None and za.size != 1):
        raise ValueError("a scale or zero point is one number, or one for each column of the second operand")
    left = a.astype(np.int64) - (0 if za is None else za.astype(np.int64))
    right = b.astype(np.int64) - (0 if zb is None else zb.astype(np.int64))
    y = (left @ right).astype(np.float32) * (sa * sb)
    return ((y if bias is None else y + bias).astype(np.float32),)


def dynamic_product(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """The first operand is quantized as it comes."""
    a, b, sb, zb, bias = [*x, *[None] * 5][:5]
    quantized, scale, zero = apply("DynamicQuantizeLinear", [a], n_outputs=3)
    return integer_product(apply, attrs, [quantized, b, scale, sb, zero, zb, bias])


def packed_product(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """A product with weights [N, blocks, bytes] of 2, 4 or 8 bits each, the lowest of a byte first."""
    a, b, scales, zeros, order, bias = [*x, *[None] * 6][:6]
    bits: Any = attrs.get("bits", 4)
    if order is not None or bits not in (2, 4, 8):
        raise NotImplementedError("other than 2, 4 or 8 bits in order")
    assert a is not None
    assert b is not None
    assert scales is not None
    sizes: Any = attrs
    n, k, block = sizes["N"], sizes["K"], sizes["block_size"]
    if block < 16 or block & (block - 1):
        raise ValueError(f"blocks have 16 elements, or twice as many and so on, not {block}")
    blocks = -(-k // block)
    weights = _digits(b.reshape(n, blocks, -1), bits).astype(np.float32)
    zero: Any = float(1 << (bits - 1))
    if zeros is not None and zeros.dtype == np.uint8:
        zero = _digits(zeros.reshape(n, -1), bits)[:, :blocks, None].astype(np.float32)
    elif zeros is not None:
        zero = zeros.reshape(n, blocks, 1)
    dense = ((weights - zero) * scales.reshape(n, blocks, 1)).reshape(n, -1)[:, :k].astype(a.dtype)
    rows = in_steps(a, block) if is_in_bytes(attrs) else a
    y = apply("MatMul", [rows, np.ascontiguousarray(dense.T)])[0]
    return (y if bias is None else y + bias,)


def in_steps(a: Array, block: int) -> Array:
    """The array with each element rounded to a multiple of a step: one of 127 to the largest element of its block."""
    k, wide = a.shape[-1], np.result_type(a.dtype, np.float32)
    blocks = -(-k // block)
    x = np.zeros((*a.shape[:-1], blocks * block), wide)
    x[..., :k] = a
    x = x.reshape(*a.shape[:-1], blocks, block)
    largest = np.abs(x).max(-1, keepdims=True)
    with np.errstate(all="ignore"):
        codes = np.rint(x * np.where(largest == 0, 0, wide.type(LARGEST) / largest))
        codes = np.clip(np.where(np.isnan(codes), 0, codes), -LARGEST, LARGEST)
        result = (codes * (largest / wide.type(LARGEST))).reshape(*a.shape[:-1], blocks * block)
    return np.ascontiguousarray(result[..., :k]).astype(a.dtype)


def _digits(packed: Array, bits: int) -> Array:
    """The parts of bytes, so many bits each, the lowest first."""
    parts = [packed >> shift & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*packed.shape[:-1], -1)


DOMAIN = "com.microsoft::"


def _as_onnx(op: str) -> Semantics:
    """ONNX's own op, which ONNX Runtime had for more dtypes before."""

    def compute(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
        axis: Any = attrs.get("axis", 1)
        return apply(op, x, axis=axis)

    return compute


MEANINGS: dict[str, Semantics] = {
    DOMAIN + "DequantizeLinear": _as_onnx("DequantizeLinear"),
    DOMAIN + "QuantizeLinear": _as_onnx("QuantizeLinear"),
    DOMAIN + "DynamicQuantizeMatMul": dynamic_product,
    DOMAIN + "MatMulIntegerToFloat": integer_product,
    DOMAIN + "MatMulNBits": packed_product,
    DOMAIN + "QGemm": gemm,
    DOMAIN + "QLinearConcat": concat,
    DOMAIN + "QLinearWhere": where,
    **{DOMAIN + f"QLinear{op}": binary(op) for op in ("Add", "Mul")},
    **{
        DOMAIN + f"QLinear{op}": unary(op)
        for op in ("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax")
    },
}
"""By op name: what it computes."""


# -- the types of their outputs


def _shape(call: OpCall, op: str, operands: Sequence[int]) -> Shape | None:
    """The shape that the plain op gives these operands."""
    schema = ops.schema(op)
    attrs = type(call.attrs)({n: a for n, a in call.attrs.items() if schema is not None and n in schema.defaults})
    (fact,) = call.infer(op, attrs, [call.inputs[i] for i in operands], 1, call.opset)
    return fact.type.shape if isinstance(fact.type, TensorType) else None


def _of(call: OpCall, op: str, operands: Sequence[int]) -> Types:
    shape = _shape(call, op, operands)
    return [None if shape is None else call.tensor(shape)]


def infer_operands(op: str, *operands: int) -> Callable[[OpCall], Types]:
    """The types that the plain op gives these of the inputs."""
    return lambda call: _of(call, op, operands)


def infer_gemm(call: OpCall) -> Types:
    """A product, a float where no scale is given for it."""
    shape = _shape(call, "Gemm", (0, 3))
    dtype = call.dtype(8) or "uint8" if call.has(7) else "float32"
    return [None if shape is None else TensorType(dtype, shape)]


def infer_concat(call: OpCall) -> Types:
    """Every third input from the third on, one after another."""
    return _of(call, "Concat", range(2, len(call.inputs), 3))


def infer_packed(call: OpCall) -> Types:
    """The first operand with its last axis replaced."""
    x = call.shape(0)
    return [call.tensor(call.shape_of_its_own("product") if not x else (*x[:-1], call.integer("N")))]


def infer_codes(call: OpCall) -> Types:
    """The shape of the first input, with the dtype of the zero point."""
    shape, dtype = call.any_shape(0), call.dtype(2) if call.has(2) else "uint8"
    return [None if shape is None or dtype is None else TensorType(dtype, shape)]


def infer_numbers(call: OpCall) -> Types:
    """The shape of the first input, with the dtype of the scale."""
    shape, dtype = call.any_shape(0), call.dtype(1)
    return [None if shape is None or dtype is None else TensorType(dtype, shape)]


def infer_channels_last(call: OpCall) -> Types:
    """What MaxPool gives of images with the channels behind the pixels."""
    x = call.inputs[0]
    if x is None or x.dtype is None or x.shape is None:
        return [None]
    moved = replace(x, type=TensorType(x.dtype, (x.shape[0], x.shape[-1], *x.shape[1:-1])))
    shape = _shape(replace(call, inputs=(moved,)), "MaxPool", (0,))
    return [call.tensor((shape[0], *shape[2:], shape[1])) if isinstance(shape, tuple) else None]


INFERENCES: dict[str, Callable[[OpCall], Types]] = {
    DOMAIN + "DequantizeLinear": infer_numbers,
    DOMAIN + "QuantizeLinear": infer_codes,
    DOMAIN + "Inverse": infer_operands("Neg", 0),
    DOMAIN + "NhwcMaxPool": infer_channels_last,
    DOMAIN + "DynamicQuantizeMatMul": infer_operands("MatMul", 0, 1),
    DOMAIN + "MatMulIntegerToFloat": infer_operands("MatMul", 0, 1),
    DOMAIN + "MatMulNBits": infer_packed,
    DOMAIN + "QGemm": infer_gemm,
    DOMAIN + "QLinearAdd": infer_operands("Add", 0, 3),
    DOMAIN + "QLinearAveragePool": infer_operands("AveragePool", 0),
    DOMAIN + "QLinearConcat": infer_concat,
    DOMAIN + "QLinearGlobalAveragePool": infer_operands("GlobalAveragePool", 0),
    DOMAIN + "QLinearLeakyRelu": infer_operands("LeakyRelu", 0),
    DOMAIN + "QLinearMul": infer_operands("Mul", 0, 3),
    DOMAIN + "QLinearSigmoid": infer_operands("Sigmoid", 0),
    DOMAIN + "QLinearSoftmax": infer_operands("Sigmoid", 0),
    DOMAIN + "QLinearWhere": infer_operands("Where", 0, 1, 4),
}
"""By op name: the types of its outputs."""
