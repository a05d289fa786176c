"""Tensor intrinsic of products of float32 by bfloat16 weights."""

from __future__ import annotations

from functools import lru_cache

from graphopt.kernels.product_form import BFLOAT, PAIR, panel, sums_of
from graphopt.lowering.intrinsics.contractions import contraction
from graphopt.lowering.loops.nest import Nest

PRODUCT = "bfloat_product"


@lru_cache(maxsize=1)
def product() -> Nest:
    """``C = A @ B``, with ``B`` in panels of neighbouring columns, two rows at a time."""
    width, sums = panel(BFLOAT), sums_of(BFLOAT)
    return contraction(
        PRODUCT,
        {
            "C": ("(m, n)", sums),
            "A": ("(m, k)", sums),
            "B": (f"((n + {width - 1}) // {width}, (k + {PAIR - 1}) // {PAIR}, {width}, {PAIR})", BFLOAT),
        },
        ("m", "n", "k"),
        {"i": "m", "j": "n"},
        {"p": "k"},
        f'A[vi, vp] * cast(B[vj // {width}, vp // {PAIR}, vj % {width}, vp % {PAIR}], "{sums}")',
    )
