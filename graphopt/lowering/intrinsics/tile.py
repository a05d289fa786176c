"""Tensor intrinsics of images in blocks of 16 channels: small matrix products, and Winograd tiles."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from graphopt.ir.minimal_filtering import filtering
from graphopt.lowering.intrinsics.contractions import contraction
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read

INTO, BACK = "winograd_input_{}", "winograd_output_{}"
PRODUCT = "blocked_product"


@lru_cache(maxsize=1)
def blocked_product() -> Nest:
    """``C = A @ B``, the columns of all three in blocks of 16, of an even number of rows."""
    return contraction(
        PRODUCT,
        {
            "C": ("(columns, rows, 16)", "float32"),
            "A": ("(depth, rows, 16)", "float32"),
            "B": ("(columns, depth, 16, 16)", "float32"),
        },
        ("rows", "columns", "depth"),
        {"j": "columns", "i": "rows", "l": "16"},
        {"k": "depth", "p": "16"},
        "A[vk, vi, vp] * B[vj, vk, vp, vl]",
    )


@lru_cache(maxsize=2)
def tile_in(outputs: int) -> Nest:
    """The input transform of a Winograd tile; elements outside of the image count as zeros."""
    size, matrix = outputs + 2, filtering(outputs).input
    across = [f"R[i, {b}, l] = {_sum(row, 'T[i, {}, l]')}" for b, row in enumerate(matrix)]
    down = [f"V[{a * size} + j, l] = {_sum(row, 'R[{}, j, l]')}" for a, row in enumerate(matrix)]
    return read(f"""\
@program
def {INTO.format(outputs)}(
    V: Buffer[({size * size}, 16), "float32"], X: Buffer[(height, width, 16), "float32"],
    row: size, column: size, height: size, width: size,
):
    T = alloc(({size}, {size}, 16), "float32")
    R = alloc(({size}, {size}, 16), "float32")
    for i in serial({size}):
        for j in serial({size}):
            for l in serial(16):
                T[i, j, l] = select(
                    row + i >= 0 and row + i < height and column + j >= 0 and column + j < width,
                    X[row + i, column + j, l], 0.0)
    for i in serial({size}):
        for l in serial(16):
{_lines(across)}
    for j in serial({size}):
        for l in serial(16):
{_lines(down)}
""")


@lru_cache(maxsize=2)
def tile_out(outputs: int) -> Nest:
    """The output transform of a Winograd tile."""
    size, matrix = outputs + 2, filtering(outputs).output
    across = [f"R[i, {b}, l] = {_sum(row, f'M[i * {size} + {{}}, l]')}" for b, row in enumerate(matrix)]
    down = [f"Y[{a * outputs} + j, l] = {_sum(row, 'R[{}, j, l]')}" for a, row in enumerate(matrix)]
    return read(f"""\
@program
def {BACK.format(outputs)}(Y: Buffer[({outputs * outputs}, 16), "float32"], M: Buffer[({size * size}, 16), "float32"]):
    R = alloc(({size}, {outputs}, 16), "float32")
    for i in serial({size}):
        for l in serial(16):
{_lines(across)}
    for j in serial({outputs}):
        for l in serial(16):
{_lines(down)}
""")


def _sum(row: Sequence[Fraction], element: str) -> str:
    """The sum of elements, each times its factor."""
    return " + ".join(f"{element.format(k)} * {float(c)!r}" for k, c in enumerate(row) if c)


def _lines(stores: Sequence[str]) -> str:
    return "\n".join(f"{' ' * 12}{s}" for s in stores)
