"""Element-wise functions."""

from __future__ import annotations

from math import inf, log, nan, pi, sqrt
from typing import Any

import numpy as np
import torch

from graphopt.frontends.torch.table import Emitter, Table
from graphopt.frontends.torch.writer import OpWriter, ValueLike
from graphopt.ir.graph import Value

TABLE = Table()
aten = torch.ops.aten


def _function(op: str) -> Emitter:
    """What applies one op to the elements, as the dtype of the result."""

    def emit(g: OpWriter, x: Value) -> Value:
        return g.op(op, g.cast(x, g.result_dtype()))

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
    def emit(g: OpWriter, x: Value) -> Value:
        return g.op(op, x) if "float" in g.dtype(x) else x

    return emit


for _target, _op in {aten.floor: "Floor", aten.ceil: "Ceil", aten.round.default: "Round"}.items():
    TABLE.entry(_target)(_rounded(_op))


def _arithmetic(op: str, of_bools: str = "") -> Emitter:
    def emit(g: OpWriter, a: ValueLike, b: ValueLike) -> Value:
        dtype = g.result_dtype()
        return g.op(of_bools if dtype == "bool" and of_bools else op, g.cast(a, dtype), g.cast(b, dtype))

    return emit


for _target, _op, _of_bools in (
    (aten.mul, "Mul", "And"),
    (aten.maximum, "Max", "Or"),
    (aten.minimum, "Min", "And"),
):
    TABLE.entry(_target)(_arithmetic(_op, _of_bools))


@TABLE.entry(aten.pow)
def _power_of(g: OpWriter, base: ValueLike, exponent: Value) -> Value:
    """Of integers, a negative power is the integer part: 0, but for powers of 1 and -1."""
    dtype = g.result_dtype()
    a, b = g.value(g.cast(base, dtype)), g.cast(exponent, dtype)
    if "float" in dtype or dtype in ("uint8", "bool"):
        return g.op("Pow", a, b)
    at_least = g.op("Pow", a, g.op("Max", b, g.zeros(b)))
    is_odd = g.op("Equal", g.op("Mod", b, g.cast(2, dtype)), g.ones(b))
    sign = g.op("Where", g.op("And", is_odd, g.op("Less", a, g.zeros(a))), g.cast(-1, dtype), g.ones(a))
    is_one = g.op("Equal", g.op("Abs", a), g.ones(a))
    return g.op("Where", g.op("Less", b, g.zeros(b)), g.op("Where", is_one, sign, g.zeros(a)), at_least)


@TABLE.entry(aten.pow.Tensor_Scalar)
def _power(g: OpWriter, x: Value, exponent: Any) -> Value:
    dtype = g.result_dtype()
    x = g.cast(x, dtype)
    if exponent == 2:
        return g.op("Mul", x, x)
    if exponent == 0.5:
        return g.op("Sqrt", x)
    return g.op("Pow", x, g.cast(exponent, dtype))


@TABLE.entry(aten.add)
def _add(g: OpWriter, a: ValueLike, b: ValueLike, alpha: Any = 1) -> Value:
    return _with_multiple(g, "Or" if g.result_dtype() == "bool" else "Add", a, b, alpha)


@TABLE.entry(aten.sub)
def _subtract(g: OpWriter, a: ValueLike, b: ValueLike, alpha: Any = 1) -> Value:
    return _with_multiple(g, "Sub", a, b, alpha)


@TABLE.entry(aten.rsub)
def _subtract_from(g: OpWriter, a: ValueLike, b: ValueLike, alpha: Any = 1) -> Value:
    return _with_multiple(g, "Sub", b, a, alpha)


def _with_multiple(g: OpWriter, op: str, a: ValueLike, b: ValueLike, factor: Any) -> Value:
    """The op of one operand and a multiple of the other, which is never taken of truth values."""
    dtype = g.result_dtype()
    other = g.cast(b, dtype)
    return g.op(op, g.cast(a, dtype), other if factor == 1 else g.op("Mul", other, g.cast(factor, dtype)))


@TABLE.entry(aten.div)
def _divide(g: OpWriter, a: ValueLike, b: ValueLike, rounding_mode: str | None = None) -> Value:
    dtype = g.result_dtype()
    above, below = g.cast(a, dtype), g.cast(b, dtype)
    if rounding_mode == "floor":
        return floor_quotient(g, above, below, dtype)
    quotient = g.op("Div", above, below)
    return _truncated(g, quotient) if rounding_mode == "trunc" and "float" in dtype else quotient


@TABLE.entry(aten.floor_divide)
def _floor_divide(g: OpWriter, a: ValueLike, b: ValueLike) -> Value:
    dtype = g.result_dtype()
    return floor_quotient(g, g.cast(a, dtype), g.cast(b, dtype), dtype)


def floor_quotient(g: OpWriter, a: ValueLike, b: ValueLike, dtype: str) -> Value:
    """The largest integers of a dtype that are not above the quotients."""
    if "float" in dtype:
        whole = g.op("Round", g.op("Div", g.op("Sub", a, float_remainder(g, a, b)), b))
        return g.op("Where", g.op("Equal", b, g.cast(0, dtype)), g.op("Div", a, b), whole)
    return g.op("Div", g.op("Sub", a, g.op("Mod", a, b)), b)


@TABLE.entry(aten.trunc, aten.fix)
def _truncated(g: OpWriter, x: Value) -> Value:
    if "float" not in g.dtype(x):
        return x
    return g.op("Mul", g.op("Sign", x), g.op("Floor", g.op("Abs", x)))


@TABLE.entry(aten.remainder)
def _remainder(g: OpWriter, a: ValueLike, b: ValueLike) -> Value:
    dtype = g.result_dtype()
    above, below = g.cast(a, dtype), g.cast(b, dtype)
    if "float" not in dtype:
        return g.op("Mod", above, below)
    return float_remainder(g, above, below)


def float_remainder(g: OpWriter, a: ValueLike, b: ValueLike) -> Value:
    """What is left of floats after division by others, with the signs of these, and without rounding."""
    rest = g.op("Mod", a, b, fmod=1)
    nothing = g.zeros(rest)
    is_other = g.op("Xor", g.op("Less", rest, nothing), g.op("Less", b, nothing))
    return g.op("Where", g.op("And", is_other, g.op("Not", g.op("Equal", rest, nothing))), g.op("Add", rest, b), rest)


@TABLE.entry(aten.fmod)
def _truncating_remainder(g: OpWriter, a: ValueLike, b: ValueLike) -> Value:
    dtype = g.result_dtype()
    return g.op("Mod", g.cast(a, dtype), g.cast(b, dtype), fmod=1)


@TABLE.entry(aten.rsqrt)
def _reciprocal_root(g: OpWriter, x: Value) -> Value:
    return g.op("Reciprocal", g.op("Sqrt", g.cast(x, g.result_dtype())))


@TABLE.entry(aten.square)
def _square(g: OpWriter, x: Value) -> Value:
    x = g.cast(x, g.result_dtype())
    return g.op("Mul", x, x)


@TABLE.entry(aten.exp2)
def _exp2(g: OpWriter, x: Value) -> Value:
    return g.op("Exp", g.op("Mul", g.cast(x, g.result_dtype()), log(2)))


@TABLE.entry(aten.log2)
def _log2(g: OpWriter, x: Value) -> Value:
    return g.op("Mul", g.op("Log", g.cast(x, g.result_dtype())), 1 / log(2))


@TABLE.entry(aten.log10)
def _log10(g: OpWriter, x: Value) -> Value:
    return g.op("Mul", g.op("Log", g.cast(x, g.result_dtype())), 1 / log(10))


@TABLE.entry(aten.log1p)
def _log1p(g: OpWriter, x: Value) -> Value:
    """Without loss for small x: by how much 1 + x was rounded is made good (Goldberg 1991, theorem 4)."""
    x = g.cast(x, g.result_dtype())
    rounded = g.op("Add", x, 1)
    step = g.op("Sub", rounded, 1)
    precise = g.op("Div", g.op("Mul", g.op("Log", rounded), x), step)
    is_plain = g.op("Or", g.op("Equal", step, 0), g.op("IsInf", rounded))
    return g.op("Where", is_plain, x, precise)


@TABLE.entry(aten.expm1)
def expm1(g: OpWriter, x: Value) -> Value:
    """exp(x) - 1 without loss for small x, as tanh(x / 2) * (exp(x) + 1)."""
    x = g.cast(x, g.result_dtype())
    return g.op("Mul", g.op("Tanh", g.op("Mul", x, 0.5)), g.op("Add", g.op("Exp", x), 1))


@TABLE.entry(aten.erfc)
def _erfc(g: OpWriter, x: Value) -> Value:
    """To the precision of 1, not of what it is where that is small."""
    one = g.cast(1, g.result_dtype())
    return g.op("Sub", one, g.op("Erf", g.cast(x, g.result_dtype())))


@TABLE.entry(aten.atan2)
def _atan2(g: OpWriter, y: Value, x: Value) -> Value:
    """The angle of the point (x, y): torch's, but of an origin with signs and of points infinite both ways."""
    dtype = g.result_dtype()
    y, x = g.cast(y, dtype), g.cast(x, dtype)
    plain = g.op("Atan", g.op("Div", y, x))
    zero = g.cast(0, dtype)
    turned = g.op("Where", g.op("Less", y, zero), g.op("Sub", plain, pi), g.op("Add", plain, pi))
    angle = g.op("Where", g.op("Less", x, zero), turned, plain)
    nowhere = g.op("And", g.op("Equal", x, zero), g.op("Equal", y, zero))
    return g.op("Where", nowhere, zero, angle)


def _kind_of_float(op: str) -> Emitter:
    """What tells which floats are of a kind; no other numbers are."""

    def emit(g: OpWriter, x: Value) -> Value:
        return g.op(op, x) if "float" in g.dtype(x) else g.op("And", g.cast(x, "bool"), np.asarray(False))

    return emit


TABLE.entry(aten.isnan)(_kind_of_float("IsNaN"))
TABLE.entry(aten.isinf)(_kind_of_float("IsInf"))


# -- comparisons and logic


def _comparison(op: str, negated: bool = False) -> Emitter:
    def emit(g: OpWriter, a: ValueLike, b: ValueLike) -> Value:
        dtype = g.common_dtype()
        if dtype == "bool" and op != "Equal":
            dtype = "int32"
        result = g.op(op, g.cast(a, dtype), g.cast(b, dtype))
        return g.op("Not", result) if negated else result

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
    def emit(g: OpWriter, a: ValueLike, b: ValueLike) -> Value:
        return g.op(op, g.cast(a, "bool"), g.cast(b, "bool"))

    return emit


def _bitwise(op: str) -> Emitter:
    def emit(g: OpWriter, a: ValueLike, b: ValueLike) -> Value:
        dtype = g.result_dtype()
        return g.op(op if dtype == "bool" else f"Bitwise{op}", g.cast(a, dtype), g.cast(b, dtype))

    return emit


for _op in ("And", "Or", "Xor"):
    TABLE.entry(getattr(aten, f"logical_{_op.lower()}"))(_logical(_op))
    TABLE.entry(getattr(aten, f"bitwise_{_op.lower()}"), getattr(aten, f"__{_op.lower()}__"))(_bitwise(_op))


@TABLE.entry(aten.logical_not)
def _logical_not(g: OpWriter, x: Value) -> Value:
    return g.op("Not", g.cast(x, "bool"))


@TABLE.entry(aten.bitwise_not)
def _bitwise_not(g: OpWriter, x: Value) -> Value:
    return g.op("Not" if g.dtype(x) == "bool" else "BitwiseNot", x)


# -- choices


@TABLE.entry(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def _where(g: OpWriter, mask: Value, a: ValueLike, b: ValueLike) -> Value:
    dtype = g.result_dtype()
    return g.op("Where", g.cast(mask, "bool"), g.cast(a, dtype), g.cast(b, dtype))


@TABLE.entry(aten.masked_fill)
def _masked_fill(g: OpWriter, x: Value, mask: Value, value: ValueLike) -> Value:
    return g.op("Where", mask, g.cast(value, g.dtype(x)), x)


@TABLE.entry(aten.clamp)
def clamped(g: OpWriter, x: Value, least: ValueLike = None, most: ValueLike = None) -> Value:
    """The value between bounds, of which either may be missing."""
    dtype = g.result_dtype()
    result = g.cast(x, dtype)
    if all(v is None or not isinstance(v, Value) for v in (least, most)):
        bounds = [None if v is None else g.cast(v, dtype) for v in (least, most)]
        return g.op("Clip", result, *(bounds if most is not None else bounds[:1]))
    result = result if least is None else g.op("Max", result, g.cast(least, dtype))
    return result if most is None else g.op("Min", result, g.cast(most, dtype))


@TABLE.entry(aten.clamp_min)
def _clamp_min(g: OpWriter, x: Value, least: ValueLike) -> Value:
    return clamped(g, x, least)


@TABLE.entry(aten.clamp_max)
def _clamp_max(g: OpWriter, x: Value, most: ValueLike) -> Value:
    return clamped(g, x, None, most)


@TABLE.entry(aten.nan_to_num)
def _nan_to_num(
    g: OpWriter, x: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    dtype = g.dtype(x)
    if "float" not in dtype:
        return x
    limits = torch.finfo(getattr(torch, dtype))
    result = g.op("Where", g.op("IsNaN", x), g.cast(nan or 0.0, dtype), x)
    most, least = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    result = g.op("Where", g.op("Equal", result, inf), g.cast(most, dtype), result)
    return g.op("Where", g.op("Equal", result, -inf), g.cast(least, dtype), result)


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


@TABLE.entry(aten.rrelu_with_noise_functional)
def _leaky_relu_at_random(
    g: OpWriter, x: Value, noise: Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, *_: Any
) -> tuple[Value, Value]:
    """Of inference: the slope is the mean of those that training draws from."""
    if training:
        raise g.refused("a slope that is drawn at random: call model.eval() first")
    return _leaky_relu(g, x, (lower + upper) / 2), noise


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
    slope = slope if g.rank(x) else g.scalar(slope)
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


# -- signs, and what floats are made of


@TABLE.entry(aten.signbit)
def is_negative(g: OpWriter, x: Value) -> Value:
    """Whether the sign is minus, that of 0 too."""
    x = g.cast(x, "int32") if g.dtype(x) == "bool" else x
    below = g.op("Less", x, g.zeros(x))
    return below if "float" not in g.dtype(x) else g.op("Or", below, g.op("Less", g.op("Reciprocal", x), g.zeros(x)))


@TABLE.entry(aten.copysign)
def _with_sign_of(g: OpWriter, x: Value, other: ValueLike) -> Value:
    dtype = g.result_dtype()
    size = g.op("Abs", g.cast(x, dtype))
    return g.op("Where", is_negative(g, g.value(g.cast(other, dtype))), g.op("Neg", size), size)


@TABLE.entry(aten.angle)
def _angle(g: OpWriter, x: Value) -> Value:
    """Of real numbers: 0, or half a turn of what is negative."""
    x = g.cast(x, g.result_dtype())
    turned = g.op("Where", g.op("Less", x, 0.0), g.cast(pi, g.dtype(x)), g.zeros(x))
    return g.op("Where", g.op("IsNaN", x), x, turned)


def _ignoring_nan(op: str, of_bools: str) -> Emitter:
    """The operand that is a number where the other is none."""
    plain = _arithmetic(op, of_bools)

    def emit(g: OpWriter, a: Value, b: Value) -> Value:
        dtype = g.result_dtype()
        if "float" not in dtype:
            return plain(g, a, b)  # type: ignore[no-any-return]
        a, b = g.cast(a, dtype), g.cast(b, dtype)
        both = g.op("Where", g.op("IsNaN", b), a, g.op(op, a, b))
        return g.op("Where", g.op("IsNaN", a), b, both)

    return emit


TABLE.entry(aten.fmax)(_ignoring_nan("Max", "Or"))
TABLE.entry(aten.fmin)(_ignoring_nan("Min", "And"))


@TABLE.entry(aten.hypot)
def _hypotenuse(g: OpWriter, a: Value, b: Value) -> Value:
    """As a multiple of the longer side, whose square may be too large."""
    dtype = g.result_dtype()
    a, b = g.op("Abs", g.cast(a, dtype)), g.op("Abs", g.cast(b, dtype))
    longer, shorter = g.op("Max", a, b), g.op("Min", a, b)
    share = g.op("Div", shorter, g.op("Where", g.op("Equal", longer, 0.0), g.ones(longer), longer))
    length = g.op("Mul", longer, g.op("Sqrt", g.op("Add", g.op("Mul", share, share), 1.0)))
    return g.op("Where", g.op("IsInf", longer), longer, length)


@TABLE.entry(aten.round.decimals)
def _rounded_to(g: OpWriter, x: Value, *, decimals: int) -> Value:
    if "float" not in g.dtype(x):
        return x
    if decimals == 0:
        return g.op("Round", x)
    factor = g.cast(10.0 ** abs(decimals), g.dtype(x))
    there, back = ("Mul", "Div") if decimals > 0 else ("Div", "Mul")
    return g.op(back, g.op("Round", g.op(there, x, factor)), factor)


# -- bits


@TABLE.entry(aten.bitwise_left_shift, aten.__lshift__)
def _left_shift(g: OpWriter, x: ValueLike, count: ValueLike) -> Value:
    return _shifted(g, "LEFT", g.value(g.cast(x, g.result_dtype())), count)


@TABLE.entry(aten.bitwise_right_shift, aten.__rshift__)
def _right_shift(g: OpWriter, x: ValueLike, count: ValueLike) -> Value:
    """Of what is negative, the sign moves in: that is what the inverted bits give, inverted back."""
    dtype = g.result_dtype()
    x = g.value(g.cast(x, dtype))
    if dtype == "uint8":
        return _shifted(g, "RIGHT", x, count)
    is_negative = g.op("Less", x, g.zeros(x))
    plain = g.op("Where", is_negative, g.op("BitwiseNot", x), x)
    moved = _shifted(g, "RIGHT", plain, count)
    return g.op("Where", is_negative, g.op("BitwiseNot", moved), moved)


def _shifted(g: OpWriter, direction: str, x: Value, count: ValueLike) -> Value:
    """The bits moved by as many places as torch moves them; all of them are gone by a number that is no place."""
    dtype = g.dtype(x)
    bits, wide = 8 * np.dtype(dtype).itemsize, f"u{dtype.removeprefix('u')}"
    count = g.value(g.cast(count, dtype))
    is_place = g.op("And", g.op("GreaterOrEqual", count, g.zeros(x)), g.op("Less", count, g.cast(bits, dtype)))
    places = g.cast(g.op("Where", is_place, count, g.zeros(x)), wide)
    moved = g.cast(g.op("BitShift", g.cast(x, wide), places, direction=direction), dtype)
    return g.op("Where", is_place, moved, g.zeros(x))


@TABLE.entry(aten.erfinv)
def _inverse_of_erf(g: OpWriter, x: Value) -> Value:
    """Winitzki's approximation (2008), and three steps of Newton's method."""
    x = g.cast(x, g.result_dtype())
    near = 0.147
    log_of_rest = g.op("Log", g.op("Sub", 1.0, g.op("Mul", x, x)))
    half = g.op("Add", g.op("Mul", log_of_rest, 0.5), 2 / (pi * near))
    inner = g.op("Sub", g.op("Mul", half, half), g.op("Mul", log_of_rest, 1 / near))
    y = g.op("Mul", g.op("Sign", x), g.op("Sqrt", g.op("Sub", g.op("Sqrt", inner), half)))
    for _ in range(3):
        slope = g.op("Mul", g.op("Exp", g.op("Neg", g.op("Mul", y, y))), 2 / sqrt(pi))
        y = g.op("Sub", y, g.op("Div", g.op("Sub", g.op("Erf", y), x), slope))
    end = g.op("Div", x, g.op("Sub", 1.0, g.op("Abs", x)))  # infinite, with the sign
    outside = g.op("Where", g.op("Greater", g.op("Abs", x), 1.0), g.cast(nan, g.dtype(x)), end)
    return g.op("Where", g.op("Less", g.op("Abs", x), 1.0), y, outside)
