"""Element-wise ops: arithmetic, comparisons, logic and casts, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from graphopt.ir.ops import KINDS
from graphopt.lowering.loops.compute import Tensor, compute
from graphopt.lowering.loops.expressions import FUNCTIONS as INTRINSICS
from graphopt.lowering.loops.expressions import Const, Expr, apply, cast, equal, maximum, minimum, select
from graphopt.lowering.operators.elements import (
    Formula,
    elementwise,
    inputs_fitting,
    integer,
    is_float,
    label,
    operand,
    text,
)
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation


def _function(name: str) -> Formula:
    return lambda op, *elements: apply(name, *elements)


def _folded(combine: Callable[[Expr, Expr], Expr]) -> Formula:
    return lambda op, *elements: reduce(combine, elements)


# -- arithmetic


def _abs(op: Operation, x: Expr) -> Expr:
    return x if x.dtype.startswith("uint") else apply("abs", x)


def _clip(op: Operation, x: Expr, low: Expr | None = None, high: Expr | None = None) -> Expr:
    above = x if low is None else maximum(x, low)
    return above if high is None else minimum(above, high)


def _mean(op: Operation, *elements: Expr) -> Expr:
    return reduce(lambda a, b: a + b, elements) / len(elements)


def _mod(op: Operation, a: Expr, b: Expr) -> Expr:
    if not is_float(a):
        return a - apply("div", a, b) * b if integer(op, "fmod") else a % b
    remainder = apply("fmod", a, b)
    if integer(op, "fmod"):
        return remainder
    apart = apply("ne", remainder < 0, b < 0)
    return select(equal(remainder, 0), apply("copysign", 0.0, b), select(apart, remainder + b, remainder))


def power(base: Expr, exponent: Expr) -> Expr:
    """A power in the dtype of its base; common exponents that are known are a few products or roots."""
    constant = float(exponent.value) if isinstance(exponent, Const) else None
    if constant in (1, 2, 3, 4):
        square = base * base
        return {1: base, 2: square, 3: square * base, 4: square * square}[int(constant)]
    if is_float(base):
        if constant == 0.5:
            return apply("sqrt", base)
        if constant == 0.75:
            return apply("sqrt", base) * apply("sqrt", apply("sqrt", base))
        if constant == -1:
            return 1.0 / base
        return apply("pow", base, cast(exponent, base.dtype))
    # Beyond 2**53 integer powers are rounded; whoever wants them all exactly would have to multiply in a loop.
    return converted(apply("pow", cast(base, "float64"), cast(exponent, "float64")), base.dtype)


# -- casts


def converted(x: Expr, dtype: str) -> Expr:
    """The value in another dtype as ONNX casts: what is not 0 is true, integers wrap around."""
    if dtype == "bool":
        return x if x.dtype == "bool" else apply("ne", x, 0)
    if is_float(x) and dtype in ("int8", "uint8", "int16", "uint16"):
        return cast(cast(x, "int32"), dtype)
    if is_float(x) and dtype == "uint32":
        return cast(cast(x, "int64"), dtype)
    return cast(x, dtype)


def _cast(op: Operation) -> Tensor:
    x, dtype = op.input(0), op.dtype()
    return compute(x.shape, lambda *at: converted(x[at], dtype), dtype, label(op))


def _bit_cast(op: Operation, x: Expr) -> Expr:
    stored = cast(x, "uint8") if x.dtype == "bool" else x
    if op.dtype() == "bool":
        return converted(stored, "bool")
    return stored if stored.dtype == op.dtype() else apply("bits", stored, dtype=op.dtype())


# -- logic


def _is_inf(op: Operation, x: Expr) -> Expr:
    infinite = apply("isinf", x)
    if not integer(op, "detect_negative"):
        infinite = infinite & (x > 0)
    return infinite if integer(op, "detect_positive") else infinite & (x < 0)


def _shift(op: Operation, a: Expr, b: Expr) -> Expr:
    """By as many bits as there are or more, nothing is left but the sign."""
    bits = int(a.dtype.lstrip("uint"))
    signed = a.dtype.startswith("int")
    beyond = (b < 0) | (b >= bits) if signed else b >= bits
    if text(op, "direction") == "LEFT":
        return select(beyond, 0, apply("shl", a, b & (bits - 1)))
    if signed:
        return apply("shr", a, select(beyond, bits - 1, b))
    return select(beyond, 0, apply("shr", a, b & (bits - 1)))


# -- more than one output


def _dropout(op: Operation) -> Sequence[Tensor]:
    """At inference, or where nothing is dropped; which elements a training run drops is random."""
    if op.has(2) and op.known(2).any():
        ratio = op.known(1) if op.has(1) else 0.5
        if ratio != 0:
            raise NotLowered("which elements Dropout drops in training is random")
    x = op.input(0)
    y = compute(x.shape, lambda *at: x[at], x.dtype, label(op))
    kept = [compute(x.shape, lambda *at: Const(True, "bool"), "bool", "mask")] if len(op.outputs) > 1 else []
    return [y, *kept]


def _where(op: Operation) -> Tensor:
    shape = op.shape()

    def element(*at: Expr) -> Expr:
        return select(*(operand(op, k, shape, at) for k in range(3)))

    return compute(shape, element, op.dtype(), label(op), inputs_fitting(op, range(3), shape))


FUNCTIONS = {
    **{op: op.lower() for op in sorted((KINDS["unary"] | KINDS["binary"]) - {"Cast"}) if op.lower() in INTRINSICS},
    "BitwiseAnd": "bitand",
    "BitwiseNot": "invert",
    "BitwiseOr": "bitor",
    "BitwiseXor": "bitxor",
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "Xor": "ne",
}
"""Ops that are one function of expressions, most by its name (not Cast, whose function also takes a dtype);
of those that also need more, a formula follows."""

FORMULAS: dict[str, Formula] = {
    **{op: _function(function) for op, function in FUNCTIONS.items()},
    "Abs": _abs,
    "BitShift": _shift,
    "Clip": _clip,
    "IsInf": _is_inf,
    "Max": _folded(maximum),
    "Mean": _mean,
    "Min": _folded(minimum),
    "Mod": _mod,
    "Pow": lambda op, base, exponent: power(base, exponent),
    "Reciprocal": lambda op, x: 1.0 / x,
    "Sum": _folded(lambda a, b: a + b),
}

EXACT: dict[str, Formula] = {
    "BitCast": _bit_cast,
    "Identity": lambda op, x: x,
}
"""Ops that take elements as they are stored."""

TABLE: LoweringTable = {
    **{op: elementwise(formula) for op, formula in FORMULAS.items()},
    **{op: elementwise(formula, exact=True) for op, formula in EXACT.items()},
    "Cast": _cast,
    "CastLike": _cast,
    "Dropout": _dropout,
    "Where": _where,
}
