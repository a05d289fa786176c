"""Shape arithmetic: the elements of small integer tensors, as sizes with symbols in them.

Only tensors of rank 0 or 1 are followed. Truth values are followed as 0 and 1, and floats that are computed of sizes
as the functions that they are. A function gives the elements of the outputs, or None where they cannot be said; it
never says what overflows the dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add, mul, sub
from typing import TypeAlias

from graphopt.ir.call import FEW, OpCall
from graphopt.ir.constants import Constant
from graphopt.ir.dtypes import dtype_of
from graphopt.ir.infer_indexing import shape_range
from graphopt.ir.infer_shapes import axis_of, product
from graphopt.ir.infer_views import LONGEST, slice_parts
from graphopt.ir.types import MANTISSA, Real, Size, TensorType, is_size, maximum, minimum, real

KnownElements: TypeAlias = "tuple[Size | Real, ...] | None"

MOST = 256
"""Tensors with more elements are not followed."""

RANGES: dict[str, tuple[int, int]] = {
    "bool": (0, 1),
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}
"""The integers that a dtype holds."""


def elements_of(constant: Constant) -> tuple[Size, ...] | None:
    """The elements of a constant that is small enough and of integers."""
    if constant.dtype not in RANGES or len(constant.shape) > 1 or constant.size > MOST:
        return None
    return tuple(int(v) for v in constant.array.reshape(-1))


def infer_elements(call: OpCall, types: Sequence[object]) -> list[KnownElements]:
    """The elements of every output."""
    function = FOLLOWED.get(call.op)
    if function is None:
        return [None] * len(types)
    counts = [_count(t) for t in types]
    if all(c is None for c in counts):
        return [None] * len(types)
    result = function(call)
    outputs = result if isinstance(result, list) else [result]
    return [
        _fitting(elements, count, kind)
        for elements, count, kind in zip([*outputs, *[None] * len(types)], counts, types, strict=False)
    ]


def _count(kind: object) -> int | None:
    """How many elements are to be followed; None where the type is none that is."""
    if not isinstance(kind, TensorType) or not isinstance(kind.shape, tuple) or len(kind.shape) > 1:
        return None
    total, most = product(kind.shape), MOST if kind.dtype in RANGES else FEW if kind.dtype in MANTISSA else -1
    return total if isinstance(total, int) and total <= most else None


def _fitting(elements: KnownElements, count: int | None, kind: object) -> KnownElements:
    """The elements, where they are as many as the type says and fit the dtype."""
    if elements is None or count != len(elements) or not isinstance(kind, TensorType):
        return None
    if kind.dtype in MANTISSA:
        return elements if all(isinstance(e, Real) and e.dtype == kind.dtype for e in elements) else None
    low, high = RANGES[kind.dtype]
    return elements if all(low <= e <= high for e in elements if isinstance(e, int)) else None


# -- pointwise


def _pointwise(function: Callable[..., Size | None], of_reals: str = "") -> Callable[[OpCall], KnownElements]:
    """A function of sizes, which of reals is the one of that name."""

    def apply(call: OpCall) -> KnownElements:
        if any(f is None or (f.elements is None and f.reals is None and f.constant is None) for f in call.inputs):
            return None
        columns: list[tuple[Size | Real, ...]] = []
        for i in range(len(call.inputs)):
            column = call.numbers(i)
            if column is None:
                return None
            columns.append(column)
        return _map(call, partial(_of_either, function, of_reals), columns)

    return apply


def _of_either(function: Callable[..., Size | None], of_reals: str, *numbers: Size | Real) -> Size | Real | None:
    reals = [n for n in numbers if isinstance(n, Real)]
    if not reals:
        return function(*numbers)
    if not of_reals or len(reals) < len(numbers):
        return None
    if len(reals) == 1:
        return reals[0] if of_reals in ("max", "min") else real(of_reals, *reals)
    return reduce(partial(real, of_reals), reals)


def _map(
    call: OpCall, function: Callable[..., Size | Real | None], columns: Sequence[tuple[Size | Real, ...]]
) -> KnownElements:
    """A function applied element by element; what it cannot say is a number of its own, unless that is everything."""
    lengths = {len(c) for c in columns} - {1}
    if len(lengths) > 1:
        return None
    length = lengths.pop() if lengths else 1
    mapped = [function(*row) for row in zip(*(c * length if len(c) == 1 else c for c in columns), strict=True)]
    mapped = [None if not isinstance(f, int) and len(str(f)) > LONGEST else f for f in mapped]
    if all(f is None for f in mapped):
        return None if mapped else ()
    return tuple(call.number_of_its_own(i) if f is None else f for i, f in enumerate(mapped))


def _divide(a: Size, b: Size) -> Size | None:
    """Integer division, which rounds towards zero."""
    if isinstance(a, int) and isinstance(b, int):
        return None if b == 0 else a // b if (a >= 0) == (b >= 0) else -(-a // b)
    if b == 1:
        return a
    if b == 0 or not is_size(b):
        return None
    if is_size(a):
        return a // b
    return maximum(0, a) // b - maximum(0, -a) // b


def _modulo(call: OpCall) -> KnownElements:
    """What is left of a division that rounds down, or, as ``fmod`` says, towards zero."""
    is_towards_zero = bool(call.integer("fmod"))

    def left(a: Size, b: Size) -> Size | None:
        return a - b * (a // b) if b != 0 and is_size(b) and (is_size(a) or not is_towards_zero) else None

    return _pointwise(left)(call)


def _itself(a: Size) -> Size:
    return a


def _least(*sizes: Size) -> Size:
    return minimum(*sizes)


def _greatest(*sizes: Size) -> Size:
    return maximum(*sizes)


def _less(a: Size, b: Size) -> Size:
    return _less_or_equal(a + 1, b)


def _less_or_equal(a: Size, b: Size) -> Size:
    """Whether one whole number is at most another, as 1 or 0: ``min(1, max(0, b - a + 1))``."""
    if is_size(b - a):
        return 1
    return 0 if is_size(a - b - 1) else minimum(1, maximum(0, b - a + 1))


def _equal(a: Size, b: Size) -> Size:
    if a == b:
        return 1
    if is_size(a - b - 1) or is_size(b - a - 1):
        return 0
    return _less_or_equal(a, b) * _less_or_equal(b, a)


def _truth(a: Size) -> Size:
    return _not(_equal(a, 0))


def _not(a: Size) -> Size:
    return 1 - a


def _and(a: Size, b: Size) -> Size:
    return a * b


def _or(a: Size, b: Size) -> Size:
    return a + b - a * b


def _where(call: OpCall) -> KnownElements:
    condition, yes, no = call.elements(0), call.numbers(1), call.numbers(2)
    return None if condition is None or yes is None or no is None else _map(call, _choose, [condition, yes, no])


def _choose(condition: Size, a: Size | Real, b: Size | Real) -> Size | Real | None:
    if condition == 1 or a == b:
        return a
    if condition == 0:
        return b
    if isinstance(a, Real) or isinstance(b, Real):
        return None
    extreme = next((e for e in (minimum(a, b), maximum(a, b)) if _chooses(condition, e, a, b)), None)
    return condition * (a - b) + b if extreme is None else extreme


def _chooses(condition: Size, extreme: Size, a: Size, b: Size) -> bool:
    """Whether a condition takes that one of two numbers which is the less, or the greater."""
    takes_less = extreme == minimum(a, b)
    low, high = (a, b) if takes_less else (b, a)
    return condition in (_less(low, high), _less_or_equal(low, high))


def _clip(call: OpCall) -> KnownElements:
    elements = call.numbers(0)
    for index, bound, of_reals in ((1, _greatest, "max"), (2, _least, "min")):
        limit = call.numbers(index)
        if elements is None or (call.has(index) and limit is None):
            return None
        elements = elements if limit is None else _map(call, partial(_of_either, bound, of_reals), [elements, limit])
    return elements


def _cast(call: OpCall) -> KnownElements:
    """Whole numbers as floats and back, and truth values."""
    numbers = call.numbers(0)
    dtype = call.dtype(1) if call.op == "CastLike" else dtype_of(call.integer("to"))
    return None if numbers is None or dtype is None else _map(call, partial(_cast_to, dtype), [numbers])


def _cast_to(dtype: str, number: Size | Real) -> Size | Real | None:
    if dtype in MANTISSA:
        return number.cast(dtype) if isinstance(number, Real) else Real.of(number, dtype)
    if dtype not in RANGES:
        return None
    if isinstance(number, Real):
        return None if dtype == "bool" else number.truncated()
    return _truth(number) if dtype == "bool" else number


def _comparable(a: Size | Real, b: Size | Real) -> tuple[Size | None, Size | None]:
    """Whole numbers that compare as two numbers do."""
    if not isinstance(a, Real) and not isinstance(b, Real):
        return a, b
    if not isinstance(a, Real) or not isinstance(b, Real) or a.exact is None or b.exact is None:
        return None, None
    return a.exact[0] * b.exact[1], b.exact[0] * a.exact[1]


def _compared(function: Callable[[Size, Size], Size]) -> Callable[[OpCall], KnownElements]:
    """A comparison, of few numbers alone where it is not known: a mask has as many elements as it likes."""

    def compared(is_few: bool, a: Size | Real, b: Size | Real) -> Size | None:
        left, right = _comparable(a, b)
        if left is None or right is None:
            return None
        is_decided = left == right or any(map(is_size, (left - right, right - left)))
        return function(left, right) if is_few or is_decided else None

    def apply(call: OpCall) -> KnownElements:
        columns = [c for c in map(call.numbers, (0, 1)) if c is not None]
        is_few = max(map(len, columns), default=0) <= FEW
        return None if len(columns) < 2 else _map(call, partial(compared, is_few), columns)

    return apply


# -- movement


def _first(call: OpCall) -> KnownElements:
    return call.numbers(0)


def _shape(call: OpCall) -> KnownElements:
    shape = call.shape(0)
    return None if shape is None else shape[shape_range(call)]


def _size(call: OpCall) -> KnownElements:
    shape = call.shape(0)
    return None if shape is None else (product(shape),)


def _gather(call: OpCall) -> KnownElements:
    data, indices = call.numbers(0), call.elements(1)
    if data is None or indices is None or not all(isinstance(i, int) for i in indices):
        return None
    if any(not -len(data) <= i < len(data) for i in indices if isinstance(i, int)):
        raise ValueError(f"an index in {list(indices)} is out of range for {len(data)} elements")
    return tuple(data[i] for i in indices if isinstance(i, int))


def _concat(call: OpCall) -> KnownElements:
    parts = [call.numbers(i) for i in range(len(call.inputs))]
    return None if any(p is None for p in parts) else tuple(e for p in parts if p is not None for e in p)


def _slice(call: OpCall) -> KnownElements:
    data = call.numbers(0)
    parts = slice_parts(call, 1) if data is not None else None
    if data is None or parts is None:
        return None
    for _, start, end, step in parts:
        if not isinstance(start, int) or not isinstance(end, int):
            return None
        data = data[slice(*slice(start, end, step).indices(len(data)))] if end > -(2**62) else data[start::step]
    return data


def _split(call: OpCall) -> list[KnownElements]:
    data, sizes = call.numbers(0), call.elements(1)
    if data is None:
        return []
    if sizes is None:
        count = call.integer("num_outputs") or call.n_outputs
        part = -(-len(data) // count)
        sizes = (part,) * count
    parts: list[KnownElements] = []
    at = 0
    for size in sizes:
        if not isinstance(size, int):
            return parts
        parts.append(data[at : at + size])
        at += size
    return parts


def _repeat(call: OpCall) -> KnownElements:
    """Tile and Expand of one axis."""
    data, by = call.numbers(0), call.elements(1)
    if data is None or by is None or len(by) > 1 or not all(isinstance(n, int) for n in by):
        return None
    times = by[0] if by else 1
    if not isinstance(times, int) or times < 0 or times * len(data) > MOST:
        return None
    if call.op == "Tile":
        return data * times
    return data * times if len(data) == 1 else data


def _constant_of_shape(call: OpCall) -> KnownElements:
    sizes, value = call.elements(0), call.attrs.get("value")
    element = _known(value) if isinstance(value, Constant) else None
    if sizes is None or element is None or len(sizes) > 1 or not all(isinstance(s, int) and s <= MOST for s in sizes):
        return None
    count = sizes[0] if sizes else 1
    return element * count if isinstance(count, int) else None


def _known(constant: Constant) -> KnownElements:
    """The elements of a constant, of whole numbers or of one float."""
    if constant.dtype not in MANTISSA or constant.size != 1:
        return elements_of(constant)
    number = Real.constant(float(constant.array.reshape(())), constant.dtype)
    return None if number is None else (number,)


def _constant(call: OpCall) -> KnownElements:
    value = call.attrs.get("value")
    return elements_of(value) if isinstance(value, Constant) else None


def _range(call: OpCall) -> KnownElements:
    start, limit, delta = (call.element(i) for i in range(3))
    if start is None or limit is None or not isinstance(delta, int) or delta == 0:
        return None
    way = limit - start
    count = -(-way // delta) if isinstance(way, int) else None
    return tuple(start + i * delta for i in range(max(0, count))) if count is not None and count <= MOST else None


def _scatter(call: OpCall) -> KnownElements:
    data, indices, updates = (call.elements(i) for i in range(3))
    constant = call.constant(1)
    if indices is None and constant is not None and call.op == "ScatterND" and constant.shape[-1:] == (1,):
        indices = tuple(map(int, constant.array.reshape(-1))) if constant.size <= MOST else None
    if data is None or indices is None or updates is None or len(indices) != len(updates):
        return None
    if call.text("reduction") not in ("", "none") or not all(isinstance(i, int) for i in indices):
        return None
    elements = list(data)
    for index, update in zip(indices, updates, strict=True):
        elements[axis_of(int(index), len(elements))] = update  # type: ignore[arg-type]
    return tuple(elements)


# -- reductions


def _reduce(function: Callable[..., Size | None]) -> Callable[[OpCall], KnownElements]:
    def apply(call: OpCall) -> KnownElements:
        data, axes = call.elements(0), call.elements(1)
        if data is None or not data or len(call.shape(0) or ()) != 1 or (call.has(1) and axes is None):
            return None
        if not axes and call.integer("noop_with_empty_axes"):
            return data
        result = function(*data)
        return None if result is None else (result,)

    return apply


FOLLOWED: dict[str, Callable[[OpCall], KnownElements | list[KnownElements]]] = {
    "Abs": _pointwise(lambda a: a if is_size(a) else -a if is_size(-a) else None, "abs"),
    "Add": _pointwise(add, "add"),
    "And": _pointwise(_and),
    "Cast": _cast,
    "CastLike": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Div": _pointwise(_divide, "div"),
    "Ceil": _pointwise(_itself, "ceil"),
    "Equal": _compared(_equal),
    "Expand": _repeat,
    "Flatten": _first,
    "Floor": _pointwise(_itself, "floor"),
    "Gather": _gather,
    "GatherElements": _gather,
    "Greater": _compared(lambda a, b: _less(b, a)),
    "GreaterOrEqual": _compared(lambda a, b: _less_or_equal(b, a)),
    "Identity": _first,
    "Less": _compared(_less),
    "LessOrEqual": _compared(_less_or_equal),
    "Max": _pointwise(_greatest, "max"),
    "Min": _pointwise(_least, "min"),
    "Mod": _modulo,
    "Mul": _pointwise(mul, "mul"),
    "Neg": _pointwise(lambda a: -a, "neg"),
    "Not": _pointwise(_not),
    "Or": _pointwise(_or),
    "Range": _range,
    "ReduceMax": _reduce(_greatest),
    "ReduceMin": _reduce(_least),
    "ReduceProd": _reduce(lambda *data: product(data)),
    "ReduceSum": _reduce(lambda *data: sum(data)),
    "Reshape": _first,
    "Round": _pointwise(_itself, "round"),
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Sqrt": _pointwise(_itself, "sqrt"),
    "Squeeze": _first,
    "Sub": _pointwise(sub, "sub"),
    "Sum": _pointwise(lambda *data: sum(data)),
    "Tile": _repeat,
    "Unsqueeze": _first,
    "Where": _where,
}
