"""Narrow types: floats of 4 to 8 bits and integers of 2 or 4 bits, which nests see as codes.

A float's code is a sign bit and a magnitude. Magnitudes count the numbers that there are, so that a multiple of the
last place, counted on from where its exponent starts, is the code itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import nan

from graphopt.frozen import dataclass
from graphopt.ir.dtypes import dtype_of
from graphopt.ir.facts import Fact
from graphopt.ir.types import TensorType
from graphopt.lowering.loops.compute import Tensor, compute
from graphopt.lowering.loops.expressions import Expr, apply, cast, const, equal, maximum, minimum, select
from graphopt.lowering.operators.elements import label, text
from graphopt.lowering.operators.elementwise import converted
from graphopt.lowering.operators.operation import CODE, NARROW, NotLowered, Operation, OperatorLowering
from graphopt.lowering.operators.quantized import TABLE as QUANTIZED
from graphopt.lowering.operators.quantized import axis_and_block, parameter

WORD = "int32"
"""The dtype in which codes are worked out."""


@dataclass(frozen=True)
class Format:
    """A float: bits of the mantissa, the exponent's bias, and codes: the sign, the largest number, and what is none."""

    mantissa: int
    bias: int
    sign: int
    top: int
    infinity: int | None = None
    nan: int | None = None

    @property
    def largest(self) -> float:
        """The largest number."""
        exponent, fraction = self.top >> self.mantissa, self.top % (1 << self.mantissa)
        return float((1 + fraction / (1 << self.mantissa)) * 2.0 ** (exponent - self.bias))


FLOATS: Mapping[str, Format] = {
    "float8_e4m3fn": Format(3, 7, 0x80, 0x7E, nan=0x7F),
    "float8_e4m3fnuz": Format(3, 8, 0x80, 0x7F, nan=0x80),
    "float8_e5m2": Format(2, 15, 0x80, 0x7B, 0x7C, 0x7E),
    "float8_e5m2fnuz": Format(2, 16, 0x80, 0x7F, nan=0x80),
    "float4_e2m1fn": Format(1, 1, 8, 7),
    "float6_e2m3fn": Format(3, 1, 32, 31),
    "float6_e3m2fn": Format(2, 3, 32, 31),
}
INTEGERS: Mapping[str, tuple[int, int]] = {"int2": (-2, 1), "int4": (-8, 7), "uint2": (0, 3), "uint4": (0, 15)}
"""The least and the largest."""
POWERS = "float8_e8m0fnu"
"""Powers of two alone."""

# -- from codes and to them


def decoded(code: Expr, dtype: str) -> Expr:
    """The number that a code stands for: a float32, or an int32 for integers."""
    word = cast(code, WORD)
    if dtype in INTEGERS:
        low, high = INTEGERS[dtype]
        bits = word & (high - low)
        return bits if low == 0 else (bits ^ -low) + low
    if dtype == POWERS:
        power = select(equal(word, 0), 0x400000, apply("shl", word, const(23, WORD)))
        return select(equal(word, 255), nan, apply("bits", power, dtype="float32"))
    f = FLOATS[dtype]
    magnitude = word & (f.sign - 1)
    exponent, fraction = apply("shr", magnitude, const(f.mantissa, WORD)), magnitude & ((1 << f.mantissa) - 1)
    shifted = apply("shl", exponent + (127 - f.bias), const(23, WORD))
    normal = apply("bits", shifted | apply("shl", fraction, const(23 - f.mantissa, WORD)), dtype="float32")
    value = select(equal(exponent, 0), cast(fraction, "float32") * 2.0 ** (1 - f.bias - f.mantissa), normal)
    if f.infinity is not None:
        value = select(equal(magnitude, f.infinity), float("inf"), value)
    if f.nan is not None:
        none = equal(word, f.nan) if f.nan == f.sign else magnitude > (f.infinity or f.top)
        value = select(none, nan, value)
    return select(word >= f.sign, -value, value)


def encoded(x: Expr, dtype: str, saturate: bool = True, mode: str = "up") -> Expr:
    """The code of the nearest number (ties to even). What is too large is the largest, or no number without
    ``saturate``; integers wrap around."""
    if dtype in INTEGERS:
        low, high = INTEGERS[dtype]
        return cast(converted(x, WORD) & (high - low), CODE)
    if x.dtype == "float64":
        raise NotLowered(f"float64 is rounded to {dtype} in one step")
    value = cast(x, "float32")
    bits = apply("bits", value, dtype=WORD)
    raised = apply("shr", bits & 0x7FFFFFFF, const(23, WORD))
    if dtype == POWERS:
        return cast(_power(bits, raised, saturate, mode), CODE)
    f = FLOATS[dtype]
    always = f.nan is None
    size = minimum(apply("abs", value), f.largest if saturate or always else 2 * f.largest)
    exponent = maximum(apply("shr", apply("bits", size, dtype=WORD), const(23, WORD)) - 127, 1 - f.bias)
    unit = apply("bits", apply("shl", exponent + (127 - f.mantissa), const(23, WORD)), dtype="float32")
    steps = cast(apply("round", size / unit), WORD)
    code = steps + (exponent + (f.bias - 1)) * (1 << f.mantissa)
    beyond = f.infinity if f.infinity is not None else f.nan
    if beyond is not None:
        code = select(code > f.top, beyond, code)
    negative = bits < 0
    if f.nan == f.sign:  # one code stands for no number, and it is that of the negative zero
        code = select(negative & (code > 0), code | f.sign, code)
        code = select(apply("isnan", value), f.nan, code)
    else:
        code = select(apply("isnan", value), f.sign if f.nan is None else f.nan, code)
        code = select(negative, code ^ f.sign, code)
    return cast(code, CODE)


def _power(bits: Expr, raised: Expr, saturate: bool, mode: str) -> Expr:
    """The exponent of a float32, rounded; nothing is known of signs."""
    fraction = bits & 0x7FFFFF
    if mode == "nearest":
        tie = equal(fraction, 0x400000)
        up = (fraction > 0x400000) | (tie & (raised > 0))
    else:
        up = (fraction > 0) if mode == "up" else fraction < 0
    if saturate:
        up = up & (raised < 254)
    return select(equal(raised, 255), 255, select(up, raised + 1, raised))


# -- ops


def _cast(op: Operation) -> Tensor:
    x, source, target = op.input(0), _dtype(op.facts[0]), op.dtype()
    saturate, mode = bool(op.attr("saturate")), text(op, "round_mode") or "up"

    def element(*at: Expr) -> Expr:
        value = decoded(x[at], source) if source in NARROW else x[at]
        if target not in NARROW:
            return converted(value, target)
        return encoded(value, target, saturate, mode)

    return compute(x.shape, element, CODE if target in NARROW else target, label(op))


def _dequantize(op: Operation) -> Tensor:
    """As with other dtypes, from the numbers that the codes stand for."""
    inputs = list(op.inputs)
    facts = list(op.facts)
    for k, (tensor, fact) in enumerate(zip(op.inputs, op.facts, strict=True)):
        if tensor is not None and fact is not None and fact.dtype in NARROW:
            number = partial(_number, tensor, _dtype(fact))
            inputs[k] = compute(tensor.shape, number, name="numbers")
            facts[k] = _held(fact, inputs[k].dtype)  # type: ignore[union-attr]
    result = QUANTIZED["DequantizeLinear"](replace(op, inputs=tuple(inputs), facts=tuple(facts)))
    assert isinstance(result, Tensor)
    return result


def _number(tensor: Tensor, dtype: str, *at: Expr) -> Expr:
    return decoded(tensor[at], dtype)


def _quantize(op: Operation) -> Tensor:
    x, target = op.input(0), op.dtype()
    precision_code = op.attr("precision")
    precision = dtype_of(precision_code) if isinstance(precision_code, int) and precision_code else None
    axis, block = axis_and_block(op)
    source = op.facts[1]
    if precision not in (None, "float32") or (source is not None and source.dtype in NARROW):
        raise NotLowered(f"{op.op} to {target} in {precision} by a scale of {_dtype(source)}")

    def element(*at: Expr) -> Expr:
        scale, zero = (parameter(op, k, at, axis, block) for k in (1, 2))
        assert scale is not None
        value = cast(x[at], "float32") / cast(scale, "float32")
        if target in INTEGERS:
            low, high = INTEGERS[target]
            moved = apply("round", value)
            if zero is not None:
                moved = moved + cast(decoded(zero, target), "float32")
            value = minimum(maximum(moved, low), high)
        elif zero is not None and FLOATS[target].nan is None:  # of the others it is always zero
            value = value + decoded(zero, target)
        return encoded(value, target, bool(op.attr("saturate")))

    return compute(x.shape, element, CODE, label(op))


def _dtype(fact: Fact | None) -> str:
    return "" if fact is None or fact.dtype is None else fact.dtype


def _held(fact: Fact, dtype: str) -> Fact:
    return fact if fact.shape is None else Fact(TensorType(dtype, fact.shape))


def moved(lowering: OperatorLowering) -> OperatorLowering:
    """An op that moves elements, whatever they are: it moves codes."""

    def describe(op: Operation) -> Tensor | Sequence[Tensor]:
        facts = tuple(f if f is None or f.dtype not in NARROW else _held(f, CODE) for f in op.facts)
        outputs = tuple(f if f.dtype not in NARROW else _held(f, CODE) for f in op.outputs)
        return lowering(replace(op, facts=facts, outputs=outputs))

    return describe


MOVES = frozenset({"Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze"}) | {
    "Tile",
    "Transpose",
    "Unsqueeze",
}
"""Ops that do not look at what they move."""
TABLE: Mapping[str, OperatorLowering] = {
    "Cast": _cast,
    "CastLike": _cast,
    "DequantizeLinear": _dequantize,
    "QuantizeLinear": _quantize,
}
"""By op: what it computes where an input or an output is narrow."""
