"""Functions of elements."""

from __future__ import annotations

from math import inf, log, pi
from typing import Any

import numpy as np
import torch

from graphopt.frontends.torch.table import Emitter, Table
from graphopt.frontends.torch.writer import Operand, Writer
from graphopt.ir.graph import Value

TABLE = Table()
aten = torch.ops.aten


def _function(op: str, **attrs: Any) -> Emitter:
    """What applies one op to the elements, as the dtype of the result."""

    def emit(g: Writer, x: Value) -> Value:
        return g.op(op, g.cast(x, g.result_dtype()), **attrs)

    return emit


for _target, _op in {
    aten.abs: "Abs",
    aten.neg: "Neg",
    aten.exp: "Exp",
    aten.log: "Log",
    aten.sqrt: "Sqrt",
    aten.reciprocal: "Reciprocal",
    aten.sin: "Sin",
    aten.cos: "Cos",
    aten.tan: "Tan",
    aten.asin: "Asin",
    aten.acos: "Acos",
    aten.atan: "Atan",
    aten.sinh: "Sinh",
    aten.cosh: "Cosh",
    aten.tanh: "Tanh",
    aten.asinh: "Asinh",
    aten.acosh: "Acosh",
    aten.atanh: "Atanh",
    aten.sigmoid: "Sigmoid",
    aten.erf: "Erf",
    aten.relu: "Relu",
    aten.sign: "Sign",
    aten.sgn: "Sign",
    aten.mish: "Mish",
    aten.hardswish: "HardSwish",
}.items():
    TABLE.entry(_target)(_function(_op))


def _rounded(op: str) -> Emitter:
    def emit(g: Writer, x: Value) -> Value:
        return g.op(op, x) if "float" in g.dtype(x) else x

    return emit


for _target, _op in {aten.floor: "Floor", aten.ceil: "Ceil", aten.round.default: "Round"}.items():
    TABLE.entry(_target)(_rounded(_op))


def _arithmetic(op: str, of_bools: str = "") -> Emitter:
    def emit(g: Writer, a: Operand, b: Operand) -> Value:
        dtype = g.result_dtype()
        return g.op(of_bools if dtype == "bool" and of_bools else op, g.cast(a, dtype), g.cast(b, dtype))

    return emit


for _target, _op, _of_bools in (
    (aten.mul, "Mul", "And"),
    (aten.maximum, "Max", "Or"),
    (aten.minimum, "Min", "And"),
    (aten.pow, "Pow", ""),
):
    TABLE.entry(_target)(_arithmetic(_op, _of_bools))


@TABLE.entry(aten.pow.Tensor_Scalar)
def _power(g: Writer, x: Value, exponent: Any) -> Value:
    dtype = g.result_dtype()
    x = g.value(g.cast(x, dtype))
    if exponent == 2:
        return g.op("Mul", x, x)
    if exponent == 0.5:
        return g.op("Sqrt", x)
    return g.op("Pow", x, g.cast(exponent, dtype))


@TABLE.entry(aten.add)
def _add(g: Writer, a: Operand, b: Operand, alpha: Any = 1) -> Value:
    dtype = g.result_dtype()
    scaled = g.cast(b, dtype)
    if dtype == "bool":
        return g.op("Or", g.cast(a, dtype), scaled)
    if alpha != 1:
        scaled = g.op("Mul", scaled, g.cast(alpha, dtype))
    return g.op("Add", g.cast(a, dtype), scaled)


@TABLE.entry(aten.sub)
def _subtract(g: Writer, a: Operand, b: Operand, alpha: Any = 1) -> Value:
    dtype = g.result_dtype()
    scaled = g.cast(b, dtype)
    if alpha != 1:
        scaled = g.op("Mul", scaled, g.cast(alpha, dtype))
    return g.op("Sub", g.cast(a, dtype), scaled)


@TABLE.entry(aten.rsub)
def _subtract_from(g: Writer, a: Operand, b: Operand, alpha: Any = 1) -> Value:
    dtype = g.result_dtype()
    scaled = g.cast(a, dtype)
    if alpha != 1:
        scaled = g.op("Mul", scaled, g.cast(alpha, dtype))
    return g.op("Sub", g.cast(b, dtype), scaled)


@TABLE.entry(aten.div)
def _divide(g: Writer, a: Operand, b: Operand, rounding_mode: str | None = None) -> Value:
    dtype = g.result_dtype()
    above, below = g.cast(a, dtype), g.cast(b, dtype)
    if rounding_mode == "floor":
        return floor_quotient(g, above, below, dtype)
    found = g.op("Div", above, below)
    return _truncated(g, found) if rounding_mode == "trunc" and "float" in dtype else found


@TABLE.entry(aten.floor_divide)
def _floor_divide(g: Writer, a: Operand, b: Operand) -> Value:
    dtype = g.result_dtype()
    return floor_quotient(g, g.cast(a, dtype), g.cast(b, dtype), dtype)


def floor_quotient(g: Writer, a: Operand, b: Operand, dtype: str) -> Value:
    """The largest integers of a dtype that are not above the quotients."""
    if "float" in dtype:
        whole = g.op("Round", g.op("Div", g.op("Sub", a, float_remainder(g, a, b)), b))
        return g.op("Where", g.op("Equal", b, g.cast(0, dtype)), g.op("Div", a, b), whole)
    return g.op("Div", g.op("Sub", a, g.op("Mod", a, b)), b)


@TABLE.entry(aten.trunc, aten.fix)
def _truncated(g: Writer, x: Value) -> Value:
    if "float" not in g.dtype(x):
        return x
    return g.op("Mul", g.op("Sign", x), g.op("Floor", g.op("Abs", x)))


@TABLE.entry(aten.remainder)
def _remainder(g: Writer, a: Operand, b: Operand) -> Value:
    dtype = g.result_dtype()
    above, below = g.cast(a, dtype), g.cast(b, dtype)
    if "float" not in dtype:
        return g.op("Mod", above, below)
    return float_remainder(g, above, below)


def float_remainder(g: Writer, a: Operand, b: Operand) -> Value:
    """What is left of floats after division by others, with the signs of these, and without rounding."""
    rest = g.op("Mod", a, b, fmod=1)
    nothing = g.zeros(rest)
    is_other = g.op("Xor", g.op("Less", rest, nothing), g.op("Less", b, nothing))
    return g.op("Where", g.op("And", is_other, g.op("Not", g.op("Equal", rest, nothing))), g.op("Add", rest, b), rest)


@TABLE.entry(aten.fmod)
def _truncating_remainder(g: Writer, a: Operand, b: Operand) -> Value:
    dtype = g.result_dtype()
    return g.op("Mod", g.cast(a, dtype), g.cast(b, dtype), fmod=1)


@TABLE.entry(aten.rsqrt)
def _reciprocal_root(g: Writer, x: Value) -> Value:
    return g.op("Reciprocal", g.op("Sqrt", g.cast(x, g.result_dtype())))


@TABLE.entry(aten.square)
def _square(g: Writer, x: Value) -> Value:
    return g.op("Mul", x, x)


@TABLE.entry(aten.exp2)
def _exp2(g: Writer, x: Value) -> Value:
    return g.op("Exp", g.op("Mul", g.cast(x, g.result_dtype()), log(2)))


@TABLE.entry(aten.log2)
def _log2(g: Writer, x: Value) -> Value:
    return g.op("Mul", g.op("Log", g.cast(x, g.result_dtype())), 1 / log(2))


@TABLE.entry(aten.log10)
def _log10(g: Writer, x: Value) -> Value:
    return g.op("Mul", g.op("Log", g.cast(x, g.result_dtype())), 1 / log(10))


@TABLE.entry(aten.log1p)
def _log1p(g: Writer, x: Value) -> Value:
    """Without loss for small x: by how much 1 + x was rounded is made good (Goldberg 1991, theorem 4)."""
    x = g.value(g.cast(x, g.result_dtype()))
    rounded = g.op("Add", x, 1)
    step = g.op("Sub", rounded, 1)
    precise = g.op("Div", g.op("Mul", g.op("Log", rounded), x), step)
    is_plain = g.op("Or", g.op("Equal", step, 0), g.op("IsInf", rounded))
    return g.op("Where", is_plain, x, precise)


@TABLE.entry(aten.expm1)
def _expm1(g: Writer, x: Value) -> Value:
    """Without loss for small x, as tanh(x / 2) * (exp(x) + 1)."""
    x = g.value(g.cast(x, g.result_dtype()))
    return g.op("Mul", g.op("Tanh", g.op("Mul", x, 0.5)), g.op("Add", g.op("Exp", x), 1))


@TABLE.entry(aten.erfc)
def _erfc(g: Writer, x: Value) -> Value:
    one = g.cast(1, g.result_dtype())
    return g.op("Sub", one, g.op("Erf", g.cast(x, g.result_dtype())))


@TABLE.entry(aten.atan2)
def _atan2(g: Writer, y: Value, x: Value) -> Value:
    """The angle of the point (x, y), as torch gives it for points that are not the origin with a signed zero."""
    dtype = g.result_dtype()
    y, x = g.value(g.cast(y, dtype)), g.value(g.cast(x, dtype))
    plain = g.op("Atan", g.op("Div", y, x))
    zero = g.cast(0, dtype)
    turned = g.op("Where", g.op("Less", y, zero), g.op("Sub", plain, pi), g.op("Add", plain, pi))
    found = g.op("Where", g.op("Less", x, zero), turned, plain)
    nowhere = g.op("And", g.op("Equal", x, zero), g.op("Equal", y, zero))
    return g.op("Where", nowhere, zero, found)


@TABLE.entry(aten.isnan)
def _is_nan(g: Writer, x: Value) -> Value:
    return g.op("IsNaN", x) if "float" in g.dtype(x) else g.op("And", g.cast(x, "bool"), np.asarray(False))


@TABLE.entry(aten.isinf)
def _is_infinite(g: Writer, x: Value) -> Value:
    return g.op("IsInf", x) if "float" in g.dtype(x) else g.op("And", g.cast(x, "bool"), np.asarray(False))


# -- comparisons and logic


def _comparison(op: str, negated: bool = False) -> Emitter:
    def emit(g: Writer, a: Operand, b: Operand) -> Value:
        dtype = g.common_dtype()
        if dtype == "bool" and op != "Equal":
            dtype = "int32"
        found = g.op(op, g.cast(a, dtype), g.cast(b, dtype))
        return g.op("Not", found) if negated else found

    return emit


for _target, _op in {
    aten.eq: "Equal",
    aten.lt: "Less",
    aten.gt: "Greater",
    aten.le: "LessOrEqual",
    aten.ge: "GreaterOrEqual",
}.items():
    TABLE.entry(_target)(_comparison(_op))
TABLE.entry(aten.ne)(_comparison("Equal", negated=True))


def _logical(op: str) -> Emitter:
    def emit(g: Writer, a: Operand, b: Operand) -> Value:
        return g.op(op, g.cast(a, "bool"), g.cast(b, "bool"))

    return emit


def _bitwise(op: str) -> Emitter:
    def emit(g: Writer, a: Operand, b: Operand) -> Value:
        dtype = g.result_dtype()
        return g.op(op if dtype == "bool" else f"Bitwise{op}", g.cast(a, dtype), g.cast(b, dtype))

    return emit


for _op in ("And", "Or", "Xor"):
    TABLE.entry(getattr(aten, f"logical_{_op.lower()}"))(_logical(_op))
    TABLE.entry(getattr(aten, f"bitwise_{_op.lower()}"), getattr(aten, f"__{_op.lower()}__"))(_bitwise(_op))


@TABLE.entry(aten.logical_not)
def _logical_not(g: Writer, x: Value) -> Value:
    return g.op("Not", g.cast(x, "bool"))


@TABLE.entry(aten.bitwise_not)
def _bitwise_not(g: Writer, x: Value) -> Value:
    return g.op("Not" if g.dtype(x) == "bool" else "BitwiseNot", x)


# -- choices


@TABLE.entry(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def _where(g: Writer, mask: Value, a: Operand, b: Operand) -> Value:
    dtype = g.result_dtype()
    return g.op("Where", g.cast(mask, "bool"), g.cast(a, dtype), g.cast(b, dtype))


@TABLE.entry(aten.masked_fill)
def _masked_fill(g: Writer, x: Value, mask: Value, value: Operand) -> Value:
    return g.op("Where", mask, g.cast(value, g.dtype(x)), x)


@TABLE.entry(aten.clamp)
def _clamp(g: Writer, x: Value, least: Operand = None, most: Operand = None) -> Value:
    dtype = g.result_dtype()
    found = g.value(g.cast(x, dtype))
    if all(v is None or not isinstance(v, Value) for v in (least, most)):
        bounds = [None if v is None else g.cast(v, dtype) for v in (least, most)]
        return g.op("Clip", found, *(bounds if most is not None else bounds[:1]))
    found = found if least is None else g.op("Max", found, g.cast(least, dtype))
    return found if most is None else g.op("Min", found, g.cast(most, dtype))


@TABLE.entry(aten.clamp_min)
def _clamp_min(g: Writer, x: Value, least: Operand) -> Value:
    return _clamp(g, x, least)


@TABLE.entry(aten.clamp_max)
def _clamp_max(g: Writer, x: Value, most: Operand) -> Value:
    return _clamp(g, x, None, most)


# -- activations


@TABLE.entry(aten.gelu)
def _gelu(g: Writer, x: Value, approximate: str = "none") -> Value:
    return g.op("Gelu", x, approximate=approximate)


@TABLE.entry(aten.silu)
def _silu(g: Writer, x: Value) -> Value:
    return g.op("Mul", x, g.op("Sigmoid", x))


@TABLE.entry(aten.hardsigmoid)
def _hard_sigmoid(g: Writer, x: Value) -> Value:
    return g.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@TABLE.entry(aten.relu6)
def _relu6(g: Writer, x: Value) -> Value:
    return _clamp(g, x, 0, 6)


@TABLE.entry(aten.hardtanh)
def _hard_tanh(g: Writer, x: Value, least: float = -1.0, most: float = 1.0) -> Value:
    return _clamp(g, x, least, most)


@TABLE.entry(aten.leaky_relu)
def _leaky_relu(g: Writer, x: Value, slope: float = 0.01) -> Value:
    return g.op("LeakyRelu", x, alpha=float(slope))


@TABLE.entry(aten.elu)
def _elu(g: Writer, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    inner = x if input_scale == 1 else g.op("Mul", x, input_scale)
    grown = g.op("Mul", _expm1(g, inner), alpha)
    found = g.op("Where", g.op("Greater", x, 0), x, grown)
    return found if scale == 1 else g.op("Mul", found, scale)


@TABLE.entry(aten.softplus)
def _softplus(g: Writer, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    scaled = x if beta == 1 else g.op("Mul", x, beta)
    smooth = g.op("Softplus", scaled)
    smooth = smooth if beta == 1 else g.op("Div", smooth, beta)
    return g.op("Where", g.op("Greater", scaled, threshold), x, smooth)


@TABLE.entry(aten._prelu_kernel, aten.prelu)
def _prelu(g: Writer, x: Value, slope: Value) -> Value:
    if g.rank(slope) == 1 and g.rank(x) > 2:
        slope = g.unsqueeze(slope, *range(1, g.rank(x) - 1))
    return g.op("PRelu", x, slope)


@TABLE.entry(aten.log_sigmoid_forward)
def _log_sigmoid(g: Writer, x: Value) -> tuple[Value, None]:
    """Its second result serves training alone."""
    return g.op("Neg", g.op("Softplus", g.op("Neg", x))), None


@TABLE.entry(aten.glu)
def _glu(g: Writer, x: Value, axis: int = -1) -> Value:
    left, right = g.several("Split", 2, x, axis=g.axis(x, axis), num_outputs=2)
    return g.op("Mul", left, g.op("Sigmoid", right))


@TABLE.entry(aten.threshold)
def _threshold(g: Writer, x: Value, least: float, value: float) -> Value:
    return g.op("Where", g.op("Greater", x, least), x, g.cast(value, g.dtype(x)))


@TABLE.entry(aten.nan_to_num)
def _nan_to_num(
    g: Writer, x: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    dtype = g.dtype(x)
    if "float" not in dtype:
        return x
    limits = torch.finfo(getattr(torch, dtype))
    found = g.op("Where", g.op("IsNaN", x), g.cast(nan or 0.0, dtype), x)
    most, least = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    found = g.op("Where", g.op("Equal", found, inf), g.cast(most, dtype), found)
    return g.op("Where", g.op("Equal", found, -inf), g.cast(least, dtype), found)
