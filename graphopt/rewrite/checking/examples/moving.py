"""Samplers of ops that move elements: views, slices, gathers, and shapes. The table in ``samplers`` names them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from graphopt.ir.constants import Constant
from graphopt.rewrite.checking.examples.computing import narrower
from graphopt.rewrite.checking.examples.sample import Misfit, Sample, StaticShape, Want, ints, normal


def transpose(s: Sample) -> list[Want]:
    """A tensor with its axes in another order."""
    rank = len(s.want.shape) if s.want.shape is not None else len(s.new_shape())
    default = tuple(reversed(range(rank)))
    perm = s.attr("perm", default, lambda: s.perm(rank)) or default
    shape = s.shape(len(perm))
    before = [0] * len(perm)
    for axis, source in enumerate(perm):
        before[source] = shape[axis]
    return [Want(tuple(before))]


def refactored(s: Sample, shape: StaticShape) -> StaticShape:
    """Another shape with as many elements."""
    if s.chance(0.25):
        return shape
    total = 1
    for n in shape:
        total *= n
    if total == 0:
        return shape
    sizes: list[int] = []
    while total > 1 and len(sizes) < 3:
        divisor = s.pick([d for d in range(1, total + 1) if total % d == 0])
        sizes.append(divisor)
        total //= divisor
    if total > 1 or s.chance(0.2):
        sizes.insert(s.number(0, len(sizes)), total)
    return tuple(sizes)


def reshape(s: Sample) -> list[Want]:
    """A tensor with as many elements, and the shape."""
    s.attr("allowzero", 0, lambda: 0)
    target = s.inputs[1].value if s.has(1) and s.inputs[1] is not None else None
    shape = s.shape() if target is None else tuple(n if n > 0 else s.size() for n in ints(target))
    ways = (in_two, in_two, in_two, in_groups, refactored, refactored, refactored)
    before = s.bound(0) or s.pick(ways if len(shape) == 4 else (in_two, *ways[2:], refactored))(s, shape)
    if s.bound(0) is not None and target is None and (shape != s.want.shape or prod(shape) != prod(before)):
        shape = refactored(s, before)
    written = [*shape]
    for i, n in enumerate(shape):
        if i < len(before) and before[i] == n and s.chance(0.2):
            written[i] = 0
    if written and 0 not in shape and s.chance(0.3):
        written[s.number(0, len(written) - 1)] = -1
    return [Want(before), Want((len(shape),), "int64", tuple(written))]


def in_two(s: Sample, shape: StaticShape) -> StaticShape:
    """The shape with one axis in two, mostly the second, as groups of heads or of channels are."""
    if not shape:
        return shape
    axis = 1 if len(shape) > 1 and s.chance(0.5) else s.number(0, len(shape) - 1)
    divisors = [n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0] or [1]
    part = s.pick(divisors)
    return (*shape[:axis], part, shape[axis] // part, *shape[axis + 1 :])


def in_groups(s: Sample, shape: StaticShape) -> StaticShape:
    """The shape with the channels in groups, each with all that belongs to it in one axis."""
    if len(shape) < 3 or 0 in shape:
        return shape
    groups = s.pick([n for n in range(1, shape[1] + 1) if shape[1] % n == 0])
    return (shape[0], groups, prod(shape[1:]) // groups)


def flatten(s: Sample) -> list[Want]:
    """A tensor of any rank that becomes a matrix."""
    shape = s.new_shape(None, 1) if s.want.shape is None or len(s.want.shape) != 2 else s.want.shape
    if s.want.shape is not None and len(s.want.shape) == 2 and s.chance(0.6):
        a, b = s.want.shape
        head, tail = ((a,), refactored(s, (b,))) if s.chance(0.5) else (refactored(s, (a,)), (b,))
        shape = head + tail
        axis = s.attr("axis", 1, lambda: len(head))
    else:
        axis = s.attr("axis", 1, lambda: s.number(-len(shape), len(shape)) if s.chance(0.5) else 1)
    return [Want(shape if axis <= len(shape) else (1, *shape))]


def squeeze(s: Sample) -> list[Want]:
    """A tensor with more axes of size one."""
    shape = s.shape()
    if not s.has(1):
        if s.chance(0.3) and 1 not in shape:
            return [Want(shape)]
        count = s.number(1, 2)
        axes: Sequence[int] = sorted(s.random.sample(range(len(shape) + count), count))
    else:
        count = s.number(0 if s.chance(0.2) else 1, 2)
        axes = ints(s.value(1, lambda: s.axes(len(shape) + count, count)[:count] if count else ()))
    rank = len(shape) + len(axes)
    ones = set(normal(axes, rank))
    if len(ones) < len(axes):
        raise Misfit("an axis twice")
    rest = iter(shape)
    before = tuple(1 if i in ones else next(rest) for i in range(rank))
    return [Want(before), Want((len(axes),), "int64", tuple(axes))][: len(s.inputs)]


def unsqueeze(s: Sample) -> list[Want]:
    """A tensor with fewer axes; the wanted axes of size one are those that are new, where there are some."""
    value = s.inputs[1].value if s.has(1) and s.inputs[1] is not None else None
    shape = s.shape()
    if value is None and s.chance(0.12):
        return [Want(shape), Want((0,), "int64", ())]
    ones = [i for i, n in enumerate(shape) if n == 1]
    if value is None and not ones:
        shape = s.new_shape(None, 1)
        ones = list(s.axes(len(shape)))
    axes = ints(value) if value is not None else tuple(s.random.sample(ones, s.number(1, min(2, len(ones)))))
    if any(not -len(shape) <= a < len(shape) for a in axes):
        shape = s.new_shape(max(max(axes) + 1, -min(axes)))
    gone = set(normal(axes, len(shape)))
    before = tuple(n for i, n in enumerate(shape) if i not in gone)
    return [Want(before), Want((len(axes),), "int64", tuple(sorted(axes)))]


def slice_(s: Sample) -> list[Want]:
    """A part of a larger tensor."""
    shape = s.bound(0) or s.shape(None, 1)
    rank = len(shape)
    axes = ints(s.value(3, lambda: s.axes(rank))) if s.has(3) else tuple(range(s.number(1, rank)))
    if s.bound(0) is None and max(axes, default=0) >= rank:
        shape = s.new_shape(max(axes) + 1)
        rank = len(shape)
    before, starts, ends, steps = list(shape), [], [], []
    for axis in normal(axes, rank):
        size = shape[axis]
        step = s.pick((1, 1, 2, -1)) if s.has(4) else 1
        if s.bound(0) is None:
            start, more = s.pick((0, 0, 1, 2)), s.pick((0, 0, 1, 2))
            if s.chance(0.25):
                start, more, step = 0, 0, 1
            before[axis] = start + (size - 1) * abs(step) + 1 + more if size else start + more
        else:
            start = s.number(0, size - 1) if size and s.chance(0.5) else 0
            more = s.number(0, max(size - start - 1, 0)) if s.chance(0.5) else 0
            size = max(size - start - more, 0)
        length = before[axis]
        if step > 0:
            end = min(start + (size - 1) * step + 1, length) if size else start
            if end >= length and s.chance(0.4):
                end = 2**63 - 1
            elif s.chance(0.2) and 0 < end < length:
                end -= length
                if s.chance(0.5):
                    start -= length
        else:
            start, end = length - 1 - start, max(length - 1 - start - (size - 1) * abs(step) - 1, -1)
            end = -(2**63) + 1 if end < 0 else end
        starts.append(start)
        ends.append(end)
        steps.append(step)
    n = (len(axes),)
    given = [tuple(starts), tuple(ends), tuple(axes), tuple(steps)]
    return [Want(tuple(before)), *(Want(n, "int64", v) for v in given)][: len(s.inputs)]


def concat(s: Sample) -> list[Want]:
    """Parts that lie one after another."""
    n = len(s.inputs)
    if isinstance(s.want.value, tuple) and s.want.value and len(s.want.value) >= n:
        cuts = [0, *sorted(s.random.sample(range(1, len(s.want.value)), n - 1)), len(s.want.value)]
        s.attr("axis", 0, lambda: 0)
        parts = [s.want.value[a:b] for a, b in pairwise(cuts)]
        return [Want((len(p),), "int64", p) for p in parts]
    shape = s.shape(None, 1)
    axis = s.attr("axis", 0, lambda: s.axis(len(shape)))
    if not -len(shape) <= axis < len(shape):
        shape = s.new_shape(abs(axis) + 1)
    wants = []
    is_whole = shape[axis] >= n and shape[axis] % n == 0 and s.chance(0.5)  # parts of what is wanted
    for _ in range(n):
        part = list(shape)
        part[axis] = shape[axis] // n if is_whole else s.pick((1, 1, 2, 3, 0) if s.chance(0.3) else (1, 1, 2))
        wants.append(Want(tuple(part)))
    return wants


def split(s: Sample) -> list[Want]:
    """A tensor that falls into parts."""
    shape = list(s.bound(0) or s.shape(None, 1))
    axis = s.attr("axis", 0, lambda: s.axis(len(shape)))
    if not -len(shape) <= axis < len(shape):
        raise Misfit("axis out of range")
    sizes = tuple(s.size() for _ in range(s.n_outputs))
    if s.has(1):
        sizes = ints(s.value(1, lambda: sizes))
        shape[axis] = sum(sizes)
    else:
        s.attr("num_outputs", None, lambda: s.n_outputs)
        shape[axis] = s.n_outputs * s.number(1, 2)
    return [Want(tuple(shape)), Want((len(sizes),), "int64", sizes)][: len(s.inputs)]


def pad(s: Sample) -> list[Want]:
    """A tensor, and how many elements are put around it."""
    shape = s.bound(0) or s.shape(None, 1)
    rank = len(shape)
    mode = s.attr("mode", "constant", lambda: s.pick(("constant", "constant", "edge")))
    axes = ints(s.value(3, lambda: s.axes(rank))) if s.has(3) else tuple(range(rank))
    spatial = s.chance(0.5) and rank > 2
    begin = [0 if (a % rank < 2 and spatial) else s.pick((0, 0, 1, 2)) for a in axes]
    end = [0 if (a % rank < 2 and spatial) else s.pick((0, 0, 1, 2)) for a in axes]
    if s.chance(0.25):
        begin, end = [0] * len(axes), [0] * len(axes)
    pads = ints(s.value(1, lambda: tuple(begin + end)))
    if mode != "constant" and 0 in shape:
        raise Misfit("an empty tensor has no edge")
    wants = [Want(shape), Want((len(pads),), "int64", pads), Want(()), Want((len(axes),), "int64", axes)]
    return wants[: len(s.inputs)]


def expand(s: Sample) -> list[Want]:
    """A tensor that is repeated to a shape."""
    shape = s.shape()
    if s.bound(0) is not None:
        shape = stretched(s, s.bound(0) or ())
    before = s.bound(0) or (shape if s.chance(0.3) else repeated(s, shape) if s.chance(0.3) else narrower(s, shape))
    written = tuple(
        1 if n == m and s.chance(0.2) else n
        for n, m in zip(shape, (0,) * (len(shape) - len(before)) + before, strict=True)
    )
    return [Want(before, low=s.want.low, high=s.want.high), Want((len(shape),), "int64", written)]


def stretched(s: Sample, shape: StaticShape) -> StaticShape:
    """The shape that is wanted, where it is this one but for axes of size one; else this one with one longer."""
    wanted = s.want.shape or ()
    more = len(wanted) - len(shape)
    if more >= 0 and all(n in (1, m) for n, m in zip(shape, wanted[more:], strict=True)):
        return wanted
    ones = [i for i, n in enumerate(shape) if n == 1]
    axis = s.pick(ones) if ones else None
    return tuple(s.size() if i == axis else n for i, n in enumerate(shape))


def repeated(s: Sample, shape: StaticShape) -> StaticShape:
    """A shape of which one axis is repeated to this one."""
    axis = s.number(0, max(len(shape) - 1, 0))
    return tuple(1 if i == axis else n for i, n in enumerate(shape))


def tile(s: Sample) -> list[Want]:
    """A tensor, and how often each axis is repeated."""
    shape = s.shape()
    if s.bound(0) is not None:
        before = s.bound(0) or ()
        repeats = tuple(m // n if n else 1 for n, m in zip(before, stretched(s, before)[-len(before) :], strict=True))
        return [Want(before), Want((len(before),), "int64", repeats)]
    repeats = tuple(1 if s.chance(0.5) else 2 for _ in shape)
    if s.chance(0.3):
        repeats = (1,) * len(shape)
    before = tuple(max(n // r, 1) for n, r in zip(shape, repeats, strict=True))
    return [Want(before), Want((len(shape),), "int64", repeats)]


def gather(s: Sample) -> list[Want]:
    """A tensor, and which of its slices are taken."""
    data = s.bound(0) or s.new_shape(None, 1)
    axis = s.attr("axis", 0, lambda: s.axis(len(data)))
    if not -len(data) <= axis < len(data):
        raise Misfit("axis out of range")
    size = data[axis]
    way = s.random.random()
    if size == 0:
        raise Misfit("nothing to gather")
    index: Any = s.number(0, size - 1)
    if way < 0.3:
        index = tuple(range(size))
    elif way < 0.5:
        start = s.number(0, size - 1)
        index = tuple(range(start, s.number(start, size - 1) + 1))
    elif way < 0.7:
        index = tuple(s.number(-size, size - 1) for _ in range(s.number(1, 3)))
    elif way < 0.8:
        index = ((0, size - 1),)
    elif way < 0.85:
        index = tuple(tuple(s.number(0, size - 1) for _ in range(4)) for _ in range(3))
    return [Want(data), Want(_shape_of(index), "int64", index, low=0, high=size - 1)]


def gather_nd(s: Sample) -> list[Want]:
    """A tensor, and the places of elements or slices."""
    data = s.bound(0) or s.new_shape(None, 1)
    s.attr("batch_dims", 0, lambda: 0)
    depth = 1 if s.chance(0.6) else s.number(1, len(data))
    index = tuple(tuple(s.number(0, data[d] - 1) for d in range(depth)) for _ in range(s.size()))
    return [Want(data), Want(_shape_of(index), "int64", index)]


def gather_elements(s: Sample) -> list[Want]:
    """A tensor, and an index for each element of the result."""
    data = s.bound(0) or s.new_shape(None, 1)
    axis = s.attr("axis", 0, lambda: s.axis(len(data)))
    if not -len(data) <= axis < len(data):
        raise Misfit("axis out of range")
    return [Want(data), Want(data, "int64", low=0, high=data[axis] - 1)]


def _shape_of(value: Any) -> StaticShape:
    return (len(value), *(_shape_of(value[0]) if value else ())) if isinstance(value, tuple) else ()


def one_hot(s: Sample) -> list[Want]:
    """Indices, how many classes there are, and the two values."""
    s.attr("axis", -1, lambda: -1)
    depth = s.size()
    shape = s.shape(None, 1)[:-1]
    values = Want((2,), value=(0.0, 1.0) if s.chance(0.7) else (-1.0, 2.0))
    return [Want(shape, "int64", low=0, high=depth - 1), Want((), "int64", depth), values]


def shape_of(s: Sample) -> list[Want]:
    """A tensor of which only the shape matters."""
    if isinstance(s.want.value, tuple):
        return [Want(s.want.value)]
    shape = s.new_shape()
    s.attr("start", 0, lambda: s.number(-len(shape), len(shape)))
    s.attr("end", None, lambda: s.pick((None, s.number(-len(shape), len(shape)))))
    return [Want(shape)]


def constant_of_shape(s: Sample) -> list[Want]:
    """A shape, and what is filled in: 0 as a float where nothing is said."""
    shape, dtype = s.shape(), s.want.dtype or "float32"
    if dtype != "float32" or s.chance(0.5):
        s.attr("value", None, lambda: Constant.of(np.array([s.pick((0, 1, 3))], dtype)))
    return [Want((len(shape),), "int64", shape)]


CROPPING = ("tf_crop_and_resize", "tf_half_pixel_for_nn")
"""Ways of resizing of which the first takes a part of the image, and no others are drawn where no guard names them."""


def resize(s: Sample) -> list[Want]:
    """An image that changes its size, mostly by whole factors; by others one long enough for places to differ."""
    rank = s.pick([4, *(n for n in s.ranks if n in (3, 5))])
    shape = s.shape(rank)
    interpolation = s.attr("mode", "nearest", lambda: s.pick(("nearest", "linear")))
    modes = ("half_pixel", "asymmetric", *(word for word in s.strings if word in CROPPING))
    mode = s.attr("coordinate_transformation_mode", "half_pixel", lambda: s.pick(modes))
    if interpolation == "cubic":
        s.attr("cubic_coeff_a", -0.75, lambda: s.pick((-0.75, -0.5)))
        s.attr("exclude_outside", 0, lambda: s.pick((0, 1)))
    factors: tuple[float, ...] = (1,) * rank
    if s.chance(0.6):
        factors = (1, 1, *(s.number(1, 2) for _ in shape[2:]))
    if s.chance(0.2):
        factors = (1, 1, *(s.pick((1.5, 2.5, 0.5, 1)) for _ in shape[3:]), 1.5)
        shape = (*shape[:2], *(s.number(4, 9) for _ in shape[2:]))
    target = tuple(int(n * f) for n, f in zip(shape, factors, strict=True))
    scales = Want((rank,), "float32", tuple(map(float, factors)))
    part = (*(0.0,) * (rank - 1), 0.1, *(1.0,) * (rank - 2), 0.5, 0.9) if mode == CROPPING[0] else ()
    return [Want(shape), Want((len(part),), "float32", part), scales, Want((rank,), "int64", target)][: len(s.inputs)]


def space(s: Sample) -> list[Want]:
    """An image whose blocks become channels, or the other way round."""
    block = s.attr("blocksize", 2, lambda: 2)
    if s.op == "DepthToSpace":
        s.attr("mode", "DCR", lambda: s.pick(("DCR", "CRD")))
        return [Want((1, block * block * s.number(1, 2), s.size(), s.size()))]
    return [Want((1, s.number(1, 2), block * s.size(), block * s.size()))]
