"""Tensor intrinsics of mixed-precision products: float32 by weights in half precision."""

from __future__ import annotations

from functools import lru_cache

from graphopt.ir.dtypes import HALVES
from graphopt.kernels.product_form import GROUPS, panel, sums_of
from graphopt.lowering.intrinsics.contractions import contraction
from graphopt.lowering.loops.nest import Nest

PRODUCTS = {dtype: f"{word}_product" for dtype, word in HALVES.items()}
"""The names of products by the dtype of their weights."""


@lru_cache(maxsize=2)
def product(dtype: str) -> Nest:
    """``C = A @ B``, with ``B`` in panels of neighbouring columns, of bfloat16 two rows at a time."""
    width, sums, group = panel(dtype), sums_of(dtype), GROUPS.get(dtype, 1)
    sides, place = f"(n + {width - 1}) // {width}, k, {width}", f"vj // {width}, vp, vj % {width}"
    if group > 1:
        sides = f"(n + {width - 1}) // {width}, (k + {group - 1}) // {group}, {width}, {group}"
        place = f"vj // {width}, vp // {group}, vj % {width}, vp % {group}"
    return contraction(
        PRODUCTS[dtype],
        {"C": ("(m, n)", sums), "A": ("(m, k)", sums), "B": (f"({sides})", dtype)},
        ("m", "n", "k"),
        {"i": "m", "j": "n"},
        {"p": "k"},
        f'A[vi, vp] * cast(B[{place}], "{sums}")',
    )
