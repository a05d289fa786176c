"""Tensor intrinsics on matrices of bytes: products of operands that are counted from zero points."""

from __future__ import annotations

from functools import lru_cache

from graphopt.kernels.integer_form import QUAD, panel
from graphopt.lowering.loops import Nest
from graphopt.lowering.script import read

PIXELS = "integer_pixels_{}_{}"
WINDOWS = "integer_windows_{}_{}"
PRODUCT = r"integer_product_(n|t|q)_(uint8|int8)_(uint8|int8)"


@lru_cache(maxsize=16)
def product(form: str, left: str, right: str) -> Nest:
    """``C = (A - ZA) @ (B - ZB)``, where there is one zero point for all rows, or columns, or one for each. ``B`` is
    given transposed in form ``t``; in form ``q`` in panels of neighbouring columns, four rows at a time, behind which
    stand the sums of the columns."""
    width = panel()
    shape = f"((n + {width - 1}) // {width}, (k + {QUAD - 1}) // {QUAD} + 1, {width}, {QUAD})"
    place = f"vj // {width}, vp // {QUAD}, vj % {width}, vp % {QUAD}"
    shape, place = {"n": ("(k, n)", "vp, vj"), "t": ("(n, k)", "vj, vp"), "q": (shape, place)}[form]
    return read(f"""\
@program
def integer_product_{form}_{left}_{right}(
    C: Buffer[(m, n), "int32"], A: Buffer[(m, k), "{left}"], B: Buffer[{shape}, "{right}"],
    ZA: Buffer[(za,), "int32"], ZB: Buffer[(zb,), "int32"], m: size, n: size, k: size, za: size, zb: size,
):
    for i, j in grid(m, n):
        with block("start"):
            vi, vj = axis.remap("SS", [i, j])
            C[vi, vj] = 0
    for i, j, p in grid(m, n, k):
        with block("product"):
            vi, vj, vp = axis.remap("SSR", [i, j, p])
            C[vi, vj] = C[vi, vj] + (cast(A[vi, vp], "int32") - ZA[vi % za]) * (
                cast(B[{place}], "int32") - ZB[vj % zb])
""")


@lru_cache(maxsize=8)
def pixels(left: str, right: str) -> Nest:
    """``C = (A - ZA) @ (B - ZB)``, where a column of ``B`` is a pixel of an image, counted from ``pixel`` on."""
    name = PIXELS.format(left, right)
    return read(f"""\
@program
def {name}(
    C: Buffer[(m, n), "int32"], A: Buffer[(m, k), "{left}"], B: Buffer[(k, height, width), "{right}"],
    ZA: Buffer[(za,), "int32"], ZB: Buffer[(zb,), "int32"],
    m: size, n: size, k: size, za: size, zb: size, pixel: size, height: size, width: size,
):
    for i, j in grid(m, n):
        with block("start"):
            vi, vj = axis.remap("SS", [i, j])
            C[vi, vj] = 0
    for i, j, p in grid(m, n, k):
        with block("product"):
            vi, vj, vp = axis.remap("SSR", [i, j, p])
            C[vi, vj] = C[vi, vj] + (cast(A[vi, vp], "int32") - ZA[vi % za]) * (
                cast(B[vp, (pixel + vj) // width, (pixel + vj) % width], "int32") - ZB[vj % zb])
""")


@lru_cache(maxsize=8)
def windows(right: str, left: str) -> Nest:
    """``C = (A - ZA) @ (windows of B - ZB)``: a column is a pixel of the result, counted along lines that are ``wide``,
    a row a channel. ``B`` is an image of ``k`` channels, four of them as the bytes of a number; ``A`` has the channels
    of each place in the window together."""
    sizes = ["wide", *(f"{n}_{axis}" for n in ("step", "dilation") for axis in (0, 1)), "height", "quads", "width"]
    row = "(pixel + vj) // wide * step_0 + vy * dilation_0"
    column = "(pixel + vj) % wide * step_1 + vx * dilation_1"
    return read(f"""\
@program
def {WINDOWS.format(right, left)}(
    C: Buffer[(m, n), "int32"], A: Buffer[(m, kernel_0 * kernel_1 * k), "{left}"],
    B: Buffer[(height, quads, width), "int32"], ZA: Buffer[(za,), "int32"], ZB: Buffer[(zb,), "int32"],
    m: size, n: size, k: size, za: size, zb: size, pixel: size, kernel_0: size, kernel_1: size,
    {", ".join(f"{n}: size" for n in sizes)},
):
    for i, j in grid(m, n):
        with block("start"):
            vi, vj = axis.remap("SS", [i, j])
            C[vi, vj] = 0
    for i, j, y, x, p in grid(m, n, kernel_0, kernel_1, k):
        with block("product"):
            vi, vj, vy, vx, vp = axis.remap("SSRRR", [i, j, y, x, p])
            C[vi, vj] = C[vi, vj] + (cast(A[vi, (vy * kernel_1 + vx) * k + vp], "int32") - ZA[vi % za]) * (
                cast(cast(B[{row}, vp // {QUAD}, {column}] >> cast(vp % {QUAD} * 8, "int32"), "{right}"), "int32")
                - ZB[vj % zb])
""")
