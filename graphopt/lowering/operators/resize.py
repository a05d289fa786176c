"""Resize: nearest, linear and cubic interpolation, with antialiasing.

One axis after another is resized, except for where few elements take part: nearest and linear need no tensor between.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial, reduce
from math import floor
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.ir.infer_products import common_scale
from graphopt.ir.types import Real, Size
from graphopt.ir.types import maximum as greatest
from graphopt.lowering.loops import compute as tensors
from graphopt.lowering.loops.compute import Tensor, compute, reduce_axis
from graphopt.lowering.loops.expressions import (
    INDEX,
    Const,
    Expr,
    apply,
    as_expr,
    cast,
    conjunction,
    const,
    equal,
    maximum,
    minimum,
    select,
)
from graphopt.lowering.operators.coordinates import (
    DOUBLE,
    Coordinate,
    ResizedAxis,
    cubic_far,
    cubic_near,
    cubic_weights,
    double,
)
from graphopt.lowering.operators.elements import integer, label, number, text, wide
from graphopt.lowering.operators.indices import clamped
from graphopt.lowering.operators.operation import LoweringTable, NotKnown, NotLowered, Operation

LARGE = 2**30
"""Fractions of numbers below this one can be multiplied by indices."""
Scale: TypeAlias = "tuple[Coordinate, tuple[Expr, Expr] | None]"
"""A scale as a number, and as a fraction where it is known to be one."""
FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})


@dataclass(frozen=True)
class Manner:
    """Interpolation settings: how elements are combined."""

    mode: str
    nearest: str
    cubic: float = -0.75
    excludes: bool = False
    antialias: bool = False
    beyond: float | None = None
    """What stands where the coordinate is outside of the input, if that counts."""

    def weights(self, part: Expr) -> list[Expr]:
        """Of the elements around a coordinate that lies ``part`` behind the middle one, from the first one on."""
        if self.mode == "linear":
            return [1.0 - part, part]
        return cubic_weights(part, self.cubic)


def resize(op: Operation) -> Tensor:
    """The input with other sizes."""
    transformation = text(op, "coordinate_transformation_mode")
    beyond = number(op, "extrapolation_value") if transformation == "tf_crop_and_resize" else None
    manner = Manner(
        text(op, "mode"),
        text(op, "nearest_mode"),
        number(op, "cubic_coeff_a"),
        bool(integer(op, "exclude_outside")),
        _antialias(op),
        beyond,
    )
    return _resized(op, _lines(op, transformation), manner)


def enlarge(op: Operation) -> Tensor:
    """The input enlarged, as opsets before 11 have it."""
    scales = op.known(1).reshape(-1).tolist()
    if text(op, "mode") != "nearest" or min(scales, default=1) < 1:
        raise NotLowered(f"{op.op} is told only for enlarging by the nearest element")
    x, shape = op.input(0), op.shape()
    lines = {
        k: ResizedAxis(x.shape[k], shape[k], float(s), "asymmetric", None, _ratio(s)) for k, s in enumerate(scales)
    }
    return _resized(op, lines, Manner("nearest", "floor"))


def _antialias(op: Operation) -> bool:
    return "@" not in op.op and bool(integer(op, "antialias"))


def _given(op: Operation, k: int) -> bool:
    """Whether an input is given and not empty (as old opsets leave one out)."""
    fact = op.facts[k] if k < len(op.facts) else None
    return op.has(k) and (fact is None or fact.size != 0)


def _lines(op: Operation, transformation: str) -> dict[int, ResizedAxis]:
    """The axes that are resized."""
    x, shape = op.input(0), op.shape()
    listed = None if "@" in op.op else op.attr("axes")
    axes = [int(a) % x.rank for a in listed] if isinstance(listed, tuple) else list(range(x.rank))  # type: ignore[arg-type]
    scales = _scales(op, axes)
    roi = _roi(op, axes) if transformation == "tf_crop_and_resize" else None
    lines = {}
    for k, axis in enumerate(axes):
        part = None if roi is None else (roi[k], roi[k + len(axes)])
        scale, ratio = scales[k]
        line = ResizedAxis(x.shape[axis], shape[axis], scale, transformation, part, ratio)
        if not line.is_kept:
            lines[axis] = line
    return lines


def _scales(op: Operation, axes: Sequence[int]) -> list[Scale]:
    x, shape = op.input(0), op.shape()
    if not _given(op, 3):
        reals = op.facts[2].reals if op.facts[2] is not None else None
        if reals:
            return [_computed(op, r) for r in reals]
        if op.constant(2) is None:
            return [(cast(op.input(2)[k], DOUBLE), None) for k in range(len(axes))]
        return [_number(s) for s in op.known(2).reshape(-1).tolist()]
    policy = "stretch" if "@" in op.op else text(op, "keep_aspect_ratio_policy")
    if policy in ("", "stretch"):
        return [_scale(x.shape[a], shape[a]) for a in axes]
    wanted = [_scale(x.shape[a], size) for size, a in zip(op.elements(3), axes, strict=True)]
    if all(isinstance(s, float) for s, _ in wanted):
        return [(min if policy == "not_larger" else max)(wanted, key=lambda scale: scale[0])] * len(axes)
    shapes, given = op.facts[0], op.facts[3]
    if shapes is None or shapes.shape is None or given is None or given.elements is None:
        raise NotKnown(op.op, 3)
    return [_computed(op, common_scale([shapes.shape[a] for a in axes], given.elements, policy))] * len(axes)


def _number(scale: float) -> Scale:
    return float(scale), _ratio(scale)


def _computed(op: Operation, number: Real) -> Scale:
    """A scale that the model computes of sizes: the quotient of two where it is one, as if it was never rounded."""
    if number.value is not None:
        return _number(number.value)
    if number.function in ("min", "max"):
        one, other = (_computed(op, part)[1] for part in number.arguments if isinstance(part, Real))
        if one is not None and other is not None:
            is_first = one[0] * other[1] <= other[0] * one[1]
            pairs = zip(one, other, strict=True)
            above, below = (select(is_first, *(p if number.function == "min" else p[::-1])) for p in pairs)
            return cast(above, DOUBLE) / cast(below, DOUBLE), (above, below)
    if number.fraction is not None:
        above, below = map(op.size, number.fraction)
        return cast(above, DOUBLE) / cast(below, DOUBLE), (above, below)
    return cast(op.size.real(number), DOUBLE), None


def _scale(size: Expr, count: Expr) -> Scale:
    if size == count:
        return 1.0, (Const(1), Const(1))
    return double(count) / double(size), (count, size)


def _ratio(scale: float) -> tuple[Expr, Expr] | None:
    """The number as a fraction, where whole numbers of the size of indices hold it."""
    exact = Fraction(scale)
    if scale <= 0 or max(exact.numerator, exact.denominator) >= LARGE:
        return None
    return Const(exact.numerator), Const(exact.denominator)


def _roi(op: Operation, axes: Sequence[int]) -> list[Coordinate]:
    if not _given(op, 1):
        raise NotLowered("Resize crops, and no part is given")
    constant, tensor = op.constant(1), op.input(1)
    if constant is not None:
        return [float(e) for e in constant.reshape(-1).tolist()]
    return [cast(tensor[k], DOUBLE) for k in range(2 * len(axes))]


def _resized(op: Operation, lines: dict[int, ResizedAxis], manner: Manner) -> Tensor:
    x, dtype = op.input(0), op.input(0).dtype
    if manner.mode == "nearest":
        return _nearest(op, lines, manner)
    if manner.mode not in ("linear", "cubic"):
        raise NotLowered(f"Resize has no mode {manner.mode}")
    if dtype == "bool":
        raise NotLowered(f"Resize does not say what {manner.mode} interpolation gives of booleans")
    inner = wide(dtype) if dtype in FLOATS else DOUBLE
    tensor = x
    smooth = {axis: line for axis, line in lines.items() if manner.antialias and _shrinks(line)}
    for axis, line in smooth.items():
        tensor = _antialiased(op, tensor, axis, line, manner, inner)
    rest = {axis: line for axis, line in lines.items() if axis not in smooth}
    if manner.mode == "linear" and rest:
        tensor = _linear(tensor, rest, manner, inner)
    else:
        for axis, line in rest.items():
            tensor = _cubic(tensor, axis, line, manner, inner)
    if tensor is not x and tensor.dtype == dtype:
        return tensor
    return compute(op.shape(), lambda *at: _stored(tensor[at], dtype), dtype, label(op))


def _stored(value: Expr, dtype: str) -> Expr:
    """The value as the output holds it: integers are rounded, and clipped."""
    if value.dtype == dtype:
        return value
    return (
        cast(value, dtype) if dtype in FLOATS else apply("saturate", apply("round", cast(value, DOUBLE)), dtype=dtype)
    )


def _nearest(op: Operation, lines: dict[int, ResizedAxis], manner: Manner) -> Tensor:
    """The nearest elements. Where these lie depends on one axis alone, and is computed once for all the others, but for
    where it is a quotient, or a multiple, of the index."""
    x = op.input(0)
    tables = {
        axis: compute((line.count,), partial(line.nearest, mode=manner.nearest), INDEX, "places", is_stored=True)
        for axis, line in lines.items()
        if not line.is_whole
    }

    def place(axis: int, index: Expr) -> Expr:
        if axis in tables:
            return tables[axis][index]
        return lines[axis].nearest(index, manner.nearest) if axis in lines else index

    def element(*at: Expr) -> Expr:
        return _unless_beyond(x[tuple(map(place, range(x.rank), at))], lines, at, manner)

    return compute(op.shape(), element, x.dtype, label(op))


def _unless_beyond(value: Expr, lines: dict[int, ResizedAxis], at: tuple[Expr, ...], manner: Manner) -> Expr:
    if manner.beyond is None:
        return value
    inside = conjunction(*(~line.is_outside(at[axis]) for axis, line in lines.items()))
    return select(inside, value, const(manner.beyond, value.dtype))


def _linear(x: Tensor, lines: dict[int, ResizedAxis], manner: Manner, dtype: str) -> Tensor:
    """Bilinear interpolation: the sum of the elements before and behind each coordinate, along all of the axes at once.

    Where these two lie, and what they weigh, depends on one axis alone, and is computed once for all the others.
    """
    tables = {}
    for axis, line in lines.items():

        def place(behind: Expr, i: Expr, line: ResizedAxis = line) -> Expr:
            return clamped(line.between(i, dtype)[0] + behind, line.size)

        def weight(behind: Expr, i: Expr, line: ResizedAxis = line) -> Expr:
            below, part = line.between(i, dtype)
            first, second = _weights(below, part, line, manner)
            return select(equal(behind, 0), first, second)

        size = (2, line.count)
        places = compute(size, place, INDEX, "places", is_stored=True)
        tables[axis] = places, compute(size, weight, dtype, "weights", is_stored=True)

    def along(where: tuple[Expr, ...], rest: list[int]) -> Expr:
        if not rest:
            return cast(x[where], dtype)
        axis, (places, weights) = rest[0], tables[rest[0]]
        before, behind = (
            along((*where[:axis], places[k, where[axis]], *where[axis + 1 :]), rest[1:]) * weights[k, where[axis]]
            for k in (Const(0), Const(1))
        )
        return before + behind

    def element(*at: Expr) -> Expr:
        return _unless_beyond(along(at, list(lines)), lines, at, manner)

    shape = [lines[k].count if k in lines else size for k, size in enumerate(x.shape)]
    return compute(shape, element, dtype, "resized")


def _cubic(x: Tensor, axis: int, line: ResizedAxis, manner: Manner, dtype: str) -> Tensor:
    """Cubic convolution: the sum of the four elements around each coordinate of one axis."""

    def element(*at: Expr) -> Expr:
        below, part = line.between(at[axis], dtype)
        weights = _weights(below, part, line, manner)
        terms = (
            cast(x[(*at[:axis], clamped(source, line.size), *at[axis + 1 :])], dtype) * weight
            for source, weight in zip(_places(below, len(weights)), weights, strict=True)
        )
        return _unless_beyond(reduce(lambda a, b: a + b, terms), {axis: line}, at, manner)

    return compute((*x.shape[:axis], line.count, *x.shape[axis + 1 :]), element, dtype, "resized")


def _places(below: Expr, count: int) -> list[Expr]:
    """The indices of the elements around a coordinate, of which half lie behind the one before it."""
    return [below + (k - count // 2 + 1) for k in range(count)]


def _weights(below: Expr, part: Expr, line: ResizedAxis, manner: Manner) -> list[Expr]:
    """The weights of these elements."""
    weights = manner.weights(part)
    return _within(weights, _places(below, len(weights)), line.size) if manner.excludes else weights


def _within(weights: list[Expr], places: list[Expr], size: Expr) -> list[Expr]:
    """The weights with those of places outside left out of the sum, which is 1 again."""
    kept = [select(conjunction(p >= 0, p < size), w, const(0, w.dtype)) for p, w in zip(places, weights, strict=True)]
    total = reduce(lambda a, b: a + b, kept)
    return [w / select(equal(total, 0.0), const(1, total.dtype), total) for w in kept]


# -- shrinking over all elements that fall together


def _at_most_two(distance: Expr, a: float) -> Expr:
    beyond = select(distance < 2.0, cubic_far(distance, a), const(0, distance.dtype))
    return select(distance <= 1.0, cubic_near(distance, a), beyond)


def _shrinks(line: ResizedAxis) -> bool:
    """Whether elements may fall together, as far as is known ahead of time."""
    return not isinstance(line.scale, float) or line.scale < 1


def _reach(op: Operation, axis: int, line: ResizedAxis, reach: int) -> tuple[Expr, Expr, Coordinate]:
    """Of the elements whose mean one of the output is: where the first lies, how many there are, and how much nearer
    they count than they lie. What is enlarged after all has those that it has without antialiasing."""
    if isinstance(line.scale, float):
        first = floor(-reach / line.scale) + 1
        return Const(first), Const(2 - 2 * first), line.scale
    given, made = op.facts[0], op.outputs[0]
    assert given is not None
    assert given.shape is not None
    assert made.shape is not None
    size, count = given.shape[axis], greatest(made.shape[axis], 1)
    half: Size = greatest((size * reach + count - 1) // count, reach)
    if line.ratio != (line.count, line.size):  # what is rounded to the count; one too many weighs nothing
        half = half + 1
    return 1 - op.size(half), op.size(half * 2), minimum(line.scale, const(1, DOUBLE))


def _antialiased(op: Operation, x: Tensor, axis: int, line: ResizedAxis, manner: Manner, dtype: str) -> Tensor:
    """One axis shrunk: each element is a weighted mean of all that lie as near as the distance of two of the output."""
    reach = 1 if manner.mode == "linear" else 2
    first, count, scale = _reach(op, axis, line, reach)

    def weight(index: Expr, tap: Expr) -> Expr:
        below, part = line.between(index, dtype)
        distance = apply("abs", (cast(tap + first, dtype) - part) * cast(as_expr(scale, DOUBLE), dtype))
        near = maximum(1.0 - distance, const(0, dtype)) if reach == 1 else _at_most_two(distance, manner.cubic)
        source = below + tap + first
        inside = conjunction(source >= 0, source < line.size)
        return select(inside, near, const(0, dtype)) if manner.excludes else near

    weights = compute((line.count, count), weight, dtype, "weights")
    over, along = reduce_axis(count), reduce_axis(count)
    totals = compute((line.count,), lambda i: tensors.sum(weights[i, over.var], over), dtype, "totals")

    def mean(*at: Expr) -> tensors.ReduceStage:
        below, _ = line.between(at[axis], dtype)
        source = clamped(below + along.var + first, line.size)
        value = cast(x[(*at[:axis], source, *at[axis + 1 :])], dtype)
        return tensors.sum(value * weights[at[axis], along.var], along)

    shape = (*x.shape[:axis], line.count, *x.shape[axis + 1 :])
    sums = compute(shape, mean, None, "sums")

    def element(*at: Expr) -> Expr:
        total = totals[at[axis]]
        value = sums[at] / select(equal(total, 0.0), const(1, dtype), total)
        return _unless_beyond(value, {axis: line}, at, manner)

    return compute(shape, element, dtype, "resized")


TABLE: LoweringTable = {"Resize": resize, "Resize@10": enlarge, "Resize@11": resize, "Upsample@9": enlarge}
