"""Size comparison: proofs that sizes are equal, or one at most the other.

A size may hold symbols, so a comparison has three answers: true, false, and not known, which is
raised as ``Unknown``. Symbols and the atoms made of them stand for sizes, so they are at least 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from graphopt.ir.types import Dim, Size, is_size


class Unknown(Exception):  # noqa: N818 - not an error: a guard that needs the answer does not hold
    """A question that has no answer from what is known; the message is the reason in words."""


class Unproven(Unknown):
    """A comparison of sizes that depends on the values of symbols."""


def least(size: Size) -> float:
    """A number that the size is never below."""
    if not isinstance(size, Dim):
        return size
    total = 0
    for monomial, coefficient in size.terms:
        if not monomial:
            total += coefficient
        elif coefficient < 0 or not is_size(Dim(((monomial, 1),))):
            return -inf
    return total


def same_size(a: Size, b: Size) -> bool:
    """Whether two sizes are equal. Raises Unproven where that depends."""
    if a == b:
        return True
    if least(a - b) > 0 or least(b - a) > 0:
        return False
    raise Unproven(f"{a} is not known to equal {b}")


def at_most(a: Size | float, b: Size | float) -> bool:
    """Whether ``a <= b``. Raises Unproven where that depends."""
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        return a <= b
    if b == inf or a == -inf:
        return True
    if a == inf or b == -inf:
        return False
    if isinstance(a, float) or isinstance(b, float):
        raise Unproven(f"{a} is not known to be at most {b}")
    if least(b - a) >= 0:
        return True
    if least(a - b) > 0:
        return False
    raise Unproven(f"{a} is not known to be at most {b}")


def less(a: Size | float, b: Size | float) -> bool:
    """Whether ``a < b``. Raises Unproven where that depends."""
    try:
        return not at_most(b, a)
    except Unproven:
        raise Unproven(f"{a} is not known to be less than {b}") from None


def equal(a: object, b: object) -> bool:
    """Whether two values of expressions are equal: numbers, names, sizes, and sequences of them.

    Raises Unproven where that depends on symbols.
    """
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return _equal_parts(tuple(a), tuple(b))
    if isinstance(a, Dim) or isinstance(b, Dim):
        if isinstance(a, Dim | int) and isinstance(b, Dim | int):
            return same_size(a, b)
        return False
    return bool(a == b)


def _equal_parts(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    return len(a) == len(b) and all_hold(equal, zip(a, b, strict=True))


def all_hold(test: Callable[..., bool], cases: Iterable[tuple[Any, ...]]) -> bool:
    """Whether a test holds of all cases: False where one is known to fail, though others are not known."""
    doubt: Unknown | None = None
    for case in cases:
        try:
            if not test(*case):
                return False
        except Unknown as error:
            doubt = doubt or error
    if doubt:
        raise doubt
    return True
