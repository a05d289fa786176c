"""Quantized matrix multiply and convolution: sums of integer products, rescaled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import prod

from graphopt.lowering.loops import compute as tensors
from graphopt.lowering.loops.compute import Requirement, Tensor, compute
from graphopt.lowering.loops.expressions import Const, Expr, apply, cast, const, equal
from graphopt.lowering.operators.convolutions import convolution
from graphopt.lowering.operators.elements import (
    broadcast,
    fitting,
    inputs_fitting,
    integer,
    label,
    number,
    required,
    scalar,
    wide,
    widened,
)
from graphopt.lowering.operators.integer_convolutions import ONE, QuantizedOperand, convolved, fits, operand
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation
from graphopt.lowering.operators.products import product, rounded
from graphopt.lowering.operators.quantized import DOMAIN, code, dynamic

SUMS = "int32"
"""The dtype of sums of products of bytes."""
ROWS = 8
"""Rows that share weights of a few bits in registers; for more, weights become floats first."""

# -- operands


def _parameter(op: Operation, k: int, shape: Sequence[Expr], at: Sequence[Expr], axis: int) -> Expr:
    """The scale or zero point of an element, the op's k-th input: a vector goes along the axis of the shape, anything
    else is broadcast."""
    constant = _same(op, k)
    if constant is not None:
        return constant
    tensor = op.input(k)
    if tensor.rank == 1:
        return broadcast(tensor, shape[axis : axis + 1 or None], at[axis : axis + 1 or None])
    return broadcast(tensor, shape, at)


def _agreeing(op: Operation, axes: Mapping[int, int], shape: Sequence[Expr]) -> list[Requirement]:
    """The requirements that inputs, where given, have sizes as ``_parameter`` reads them: by input, the axis that it
    goes along where it is a vector."""
    requirements: list[Requirement] = []
    for k, axis in axes.items():
        if op.has(k) and _same(op, k) is None:
            sizes = op.input(k).shape
            requirements += fitting(op.op, sizes, shape[axis : axis + 1 or None] if len(sizes) == 1 else shape)
    return requirements


def _same(op: Operation, k: int) -> Const | None:
    """The element of the k-th input, a vector at most, where it is known and all are the same."""
    fact = op.facts[k]
    constant = None if fact is None else fact.constant
    if constant is None or len(constant.shape) > 1 or not constant.size:
        return scalar(op, k)
    elements = constant.array.reshape(-1)
    return const(elements[0].item(), constant.dtype) if (elements == elements[0]).all() else None


def _shifted(op: Operation, x: Tensor, zero: int, axis: int) -> Tensor:
    """The integers counted from their zero point, which stands at ``zero``."""

    def element(*at: Expr) -> Expr:
        value = cast(x[at], SUMS)
        return value - cast(_parameter(op, zero, x.shape, at, axis), SUMS) if op.has(zero) else value

    along = x.shape[axis : axis + 1 or None] if op.has(zero) and op.input(zero).rank == 1 else x.shape
    return compute(x.shape, element, SUMS, "shifted", inputs_fitting(op, (zero,), along))


def _matrices(op: Operation, a: tuple[int, int], b: tuple[int, int]) -> Tensor:
    """The product of two operands, each given by where it and its zero point stand."""
    (x, zero_x), (y, zero_y) = a, b
    rows = _shifted(op, op.input(x), zero_x, -2 if op.input(x).rank > 1 else -1)
    columns = _shifted(op, op.input(y), zero_y, -1)
    return product(rows, columns, op.shape(), SUMS, label(op))


def _images(op: Operation, x: tuple[int, int], w: tuple[int, int]) -> Tensor:
    """The convolution of two operands, each given by where it and its zero point stand. Padding stands for 0."""
    (image, zero_x), (weights, zero_w) = x, w
    if fits(op, op.input(image), op.input(weights)):
        return convolved(op, _counted(op, *x), _counted(op, *w, op.input(weights).shape[0]))
    return convolution(op, _shifted(op, op.input(image), zero_x, 0), _shifted(op, op.input(weights), zero_w, 0))


def _counted(op: Operation, k: int, zero: int, channels: Expr = ONE) -> QuantizedOperand:
    """An operand of a convolution, which stands at k, counted from the zero points that stand at ``zero``: one, or one
    for each of so many channels."""
    if not op.has(zero):
        return operand(op, op.input(k), None, None)
    constant = _same(op, zero)
    return operand(op, op.input(k), op.input(zero), None if constant is None else cast(constant, SUMS), channels)


# -- results


def _quantized(op: Operation, total: Tensor, scales: Sequence[int], axis: int, result: int, bias: int) -> Tensor:
    """The sums, scaled by two operands' scales, with the scale of the result, which stands at ``result``."""
    dtype = op.dtype()

    def element(*at: Expr) -> Expr:
        a, b = (cast(_parameter(op, k, total.shape, at, axis), "float32") for k in scales)
        y = cast(_parameter(op, result, total.shape, at, axis), "float32")
        value: Expr = total[at]
        if op.has(bias):
            value = value + cast(_parameter(op, bias, total.shape, at, axis), SUMS)
        zero = _parameter(op, result + 1, total.shape, at, axis) if op.has(result + 1) else None
        return code(cast(value, "float32") * (a * b / y), const(1.0, "float32"), zero, dtype)

    axes = dict.fromkeys((*scales, result, result + 1, bias), axis)
    return compute(total.shape, element, dtype, "quantized", _agreeing(op, axes, total.shape))


def _qlinear_matmul(op: Operation) -> Tensor:
    """Scales of the first operand may go along its rows, others along columns."""
    total, dtype = _matrices(op, (0, 2), (3, 5)), op.dtype()
    rows = -2 if total.rank > 1 else -1

    def element(*at: Expr) -> Expr:
        a = cast(_parameter(op, 1, total.shape, at, rows), "float32")
        b, y = (cast(_parameter(op, k, total.shape, at, -1), "float32") for k in (4, 6))
        zero = _parameter(op, 7, total.shape, at, -1) if op.has(7) else None
        return code(cast(total[at], "float32") * (a * b / y), const(1.0, "float32"), zero, dtype)

    axes = {1: rows, **dict.fromkeys((4, 6, 7), -1)}
    return compute(total.shape, element, dtype, "quantized", _agreeing(op, axes, total.shape))


def _scaled(op: Operation, total: Tensor, scale_a: Tensor, k: int, bias: int) -> Tensor:
    """The sums as floats: scaled by the scales of two operands, the second of which stands at k, with a bias."""
    shape, dtype = total.shape, op.dtype()

    def element(*at: Expr) -> Expr:
        scale = widened(broadcast(scale_a, shape, at)) * widened(broadcast(op.input(k), shape, at))
        value = cast(total[at], scale.dtype) * scale
        return cast(value + widened(broadcast(op.input(bias), shape, at)) if op.has(bias) else value, dtype)

    return compute(shape, element, dtype, "scaled", inputs_fitting(op, (k, bias), shape))


def _integer_to_float(op: Operation) -> Tensor:
    return _scaled(op, _matrices(op, (0, 4), (1, 5)), op.input(2), 3, 6)


def _dynamic(op: Operation) -> Tensor:
    """The first operand is quantized as it comes."""
    codes, scale, zero = dynamic(op.input(0))
    columns = _shifted(op, op.input(1), 3, -1)
    total = product(codes, columns, op.shape(), SUMS, label(op), origin=cast(zero[()], SUMS))
    return _scaled(op, total, scale, 2, 4)


def _qgemm(op: Operation) -> Tensor:
    """The bias is in the scale of the product; without a scale for it the result is a float."""
    a, b, transpose = op.input(0), op.input(3), (bool(integer(op, "transA")), bool(integer(op, "transB")))
    rows, columns = _shifted(op, a, 2, -1 if transpose[0] else -2), _shifted(op, b, 5, -2 if transpose[1] else -1)
    total, dtype, alpha = (
        product(rows, columns, op.shape(), SUMS, label(op), transpose),
        op.dtype(),
        number(op, "alpha"),
    )

    def element(*at: Expr) -> Expr:
        scales = [_parameter(op, k, total.shape, at, -1) for k in (1, 4)]
        value: Expr = total[at]
        if op.has(6):
            value = value + broadcast(op.input(6), total.shape, at)
        result = cast(value, "float32") * (scales[0] * scales[1] * const(alpha, "float32"))
        if not op.has(7):
            return result
        zero = _parameter(op, 8, total.shape, at, -1) if op.has(8) else None
        return code(result, _parameter(op, 7, total.shape, at, -1), zero, dtype)

    return compute(total.shape, element, dtype, "quantized", inputs_fitting(op, (6,), total.shape))


# -- weights of a few bits


def _packed(op: Operation) -> Tensor:
    """A product with weights [N, blocks, bytes] of a few bits each, the lowest of a byte first."""
    a, b, bits, block = op.input(0), op.input(1), integer(op, "bits"), integer(op, "block_size")
    n, k, inner = integer(op, "N"), integer(op, "K"), wide(op.dtype())
    if op.has(4) or bits not in (2, 4, 8) or b.rank != 3:
        raise NotLowered(f"{op.op} with weights that are reordered, or not of 2, 4 or 8 bits in blocks")
    if op.has(3) and op.input(3).dtype != "uint8":
        raise NotLowered(f"{op.op} with zero points that are not packed")
    many, blocks, given = 8 // bits, -(-k // block), [1, 2, *([3] if op.has(3) else [])]
    is_known = op.is_for_host and all(op.constant(position) is not None for position in given)

    def vector(position: int, j: Expr, group: Expr, length: int) -> Expr:
        """An element of an input that may be flat: [N, length] or [N * length]."""
        tensor = op.input(position)
        return tensor[j, group] if tensor.rank == 2 else tensor[j * length + group]

    # of weights that are known, columns lie side by side, to be read in vectors
    zeros_length = -(-blocks // many)
    codes = compute((Const(blocks), b.shape[2], Const(n)), lambda g, q, j: b[j, g, q], b.dtype, "codes", (), is_known)
    scales = compute(
        (Const(blocks), Const(n)), lambda g, j: cast(vector(2, j, g, blocks), inner), inner, "scales", (), is_known
    )

    def digit(byte: Expr, index: Expr) -> Expr:
        return apply("bitand", apply("shr", byte, cast(index % many * bits, "uint8")), const(2**bits - 1, "uint8"))

    def weight(group: Expr, byte: Expr, index: Expr, j: Expr) -> Expr:
        zero: Expr = const(2 ** (bits - 1), inner)
        if op.has(3):
            zero = cast(digit(vector(3, j, group // many, zeros_length), group), inner)
        return (cast(digit(codes[group, byte, j], index), inner) - zero) * scales[group, j]

    def element(*at: Expr) -> tensors.ReduceStage:
        """Weights become floats where they are needed."""
        group, byte = tensors.reduce_axis(blocks), tensors.reduce_axis(block // many)
        place = group.var * block + byte.var * many
        digits = [
            cast(widened(a[(*at[:-1], place + h)]), inner) * weight(group.var, byte.var, Const(h), at[-1])
            for h in range(many)
        ]
        return tensors.sum(reduce(lambda x, y: x + y, digits), group, byte)

    if is_known and k == blocks * block and _is_short(a.shape[:-1]):
        fit = required(equal(a.shape[-1], k), f"{op.op}: rows are not as long as columns of weights")
        total = compute(op.shape(), element, name=label(op), requirements=fit)
    else:
        weights = compute(
            (Const(k), Const(n)), lambda i, j: weight(i // block, i % block // many, i % block, j), inner, "weights"
        )
        total = product(a, weights, op.shape(), op.dtype(), label(op))
    if not op.has(5):
        return rounded(total, op.dtype())
    bias = op.input(5)
    return compute(total.shape, lambda *at: cast(total[at] + widened(bias[at[-1]]), op.dtype()), op.dtype(), "biased")


def _is_short(rows: Sequence[Expr]) -> bool:
    """Whether there may be so few rows that weights are better read packed for each."""
    return prod(int(n.value) if isinstance(n, Const) else 1 for n in rows) <= ROWS


TABLE: LoweringTable = {
    "ConvInteger": lambda op: _images(op, (0, 2), (1, 3)),
    "MatMulInteger": lambda op: _matrices(op, (0, 2), (1, 3)),
    "QLinearConv": lambda op: _quantized(op, _images(op, (0, 2), (3, 5)), (1, 4), 1, 6, 8),
    "QLinearMatMul": _qlinear_matmul,
    DOMAIN + "DynamicQuantizeMatMul": _dynamic,
    DOMAIN + "MatMulIntegerToFloat": _integer_to_float,
    DOMAIN + "MatMulNBits": _packed,
    DOMAIN + "QGemm": _qgemm,
}
