"""Magnitude guards: functions of rules that tell whether merged constants keep the same rounding.

Over the real numbers sums and products may be bracketed at will. In floating point a sum is rounded to
the digits of its largest term, and a product has to stay within the exponents of its dtype; models use
both on purpose. ``(x + 12582912) - 12582912`` rounds to integers, since 1.5 * 2^23 leaves a number of
single precision no digits behind the point, and ``(x * 1e38) * 1e38`` is infinite where ``x`` is 1.

Let p be the digits of a dtype, of which rounding keeps a number within a share of 2^-p. Each guard asks
that no more than half of them are given up, so that what a rule changes is at most 2^-(p/2) of numbers
of the order of one, which is what values are taken to be where nothing says otherwise:

* absorption: x + c is rounded to |c| 2^-p. Behind or before it other terms and factors may only be moved
  where |c| <= 2^(p/2): 4096 in single precision, 32 in half.
* cancellation: (x + c) + d was rounded to max(|c|, |d|) 2^-p, and x + (c + d) is to |c + d| 2^-p. Both are as
  good where max(|c|, |d|) <= 2^(p/2) |c + d|. Of a tensor with many elements, such as a bias, some
  cancel by chance: they are taken to be as large as the median sum.
* range: (x c) d and x (c d) overflow and underflow at the same numbers, but for those beyond the larger of
  the factors, where |c|, |d| and |c d| are within half of the exponents: 2^-64 to 2^64 in single precision.
  A first factor above 16 whose second takes it back overflows by itself, at numbers that models may hold: it stays.
  Elements of a tensor that are much smaller than its largest, such as those of channels that died, may
  become zero: it is the largest that counts.

What is computed when the model runs, and a constant whose elements have not been computed, is taken to be
of the order of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np

from graphopt.frozen import dataclass
from graphopt.ir.constants import Array, Constant
from graphopt.rewrite.guards.comparison import Unknown

DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
"""Binary digits of the numbers of each dtype."""
EXPONENTS = {"float16": 16, "bfloat16": 128, "float32": 128, "float64": 1024}
"""The power of two that each dtype's numbers stay below."""

NEAR = 16.0
"""Within which share of the largest number of a dtype it does not matter whether a product overflows."""

TOGETHER = 1024
"""Constants of at most so many elements are looked at together: a call of numpy takes longer than its work on one."""


@dataclass(frozen=True)
class ConstantElements:
    """The elements of an operand, where it is a constant and they are known."""

    constant: Constant | None


def absorbs(term: ConstantElements) -> bool:
    """Whether a constant, when it is added, leaves numbers of the order of one less than half of their digits."""
    return term.constant is not None and largest(term.constant) > _half_digits(term.constant)


def mergeable(term: ConstantElements, other: ConstantElements) -> bool:
    """Whether two terms may be one: no constant absorbs what it is added to, and two constants do not cancel."""
    return not (absorbs(term) or absorbs(other) or cancels(term, other))


def cancels(term: ConstantElements, other: ConstantElements) -> bool:
    """Whether the sum of two constants is so much smaller than they are that half of the digits are lost."""
    return term.constant is not None and other.constant is not None and _cancel(term.constant, other.constant)


def addable(terms: Sequence[ConstantElements]) -> bool:
    """Whether terms may be added to each other, from the first on: none absorbs, and no two in a row cancel.

    Of many terms at once, where they are constants of one shape.
    """
    constants = [term.constant for term in terms if term.constant is not None]
    is_alike = len(constants) == len(terms) and len({(c.dtype, c.shape) for c in constants}) == 1
    if not is_alike or not 0 < constants[0].size <= TOGETHER:
        return not any(map(absorbs, terms)) and not any(map(cancels, terms, terms[1:]))
    half = _half_digits(constants[0])
    numbers = np.stack([np.broadcast_to(_numbers(constant), constant.shape).reshape(-1) for constant in constants])
    sizes = np.abs(numbers)
    if np.any(np.nanmax(sizes, axis=1, initial=0.0) > half):
        return False
    with np.errstate(invalid="ignore"):
        sums = np.abs(numbers[:-1] + numbers[1:])
        kept = np.maximum(sums, np.median(sums, axis=1, keepdims=True)) * half
        return bool(np.all(np.maximum(sizes[:-1], sizes[1:]) <= kept))


def moderate(*factors: ConstantElements) -> bool:
    """Whether constant factors, and their product, are within half of the exponents of their dtype (or are zero)."""
    constants = [factor.constant for factor in factors if factor.constant is not None]
    sizes = [largest(constant) for constant in constants]
    limit = 2.0 ** (_of_dtype(EXPONENTS, constants[0]) // 2) if constants else 1.0
    return all(size == 0 or 1 / limit <= size <= limit for size in (*sizes, prod(sizes)))


def overflows(first: ConstantElements, second: ConstantElements) -> bool:
    """Whether a product by the first constant overflows far below where that by both does."""
    if first.constant is None or second.constant is None:
        return False
    with np.errstate(invalid="ignore"):
        a = np.abs(_numbers(first.constant))
        both = np.abs(a * _numbers(second.constant))
    return bool(np.any(a > NEAR * np.maximum(both, 1.0)))


@lru_cache(64)
def largest(constant: Constant) -> float:
    """The largest magnitude of the elements of a constant, NaN aside; 0 where there are none."""
    return float(np.nanmax(np.abs(_numbers(constant)), initial=0.0))


@lru_cache(64)
def _cancel(term: Constant, other: Constant) -> bool:
    a, b = _numbers(term), _numbers(other)
    with np.errstate(invalid="ignore"):
        sums = np.abs(a + b)
        if not sums.size:
            return False
        kept = np.maximum(sums, _median(sums)) * _half_digits(term)
        return not bool(np.all(np.maximum(np.abs(a), np.abs(b)) <= kept))


def _median(numbers: Array) -> float:
    """The median of numbers, as ``numpy.median`` has it, which takes 30 ms of a process to import masked arrays."""
    ordered = np.sort(numbers, axis=None)
    return float(ordered[(ordered.size - 1) // 2] / 2 + ordered[ordered.size // 2] / 2)


def _half_digits(constant: Constant) -> float:
    return 2.0 ** (_of_dtype(DIGITS, constant) // 2)


def _of_dtype(table: dict[str, int], constant: Constant) -> int:
    if constant.dtype not in table:
        raise Unknown(f"{constant.dtype} is no dtype of floats whose rounding is known")
    return table[constant.dtype]


def _numbers(constant: Constant) -> Array:
    stored = constant.array if constant.splat is None or not constant.size else constant.splat
    return np.asarray(stored).astype(np.float64)
