"""Fused activations: ONNX Runtime's products and convolutions that end with an activation."""

from __future__ import annotations

from collections.abc import Mapping

from graphopt.ir.graph import Attrs
from graphopt.ir.ops import KINDS
from graphopt.lowering.loops.compute import Tensor, compute
from graphopt.lowering.loops.expressions import Expr, cast, maximum, minimum
from graphopt.lowering.operators.activations import FORMULAS
from graphopt.lowering.operators.convolutions import TABLE as CONVOLUTIONS
from graphopt.lowering.operators.elements import broadcast, inputs_fitting, text, widened
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation
from graphopt.lowering.operators.products import TABLE as PRODUCTS

DOMAIN = "com.microsoft::"
PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
}
"""What the numbers of ``activation_params`` are called."""


def activated(op: Operation, x: Expr, numbers: Mapping[str, float]) -> Expr:
    """The element behind the activation that the op names."""
    activation = text(op, "activation")
    if not activation:
        return x
    if activation == "Clip":
        return minimum(maximum(x, numbers["min"]), numbers["max"])
    if activation not in FORMULAS or activation not in KINDS["unary"]:
        raise NotLowered(f"{op.op} with the activation {activation}")
    return FORMULAS[activation](Operation(activation, Attrs(numbers), (), (), (), op.opset), x)


def _numbers(op: Operation) -> dict[str, float]:
    """The numbers of the activation, by name."""
    listed = op.attr("activation_params")
    if isinstance(listed, tuple):
        names = PARAMETERS.get(text(op, "activation"), ())
        return {n: float(v) for n, v in zip(names, listed, strict=False) if isinstance(v, (int, float))}
    prefixed = {n: op.attrs.get(f"activation_{n}") for n in ("alpha", "beta", "gamma")}
    return {n: float(v) for n, v in prefixed.items() if isinstance(v, (int, float))}


def _gemm(op: Operation) -> Tensor:
    total, numbers = PRODUCTS["Gemm"](op), _numbers(op)
    assert isinstance(total, Tensor)
    return compute(
        total.shape, lambda *at: cast(activated(op, widened(total[at]), numbers), op.dtype()), op.dtype(), "fused"
    )


def _conv(op: Operation) -> Tensor:
    """The fourth input is added before the activation."""
    total, numbers = CONVOLUTIONS["Conv"](op), _numbers(op)
    assert isinstance(total, Tensor)

    def element(*at: Expr) -> Expr:
        value = widened(total[at])
        if op.has(3):
            value = value + widened(broadcast(op.input(3), total.shape, at))
        return cast(activated(op, value, numbers), op.dtype())

    return compute(total.shape, element, op.dtype(), "fused", inputs_fitting(op, (3,), total.shape))


TABLE: LoweringTable = {DOMAIN + "FusedConv": _conv, DOMAIN + "FusedGemm": _gemm}
