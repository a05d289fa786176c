"""Shape arithmetic: the elements of small integer tensors, as sizes with symbols in them.

Only tensors of rank 0 or 1 are followed. Truth values are followed as 0 and 1. A function gives the
elements of the outputs, or None where they cannot be said; it never says what overflows the dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import add, mul, sub
from typing import TypeAlias

from graphopt.ir.call import OpCall
from graphopt.ir.constants import Constant
from graphopt.ir.infer_indexing import shape_range
from graphopt.ir.infer_shapes import axis_of, product
from graphopt.ir.infer_views import slice_parts
from graphopt.ir.types import Size, TensorType, is_size, minimum

KnownElements: TypeAlias = "tuple[Size, ...] | None"

MOST = 256
"""Tensors with more elements are not followed."""

RANGES: dict[str, tuple[int, int]] = {
    "bool": (0, 1),
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}
"""The integers that a dtype holds."""


def elements_of(constant: Constant) -> KnownElements:
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
    if not isinstance(kind, TensorType) or kind.dtype not in RANGES or not isinstance(kind.shape, tuple):
        return None
    total = product(kind.shape)
    return total if len(kind.shape) <= 1 and isinstance(total, int) and total <= MOST else None


def _fitting(elements: KnownElements, count: int | None, kind: object) -> KnownElements:
    """The elements, where they are as many as the type says and fit the dtype."""
    if elements is None or count != len(elements):
        return None
    low, high = RANGES[kind.dtype]  # type: ignore[attr-defined]
    return elements if all(low <= e <= high for e in elements if isinstance(e, int)) else None


# -- pointwise


def _pointwise(function: Callable[..., Size | None]) -> Callable[[OpCall], KnownElements]:
    def apply(call: OpCall) -> KnownElements:
        columns = [call.elements(i) for i in range(len(call.inputs))]
        if any(c is None for c in columns):
            return None
        return _map(call, function, [c for c in columns if c is not None])

    return apply


def _map(call: OpCall, function: Callable[..., Size | None], columns: list[tuple[Size, ...]]) -> KnownElements:
    """A function applied element by element; what it cannot say is a number of its own, unless that is everything."""
    lengths = {len(c) for c in columns} - {1}
    if len(lengths) > 1:
        return None
    length = lengths.pop() if lengths else 1
    mapped = [function(*row) for row in zip(*(c * length if len(c) == 1 else c for c in columns), strict=True)]
    if all(f is None for f in mapped):
        return None if mapped else ()
    return tuple(call.number_of_its_own(i) if f is None else f for i, f in enumerate(mapped))


def _divide(a: Size, b: Size) -> Size | None:
    """Integer division, which rounds towards zero."""
    if isinstance(a, int) and isinstance(b, int):
        return None if b == 0 else a // b if (a >= 0) == (b >= 0) else -(-a // b)
    if b == 1:
        return a
    return a // b if b != 0 and is_size(a) and is_size(b) else None


def _modulo(a: Size, b: Size) -> Size | None:
    if isinstance(a, int) and isinstance(b, int) and (a < 0 or b <= 0):
        return None
    return a - b * (a // b) if b != 0 and is_size(a) and is_size(b) else None


def _least(*sizes: Size) -> Size | None:
    least = minimum(*sizes)
    return least if least in sizes or all(map(is_size, sizes)) else None


def _greatest(*sizes: Size) -> Size | None:
    return next((s for s in sizes if all(is_size(s - other) for other in sizes)), None)


def _less(a: Size, b: Size) -> Size | None:
    return 1 if is_size(b - a - 1) else 0 if is_size(a - b) else None


def _less_or_equal(a: Size, b: Size) -> Size | None:
    return 1 if is_size(b - a) else 0 if is_size(a - b - 1) else None


def _equal(a: Size, b: Size) -> Size | None:
    return 1 if a == b else 0 if is_size(a - b - 1) or is_size(b - a - 1) else None


def _truth(a: Size) -> Size | None:
    return _not(is_zero) if (is_zero := _equal(a, 0)) is not None else None


def _not(a: Size) -> Size | None:
    return 1 - a if isinstance(a, int) else None


def _and(a: Size, b: Size) -> Size | None:
    return 0 if 0 in (a, b) else 1 if a == b == 1 else None


def _or(a: Size, b: Size) -> Size | None:
    return 1 if 1 in (a, b) else 0 if a == b == 0 else None


def _choose(condition: Size, a: Size, b: Size) -> Size | None:
    return a if condition == 1 or a == b else b if condition == 0 else None


def _clip(call: OpCall) -> KnownElements:
    elements = call.elements(0)
    for index, bound in ((1, _greatest), (2, _least)):
        limit = call.elements(index)
        if elements is None or (call.has(index) and limit is None):
            return None
        elements = _map(call, bound, [elements, limit]) if limit is not None else elements
    return elements


def _cast(call: OpCall) -> KnownElements:
    elements = call.elements(0)
    target = call.out_dtype() if call.op == "CastLike" else None
    if elements is not None and (call.integer("to") == 9 or target == "bool"):
        return _map(call, _truth, [elements])
    return elements


# -- movement


def _first(call: OpCall) -> KnownElements:
    return call.elements(0)


def _shape(call: OpCall) -> KnownElements:
    shape = call.shape(0)
    return None if shape is None else shape[shape_range(call)]


def _size(call: OpCall) -> KnownElements:
    shape = call.shape(0)
    return None if shape is None else (product(shape),)


def _gather(call: OpCall) -> KnownElements:
    data, indices = call.elements(0), call.elements(1)
    if data is None or indices is None or not all(isinstance(i, int) for i in indices):
        return None
    if any(not -len(data) <= i < len(data) for i in indices if isinstance(i, int)):
        raise ValueError(f"an index in {list(indices)} is out of range for {len(data)} elements")
    return tuple(data[i] for i in indices if isinstance(i, int))


def _concat(call: OpCall) -> KnownElements:
    parts = [call.elements(i) for i in range(len(call.inputs))]
    return None if any(p is None for p in parts) else tuple(e for p in parts if p is not None for e in p)


def _slice(call: OpCall) -> KnownElements:
    data = call.elements(0)
    parts = slice_parts(call, 1) if data is not None else None
    if data is None or parts is None:
        return None
    for _, start, end, step in parts:
        if not isinstance(start, int) or not isinstance(end, int):
            return None
        data = data[slice(*slice(start, end, step).indices(len(data)))] if end > -(2**62) else data[start::step]
    return data


def _split(call: OpCall) -> list[KnownElements]:
    data, sizes = call.elements(0), call.elements(1)
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
    data, by = call.elements(0), call.elements(1)
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
    element = elements_of(value) if isinstance(value, Constant) else None
    if sizes is None or element is None or len(sizes) > 1 or not all(isinstance(s, int) and s <= MOST for s in sizes):
        return None
    count = sizes[0] if sizes else 1
    return element * count if isinstance(count, int) else None


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
    "Abs": _pointwise(lambda a: a if is_size(a) else -a if is_size(-a) else None),
    "Add": _pointwise(add),
    "And": _pointwise(_and),
    "Cast": _cast,
    "CastLike": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Div": _pointwise(_divide),
    "Equal": _pointwise(_equal),
    "Expand": _repeat,
    "Flatten": _first,
    "Gather": _gather,
    "GatherElements": _gather,
    "Greater": _pointwise(lambda a, b: _less(b, a)),
    "GreaterOrEqual": _pointwise(lambda a, b: _less_or_equal(b, a)),
    "Identity": _first,
    "Less": _pointwise(_less),
    "LessOrEqual": _pointwise(_less_or_equal),
    "Max": _pointwise(_greatest),
    "Min": _pointwise(_least),
    "Mod": _pointwise(_modulo),
    "Mul": _pointwise(mul),
    "Neg": _pointwise(lambda a: -a),
    "Not": _pointwise(_not),
    "Or": _pointwise(_or),
    "Range": _range,
    "ReduceMax": _reduce(_greatest),
    "ReduceMin": _reduce(_least),
    "ReduceProd": _reduce(lambda *data: product(data)),
    "ReduceSum": _reduce(lambda *data: sum(data)),
    "Reshape": _first,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _first,
    "Sub": _pointwise(sub),
    "Sum": _pointwise(lambda *data: sum(data)),
    "Tile": _repeat,
    "Unsqueeze": _first,
    "Where": _pointwise(_choose),
}
