"""Winograd transforms of tiles of blocked images, called from kernel source.

A block's channels are the lanes of a vector, so that a tile is a few rows of vectors, and both matrices are written out
over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from numba import types
from numba.core.errors import TypingError

from graphopt.ir.minimal_filtering import FractionMatrix, filtering
from graphopt.kernels import memory, values
from graphopt.kernels.host import BLOCK
from graphopt.kernels.memory import Pointer
from graphopt.kernels.values import VectorValue, fma
from graphopt.kernels.vector_type import function


def _input(outputs: int) -> Callable[..., Any]:
    """A function that transforms a tile of an image, of which what lies outside counts as zeros.

    ``v`` is where the transformed tile begins and how far apart its elements lie, ``x`` a plane of an image and how far
    apart its rows and its columns lie; the tile begins at a row and a column, either of which may be outside of it.
    """

    def define(v: Any, start_v: Any, apart: Any, x: Any, start_x: Any, pitch: Any, step: Any, row: Any, column: Any,
               height: Any, width: Any) -> Any:  # fmt: skip
        _check("the transform of a tile", v, x)
        matrix, size = filtering(outputs).input, outputs + 2

        def trace(
            v: Pointer, start_v: VectorValue, apart: VectorValue,
            x: Pointer, start_x: VectorValue, pitch: VectorValue, step: VectorValue,
            row: VectorValue, column: VectorValue, height: VectorValue, width: VectorValue,
        ) -> None:  # fmt: skip
            first = x.at(start_x + row * pitch + column * step)
            target = v.at(start_v)

            def read(at: tuple[int, int]) -> VectorValue:
                return memory.read(first.at(pitch * at[0] + step * at[1]), BLOCK)

            def read_inside(at: tuple[int, int]) -> VectorValue:
                below, across = row + at[0], column + at[1]
                inside = (below >= 0) & (below < height) & (across >= 0) & (across < width)
                count = values.select(inside, row.number(BLOCK), row.number(0))
                return memory.read_masked(first.at(pitch * at[0] + step * at[1]), count, BLOCK)

            whole = (row >= 0) & (row + size <= height) & (column >= 0) & (column + size <= width)
            with v.builder.if_else(whole.ir) as (inside, at_edge):
                for branch, element in ((inside, read), (at_edge, read_inside)):
                    with branch:
                        tile = [[element((i, j)) for j in range(size)] for i in range(size)]
                        for k, value in enumerate(_on_both_sides(matrix, tile)):
                            memory.write(target.at(apart * k), value)

        return types.none, trace

    define.__name__ = f"_input_{outputs}"
    return define


def _output(outputs: int) -> Callable[..., Any]:
    """A function that makes a tile of results: ``y`` is where it goes, and how far apart its elements lie, ``m`` where
    the products are, and how far apart these lie."""

    def define(y: Any, start_y: Any, step: Any, m: Any, start_m: Any, apart: Any) -> Any:
        _check("the results of a tile", y, m)
        matrix, size = filtering(outputs).output, outputs + 2

        def trace(
            y: Pointer, start_y: VectorValue, step: VectorValue, m: Pointer, start_m: VectorValue, apart: VectorValue
        ) -> None:
            source, target = m.at(start_m), y.at(start_y)
            tile = [[memory.read(source.at(apart * (i * size + j)), BLOCK) for j in range(size)] for i in range(size)]
            for k, value in enumerate(_on_both_sides(matrix, tile)):
                memory.write(target.at(step * k), value)

        return types.none, trace

    define.__name__ = f"_output_{outputs}"
    return define


def _check(what: str, *pointers: Any) -> None:
    if not all(isinstance(p, types.CPointer) and p.dtype == types.float32 for p in pointers):
        raise TypingError(f"{what}: expected pointers to float32, not {' and '.join(map(str, pointers))}")


# -- matrices applied to vectors


def _on_both_sides(matrix: FractionMatrix, tile: Sequence[Sequence[VectorValue]]) -> list[VectorValue]:
    """``matrix @ tile @ matrix.T``, row by row."""
    across = [applied(matrix, row) for row in tile]
    down = [applied(matrix, column) for column in zip(*across, strict=True)]
    return [value for row in zip(*down, strict=True) for value in row]


def applied(matrix: FractionMatrix, x: Sequence[VectorValue]) -> list[VectorValue]:
    """``matrix @ x``; what rows, or columns, that differ in signs only have in common is computed once."""
    joined = _joined(matrix, x)
    if joined is not None:
        return applied(*joined)
    results: list[VectorValue | None] = [None] * len(matrix)
    for i, row in enumerate(matrix):
        twin = next((j for j in range(i + 1, len(matrix)) if results[j] is None and _are_twins(row, matrix[j])), None)
        if results[i] is not None:
            continue
        if twin is None:
            results[i] = _sum(row, x)
            continue
        same = [a if a == b else Fraction(0) for a, b in zip(row, matrix[twin], strict=True)]
        other = [a - b for a, b in zip(row, same, strict=True)]
        factor = next(c for c in reversed(other) if c)
        even, odd = _sum(same, x), _sum([c / factor for c in other], x)
        results[i], results[twin] = _plus(even, factor, odd), _plus(even, -factor, odd)
    return [v for v in results if v is not None]


def _joined(matrix: FractionMatrix, x: Sequence[VectorValue]) -> tuple[FractionMatrix, list[VectorValue]] | None:
    """The product with two columns that differ in signs only exchanged for sum and difference; None where none do."""
    columns = list(zip(*matrix, strict=True))
    for i, a in enumerate(columns):
        for j in range(i + 1, len(columns)):
            if _are_twins(a, columns[j]):
                same = tuple(p if p == q else Fraction(0) for p, q in zip(a, columns[j], strict=True))
                columns[i], columns[j] = same, tuple(p - q for p, q in zip(a, same, strict=True))
                mixed = list(x)
                mixed[i], mixed[j] = x[i] + x[j], x[i] - x[j]
                return tuple(zip(*columns, strict=True)), mixed
    return None


def _are_twins(a: Sequence[Fraction], b: Sequence[Fraction]) -> bool:
    """Whether two rows are equal in some elements that are not zero, and opposite in others."""
    pairs = [(p, q) for p, q in zip(a, b, strict=True) if p or q]
    return all(abs(p) == abs(q) for p, q in pairs) and 0 < sum(p == q for p, q in pairs) < len(pairs)


def _sum(row: Sequence[Fraction], x: Sequence[VectorValue]) -> VectorValue:
    """The sum of elements times factors, beginning with one whose factor is 1 where there is one."""
    terms = sorted(((c, v) for c, v in zip(row, x, strict=True) if c), key=lambda term: term[0] != 1)
    factor, first = terms[0]
    total = first if factor == 1 else first * float(factor)
    for factor, value in terms[1:]:
        total = _plus(total, factor, value)
    return total


def _plus(total: VectorValue, factor: Fraction, x: VectorValue) -> VectorValue:
    """``total + factor * x``."""
    if abs(factor) == 1:
        return total + x if factor > 0 else total - x
    return fma(x, x.number(float(factor)), total)


input_2, input_4 = function(_input(2)), function(_input(4))
output_2, output_4 = function(_output(2)), function(_output(4))
