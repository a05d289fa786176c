"""Quantization: rounding to multiples of a scale, and ops between dequantization and quantization."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from graphopt.ir.dtypes import HALVES, dtype_of
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs
from graphopt.ir.types import TensorType
from graphopt.kernels.host import looks_up
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.compute import Tensor, byte_table, compute, compute_several
from graphopt.lowering.loops.expressions import Const, Expr, apply, cast, const, equal, maximum, minimum, select
from graphopt.lowering.operators.activations import FORMULAS
from graphopt.lowering.operators.elements import Formula, broadcast, inputs_fitting, integer, label
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation, OperatorLowering
from graphopt.lowering.operators.pooling import TABLE as POOLS
from graphopt.lowering.operators.reductions import normalized
from graphopt.lowering.operators.softmax import softmax

DOMAIN = "com.microsoft::"

# -- numbers and their codes


def code(x: Expr, scale: Expr, zero: Expr | None, dtype: str) -> Expr:
    """The integer that stands for x: the nearest (ties to even) that there is."""
    rounded = apply("round", x / scale)
    moved = rounded if zero is None else rounded + cast(zero, rounded.dtype)
    return apply("saturate", moved, dtype=dtype)


def decoded(x: Expr, scale: Expr, zero: Expr | None) -> Expr:
    """The number that an integer stands for, in float32."""
    value = cast(x, "float32")
    return (value if zero is None else value - cast(zero, "float32")) * cast(scale, "float32")


def parameter(op: Operation, k: int, at: Sequence[Expr], axis: int, block: int) -> Expr | None:
    """The scale or zero point of an element: one for all, one for each index of an axis, or one for each block."""
    if not op.has(k):
        return None
    tensor = op.input(k)
    if tensor.rank == 0 or tensor.shape == (Const(1),):
        return tensor[tuple(Const(0) for _ in tensor.shape)]
    if tensor.rank == 1 and not block:
        return tensor[at[normalized(axis, len(at))]]
    dim = normalized(axis, len(at))
    return tensor[tuple(i // block if k == dim else i for k, i in enumerate(at))]


def axis_and_block(op: Operation) -> tuple[int, int]:
    """Along which axis scales go, and how many elements share one."""
    return integer(op, "axis"), integer(op, "block_size") if "::" not in op.op else 0


def _quantize(op: Operation) -> Tensor:
    """The division is rounded to the dtype of the scale, or to the precision that is asked for."""
    x, scales, dtype = op.input(0), op.input(1), op.dtype()
    precision_code = op.attr("precision")
    precision = (
        dtype_of(precision_code) if isinstance(precision_code, int) and precision_code else None
    ) or scales.dtype
    axis, block = axis_and_block(op)

    def element(*at: Expr) -> Expr:
        scale, zero = (parameter(op, k, at, axis, block) for k in (1, 2))
        assert scale is not None
        value = cast(x[at], "float32") / cast(scale, "float32")
        if precision in HALVES:
            value = cast(cast(value, precision), "float32")
        return code(value, const(1.0, "float32"), zero, dtype)

    return compute(x.shape, element, dtype, label(op))


def _dequantize(op: Operation) -> Tensor:
    x, dtype = op.input(0), op.dtype()
    axis, block = axis_and_block(op)

    def element(*at: Expr) -> Expr:
        scale, zero = (parameter(op, k, at, axis, block) for k in (1, 2))
        assert scale is not None
        return cast(decoded(x[at], scale, zero), dtype)

    return compute(x.shape, element, dtype, label(op))


def extremes(x: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest element, found in one go."""
    if not x.rank:
        return x, x
    nothing = t.highest(x.dtype), t.lowest(x.dtype)
    if Const(0) in x.shape:  # there are no steps, which would start accumulators
        low, high = (compute((), lambda end=end: end, x.dtype) for end in nothing)
        return low, high
    steps = [t.reduce_axis(n) for n in x.shape]
    element = x[tuple(step.var for step in steps)]
    low, high = compute_several(
        (),
        lambda: t.reduction(steps, [element] * 2, nothing, lambda a, b: [minimum(a[0], b[0]), maximum(a[1], b[1])]),
        ("low", "high"),
    )
    return low, high


def dynamic(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The elements as bytes, with the scale and the zero point that make the most of them."""
    low, high = extremes(x)

    def step() -> Expr:
        width = maximum(high[()], 0) - minimum(low[()], 0)
        return select(equal(width, 0), 1.0, width) / 255.0

    scale = compute((), step, "float32", "scale")

    def origin() -> Expr:
        return apply("saturate", apply("round", -minimum(low[()], 0) / scale[()]), dtype="uint8")

    zero = compute((), origin, "uint8", "zero_point")
    y = compute(x.shape, lambda *at: code(x[at], scale[()], zero[()], "uint8"), "uint8", "quantized")
    return y, scale, zero


# -- between two roundings


def _single(op: Operation, k: int) -> Expr | None:
    """The one element of an input that is optional."""
    if not op.has(k):
        return None
    tensor = op.input(k)
    return tensor[tuple(Const(0) for _ in tensor.shape)]


def _operand(op: Operation, k: int, shape: Sequence[Expr], at: Sequence[Expr]) -> Expr:
    """An element of the input at k, whose scale and zero point follow it."""
    scale = _single(op, k + 1)
    assert scale is not None
    return decoded(broadcast(op.input(k), shape, at), scale, _single(op, k + 2))


def _result(op: Operation, k: int, value: Expr) -> Expr:
    """The value with the scale and zero point that stand at k."""
    scale = _single(op, k)
    assert scale is not None
    return code(value, scale, _single(op, k + 1), op.dtype())


def _between(formula: Formula) -> OperatorLowering:
    """A function of one byte."""

    def describe(op: Operation) -> Tensor:
        x = op.input(0)
        return compute(
            x.shape, lambda *at: _result(op, 3, formula(op, _operand(op, 0, x.shape, at))), op.dtype(), label(op)
        )

    return describe


def _added(op: Operation) -> Tensor:
    """The sum of two operands, by the ratios of their scales to that of the result.

    No element is divided, and what is rounded has the zero points in it, as in ONNX Runtime, which gives the same.
    """
    first, second, unit = (_scale(op, k) for k in (1, 4, 6))
    ratios = first / unit, second / unit
    moved = _zero(op, 7) - ratios[0] * _zero(op, 2) - ratios[1] * _zero(op, 5)
    return _rounded(op, lambda a, b: b * ratios[1] + (a * ratios[0] + moved))


def _multiplied(op: Operation) -> Tensor:
    """The product of two operands, by the ratio of its scale to that of the result; rounded as a sum is."""
    ratio = _scale(op, 1) * _scale(op, 4) / _scale(op, 6)
    return _rounded(op, lambda a, b: (a - _zero(op, 2)) * (b - _zero(op, 5)) * ratio + _zero(op, 7))


def _rounded(op: Operation, combine: Callable[[Expr, Expr], Expr]) -> Tensor:
    """The codes nearest to what is made of two operands' codes."""
    shape = op.shape()

    def element(*at: Expr) -> Expr:
        a, b = (cast(broadcast(op.input(k), shape, at), "float32") for k in (0, 3))
        return apply("saturate", apply("round", combine(a, b)), dtype=op.dtype())

    return compute(shape, element, op.dtype(), label(op), inputs_fitting(op, (0, 3), shape))


def _scale(op: Operation, k: int) -> Expr:
    scale = _single(op, k)
    assert scale is not None
    return cast(scale, "float32")


def _zero(op: Operation, k: int) -> Expr:
    """The zero point at k in float32; 0 where there is none."""
    zero = _single(op, k)
    return const(0, "float32") if zero is None else cast(zero, "float32")


def _where(op: Operation) -> Tensor:
    shape = op.shape()

    def element(*at: Expr) -> Expr:
        condition = broadcast(op.input(0), shape, at)
        return _result(op, 7, select(condition, _operand(op, 1, shape, at), _operand(op, 4, shape, at)))

    return compute(shape, element, op.dtype(), label(op), inputs_fitting(op, (0, 1, 4), shape))


def _softmax(op: Operation) -> Tensor:
    x = op.input(0)
    numbers = compute(x.shape, lambda *at: _operand(op, 0, x.shape, at), "float32", "numbers")
    shares = softmax(numbers, integer(op, "axis"), "float32", "softmax")
    return compute(x.shape, lambda *at: _result(op, 3, shares[at]), op.dtype(), label(op))


def _concat(op: Operation) -> Tensor:
    """The scale and zero point of the result come first, then each operand with its own."""
    shape = op.shape()
    axis = normalized(integer(op, "axis"), len(shape))
    operands = range(2, len(op.inputs), 3)

    def found(k: int) -> Callable[[Expr], Expr]:
        def entry(code: Expr) -> Expr:
            return _result(op, 0, decoded(code, _scale(op, k + 1), _single(op, k + 2)))

        return byte_table(entry, op.input(k).dtype, op.dtype()) if looks_up() else entry

    made = {k: found(k) for k in operands}

    def element(*at: Expr) -> Expr:
        def part(rest: Sequence[int], start: Expr) -> Expr:
            here = (*at[:axis], at[axis] - start, *at[axis + 1 :])
            x = op.input(rest[0])
            element = made[rest[0]](x[here])
            end = start + x.shape[axis]
            return select(at[axis] < end, element, part(rest[1:], end)) if len(rest) > 1 else element

        return part(operands, Const(0))

    return compute(shape, element, op.dtype(), label(op))


def _pool(plain: str) -> OperatorLowering:
    """A pool of the numbers, which are averages and so no codes."""

    def describe(op: Operation) -> Tensor:
        if op.attr("channels_last"):
            raise NotLowered(f"{op.op} with the channels last")
        x, fact = op.input(0), op.facts[0]
        assert fact is not None
        numbers = compute(x.shape, lambda *at: _operand(op, 0, x.shape, at), "float32", "numbers")
        attrs = Attrs({n: a for n, a in op.attrs.items() if n != "channels_last"})
        facts = [Fact(TensorType("float32", f.shape)) for f in (fact, op.outputs[0]) if f.shape is not None]
        pooled = POOLS[plain](
            replace(op, op=plain, attrs=attrs, inputs=(numbers,), facts=tuple(facts[:1]), outputs=tuple(facts[1:]))
        )
        assert isinstance(pooled, Tensor)
        return compute(pooled.shape, lambda *at: _result(op, 3, pooled[at]), op.dtype(), label(op))

    return describe


TABLE: LoweringTable = {
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": lambda op: dynamic(op.input(0)),
    "QuantizeLinear": _quantize,
    DOMAIN + "DequantizeLinear": _dequantize,
    DOMAIN + "QuantizeLinear": _quantize,
    DOMAIN + "QLinearAdd": _added,
    DOMAIN + "QLinearAveragePool": _pool("AveragePool"),
    DOMAIN + "QLinearConcat": _concat,
    DOMAIN + "QLinearGlobalAveragePool": _pool("GlobalAveragePool"),
    DOMAIN + "QLinearLeakyRelu": _between(FORMULAS["LeakyRelu"]),
    DOMAIN + "QLinearMul": _multiplied,
    DOMAIN + "QLinearSigmoid": _between(FORMULAS["Sigmoid"]),
    DOMAIN + "QLinearSoftmax": _softmax,
    DOMAIN + "QLinearWhere": _where,
}
