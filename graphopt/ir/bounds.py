"""Bounds analysis: bounds that the elements of a value keep whatever the inputs are, NaN aside.

Bounds of floats are rounded as the op rounds, and rounding is monotone: a sum of numbers below two
bounds is below the rounded sum of the bounds. Integers that might wrap around have only the bounds
of their dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isinf, isnan, sqrt
from typing import Any, TypeAlias

import numpy as np

from graphopt.ir.call import OpCall
from graphopt.ir.constants import Constant
from graphopt.ir.dtypes import dtype_of
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.infer_elements import RANGES, elements_of
from graphopt.ir.op_table import OPS, ops_where
from graphopt.ir.types import TensorType, Type

Bounds: TypeAlias = tuple[float, float]

ANY: Bounds = (-inf, inf)
READABLE = 1024
"""Constants of at most this many elements are read for their bounds."""

_ROUND: dict[str, tuple[Any, float]] = {t.__name__: (t, float(np.finfo(t).max)) for t in (np.float16, np.float32)}
"""By dtype what rounds to it, and its largest number."""


def of_dtype(dtype: str | None) -> Bounds:
    """The bounds that every value of a dtype keeps (none for those of 32 bits and more that have a sign)."""
    low, high = RANGES.get(dtype or "", (None, None))
    if low is None or high is None:
        return ANY
    return (low, high) if high < 2**31 - 1 else (low if low == 0 else -inf, inf)


def of_constant(constant: Constant) -> Bounds:
    """The least and the greatest element of a constant that is small or one number repeated."""
    if constant.bounds is None:
        constant.bounds = _least_and_greatest(constant)
    return constant.bounds


def _least_and_greatest(constant: Constant) -> Bounds:
    if constant.dtype == "string" or constant.dtype.startswith("complex") or constant.size == 0:
        return ANY
    if constant.splat is None and constant.size > READABLE:
        return of_dtype(constant.dtype)
    array = np.asarray(constant.splat if constant.splat is not None else constant.array).astype(np.float64)
    array = array[~np.isnan(array)]
    return (float(array.min()), float(array.max())) if array.size else ANY


def fact_of(constant: Constant) -> Fact:
    """What is known of a constant: everything."""
    low, high = of_constant(constant)
    return Fact(TensorType(constant.dtype, constant.shape), True, constant, elements_of(constant), low, high)


def fact_of_type(type: Type | None) -> Fact:
    """What is known of a value of which only the type is known."""
    if type is None:
        return NOTHING
    low, high = of_dtype(type.dtype) if isinstance(type, TensorType) else ANY
    return Fact(type, low=low, high=high)


def infer_bounds(call: OpCall, dtype: str | None, port: int = 0) -> Bounds:
    """The bounds of an output of a call, whose dtype is given."""
    limits = of_dtype(dtype)
    if port == 0 or call.op == "Split":
        function = BOUNDED.get(call.op)
        low, high = _rounded(function(call), dtype) if function else ANY
        if dtype in RANGES and call.op in WRAPPING and not (_fits(low, dtype) and _fits(high, dtype)):
            return limits
        limits = (max(limits[0], low), min(limits[1], high))
    return limits


def _fits(bound: float, dtype: str) -> bool:
    return RANGES[dtype][0] <= bound <= RANGES[dtype][1]


def _rounded(bounds: Bounds, dtype: str | None) -> Bounds:
    """Bounds rounded to the dtype; where that is not known how, only those that every dtype has exactly."""
    low, high = bounds
    low, high = (-inf if isnan(low) else low), (inf if isnan(high) else high)
    if dtype in _ROUND:
        return _to_float(low, dtype), _to_float(high, dtype)
    if dtype in ("float64", *RANGES):
        return low, high
    return (low if low in (0, 1, -1) else -inf), (high if high in (0, 1, -1) else inf)


def _to_float(bound: float, dtype: str) -> float:
    """A bound rounded to a dtype of floats."""
    if isinf(bound):
        return bound
    round_to, largest = _ROUND[dtype]
    if abs(bound) <= largest:  # where nothing overflows, to say that it may takes longer than all else
        return float(round_to(bound))
    with np.errstate(over="ignore"):
        return float(round_to(bound))


def _input(call: OpCall, index: int = 0) -> Bounds:
    fact = call.fact(index)
    return fact.low, fact.high


def _inputs(call: OpCall) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The lower and the upper bounds of all inputs."""
    facts = [call.fact(i) for i in range(len(call.inputs))]
    return tuple(f.low for f in facts), tuple(f.high for f in facts)


# -- functions of bounds


def _between(low: float, high: float) -> Callable[[OpCall], Bounds]:
    return lambda call: (low, high)


def _rising(function: Callable[[float], float]) -> Callable[[OpCall], Bounds]:
    """A monotone function that is computed without rounding."""

    def apply(call: OpCall) -> Bounds:
        low, high = _input(call)
        return function(low), function(high)

    return apply


def _first(call: OpCall) -> Bounds:
    return _input(call)


def _hull(*inputs: int) -> Callable[[OpCall], Bounds]:
    """The least bounds that hold for some of the inputs (all of them, where none is named)."""

    def apply(call: OpCall) -> Bounds:
        lows, highs = _inputs(call)
        chosen = inputs or range(len(lows))
        return min(lows[i] for i in chosen), max(highs[i] for i in chosen)

    return apply


def _signs(call: OpCall) -> Bounds:
    """Sums and means of many numbers: rounding and counts move them, but not across 0."""
    lows, highs = _inputs(call)
    return 0.0 if lows[0] >= 0 else -inf, 0.0 if highs[0] <= 0 else inf


def _sum(call: OpCall) -> Bounds:
    lows, highs = _inputs(call)
    if len(lows) <= 2 and call.op != "Mean":
        return sum(lows), sum(highs)
    return 0.0 if min(lows) >= 0 else -inf, 0.0 if max(highs) <= 0 else inf


def _sub(call: OpCall) -> Bounds:
    (a, b), (c, d) = _input(call, 0), _input(call, 1)
    return a - d, b - c


def _mul(call: OpCall) -> Bounds:
    (a, b), (c, d) = _input(call, 0), _input(call, 1)
    corners = [0.0 if 0 in (x, y) else x * y for x in (a, b) for y in (c, d)]
    return min(corners), max(corners)


def _div(call: OpCall) -> Bounds:
    """By what is above 0; a 0 has a sign too, and may give either infinity."""
    (a, b), (c, _) = _input(call, 0), _input(call, 1)
    if not 0 < c < inf:
        return ANY
    return (a / c if a < 0 else 0.0), (b / c if b > 0 else 0.0)


def _max(call: OpCall) -> Bounds:
    lows, highs = _inputs(call)
    return max(lows), max(highs)


def _min(call: OpCall) -> Bounds:
    lows, highs = _inputs(call)
    return min(lows), min(highs)


def _clip(call: OpCall) -> Bounds:
    low, high = _input(call)
    if call.has(1):
        a, b = _input(call, 1)
        low, high = max(low, a), max(high, b)
    if call.has(2):
        a, b = _input(call, 2)
        low, high = min(low, a), min(high, b)
    return low, high


def _padded(call: OpCall) -> Bounds:
    """A pad may put in a constant, which is 0 unless it is given."""
    low, high = _input(call)
    if call.text("mode") not in ("", "constant"):
        return low, high
    a, b = _input(call, 2) if call.has(2) else (0.0, 0.0)
    return min(low, a), max(high, b)


def _with_zero(call: OpCall) -> Bounds:
    low, high = _input(call)
    return min(low, 0.0), max(high, 0.0)


def _scattered(call: OpCall) -> Bounds:
    return _hull(0, 2)(call) if call.text("reduction") in ("", "none") else ANY


def _abs(call: OpCall) -> Bounds:
    low, high = _input(call)
    return max(low, -high, 0.0), max(-low, high)


def _neg(call: OpCall) -> Bounds:
    low, high = _input(call)
    return -high, -low


def _relu(call: OpCall) -> Bounds:
    low, high = _input(call)
    return max(low, 0.0), max(high, 0.0)


def _sqrt(call: OpCall) -> Bounds:
    low, high = _input(call)
    return sqrt(max(low, 0.0)), sqrt(high) if high >= 0 else inf


def _exp(call: OpCall) -> Bounds:
    low, high = _input(call)
    return 1.0 if low >= 0 else 0.0, 1.0 if high <= 0 else inf


def _pow(call: OpCall) -> Bounds:
    """An even power, or a power of what is not negative; a 0 has a sign too, and may give either infinity."""
    low, high = _input(call, 1)
    base, _ = _input(call)
    even = low == high and abs(low) < inf and low % 2 == 0
    return (0.0, inf) if even or base > 0 or (base == 0 and low >= 0) else ANY


def _elu(call: OpCall) -> Bounds:
    low, high = _input(call)
    alpha = call.attr("alpha")
    least = -float(alpha) if isinstance(alpha, float) and alpha >= 0 else -inf
    return 0.0 if low >= 0 else least, max(high, 0.0)


def _leaky(call: OpCall) -> Bounds:
    low, high = _input(call)
    alpha = call.attr("alpha")
    rises = isinstance(alpha, float) and alpha >= 0
    return 0.0 if low >= 0 else -inf, max(high, 0.0) if rises else inf


def _cast(call: OpCall) -> Bounds:
    """Rounded by the caller. An integer made of a float may be anything, since the float may be NaN."""
    source, target = call.dtype(0), dtype_of(call.integer("to"))
    low, high = _input(call)
    if source in RANGES:
        least, most = RANGES[source]
        return max(low, least), min(high, most)
    return ANY if target in RANGES else (low, high)


def _extreme(call: OpCall) -> Bounds:
    """The maximum of no elements is -inf, the minimum inf."""
    low, high = _input(call)
    if all(isinstance(s, int) and s > 0 for s in call.shape(0) or (0,)):
        return low, high
    return (-inf, high) if call.op == "ReduceMax" else (low, inf)


def _range(call: OpCall) -> Bounds:
    start, step = _input(call, 0)[0], _input(call, 2)[0]
    return (start, inf) if step > 0 else ANY


def _constant(call: OpCall) -> Bounds:
    value = call.attrs.get("value")
    if isinstance(value, Constant):
        return of_constant(value)
    return (0.0, 0.0) if call.op == "ConstantOfShape" else ANY


def _leaf(call: OpCall) -> Bounds:
    limits = call.constant(5)
    return (0.0, inf) if limits is None else (0.0, float(limits.array[0]) - 1)


def _ops(names: str, function: Callable[[OpCall], Bounds]) -> dict[str, Callable[[OpCall], Bounds]]:
    return dict.fromkeys(names.split(), function)


BOUNDED: dict[str, Callable[[OpCall], Bounds]] = {
    **{op: _between(*row.range) for op, row in OPS.items() if row.range is not None},
    **_ops(
        "DepthToSpace Expand Flatten Gather GatherElements GatherND GlobalMaxPool Identity MaxPool Reshape "
        "ReverseSequence Slice SpaceToDepth Split Squeeze Tile TopK Transpose Unsqueeze graphopt::BlockedMaxPool "
        "graphopt::Unblock",
        _first,
    ),
    "graphopt::TreeLeaves": _leaf,
    **_ops("AveragePool CumSum GlobalAveragePool ReduceMean ReduceSum graphopt::BlockedAveragePool", _signs),
    **_ops("Add Mean Sum", _sum),
    **_ops("ReduceMax ReduceMin", _extreme),
    **_ops("ScatterElements ScatterND", _scattered),
    **_ops("Constant ConstantOfShape", _constant),
    "Abs": _abs,
    "Cast": _cast,
    "Ceil": _rising(lambda x: float(np.ceil(x))),
    "Clip": _clip,
    "Concat": _hull(),
    "Div": _div,
    "Elu": _elu,
    "Exp": _exp,
    "Floor": _rising(lambda x: float(np.floor(x))),
    "LeakyRelu": _leaky,
    "Max": _max,
    "Min": _min,
    "Mul": _mul,
    "Neg": _neg,
    "OneHot": _hull(2),
    "Pad": _padded,
    "Pow": _pow,
    "Range": _range,
    "Relu": _relu,
    "Round": _rising(lambda x: float(np.round(x))),
    "Sqrt": _sqrt,
    "Sub": _sub,
    **_ops("Trilu graphopt::Block graphopt::BlockWeights", _with_zero),
    "Where": _hull(1, 2),
}
"""Bounds of the first output (of all, for Split), from those of the inputs."""

WRAPPING = ops_where(wraps=True)
"""Ops that wrap around on integers."""
