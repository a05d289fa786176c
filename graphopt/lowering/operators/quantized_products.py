"""Quantized matrix multiply and convolution: sums of integer products, rescaled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from graphopt.ir.contrib_quantized import LARGEST, is_in_bytes
from graphopt.kernels.product_form import FLOATS, IN_WORD, NIBBLE, QUAD, panel
from graphopt.lowering.analysis.access_analysis import known_size, total_size
from graphopt.lowering.cpu.integer_products import columns_of
from graphopt.lowering.cpu.library_dispatch import OPEN, READ
from graphopt.lowering.cpu.tiled_calls import OF_BYTES, wanted
from graphopt.lowering.intrinsics.block_quantized import PRODUCT
from graphopt.lowering.loops import compute as tensors
from graphopt.lowering.loops.compute import Requirement, Tensor, compute
from graphopt.lowering.loops.expressions import Const, Expr, apply, cast, const, equal, maximum, minimum, select
from graphopt.lowering.loops.nest import Buffer, BufferRegion, For, Invoke, Range, Stmt, Store, seq
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
from graphopt.lowering.operators.indices import relocated
from graphopt.lowering.operators.integer_convolutions import ONE, QuantizedOperand, convolved, fits, operand
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation
from graphopt.lowering.operators.products import product, rounded
from graphopt.lowering.operators.quantized import DOMAIN, code, dynamic

SUMS = "int32"
"""The dtype of sums of products of bytes."""
EXACT = (1 << 24) // 255**2
"""Products of bytes, each counted from its zero point, whose sums float32 holds exactly; it multiplies faster."""
WORD, WORD_BYTES = "uint32", 4
ROWS = 8
"""Rows that share weights of a few bits in registers; for more, weights become floats first,"""
OPEN_ROWS = 2
"""as they do for more than so many where it is not known how many they are, and each row makes them anew."""

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


def _shifted(op: Operation, x: Tensor, zero: int, axis: int, dtype: str = SUMS) -> Tensor:
    """The integers counted from their zero point, which stands at ``zero``."""

    def element(*at: Expr) -> Expr:
        value = cast(x[at], dtype)
        return value - cast(_parameter(op, zero, x.shape, at, axis), dtype) if op.has(zero) else value

    along = x.shape[axis : axis + 1 or None] if op.has(zero) and op.input(zero).rank == 1 else x.shape
    fits = inputs_fitting(op, (zero,), along)
    return compute(x.shape, element, dtype, "shifted", fits, is_stored=dtype != SUMS)


def _matrices(op: Operation, a: tuple[int, int], b: tuple[int, int]) -> Tensor:
    """The product of two operands, each given by where it and its zero point stand."""
    (x, zero_x), (y, zero_y) = a, b
    rows = _shifted(op, op.input(x), zero_x, -2 if op.input(x).rank > 1 else -1)
    columns = _shifted(op, op.input(y), zero_y, -1)
    return product(rows, columns, op.shape(), SUMS, label(op))


def _images(op: Operation, x: tuple[int, int], w: tuple[int, int]) -> Tensor:
    """The convolution of two operands, each given by where it and its zero point stand. Padding stands for 0."""
    image, weights = x[0], w[0]
    if fits(op, op.input(image), op.input(weights)):
        return convolved(op, _counted(op, *x), _counted(op, *w, op.input(weights).shape[0]))
    window = known_size(op.input(weights).shape[1:])
    is_exact = op.is_for_host and window is not None and window <= EXACT
    dtype = "float32" if is_exact else SUMS
    counted = (_shifted(op, op.input(k), zero, 0, dtype) for k, zero in (x, w))
    total = convolution(op, *counted)
    return compute(total.shape, lambda *at: cast(total[at], SUMS), SUMS, label(op)) if is_exact else total


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
    k, inner = integer(op, "K"), wide(op.dtype())
    if op.has(4) or bits not in (2, 4, 8) or b.rank != 3:
        raise NotLowered(f"{op.op} with weights that are reordered, or not of 2, 4 or 8 bits in blocks")
    if op.has(3) and op.input(3).dtype != "uint8":
        raise NotLowered(f"{op.op} with zero points that are not packed")
    weights = _PackedWeights(op, inner)
    fit = required(equal(a.shape[-1], k), f"{op.op}: rows are not as long as columns of weights")
    if op.is_for_host and is_in_bytes(op.attrs):
        quantized = _QuantizedRows(op, fit)
        if weights.is_known and bits in (NIBBLE, 2 * NIBBLE):
            return _finished(op, _in_bytes(op, quantized, weights))
        a = quantized.as_floats(a.shape)

    def few(*at: Expr) -> tensors.ReduceStage:
        """Weights become floats where they are needed."""
        group, word = tensors.reduce_axis(weights.blocks), tensors.reduce_axis(block // weights.many)
        place = group.var * block + word.var * weights.many
        values = [cast(widened(a[(*at[:-1], place + h)]), inner) for h in range(weights.many)]
        return tensors.sum(weights.times(values, *weights.place(at[-1]), group.var, word.var), group, word)

    def element(*at: Expr) -> tensors.ReduceStage:
        step = tensors.reduce_axis(k)
        p, lane = weights.place(at[-1])
        return tensors.sum(cast(widened(a[(*at[:-1], step.var)]), inner) * floats[p, step.var, lane], step)

    floats = compute((weights.panels, Const(k), Const(weights.width)), weights.number, inner, "weights")
    shape, rows = op.shape(), total_size(a.shape[:-1])
    if not weights.is_known or k != weights.blocks * block or (isinstance(rows, Const) and rows.value > ROWS):
        total = compute(shape, element, name=label(op), requirements=fit)
    elif isinstance(rows, Const) or a.rank == 1:
        total = compute(shape, few, name=label(op), requirements=fit)
    else:  # loop versioning: of both ways, the one that is not taken has no rows
        is_few = minimum(maximum(OPEN_ROWS + 1 - rows, 0), 1)
        short = compute((shape[0] * is_few, *shape[1:]), few, name="few", requirements=fit)
        tall = compute((shape[0] * (1 - is_few), *shape[1:]), element, name=label(op), requirements=fit)
        total = compute(shape, lambda *at: select(rows <= OPEN_ROWS, short[at], tall[at]), name=label(op))
    return _finished(op, total)


def _finished(op: Operation, total: Tensor) -> Tensor:
    """The sums with the bias, in the op's own dtype and shape; they may be those of all rows one after another."""
    shape, bias = op.shape(), op.input(5) if op.has(5) else None
    if bias is None and total.shape == shape:
        return rounded(total, op.dtype())

    def element(*at: Expr) -> Expr:
        value: Expr = total[relocated(total.shape, shape, at)]
        return cast(value if bias is None else value + widened(bias[at[-1]]), op.dtype())

    return compute(shape, element, op.dtype(), "biased")


class _QuantizedRows:
    """The rows of a product at ``accuracy_level`` 4, one after another, as bytes in the blocks of its weights."""

    def __init__(self, op: Operation, fit: Sequence[Requirement]) -> None:
        a, k, block = op.input(0), integer(op, "K"), integer(op, "block_size")
        self.lead, self.block = a.shape[:-1], block
        self.rows, self.blocks = total_size(self.lead), Const(-(-k // block))
        shape, largest_code = (self.rows, self.blocks), const(float(LARGEST), "float32")

        def value(r: Expr, group: Expr, p: Expr) -> Expr:
            i = group * block + p
            at = (*relocated(self.lead, (self.rows,), (r,)), minimum(i, k - 1) if k % block else i)
            element = cast(widened(a[at]), "float32")
            return select(i < k, element, const(0.0, "float32")) if k % block else element

        def most(r: Expr, group: Expr) -> tensors.ReduceStage:
            p = tensors.reduce_axis(block)
            return tensors.max(apply("abs", value(r, group, p.var)), p)

        def inverse(r: Expr, group: Expr) -> Expr:
            return select(equal(largest[r, group], 0.0), const(0.0, "float32"), largest_code / largest[r, group])

        def quantized(r: Expr, group: Expr, p: Expr) -> Expr:
            return apply("saturate", apply("round", value(r, group, p) * inverses[r, group]), dtype="int8")

        def total(r: Expr, group: Expr) -> tensors.ReduceStage:
            p = tensors.reduce_axis(block)
            return tensors.sum(cast(self.codes[r, group, p.var], SUMS), p)

        largest = compute(shape, most, "float32", "largest", fit)
        inverses = compute(shape, inverse, "float32", "inverses")
        self.scales = compute(shape, lambda *at: largest[at] / largest_code, "float32", "steps")
        self.codes = compute((*shape, Const(block)), quantized, "int8", "quantized")
        self.sums = compute(shape, total, SUMS, "sums")

    def as_floats(self, shape: Sequence[Expr]) -> Tensor:
        """What the bytes stand for, in the shape of the operand."""

        def element(*at: Expr) -> Expr:
            r, group = relocated((self.rows,), self.lead, at[:-1])[0], at[-1] // self.block
            return cast(self.codes[r, group, at[-1] % self.block], "float32") * self.scales[r, group]

        return compute(shape, element, "float32", "rounded")


def _in_bytes(op: Operation, rows: _QuantizedRows, weights: _PackedWeights) -> Tensor:
    """All rows one after another, times weights of 4 or 8 bits that are known."""
    m, blocks, n, zeros = rows.rows, rows.blocks, weights.n, weights.zero_codes
    words = weights.quads() if weights.bits == NIBBLE else weights.codes
    zero = Buffer("zero", (ONE,) * 3, "uint8", "local")
    known = int(m.value) if isinstance(m, Const) else OPEN
    width = columns_of(n, 1, wanted(max(known, READ) * n * integer(op, "K"), OF_BYTES), n)

    def region(buffer: Buffer, *ranges: Range) -> BufferRegion:
        return BufferRegion(buffer, (*ranges, *(Range(Const(0), size) for size in buffer.shape[len(ranges) :])))

    def piece(y: Buffer, first: Expr) -> Stmt:
        down, columns = Range(Const(0), m), Range(first, minimum(width, n - first))
        panels = Range(first // weights.width, (columns.extent + (weights.width - 1)) // weights.width)
        sides = [region(y, down, columns), *(region(x, down) for x in (rows.codes, rows.scales, rows.sums))]
        sides += [region(x, panels) for x in (words, weights.scales)]
        sides.append(region(zero) if zeros is None else region(zeros, panels))
        sizes = (m, columns.extent, blocks, Const(rows.block // weights.many), *sides[-1].buffer.shape)
        call = Invoke(PRODUCT.format(weights.bits), (*sides, *sizes))
        if zeros is not None:
            return call
        return seq(Store(zero, (Const(0),) * 3, const(2 ** (weights.bits - 1), "uint8")), call)

    def pieces(y: Buffer) -> Stmt:
        item = tensors.fresh()
        return For(item, Const(-(-n // width)), piece(y, item * width), "parallel")

    given = [rows.codes, rows.scales, rows.sums, words, weights.scales, *([] if zeros is None else [zeros])]
    outputs, scratch = [(label(op), (m, Const(n)), "float32")], [zero] if zeros is None else []
    return tensors.procedure(outputs, given, pieces, scratch, stores_once=True)[0]


class _PackedWeights:
    """Weights of a few bits. Those that are known lie in panels of neighbouring columns, as words of bits that belong
    to one column, to be read in vectors; others are read as they come, a byte at a time."""

    def __init__(self, op: Operation, inner: str) -> None:
        self.b, self.op, self.inner, self.bits = op.input(1), op, inner, integer(op, "bits")
        self.n, self.block = integer(op, "N"), integer(op, "block_size")
        self.blocks = -(-integer(op, "K") // self.block)
        given = [1, 2, *([3] if op.has(3) else [])]
        self.is_known = op.is_for_host and all(op.constant(position) is not None for position in given)
        self.unit, read = (WORD, WORD_BYTES) if self.is_known else ("uint8", 1)
        self.many = 8 * read // self.bits
        """Weights that are read at once."""
        self.width = panel(inner) if op.is_for_host and inner in FLOATS else self.n
        self.panels = Const(-(-self.n // self.width))
        kept, known = (self.panels, Const(self.blocks)), ((), self.is_known)

        def word(p: Expr, group: Expr, q: Expr, lane: Expr) -> Expr:
            parts = [cast(self.b[self.column(p, lane), group, q * read + h], self.unit) for h in range(read)]
            shifted = [apply("shl", part, const(8 * h, self.unit)) if h else part for h, part in enumerate(parts)]
            return reduce(lambda x, y: x | y, shifted)

        def scale(p: Expr, group: Expr, lane: Expr) -> Expr:
            return cast(self.parameter(2, self.column(p, lane), group, self.blocks), inner)

        def zero(p: Expr, group: Expr, lane: Expr) -> Expr:
            each = 8 // self.bits
            byte = self.parameter(3, self.column(p, lane), group // each, -(-self.blocks // each))
            return self.digit(byte, group % each)

        width, words = Const(self.width), Const(self.block // self.many)
        self.codes = compute((*kept, words, width), word, self.unit, "codes", *known)
        self.scales = compute((*kept, width), scale, inner, "scales", *known)
        self.zeros = self.zero_codes = None
        if op.has(3):
            self.zero_codes = compute((*kept, width), zero, "uint8", "zeros", *known)
            self.zeros = compute((*kept, width), lambda *at: cast(zero(*at), inner), inner, "zeros", *known)

    def quads(self) -> Tensor:
        """Of 4 bits: words of two quads, the first as the low nibbles of bytes."""

        def word(p: Expr, group: Expr, q: Expr, lane: Expr) -> Expr:
            column = self.column(p, lane)
            parts = [self.digit(self.b[column, group, q * WORD_BYTES + c // 2], Const(c % 2)) for c in range(IN_WORD)]
            places = [const(c % QUAD * 8 + c // QUAD * NIBBLE, WORD) for c in range(IN_WORD)]
            words = [apply("shl", cast(part, WORD), place) for part, place in zip(parts, places, strict=True)]
            return reduce(lambda x, y: x | y, words)

        shape = (self.panels, Const(self.blocks), Const(self.block // IN_WORD), Const(self.width))
        return compute(shape, word, WORD, "codes", (), self.is_known)

    def place(self, j: Expr) -> tuple[Expr, Expr]:
        """The panel of a column, and its place therein."""
        return j // self.width, j % self.width

    def column(self, p: Expr, lane: Expr) -> Expr:
        """The column at a place; beyond the last one, that one."""
        j = p * self.width + lane
        return minimum(j, self.n - 1) if self.n % self.width else j

    def parameter(self, k: int, j: Expr, group: Expr, length: int) -> Expr:
        """An element of an input that may be flat: [N, length] or [N * length]."""
        tensor = self.op.input(k)
        return tensor[j, group] if tensor.rank == 2 else tensor[j * length + group]

    def digit(self, word: Expr, index: Expr) -> Expr:
        """The bits of one weight, as a number without signs."""
        shifted = apply("shr", word, cast(index * self.bits, word.dtype))
        part = apply("bitand", shifted, const(2**self.bits - 1, word.dtype))
        # few processors make floats of large integers without signs
        return part if word.dtype == "uint8" else cast(part, SUMS)

    def zero(self, p: Expr, lane: Expr, group: Expr) -> Expr:
        """What weights of a block are counted from."""
        return const(2 ** (self.bits - 1), self.inner) if self.zeros is None else self.zeros[p, group, lane]

    def number(self, p: Expr, i: Expr, lane: Expr) -> Expr:
        """A weight as a float."""
        group, at = i // self.block, i % self.block
        code = self.digit(self.codes[p, group, at // self.many, lane], at % self.many)
        return (cast(code, self.inner) - self.zero(p, lane, group)) * self.scales[p, group, lane]

    def times(self, values: Sequence[Expr], p: Expr, lane: Expr, group: Expr, word: Expr) -> Expr:
        """The products with the weights of a word, summed up: scale and zero point are those of all, and come last."""
        code = self.codes[p, group, word, lane]
        codes = [cast(self.digit(code, Const(h)), self.inner) for h in range(self.many)]
        total = reduce(lambda x, y: x + y, (x * c for x, c in zip(values, codes, strict=True)))
        shift = reduce(lambda x, y: x + y, values) * self.zero(p, lane, group)
        return (total - shift) * self.scales[p, group, lane]


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
