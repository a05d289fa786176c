"""Our own product of matrices: calls of it, as kernel source has them, and the code that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels import product_form, values
from graphopt.kernels.memory import Pointer
from graphopt.kernels.numba_frontend import exported
from graphopt.kernels.product_form import BLOCKS, DTYPES, PANELS, PLAIN, TRANSPOSED
from graphopt.kernels.vector_type import procedure

_WORDS = 10
"""Sizes behind the three pointers."""
PATTERN = r"graphopt_product_(float32|float64)_(\d+)x(\d+)"
"""Names of the shared code: the dtype, the rows of a tile, and the lanes of its vectors."""


MATRICES = ("c", "start_c", "ldc", "a", "start_a", "lda", "b", "start_b", "ldb")
"""C, A and B as pointers, each with the element where the matrix starts, and how far apart its rows, or panels, lie."""
SIZES = ("m", "n", "k")
"""C is m by n, and its elements are sums of k products."""


def product(dtype: str, rows: int, lanes: int) -> Any:
    """The module of LLVM that has the product."""
    source = product_form.source(dtype, rows, lanes)
    pointer = types.CPointer(getattr(types, dtype))  # type: ignore[no-untyped-call]
    return exported(f"graphopt_product_{dtype}_{rows}x{lanes}", source, (pointer,) * 3 + (types.int64,) * _WORDS)


def _product(name: str, transpose_a: bool, form: int) -> Any:
    """The function of that name: ``C = op(A) @ op(B)``. Of panels it is also given how far apart their rows lie, which
    is as wide as they are."""

    def define(kinds: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], None]:
        a, b, c = (kinds[p] for p in "abc")
        if not all(isinstance(p, types.CPointer) and p.dtype == c.dtype and str(p.dtype) in DTYPES for p in (a, b, c)):
            raise TypingError(f"a product of {a} and {b} into {c}: expected pointers to float32 or to float64")
        return call

    def call(given: Mapping[str, Any]) -> None:
        c: Pointer = given["c"]
        one, lda = given["lda"].number(1), given["lda"]
        ways = (one, lda) if transpose_a else (lda, one)
        places = [given[p].at(given[f"start_{p}"]).ir for p in ("c", "a", "b")]
        words = (
            given["ldc"],
            *ways,
            given["ldb"],
            *(given[n] for n in SIZES),
            one.number(form),
            *(given[n] for n in BLOCKS),
        )
        sizes = [values.cast(x, types.int64).ir for x in words]
        values.call(c.builder, product_form.name(str(c.dtype)), llvm.VoidType(), [*places, *sizes])

    return procedure(name, (*MATRICES, *(["width"] if form == PANELS else []), *SIZES, *BLOCKS), define)


product_np = _product("product_np", False, PANELS)
product_tp = _product("product_tp", True, PANELS)
product_nn = _product("product_nn", False, PLAIN)
product_nt = _product("product_nt", False, TRANSPOSED)
product_tn = _product("product_tn", True, PLAIN)
product_tt = _product("product_tt", True, TRANSPOSED)
