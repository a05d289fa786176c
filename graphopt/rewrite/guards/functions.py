"""Guard functions: all that guards and attribute expressions call by name.

They take and give numbers, strings, sizes (which may hold symbols) and tuples of them. A question
that symbols leave open raises ``Unknown``; wrong arguments raise ValueError or the like, and the
expression has no value. To add a function, write it and add its line to ``FUNCTIONS``; the first
line of its docstring is what the documentation shows. Functions for one family of ops stand in
that family's module.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from itertools import pairwise
from typing import Any, TypeAlias

from graphopt.ir.types import Dim, Size
from graphopt.ir.types import broadcast as broadcast_sizes
from graphopt.rewrite.guards import (
    attention,
    convolutions,
    einsums,
    indices,
    integers,
    magnitudes,
    merging,
    quantization,
    weights,
)
from graphopt.rewrite.guards.comparison import Unknown, all_hold, at_most, equal, same_size

Ints: TypeAlias = Sequence[int]
Sizes: TypeAlias = Sequence[Size]

LIMIT = 65536
"""Sequences and exponents beyond this are refused: rule files come from strangers."""

END = 2**63 - 1
"""What ONNX writes for the end of an axis."""


# -- arithmetic


def add(a: Any, b: Any) -> Any:
    """``a + b``: a sum, or one sequence after the other."""
    return (*a, *b) if isinstance(a, tuple) and isinstance(b, tuple) else a + b


def subtract(a: Any, b: Any) -> Any:
    """``a - b``."""
    return a - b


def multiply(a: Any, b: Any) -> Any:
    """``a * b``: a product, or a sequence repeated."""
    if isinstance(a, int) and isinstance(b, tuple | str):
        a, b = b, a
    if isinstance(a, tuple | str):
        _limit(len(a) * b)
    return a * b


def divide(a: Any, b: Any) -> Any:
    """``a / b``: of numbers."""
    return a / b


def floor_divide(a: Any, b: Any) -> Any:
    """``a // b``: rounded down."""
    return a // b


def remainder(a: Any, b: Any) -> Any:
    """``a % b``: what ``a // b`` leaves."""
    return a - (a // b) * b if isinstance(a, Dim) or isinstance(b, Dim) else a % b


def power(a: Any, b: Any) -> Any:
    """``a ** b``: of numbers."""
    if isinstance(a, int) and isinstance(b, int):
        _limit(max(abs(a).bit_length(), 1) * abs(b))
    return _real(a**b)


def negate(a: Any) -> Any:
    """``-a``."""
    return -a


def sqrt(x: float) -> float:
    """The square root."""
    return math.sqrt(x)


def exp(x: float) -> float:
    """e to a power."""
    return math.exp(x)


def log(x: float) -> float:
    """The natural logarithm."""
    return math.log(x)


def absolute(x: float) -> float:
    """The absolute value."""
    return abs(x)


def floor(x: float) -> int:
    """The integer at or below."""
    return math.floor(x)


def ceil(x: float) -> int:
    """The integer at or above."""
    return math.ceil(x)


def to_float(x: float) -> float:
    """The number as a float, so that a constant or attribute made of it is one."""
    return float(x)


def to_int(x: float) -> int:
    """The number as an int, where it is one."""
    if int(x) != x:
        raise ValueError(f"{x} is not an integer")
    return int(x)


def finite(x: Any) -> bool:
    """Whether a number, or every number of a value, is neither infinite nor NaN."""
    return all(map(finite, x)) if isinstance(x, tuple | list) else math.isfinite(x)


def near(x: float, y: float, tolerance: float = 1e-6) -> bool:
    """Whether two numbers agree up to a relative tolerance (1e-6 if not given)."""
    return math.isclose(x, y, rel_tol=tolerance)


def is_integer(x: Any) -> bool:
    """Whether a number, or every number of a value, is integral."""
    return all(map(is_integer, x)) if isinstance(x, tuple | list) else float(x).is_integer()


def _real(x: Any) -> Any:
    if isinstance(x, complex):
        raise ValueError("the result is not a real number")
    return x


def _limit(n: int) -> None:
    if n > LIMIT:
        raise ValueError(f"{n} is over the limit of {LIMIT}")


# -- sequences


def length(s: Sequence[Any]) -> int:
    """The number of elements of a sequence, or of values that a starred variable stands for."""
    return len(s)


def total(s: Sequence[Any]) -> Any:
    """The sum of a sequence."""
    result: Any = 0
    for x in s:
        result = result + x
    return result


def product(s: Sequence[Any]) -> Any:
    """The product of a sequence."""
    result: Any = 1
    for x in s:
        result = result * x
    return result


def smallest(*s: Any) -> Any:
    """The smallest of the arguments, or of one sequence."""
    return _extreme(s, at_most)


def largest(*s: Any) -> Any:
    """The largest of the arguments, or of one sequence."""
    return _extreme(s, lambda a, b: at_most(b, a))


def _extreme(s: tuple[Any, ...], before: Callable[[Any, Any], bool]) -> Any:
    items = s[0] if len(s) == 1 and isinstance(s[0], tuple | list) else s
    if not items:
        raise ValueError("an empty sequence has no extreme")
    extreme = items[0]
    for x in items[1:]:
        extreme = extreme if before(extreme, x) else x
    return extreme


def every(s: Sequence[Any]) -> bool:
    """Whether all elements are true."""
    return all(s)


def some(s: Sequence[Any]) -> bool:
    """Whether any element is true."""
    return any(s)


def same(s: Sequence[Any]) -> bool:
    """Whether all elements are equal to each other."""
    return all_hold(equal, ((s[0], x) for x in s[1:]))


def arange(*bounds: int) -> tuple[int, ...]:
    """Integers: ``range(stop)``, ``range(start, stop)`` or ``range(start, stop, step)``."""
    numbers = range(*bounds)
    _limit(len(numbers))
    return tuple(numbers)


def ordered(s: Sequence[Any]) -> tuple[Any, ...]:
    """The elements from smallest to largest."""
    return tuple(sorted(s))


def backwards(s: Sequence[Any]) -> tuple[Any, ...]:
    """The elements from last to first."""
    return tuple(reversed(s))


def unique(s: Sequence[Any]) -> tuple[Any, ...]:
    """The elements without repetitions, in order of first appearance."""
    return tuple(dict.fromkeys(s))


def position(s: Sequence[Any], x: Any) -> int:
    """The first position of an element in a sequence."""
    return next(i for i, y in enumerate(_present(s, x)) if equal(x, y))


def _present(s: Sequence[Any], x: Any) -> Sequence[Any]:
    if not any(equal(x, y) for y in s):
        raise ValueError(f"{x} is not in {tuple(s)}")
    return s


def count(s: Sequence[Any], x: Any) -> int:
    """The number of elements equal to ``x``."""
    return sum(equal(x, y) for y in s)


def pick(s: Sequence[Any], indices: Ints) -> tuple[Any, ...]:
    """The elements at these positions."""
    return tuple(s[i] for i in indices)


def drop(s: Sequence[Any], indices: Ints) -> tuple[Any, ...]:
    """The elements at all other positions."""
    gone = set(axes(indices, len(s)))
    return tuple(x for i, x in enumerate(s) if i not in gone)


def put(s: Sequence[Any], index: int, x: Any) -> tuple[Any, ...]:
    """The sequence with one element replaced."""
    axis_index = axis(index, len(s))
    return (*s[:axis_index], x, *s[axis_index + 1 :])


def fill(n: int, x: Any) -> tuple[Any, ...]:
    """``n`` times the same element."""
    _limit(n)
    return (x,) * n


def flat(x: Any) -> tuple[Any, ...]:
    """All numbers of a nested value, in order."""
    if not isinstance(x, tuple | list):
        return (x,)
    elements: list[Any] = []
    for part in x:
        elements += flat(part)
        _limit(len(elements))
    return tuple(elements)


def offsets(sizes: Sizes) -> tuple[Size, ...]:
    """Starts of several pieces that are laid end to end."""
    ends: list[Size] = [0]
    for size in sizes[:-1]:
        ends.append(ends[-1] + size)
    return tuple(ends) if sizes else ()


def consecutive(s: Ints) -> bool:
    """Whether each number is the one before plus 1."""
    return all(b == a + 1 for a, b in pairwise(s))


def plus(a: Any, b: Any) -> Any:
    """Element by element ``a + b``; a number goes with every element."""
    return _elementwise(operator.add, a, b)


def minus(a: Any, b: Any) -> Any:
    """Element by element ``a - b``; a number goes with every element."""
    return _elementwise(operator.sub, a, b)


def times(a: Any, b: Any) -> Any:
    """Element by element ``a * b``; a number goes with every element."""
    return _elementwise(operator.mul, a, b)


def over(a: Any, b: Any) -> Any:
    """Element by element ``a // b``; a number goes with every element."""
    return _elementwise(operator.floordiv, a, b)


def _elementwise(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return tuple(_elementwise(function, x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, tuple | list):
        return tuple(_elementwise(function, x, b) for x in a)
    if isinstance(b, tuple | list):
        return tuple(_elementwise(function, a, y) for y in b)
    return function(a, b)


# -- axes and permutations


def axis(k: int, rank: int) -> int:
    """The axis counted from the front: -1 is ``rank - 1``."""
    if not -rank <= k < rank:
        raise ValueError(f"axis {k} is out of range for rank {rank}")
    return k % rank


def axes(ks: Ints, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in the order given."""
    return tuple(axis(k, rank) for k in ks)


def other_axes(ks: Ints, rank: int) -> tuple[int, ...]:
    """The axes that are not among these."""
    gone = set(axes(ks, rank))
    return tuple(i for i in range(rank) if i not in gone)


def _permutation(p: Ints) -> tuple[int, ...]:
    if sorted(p) != list(range(len(p))):
        raise ValueError(f"{tuple(p)} is not a permutation")
    return tuple(p)


def compose(p: Ints, q: Ints) -> tuple[int, ...]:
    """The permutation of ``Transpose(perm=p)`` followed by ``Transpose(perm=q)``."""
    if len(p) != len(q):
        raise ValueError(f"{tuple(p)} and {tuple(q)} differ in length")
    return tuple(_permutation(p)[i] for i in _permutation(q))


def invert(p: Ints) -> tuple[int, ...]:
    """The permutation that undoes ``p``."""
    return tuple(_permutation(p).index(i) for i in range(len(p)))


def permute(s: Sequence[Any], p: Ints) -> tuple[Any, ...]:
    """A sequence by axis (a shape, say) as ``Transpose(perm=p)`` leaves it."""
    if len(s) != len(p):
        raise ValueError(f"{tuple(s)} and {tuple(p)} differ in length")
    return tuple(s[i] for i in _permutation(p))


def unpermute(s: Sequence[Any], p: Ints) -> tuple[Any, ...]:
    """A sequence by axis as it was before ``Transpose(perm=p)``."""
    return permute(s, invert(p))


def is_identity(p: Ints) -> bool:
    """Whether a permutation moves nothing."""
    return list(p) == list(range(len(p)))


def squeeze_perm(p: Ints, ks: Ints) -> tuple[int, ...]:
    """The permutation that is left when axes of the *input* are squeezed away."""
    gone = axes(ks, len(p))
    kept = [i for i in range(len(p)) if i not in gone]
    return tuple(kept.index(i) for i in _permutation(p) if i not in gone)


def unsqueeze_perm(p: Ints, ks: Ints) -> tuple[int, ...]:
    """The permutation, one rank up, that keeps new axes, inserted at these places on both sides, where they are."""
    rank = len(p) + len(ks)
    new = axes(ks, rank)
    old = [i for i in range(rank) if i not in new]
    rest = iter(_permutation(p))
    return tuple(i if i in new else old[next(rest)] for i in range(rank))


def moves_only_ones(shape: Sizes, p: Ints) -> bool:
    """Whether all axes but those of size 1 keep their order, so that the Transpose is a Reshape."""
    long = [i for i in _permutation(p) if shape[i] != 1]
    return long == sorted(long)


# -- shapes


def broadcast(*shapes: Sizes) -> tuple[Size, ...]:
    """The shape to which shapes broadcast together."""
    rank = max(map(len, shapes), default=0)
    aligned = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    return tuple(broadcast_sizes(*sizes) for sizes in zip(*aligned, strict=True))


def fits(shape: Sizes, into: Sizes) -> bool:
    """Whether broadcasting the first shape together with the second gives the second."""
    return len(shape) <= len(into) and all_hold(_fits_axis, zip(reversed(shape), reversed(into), strict=False))


def _fits_axis(a: Size, b: Size) -> bool:
    return a == 1 or same_size(a, b)


def known(shape: Sizes) -> bool:
    """Whether all sizes are integers: no symbols."""
    return all(isinstance(s, int) for s in shape)


def is_known(size: Size) -> bool:
    """Whether a size is an integer: no symbols."""
    return isinstance(size, int)


def squeeze(shape: Sizes, ks: Ints) -> tuple[Size, ...]:
    """The shape without these axes."""
    return drop(shape, ks)


def unsqueeze(shape: Sizes, ks: Ints) -> tuple[Size, ...]:
    """The shape with axes of size 1 at these places of the result."""
    rank = len(shape) + len(ks)
    new = axes(ks, rank)
    if len(set(new)) != len(new):
        raise ValueError(f"axes {tuple(ks)} repeat")
    rest = iter(shape)
    return tuple(1 if i in new else next(rest) for i in range(rank))


def ones(shape: Sizes) -> tuple[int, ...]:
    """The axes that are known to be of size 1."""
    return tuple(i for i, s in enumerate(shape) if s == 1)


def target(shape: Sizes) -> tuple[int, ...]:
    """The second input of a Reshape to this shape: integers, with -1 for the one size at most that has symbols."""
    open_axes = [i for i, s in enumerate(shape) if not isinstance(s, int)]
    if len(open_axes) > 1:
        raise Unknown(f"a Reshape to {_shape(shape)} cannot be written with constants: more than one size is unknown")
    if open_axes and 0 in shape:
        raise Unknown(f"a Reshape to {_shape(shape)} cannot be written with -1: the tensor is empty")
    return tuple(s if isinstance(s, int) else -1 for s in shape)


def target_from(shapes: tuple[Sizes, Sizes]) -> tuple[int, ...]:
    """The same from one shape to another: with 0 for sizes that have symbols where all of several stay in place."""
    before, shape = shapes
    open_axes = [i for i, s in enumerate(shape) if not isinstance(s, int)]
    if len(open_axes) < 2 or 0 in shape or any(shape[i : i + 1] != before[i : i + 1] for i in open_axes):
        return target(shape)  # not both: of nothing, -1 stands for no size
    return tuple(s if isinstance(s, int) else 0 for s in shape)


def _shape(shape: Sizes) -> str:
    return f"({', '.join(map(str, shape))})"


def flatten(shape: Sizes, k: int) -> tuple[Size, Size]:
    """The shape that ``Flatten(axis=k)`` gives."""
    axis_index = len(shape) if k == len(shape) else axis(k, len(shape))
    return product(shape[:axis_index]), product(shape[axis_index:])


def divides(a: Size, b: Size) -> bool:
    """Whether ``b`` is a multiple of ``a``."""
    return same_size(remainder(b, a), 0)


# -- slices and pads


def slice_size(start: int, stop: int, step: int, size: Size) -> Size:
    """The number of elements that ``Slice`` takes from an axis of this size."""
    if isinstance(size, int):
        return len(range(*slice(start, _stop(stop, step), step).indices(size)))
    if step == 1 and start >= 0 and stop >= END // 2:
        return size - start if at_most(start, size) else 0
    raise Unknown(f"how much of an axis of size {size} is taken is not known")


def _stop(stop: int, step: int) -> int | None:
    return None if step < 0 and stop <= -END // 2 else stop


def is_full_slice(shape: Sizes, starts: Ints, ends: Ints, ks: Ints, steps: Ints) -> bool:
    """Whether a Slice takes everything."""
    cases = zip(starts, ends, (shape[k] for k in ks), steps, strict=True)
    return all_hold(_is_full, cases)


def _is_full(start: int, end: int, size: Size, step: int) -> bool:
    return step == 1 and _from_front(start, size) and _to_end(end, size)


def _from_front(start: int, size: Size) -> bool:
    return start == 0 or (start < 0 and at_most(size, -start))


def _to_end(end: int, size: Size) -> bool:
    return end >= END // 2 or (end >= 0 and at_most(size, end))


def compose_slices(
    shape: Sizes, starts: Ints, ends: Ints, ks: Ints, steps: Ints, starts2: Ints, ends2: Ints, ks2: Ints, steps2: Ints
) -> tuple[tuple[int, ...], ...]:
    """Starts, ends, axes and steps of the one Slice that is two Slices in a row (steps above 0) of this shape."""
    rank = len(shape)
    slices = {k: (s, e, t) for s, e, k, t in zip(starts, ends, axes(ks, rank), steps, strict=True)}
    if len(slices) != len(ks):
        raise ValueError("an axis is sliced twice at once")
    for s, e, k, t in zip(starts2, ends2, axes(ks2, rank), steps2, strict=True):
        slices[k] = _compose_slice(shape[k], slices[k], (s, e, t)) if k in slices else (s, e, t)
    order = sorted(slices)
    return (
        tuple(slices[k][0] for k in order),
        tuple(slices[k][1] for k in order),
        tuple(order),
        tuple(slices[k][2] for k in order),
    )


def _compose_slice(size: Size, first: tuple[int, int, int], second: tuple[int, int, int]) -> tuple[int, int, int]:
    if first[2] < 1 or second[2] < 1:
        raise ValueError("slices with negative steps are not merged")
    if isinstance(size, int):
        selected = range(size)[slice(*first)][slice(*second)]
        return (selected.start, selected.stop, selected.step)
    (s1, e1, t1), (s2, e2, t2) = first, second
    if min(s1, e1, s2, e2) < 0 or t1 != 1:
        raise Unknown(f"slices of an axis of size {size} that count from its end are not merged")
    return (min(s1 + s2, END), min(e1, s1 + e2, END), t2)


def full_pads(pads: Ints, ks: Ints, rank: int) -> tuple[int, ...]:
    """The pads of every axis (all begins, then all ends), from those of some axes."""
    half = len(ks)
    if len(pads) != 2 * half:
        raise ValueError(f"{len(pads)} pads do not go with {half} axes")
    padded = [0] * (2 * rank)
    for i, k in enumerate(axes(ks, rank)):
        padded[k], padded[rank + k] = pads[i], pads[half + i]
    return tuple(padded)


def permute_pads(pads: Ints, p: Ints) -> tuple[int, ...]:
    """Pads of every axis as ``Transpose(perm=p)`` leaves them."""
    rank = len(p)
    return permute(pads[:rank], p) + permute(pads[rank:], p)


def spatial_pads(pads: Ints) -> tuple[int, ...]:
    """The pads of all axes but the first two, as convolutions and pools take them."""
    rank = len(pads) // 2
    return tuple(pads[2:rank]) + tuple(pads[rank + 2 :])


def pads_space_only(pads: Ints) -> bool:
    """Whether the first two axes are not padded and no pad is negative."""
    rank = len(pads) // 2
    return min(pads, default=0) >= 0 and not any(pads[:2]) and not any(pads[rank : rank + 2])


def same_pads(auto_pad: str, shape: Sizes, kernel: Ints, strides: Ints, dilations: Ints) -> tuple[int, ...]:
    """The pads that ``auto_pad`` means for an input of this shape (batch and channels included)."""
    if auto_pad in ("VALID", "NOTSET"):
        return (0,) * (2 * len(kernel))
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise ValueError(f"auto_pad {auto_pad} does not exist")
    begins, ends = [], []
    for size, k, stride, dilation in zip(shape[2:], kernel, strides, dilations, strict=True):
        needed = _same_pad(size, (k - 1) * dilation + 1, stride)
        small = needed // 2
        begins.append(small if auto_pad == "SAME_UPPER" else needed - small)
        ends.append(needed - begins[-1])
    return (*begins, *ends)


def _same_pad(size: Size, window: int, stride: int) -> int:
    if isinstance(size, int):
        return max((-(-size // stride) - 1) * stride + window - size, 0)
    if stride == 1:
        return window - 1
    raise Unknown(f"the padding of an axis of size {size} is not known")


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "+": add, "-": subtract, "*": multiply, "/": divide, "//": floor_divide, "%": remainder, "**": power, "neg": negate,
    "sqrt": sqrt, "exp": exp, "log": log, "abs": absolute, "floor": floor, "ceil": ceil,
    "float": to_float, "int": to_int, "finite": finite, "near": near, "is_integer": is_integer,
    "len": length, "sum": total, "product": product, "min": smallest, "max": largest, "all": every, "any": some,
    "same": same, "range": arange, "sorted": ordered, "reversed": backwards, "unique": unique, "index": position,
    "count": count, "pick": pick, "drop": drop, "put": put, "fill": fill, "flat": flat, "offsets": offsets,
    "consecutive": consecutive, "plus": plus, "minus": minus, "times": times, "over": over,
    "axis": axis, "axes": axes, "other_axes": other_axes, "compose": compose, "invert": invert, "permute": permute,
    "unpermute": unpermute, "is_identity": is_identity, "squeeze_perm": squeeze_perm, "unsqueeze_perm": unsqueeze_perm,
    "moves_only_ones": moves_only_ones,
    "broadcast": broadcast, "fits": fits, "known": known, "is_known": is_known, "squeeze": squeeze,
    "unsqueeze": unsqueeze, "ones": ones, "target": target, "target_from": target_from,
    "flatten": flatten, "divides": divides,
    "slice_size": slice_size, "is_full_slice": is_full_slice, "compose_slices": compose_slices, "full_pads": full_pads,
    "permute_pads": permute_pads, "spatial_pads": spatial_pads, "pads_space_only": pads_space_only,
    "same_pads": same_pads,
    "dtype": weights.dtype, "code": weights.code, "lossless": weights.lossless, "per_channel": weights.per_channel,
    "bounded": weights.bounded, "smaller": weights.smaller, "swaps_last_two": weights.swaps_last_two,
    "swap_last_two": weights.swap_last_two, "disjoint": weights.disjoint, "is_last": weights.is_last,
    "is_spatial": weights.is_spatial, "joined_pads": weights.joined_pads, "no_pads": weights.no_pads,
    "squeezed": weights.squeezed, "unsqueezed": weights.unsqueezed, "without_axes": weights.without_axes,
    "moves_nothing": weights.moves_nothing, "band": weights.band,
    "dft_matrix": weights.dft_matrix, "identity": weights.identity, "einsum_is": weights.einsum_is,
    "einsum_perm": weights.einsum_perm,
    "channel_pads": convolutions.channel_pads, "channels_added": convolutions.channels_added,
    "output_pads": convolutions.output_pads, "in_row": convolutions.in_row,
    "in_square": convolutions.in_square, "row_order": convolutions.row_order, "row_filled": convolutions.row_filled,
    "folded_weights": convolutions.folded_weights, "folded_kernel": convolutions.folded_kernel,
    "folded_pads": convolutions.folded_pads, "placements": convolutions.placements,
    "winograd_input": convolutions.winograd_input, "winograd_kernel": convolutions.winograd_kernel,
    "winograd_output": convolutions.winograd_output, "winograd_tiles": convolutions.winograd_tiles,
    "winograd_pads": convolutions.winograd_pads, "toom_cook_input": convolutions.toom_cook_input,
    "toom_cook_kernel": convolutions.toom_cook_kernel, "toom_cook_output": convolutions.toom_cook_output,
    "holds_numbers": integers.holds_numbers, "running_sum": integers.running_sum,
    "triangle": integers.triangle, "einsum_order": einsums.einsum_order, "einsum_spread": einsums.einsum_spread,
    "einsum_left": einsums.einsum_left,
    "einsum_right": einsums.einsum_right, "einsum_out": einsums.einsum_out, "einsum_rows": einsums.einsum_rows,
    "einsum_columns": einsums.einsum_columns, "einsum_made": einsums.einsum_made,
    "is_line": convolutions.is_line, "line_pads": convolutions.line_pads,
    "is_eye": indices.is_eye, "side_by_side": indices.side_by_side, "widths": indices.widths,
    "all_in_order": indices.all_in_order, "common_row": indices.common_row,
    "kernel_growth": merging.kernel_growth, "in_group": merging.in_group, "whole": merging.whole,
    "least": quantization.least, "has_step": quantization.has_step, "saturates": quantization.saturates,
    "is_bias_scale": quantization.is_bias_scale, "all_zero": quantization.all_zero,
    "absorbs": magnitudes.absorbs, "cancels": magnitudes.cancels, "mergeable": magnitudes.mergeable,
    "moderate": magnitudes.moderate,
    "overflows": magnitudes.overflows,
    # attention
    "heads_fit": attention.heads_fit, "heads_match": attention.heads_match, "repeats_heads": attention.repeats_heads,
    "trailing": attention.trailing, "all_before": attention.all_before, "blanks": attention.blanks,
}  # fmt: skip
"""Every function by the name that rules call it by; operators are functions too."""


@cache
def arity(name: str) -> tuple[int, int]:
    """The fewest and the most arguments that a function takes (100 where there is no limit)."""
    parameters = signature(FUNCTIONS[name]).parameters.values()
    least = sum(p.default is Parameter.empty and p.kind is not Parameter.VAR_POSITIONAL for p in parameters)
    many = any(p.kind is Parameter.VAR_POSITIONAL for p in parameters)
    return max(least, int(many)), 100 if many else len(parameters)
