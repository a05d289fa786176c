"""Mixed-precision matrix multiply: float32 by weights in half precision."""

from __future__ import annotations

from math import inf

from graphopt.ir.bfloat import LARGEST
from graphopt.lowering.loops.compute import Tensor, compute
from graphopt.lowering.loops.expressions import Expr, apply, cast, maximum, minimum, select
from graphopt.lowering.operators.elements import integer, label
from graphopt.lowering.operators.operation import LoweringTable, Operation
from graphopt.lowering.operators.products import TABLE as PRODUCTS


def _weights(op: Operation) -> Tensor:
    w, turns = op.input(0), bool(integer(op, "transposed"))

    def element(i: Expr, j: Expr) -> Expr:
        x = w[j, i] if turns else w[i, j]
        held = minimum(maximum(x, -LARGEST), LARGEST)
        return cast(select(apply("abs", x) < inf, held, x), op.dtype())

    return compute(op.shape(), element, op.dtype(), label(op))


TABLE: LoweringTable = {"graphopt::BfloatWeights": _weights, "graphopt::MixedMatMul": PRODUCTS["MatMul"]}
