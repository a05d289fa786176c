"""Tensor intrinsics of bytes: quantized matrix products with zero points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from graphopt.kernels.product_form import QUAD, panel
from graphopt.lowering.intrinsics.contractions import contraction
from graphopt.lowering.loops.nest import Nest

PIXELS = "integer_pixels_{}_{}"
WINDOWS = "integer_windows_{}_{}"
PRODUCT = r"integer_product_(n|t|q)_(uint8|int8)_(uint8|int8)"
_DEPTH: Mapping[str, str] = {"p": "k"}


@lru_cache(maxsize=16)
def product(form: str, left: str, right: str) -> Nest:
    """``C = (A - ZA) @ (B - ZB)``, where there is one zero point for all rows, or columns, or one for each. ``B`` is
    given transposed in form ``t``; in form ``q`` in panels of neighbouring columns, four rows at a time, behind which
    stand the sums of the columns."""
    width = panel(right)
    shape = f"((n + {width - 1}) // {width}, (k + {QUAD - 1}) // {QUAD} + 1, {width}, {QUAD})"
    index = f"vj // {width}, vp // {QUAD}, vj % {width}, vp % {QUAD}"
    shape, index = {"n": ("(k, n)", "vp, vj"), "t": ("(n, k)", "vj, vp"), "q": (shape, index)}[form]
    operands = {"A": ("(m, k)", left), "B": (shape, right)}
    return _counted(f"integer_product_{form}_{left}_{right}", operands, "A[vi, vp]", f"B[{index}]")


@lru_cache(maxsize=8)
def pixels(left: str, right: str) -> Nest:
    """``C = (A - ZA) @ (B - ZB)``, where a column of ``B`` is a pixel of an image, counted from ``pixel`` on."""
    operands = {"A": ("(m, k)", left), "B": ("(k, height, width)", right)}
    index = "B[vp, (pixel + vj) // width, (pixel + vj) % width]"
    return _counted(PIXELS.format(left, right), operands, "A[vi, vp]", index, sizes=("pixel", "height", "width"))


@lru_cache(maxsize=8)
def windows(right: str, left: str) -> Nest:
    """``C = (A - ZA) @ (windows of B - ZB)``: a column is a pixel of the result, counted along lines that are ``wide``,
    a row a channel. ``B`` is an image of ``k`` channels, four of them as the bytes of a number; ``A`` has the channels
    of each place in the window together."""
    sizes = ["wide", *(f"{n}_{axis}" for n in ("step", "dilation") for axis in (0, 1)), "height", "quads", "width"]
    row = "(pixel + vj) // wide * step_0 + vy * dilation_0"
    column = "(pixel + vj) % wide * step_1 + vx * dilation_1"
    quad = f"B[{row}, vp // {QUAD}, {column}]"
    return _counted(
        WINDOWS.format(right, left),
        {"A": ("(m, kernel_0 * kernel_1 * k)", left), "B": ("(height, quads, width)", "int32")},
        "A[vi, (vy * kernel_1 + vx) * k + vp]",
        f'cast({quad} >> cast(vp % {QUAD} * 8, "int32"), "{right}")',
        {"y": "kernel_0", "x": "kernel_1", **_DEPTH},
        ("pixel", "kernel_0", "kernel_1", *sizes),
    )


def _counted(
    name: str, operands: Mapping[str, tuple[str, str]], left: str, right: str, steps: Mapping[str, str] = _DEPTH,
    sizes: Sequence[str] = (),
) -> Nest:  # fmt: skip
    """Sums of products of bytes, each counted from its zero point; ``sizes`` are further parameters."""
    zeros = {"ZA": ("(za,)", "int32"), "ZB": ("(zb,)", "int32")}
    return contraction(
        name,
        {"C": ("(m, n)", "int32"), **operands, **zeros},
        ("m", "n", "k", "za", "zb", *sizes),
        {"i": "m", "j": "n"},
        steps,
        f'(cast({left}, "int32") - ZA[vi % za]) * (cast({right}, "int32") - ZB[vj % zb])',
        zero="0",
    )
