"""Mixed-precision products: float32 by weights kept in half precision; semantics and type inference.

A weight that becomes bfloat16 is the one nearest to it, ties to even, and so off by 2^-8 of itself at most, where that
is no subnormal number; one beyond the largest is the largest. Infinities and NaN stay, and sums are those of float32.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from graphopt.ir.call import ApplyOp, Arrays, OpCall
from graphopt.ir.constants import Array
from graphopt.ir.graph import Attrs
from graphopt.ir.infer_products import matmul
from graphopt.ir.infer_shapes import Types, spell
from graphopt.ir.ops import attribute

LARGEST = (2.0 - 2.0**-7) * 2.0**127
"""The largest number that a weight may be."""
WEIGHTS, PRODUCT = "graphopt::BfloatWeights", "graphopt::MixedMatMul"


def _weights(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    (w,) = (a for a in x if a is not None)
    plain = w.T if attribute(WEIGHTS, attrs, "transposed") else w
    with np.errstate(over="ignore"):
        rounded = plain.astype(ml_dtypes.bfloat16)
    beyond = np.isinf(rounded) & np.isfinite(plain)
    rounded[beyond] = np.copysign(LARGEST, plain[beyond])
    return (rounded,)


def _product(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    a, b = (operand for operand in x if operand is not None)
    return apply("MatMul", [a, b.astype(a.dtype)])


MEANINGS = {WEIGHTS: _weights, PRODUCT: _product}
"""By op name: what it computes."""


def _infer_weights(call: OpCall) -> Types:
    w = call.shape(0)
    if w is None:
        return [None]
    if len(w) != 2:
        raise ValueError(f"weights are a matrix, and do not have the shape {spell(w)}")
    return [call.tensor(w[::-1] if call.integer("transposed") else w)]


BFLOAT = {WEIGHTS: _infer_weights, PRODUCT: matmul}
"""How to infer the types of an op's outputs."""
