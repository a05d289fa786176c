"""Register transposes of small matrices, called from kernel source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba import types
from numba.core.errors import TypingError

from graphopt.kernels import memory
from graphopt.kernels.memory import Pointer
from graphopt.kernels.reductions import shuffle
from graphopt.kernels.values import VectorValue
from graphopt.kernels.vector_type import function, literal


def _transpose(c: Any, start_c: Any, ldc: Any, a: Any, start_a: Any, lda: Any, m: Any, n: Any) -> Any:
    """``transpose(c, start_c, ldc, a, start_a, lda, m, n)``: ``c[i, j] = a[j, i]`` for m rows and n columns of ``c``.

    Both are given as a pointer, the element where the matrix starts, and how far apart its rows lie; m and n are powers
    of two that are numbers in the source.
    """
    if not all(isinstance(p, types.CPointer) and p.dtype == c.dtype for p in (a, c)):
        raise TypingError(f"the transpose of {a} in {c}: expected two pointers to one dtype")
    rows, columns = literal(m, "m"), literal(n, "n")
    if any(k < 2 or k & (k - 1) for k in (rows, columns)):
        raise TypingError(f"a transpose of {rows} by {columns}: expected powers of two")

    def trace(
        c: Pointer,
        start_c: VectorValue,
        ldc: VectorValue,
        a: Pointer,
        start_a: VectorValue,
        lda: VectorValue,
        m: VectorValue,
        n: VectorValue,
    ) -> None:
        read = [memory.read(a.at(start_a + lda * k), rows) for k in range(columns)]
        for i, row in enumerate(turned(read, rows, columns)):
            memory.write(c.at(start_c + ldc * i), row)

    return types.none, trace


def turned(vectors: Sequence[VectorValue], rows: int, columns: int) -> list[VectorValue]:
    """The rows of the transpose of a matrix, given by its rows.

    All elements in a row are numbered by the bits of (row, column). Merging the vectors of the first half with those of
    the second, lane by lane, moves the highest bit of the number to the lowest place.
    """
    current = list(vectors)
    for _ in range(columns.bit_length() - 1):
        half = columns // 2
        merged = []
        for a, b in zip(current[:half], current[half:], strict=True):
            order = [k // 2 + (k % 2) * rows for k in range(2 * rows)]
            merged += [shuffle(a, b, order[:rows]), shuffle(a, b, order[rows:])]
        current = merged
    while current[0].lanes < columns:  # a row is in several vectors
        wide = range(2 * current[0].lanes)
        current = [shuffle(a, b, wide) for a, b in zip(current[::2], current[1::2], strict=True)]
    parts = current[0].lanes // columns
    return [
        shuffle(v, v, range(k * columns, (k + 1) * columns)) if parts > 1 else v for v in current for k in range(parts)
    ]


transpose = function(_transpose)
