"""Fused activations: ONNX Runtime's products that end with an activation."""

from __future__ import annotations

from graphopt.ir.graph import Attrs
from graphopt.ir.ops import KINDS
from graphopt.lowering.loops.compute import Tensor, compute
from graphopt.lowering.loops.expressions import Expr, cast
from graphopt.lowering.operators.activations import FORMULAS
from graphopt.lowering.operators.elements import text, widened
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation
from graphopt.lowering.operators.products import TABLE as PRODUCTS


def _activated(op: Operation, x: Expr) -> Expr:
    """The element behind the activation that the op names."""
    activation = text(op, "activation")
    if not activation:
        return x
    if activation not in FORMULAS or activation not in KINDS["unary"]:
        raise NotLowered(f"{op.op} with the activation {activation}")
    given = {n: op.attrs.get(f"activation_{n}") for n in ("alpha", "beta", "gamma")}
    numbers = Attrs({n: float(v) for n, v in given.items() if isinstance(v, (int, float))})
    return FORMULAS[activation](Operation(activation, numbers, (), (), (), op.opset), x)


def _gemm(op: Operation) -> Tensor:
    total = PRODUCTS["Gemm"](op)
    assert isinstance(total, Tensor)
    return compute(total.shape, lambda *at: cast(_activated(op, widened(total[at])), op.dtype()), op.dtype(), "fused")


TABLE: LoweringTable = {"com.microsoft::FusedGemm": _gemm}
