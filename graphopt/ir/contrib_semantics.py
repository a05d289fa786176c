"""Semantics of ONNX Runtime's own ops and of ours, in ONNX's ops; the oracle for rules on them, apart from how graphs
are evaluated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.ir import bfloat, blocked, contrib_quantized, tabular, winograd
from graphopt.ir import contrib_attention as attention
from graphopt.ir.bounds import fact_of, fact_of_type
from graphopt.ir.call import ApplyOp, Arrays, Semantics
from graphopt.ir.composites import COMPOSITES, body_of
from graphopt.ir.constants import Array, Constant
from graphopt.ir.graph import Attrs
from graphopt.ir.infer_products import fused_axes
from graphopt.ir.op_table import OPS, Row, interpret
from graphopt.ir.ops import LATEST, attribute


def _fast_gelu(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    total = x[0] if len(x) < 2 or x[1] is None else apply("Add", [x[0], x[1]])[0]
    return apply("Gelu", [total], approximate="tanh")


def _said(op: str, row: Row) -> Semantics:
    """What the row of an op says, by ONNX's ops on its inputs and on numbers that are its attributes."""
    schema = row.schema
    assert schema is not None

    def compute(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
        values: dict[str, Any] = {name: _scalar(attribute(op, attrs, name), x[0]) for name in schema.attributes}
        values |= zip(schema.inputs.split(), x, strict=True)
        return (interpret(row.means, values, lambda inner, arrays: apply(inner, arrays)[0]),)

    return compute


def _scalar(value: Any, like: Array | None) -> Array:
    if value is None:
        raise ValueError("an attribute is missing")
    assert like is not None
    return np.asarray(value, like.dtype)


def _fused_matmul(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    op = "com.microsoft::FusedMatMul"
    a, b = x
    assert a is not None
    assert b is not None
    left, right = fused_axes((a.ndim, b.ndim), lambda name: attribute(op, attrs, name))
    (product,) = apply("MatMul", [a.transpose(left), b.transpose(right)])
    alpha = attribute(op, attrs, "alpha")
    return (product,) if alpha == 1.0 else apply("Mul", [product, _scalar(alpha, product)])


def _fused_gemm(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    plain = {n: a for n, a in attrs.items() if not n.startswith("activation")}
    (y,) = apply("Gemm", x, **plain)
    parameters = {n.removeprefix("activation_"): a for n, a in attrs.items() if n.startswith("activation_")}
    activation = attrs.get("activation")
    return apply(str(activation), [y], **parameters) if activation else (y,)


def _skip_norm(norm: str) -> Semantics:
    def compute(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
        full = [*x, *[None] * (5 - len(x))]
        data, skip, scale, fourth, fifth = full
        bias, shift = (fifth, fourth) if norm == "LayerNormalization" else (fourth, None)
        (total,) = apply("Add", [data, skip])
        if bias is not None:
            (total,) = apply("Add", [total, bias])
        epsilon: Any = attribute("com.microsoft::SkipLayerNormalization", attrs, "epsilon")
        if norm == "LayerNormalization":
            y, mean, deviation = apply(norm, [total, scale, shift], n_outputs=3, axis=-1, epsilon=epsilon)
            return y, mean, deviation, total
        (y,) = apply(norm, [total, scale], axis=-1, epsilon=epsilon)
        squares = np.mean(np.square(total, dtype=np.float32), axis=-1, keepdims=True)
        return y, np.zeros_like(squares), 1 / np.sqrt(squares + np.float32(epsilon)), total

    return compute


def _simplified_norm(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    op = "SimplifiedLayerNormalization"
    axis, epsilon = attribute(op, attrs, "axis"), attribute(op, attrs, "epsilon")
    return apply("RMSNormalization", list(x), axis=axis, epsilon=epsilon)


def _inverse(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    matrices = x[0]
    assert matrices is not None
    wide = np.float64 if matrices.dtype == np.float64 else np.float32
    return (np.linalg.inv(matrices.astype(wide)).astype(matrices.dtype),)


def _channels_last_max_pool(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    images = x[0]
    assert images is not None
    (y,) = apply("MaxPool", [np.moveaxis(images, -1, 1).astype(np.float32)], **attrs)  # which has what pads are
    return (np.ascontiguousarray(np.moveaxis(y, 1, -1).astype(images.dtype)),)


def _composed(op: str) -> Semantics:
    """What the body of a composite op gives."""

    def compute(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
        from graphopt.ir.evaluate import run  # which evaluates by these semantics

        facts = [None if a is None else fact_of(Constant.of(a)) for a in x]
        types = [None if f is None else fact_of_type(f.type) for f in facts if f is None or f.type is not None]
        body = body_of(op, attrs, types)
        if body is None:
            if COMPOSITES[op].schema is None:  # ONNX's reference may know it
                return apply(op, x, **attrs)
            raise NotImplementedError("no body is said for such inputs")
        body.header = replace(body.header, opsets=(("", LATEST), ("com.microsoft", 1)))
        given = {body.names[v]: a for v, a in zip(body.inputs, x, strict=False) if a is not None}
        return tuple(run(body, given).values())

    return compute


MEANINGS: dict[str, Semantics] = {
    **{op: _said(op, row) for op, row in OPS.items() if row.means},
    "SimplifiedLayerNormalization": _simplified_norm,
    "com.microsoft::Attention": attention.packed_attention,
    "com.microsoft::EmbedLayerNormalization": attention.embed_layer_normalization,
    "com.microsoft::FastGelu": _fast_gelu,
    "com.microsoft::FusedGemm": _fused_gemm,
    "com.microsoft::FusedMatMul": _fused_matmul,
    "com.microsoft::GroupQueryAttention": attention.group_query_attention,
    "com.microsoft::Inverse": _inverse,
    "com.microsoft::MultiHeadAttention": attention.multi_head_attention,
    "com.microsoft::NhwcMaxPool": _channels_last_max_pool,
    "com.microsoft::RotaryEmbedding": attention.rotary_embedding,
    "com.microsoft::SkipLayerNormalization": _skip_norm("LayerNormalization"),
    "com.microsoft::SkipSimplifiedLayerNormalization": _skip_norm("RMSNormalization"),
    **{op: _composed(op) for op in COMPOSITES},
    **contrib_quantized.MEANINGS,
    **bfloat.MEANINGS,
    **blocked.MEANINGS,
    **tabular.MEANINGS,
    **winograd.MEANINGS,
}
"""By op name: what it computes."""
