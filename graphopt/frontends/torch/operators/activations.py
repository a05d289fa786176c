"""Activation functions."""

from __future__ import annotations

import torch

from graphopt.frontends.torch.operators.elementwise import clamped, expm1
from graphopt.frontends.torch.table import Table
from graphopt.frontends.torch.writer import OpWriter
from graphopt.ir.graph import Value

TABLE = Table()
aten = torch.ops.aten


@TABLE.entry(aten.gelu)
def _gelu(g: OpWriter, x: Value, approximate: str = "none") -> Value:
    return g.op("Gelu", x, approximate=approximate)


@TABLE.entry(aten.silu)
def _silu(g: OpWriter, x: Value) -> Value:
    return g.op("Mul", x, g.op("Sigmoid", x))


@TABLE.entry(aten.hardsigmoid)
def _hard_sigmoid(g: OpWriter, x: Value) -> Value:
    return g.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@TABLE.entry(aten.relu6)
def _relu6(g: OpWriter, x: Value) -> Value:
    return clamped(g, x, 0, 6)


@TABLE.entry(aten.hardtanh)
def _hard_tanh(g: OpWriter, x: Value, least: float = -1.0, most: float = 1.0) -> Value:
    return clamped(g, x, least, most)


@TABLE.entry(aten.leaky_relu)
def _leaky_relu(g: OpWriter, x: Value, slope: float = 0.01) -> Value:
    return g.op("LeakyRelu", x, alpha=float(slope))


@TABLE.entry(aten.elu)
def _elu(g: OpWriter, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    inner = x if input_scale == 1 else g.op("Mul", x, input_scale)
    grown = g.op("Mul", expm1(g, inner), alpha)
    result = g.op("Where", g.op("Greater", x, 0), x, grown)
    return result if scale == 1 else g.op("Mul", result, scale)


@TABLE.entry(aten.softplus)
def _softplus(g: OpWriter, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    scaled = x if beta == 1 else g.op("Mul", x, beta)
    smooth = g.op("Softplus", scaled)
    smooth = smooth if beta == 1 else g.op("Div", smooth, beta)
    return g.op("Where", g.op("Greater", scaled, threshold), x, smooth)


@TABLE.entry(aten._prelu_kernel, aten.prelu)
def _prelu(g: OpWriter, x: Value, slope: Value) -> Value:
    if g.rank(slope) == 1 and g.rank(x) > 2:
        slope = g.unsqueeze(slope, *range(1, g.rank(x) - 1))
    return g.op("PRelu", x, slope)


@TABLE.entry(aten.log_sigmoid_forward)
def _log_sigmoid(g: OpWriter, x: Value) -> tuple[Value, None]:
    """Its second result serves training alone."""
    return g.op("Neg", g.op("Softplus", g.op("Neg", x))), None


@TABLE.entry(aten.glu)
def _glu(g: OpWriter, x: Value, axis: int = -1) -> Value:
    left, right = g.several("Split", 2, x, axis=g.axis(x, axis), num_outputs=2)
    return g.op("Mul", left, g.op("Sigmoid", right))


@TABLE.entry(aten.threshold)
def _threshold(g: OpWriter, x: Value, least: float, value: float) -> Value:
    return g.op("Where", g.op("Greater", x, least), x, g.cast(value, g.dtype(x)))
