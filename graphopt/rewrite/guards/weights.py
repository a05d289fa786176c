"""Weight guards: functions of rules on weights, channels, dtypes and einsum equations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from graphopt.ir.dtypes import CODES, dtype_of
from graphopt.ir.types import Size
from graphopt.rewrite.guards.comparison import Unknown

_EXACT_INTEGERS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


LARGEST = 1 << 24
"""So many elements of weights are made of sizes alone."""


def dtype(code: int) -> str:
    """The dtype that ONNX's number stands for, as the attribute ``to`` of Cast has it."""
    name = dtype_of(code)
    if name is None:
        raise Unknown(f"ONNX knows no dtype number {code}")
    return name


def code(dtype: str) -> int:
    """ONNX's number for a dtype, as the attribute ``to`` of Cast has it."""
    if dtype not in CODES:
        raise Unknown(f"ONNX has no number for {dtype}")
    return CODES[dtype]


def lossless(narrow: str, wide: str) -> bool:
    """Whether every number of the first dtype is one of the second."""
    if narrow == wide:
        return True
    try:
        a, b = (_numpy(name) for name in (narrow, wide))
    except TypeError:
        return False
    if narrow == "bool":
        return wide != "string"
    if a.kind in "iu" and b.kind in "iu":
        return bool(np.can_cast(a, b))
    if a.kind in "iu":
        return wide in _EXACT_INTEGERS and a.itemsize * 8 - (a.kind == "i") <= _EXACT_INTEGERS[wide]
    floats = ("float16", "bfloat16", "float32", "float64")
    if narrow in floats and wide in floats:
        return floats.index(wide) > floats.index(narrow) and (narrow, wide) != ("float16", "bfloat16")
    return False


def _numpy(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def per_channel(shape: Sequence[Size], rank: int) -> bool:
    """Whether a tensor of this shape, met by one of this rank, holds one number for each channel, or one in all."""
    from_end = rank - 2
    return len(shape) <= rank and all(n == 1 or len(shape) - 1 - i == from_end for i, n in enumerate(shape))


def bounded(dtype: str, *bounds: float) -> bool:
    """Whether a product of numbers within these bounds (lows and highs of two constants) stays far from overflow."""
    low, high, other_low, other_high = bounds
    limit: float = {"float16": 1e3, "float64": 1e300}.get(dtype, 1e30)
    product: float = max(abs(low), abs(high)) * max(abs(other_low), abs(other_high))
    return product < limit


def smaller(a: Size | None, b: Size | None) -> bool:
    """Whether a number of elements is known to be below another: both integers, or the other a multiple of it."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    if a is None or b is None or a == b or a == 0:
        return False
    ratio = b // a
    return ratio * a == b and ratio != 1


def swaps_last_two(p: Sequence[int]) -> bool:
    """Whether a permutation exchanges the last two axes and moves no other."""
    n = len(p)
    return n >= 2 and tuple(p) == (*range(n - 2), n - 1, n - 2)


def swap_last_two(rank: int) -> tuple[int, ...]:
    """The permutation that exchanges the last two axes."""
    return (*range(rank - 2), rank - 1, rank - 2)


def disjoint(a: Sequence[int], b: Sequence[int], rank: int) -> bool:
    """Whether two lists of axes have none in common."""
    return not {k % rank for k in a} & {k % rank for k in b}


def is_last(axes: Sequence[int], rank: int) -> bool:
    """Whether this is the list of just the last axis."""
    return len(axes) == 1 and axes[0] % rank == rank - 1


def is_spatial(axes: Sequence[int], rank: int) -> bool:
    """Whether these are all axes but the first two."""
    return sorted(k % rank for k in axes) == list(range(2, rank))


def joined_pads(pads: Sequence[int], inner: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Pads of a Pad on all axes, joined with the ``pads`` of the convolution or pooling behind it."""
    begins, ends = pads[2:rank], pads[rank + 2 :]
    outer = (*begins, *ends)
    return tuple(a + b for a, b in zip(outer, inner or (0,) * len(outer), strict=True))


def no_pads(pads: Sequence[int] | None, auto_pad: str) -> bool:
    """Whether a convolution or pooling pads nothing."""
    return auto_pad == "VALID" or (auto_pad == "NOTSET" and not any(pads or ()))


def squeezed(a: Sequence[int], b: Sequence[int], rank: int) -> tuple[int, ...]:
    """The axes that ``Squeeze(a)`` and then ``Squeeze(b)`` take from a tensor of this rank."""
    first = {k % rank for k in a}
    left = [k for k in range(rank) if k not in first]
    return tuple(sorted(first | {left[k] for k in b}))


def unsqueezed(a: Sequence[int], b: Sequence[int], rank: int) -> tuple[int, ...]:
    """The axes that are new after ``Unsqueeze(a)`` and then ``Unsqueeze(b)``, of a result of this rank."""
    second = {k % rank for k in b}
    old = [k for k in range(rank) if k not in second]
    return tuple(sorted(second | {old[k] for k in a}))


def without_axes(p: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """The permutation that is left when axes of the *output* are dropped."""
    gone = {k % len(p) for k in axes}
    kept = [source for k, source in enumerate(p) if k not in gone]
    rank = {source: i for i, source in enumerate(sorted(kept))}
    return tuple(rank[source] for source in kept)


def moves_nothing(shape: Sequence[Size], p: Sequence[int], middle: Sequence[Size], q: Sequence[int]) -> bool:
    """Whether Transpose(p), Reshape to ``middle`` and Transpose(q) leave every element where it lies in memory.

    Both shapes are split into common factors; the factors' order in memory must come out as it was.
    """
    sizes = [n for n in shape if isinstance(n, int) and n > 0]
    between = [n for n in middle if isinstance(n, int) and n > 0]
    if len(sizes) < len(shape) or len(between) < len(middle):
        raise Unknown("the shapes are not all known")
    pieces = _common_factors([sizes[k] for k in p], between)
    if pieces is None:
        return False
    left, right = pieces
    sources = [(p[axis], part) for axis, parts in enumerate(left) for part in range(len(parts))]
    blocks: list[list[tuple[int, int]]] = []
    used = 0
    for parts in right:
        blocks.append(sources[used : used + len(parts)])
        used += len(parts)
    size_of = dict(zip(sources, (size for parts in left for size in parts), strict=True))
    final = [source for k in q for source in blocks[k] if size_of[source] != 1]
    return final == sorted(final)


def _common_factors(a: list[int], b: list[int]) -> tuple[list[list[int]], list[list[int]]] | None:
    """Both shapes cut so that the pieces, read in order, are the same; None where they cannot be."""
    left: list[list[int]] = [[] for _ in a]
    right: list[list[int]] = [[] for _ in b]
    i = j = 0
    x, y = (a[0] if a else 1), (b[0] if b else 1)
    while i < len(a) and j < len(b):
        piece = min(x, y)
        if x % piece or y % piece:
            return None
        left[i].append(piece)
        right[j].append(piece)
        x, y = x // piece, y // piece
        if x == 1:
            i += 1
            x = a[i] if i < len(a) else 1
        if y == 1:
            j += 1
            y = b[j] if j < len(b) else 1
    if any(n != 1 for n in a[i:]) or any(n != 1 for n in b[j:]):
        return None
    for k in range(i, len(a)):
        left[k].append(1)
    for k in range(j, len(b)):
        right[k].append(1)
    return (left, right) if sum(map(len, left)) == sum(map(len, right)) else None


def band(channels: int, size: int, value: float) -> Any:
    """Weights [channels, channels, 1, 1] of a convolution that sums ``size`` neighbouring channels times ``value``."""
    if not isinstance(channels, int):
        raise Unknown("the number of channels is not known")
    if channels**2 > LARGEST:
        raise Unknown(f"weights of {channels} channels to as many are not written out")
    offset = np.subtract.outer(np.arange(channels), np.arange(channels))  # output channel minus input channel
    inside = (offset <= (size - 1) // 2) & (-offset <= size // 2)
    return np.where(inside, value, 0.0).reshape(channels, channels, 1, 1)


def dft_matrix(size: int, onesided: int) -> Any:
    """The DFT matrix [size, 2 * frequencies] of real rows, cosines beside negative sines; half of it where onesided."""
    if not isinstance(size, int):
        raise Unknown("the length of the transform is not known")
    if size**2 > LARGEST // 4:
        raise Unknown(f"the matrix of a transform of {size} elements is not written out")
    frequencies = np.arange(size // 2 + 1 if onesided else size)
    angles = 2 * np.pi / max(size, 1) * (np.outer(np.arange(size), frequencies) % max(size, 1))
    return np.stack([np.cos(angles), -np.sin(angles)], axis=-1).reshape(size, 2 * len(frequencies))


def identity(size: int) -> Any:
    """The identity matrix as an image [1, 1, size, size]."""
    if not isinstance(size, int):
        raise Unknown("the size of the image is not known")
    if size**2 > 1 << 20:
        raise Unknown(f"an identity matrix of {size} rows is not written out")
    return np.eye(size).reshape(1, 1, size, size)


def einsum_is(equation: str, pattern: str) -> bool:
    """Whether an equation is the pattern up to the names of its letters; ``...`` there stands for any shared axes."""
    given, wanted = (_spaceless(e) for e in (equation, pattern))
    if "..." in given or "->" not in given:
        return False
    stem = wanted.replace("...", "")
    inputs, output = stem.split("->")
    parts = [*inputs.split(","), output]
    actual_inputs, actual_output = given.split("->")
    actual = [*actual_inputs.split(","), actual_output]
    if len(parts) != len(actual):
        return False
    batch = actual[-1][: len(actual[-1]) - len(parts[-1])]
    names: dict[str, str] = {}
    for part, letters in zip(parts, actual, strict=True):
        if letters[: len(batch)] != batch or len(letters) != len(batch) + len(part):
            return False
        for a, b in zip(part, letters[len(batch) :], strict=True):
            if names.setdefault(a, b) != b:
                return False
    used = [*names.values(), *batch]
    return len(set(used)) == len(used)


def einsum_perm(equation: str) -> tuple[int, ...]:
    """The permutation that an einsum of one input is; Unknown where it is none."""
    source, arrow, result = _spaceless(equation).partition("->")
    if (
        not arrow
        or "," in source
        or "." in source
        or sorted(source) != sorted(result)
        or len(set(source)) != len(source)
    ):
        raise Unknown(f"the equation {equation!r} is not a transpose")
    return tuple(source.index(letter) for letter in result)


def _spaceless(equation: str) -> str:
    return re.sub(r"\s", "", equation)
