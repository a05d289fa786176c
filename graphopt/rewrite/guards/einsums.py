"""Einsum guards: functions of rules that write an einsum of two operands as a product between transposes, of matrices
or, where nothing is summed, of elements.

Letters are of four kinds: those in both operands and the result (the batch), those of the left or right operand that
are in the result, and those in both operands that are summed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.ir.types import Size
from graphopt.rewrite.guards.comparison import Unknown

Reshaped: TypeAlias = "tuple[tuple[Size, ...], tuple[Size, ...]]"
"""What a Reshape is given, and what it makes of that."""


@dataclass(frozen=True, slots=True)
class _Letters:
    x: str
    y: str
    out: str
    batch: str
    left: str
    right: str
    summed: str


def einsum_left(equation: str) -> tuple[int, ...]:
    """The transposition of the left operand: batch, rows, summed axes."""
    e = _letters(equation)
    return tuple(e.x.index(c) for c in e.batch + e.left + e.summed)


def einsum_right(equation: str) -> tuple[int, ...]:
    """The transposition of the right operand: batch, summed axes, columns."""
    e = _letters(equation)
    return tuple(e.y.index(c) for c in e.batch + e.summed + e.right)


def einsum_out(equation: str) -> tuple[int, ...]:
    """The transposition of the product to the result."""
    e = _letters(equation)
    labels = e.batch + e.left + e.right
    return tuple(labels.index(c) for c in e.out)


def einsum_rows(equation: str, shape: Sequence[Size]) -> Reshaped:
    """The shapes of the left operand transposed, and in the product, given that of the operand."""
    return tuple(shape[k] for k in einsum_left(equation)), _rows(equation, shape)


def _rows(equation: str, shape: Sequence[Size]) -> tuple[Size, ...]:
    e = _letters(equation)
    size = dict(zip(e.x, shape, strict=True))
    rows = tuple(size[c] for c in e.left)
    if e.batch:  # without one, rows on several axes need not be brought together
        rows = (_product(rows),)
    return (*(size[c] for c in e.batch), *rows, _product(size[c] for c in e.summed))


def einsum_columns(equation: str, shape: Sequence[Size]) -> Reshaped:
    """The shapes of the right operand transposed, and in the product, given that of the operand."""
    return tuple(shape[k] for k in einsum_right(equation)), _columns(equation, shape)


def _columns(equation: str, shape: Sequence[Size]) -> tuple[Size, ...]:
    e = _letters(equation)
    size = dict(zip(e.y, shape, strict=True))
    summed, right = (_product(size[c] for c in part) for part in (e.summed, e.right))
    return (*(size[c] for c in e.batch), summed, right)


def einsum_made(equation: str, x: Sequence[Size], y: Sequence[Size]) -> Reshaped:
    """The shapes of the product, and of it with every letter an axis of its own, before it is transposed."""
    e = _letters(equation)
    size = {**dict(zip(e.y, y, strict=True)), **dict(zip(e.x, x, strict=True))}
    product = (*_rows(equation, x)[:-1], _columns(equation, y)[-1])
    return product, tuple(size[c] for c in e.batch + e.left + e.right)


def einsum_order(equation: str, operand: int) -> tuple[int, ...]:
    """The transposition that brings the axes of an operand into the order of the result, where nothing is summed."""
    term, out = _unsummed(equation, operand)
    return tuple(term.index(c) for c in out if c in term)


def einsum_spread(equation: str, operand: int, shape: Sequence[Size]) -> tuple[Size, ...]:
    """The shape of an operand so transposed with an axis, of size 1 where it has none, for each of the result."""
    term, out = _unsummed(equation, operand)
    size = dict(zip(term, shape, strict=True))
    spread = tuple(size.get(c, 1) for c in out)
    return spread[next((k for k, c in enumerate(out) if c in term), len(out)) :]


def _unsummed(equation: str, operand: int) -> tuple[str, str]:
    """The letters of an operand and of the result. Unknown where something is summed."""
    source, arrow, out = equation.replace(" ", "").partition("->")
    terms = source.split(",")
    if not arrow or len(terms) != 2 or not all(t.isalpha() and len(set(t)) == len(t) for t in (*terms, out)):
        raise Unknown(f"the equation {equation!r} is not that of a product of two")
    if set(out) != set(source) - {","}:
        raise Unknown(f"the equation {equation!r} sums")
    return terms[operand], out


def _product(sizes: Iterable[Size]) -> Size:
    total: Size = 1
    for n in sizes:
        total = total * n
    return total


def _letters(equation: str) -> _Letters:
    """The letters of an equation by kind. Unknown where it is no product of matrices."""
    source, arrow, out = equation.replace(" ", "").partition("->")
    x, comma, y = source.partition(",")
    parts = (x, y, out)
    if not arrow or not comma or not all(p.isalpha() and len(set(p)) == len(p) for p in parts if p) or not (x and y):
        raise Unknown(f"the equation {equation!r} is not that of a product of two")
    both = [c for c in x if c in y]
    batch = "".join(c for c in out if c in both)
    summed = "".join(c for c in both if c not in out)
    left = "".join(c for c in out if c in x and c not in y)
    right = "".join(c for c in out if c in y and c not in x)
    if not summed or set(x) != set(batch + left + summed) or set(y) != set(batch + right + summed):
        raise Unknown(f"the equation {equation!r} is not that of a product of matrices")
    return _Letters(x, y, out, batch, left, right, summed)
