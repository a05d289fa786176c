"""Our own product of float32 by weights in bfloat16: calls of it, as kernel source has them, and the shared code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels import bfloat_form, values
from graphopt.kernels.numba_frontend import exported
from graphopt.kernels.products import MATRICES, SIZES
from graphopt.kernels.vector_type import procedure

_WORDS = 6
"""Sizes behind the three pointers."""
_KINDS = (types.float32, types.float32, types.uint16)
PATTERN = r"graphopt_bfloat_product_(\d+)x(\d+)"
"""Names of the shared code: the rows of a tile, and the lanes of its vectors."""


def product(rows: int, lanes: int) -> Any:
    """The module of LLVM that has the product."""
    kinds = [types.CPointer(t) for t in _KINDS]  # type: ignore[no-untyped-call]
    name, source = f"graphopt_bfloat_product_{rows}x{lanes}", bfloat_form.source(rows, lanes)
    return exported(name, source, (*kinds, *[types.int64] * _WORDS))


def _define(kinds: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], None]:
    a, b, c = (kinds[p] for p in ("a", "b", "c"))
    if tuple(getattr(p, "dtype", None) for p in (c, a, b)) != _KINDS:
        raise TypingError(f"a product of {a} and {b} into {c}: expected pointers to float32, and to uint16 for weights")
    return _call


def _call(given: Mapping[str, Any]) -> None:
    """``C = A @ B`` by the shared code: B lies in panels of pairs, which have no gaps in them."""
    places = [given[p].at(given[f"start_{p}"]).ir for p in ("c", "a", "b")]
    sizes = [values.cast(given[n], types.int64).ir for n in ("ldc", "lda", "ldb", *SIZES)]
    values.call(given["c"].builder, bfloat_form.name(), llvm.VoidType(), [*places, *sizes])


bfloat_product = procedure("bfloat_product", (*MATRICES, "ldb_pair", "ldb_column", *SIZES), _define)
