"""BLAS calls from kernel source: on raw pointers, without leaving compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels import values
from graphopt.kernels.memory import Pointer
from graphopt.kernels.values import VectorValue
from graphopt.kernels.vector_type import function

ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112
"""CBLAS's numbers for orders and transpositions."""
FUNCTIONS = {"float32": "scipy_cblas_sgemm64_", "float64": "scipy_cblas_dgemm64_"}


def _product(transpose_a: bool, transpose_b: bool) -> Callable[..., Any]:
    """A function of C, A and B (each a pointer, the element where the matrix starts, and how far apart its rows lie),
    and of m, n and k: ``C = op(A) @ op(B)``, ``op(A)`` being m by k and ``op(B)`` k by n."""
    ways = [TRANSPOSED if t else PLAIN for t in (transpose_a, transpose_b)]

    def define(
        c: Any, start_c: Any, ldc: Any, a: Any, start_a: Any, lda: Any, b: Any, start_b: Any, ldb: Any, m: Any, n: Any,
        k: Any,
    ) -> Any:  # fmt: skip
        if not all(
            isinstance(p, types.CPointer) and p.dtype == c.dtype and str(p.dtype) in FUNCTIONS for p in (a, b, c)
        ):
            raise TypingError(f"a product of {a} and {b} into {c}: expected pointers to float32 or to float64")

        def trace(
            c: Pointer, start_c: VectorValue, ldc: VectorValue, a: Pointer, start_a: VectorValue, lda: VectorValue,
            b: Pointer, start_b: VectorValue, ldb: VectorValue, m: VectorValue, n: VectorValue, k: VectorValue,
        ) -> None:  # fmt: skip
            word, flag = llvm.IntType(64), llvm.IntType(32)
            scalar = values.element(c.dtype)
            given = [values.cast(x, types.int64).ir for x in (m, n, k, lda, ldb, ldc)]
            builder = c.builder
            # how far apart rows lie means nothing where there is one, yet BLAS refuses less than a row's length
            rows = (given[0] if transpose_a else given[2], given[2] if transpose_b else given[1], given[1])
            for at, least in enumerate(rows, 3):
                given[at] = builder.select(builder.icmp_signed(">", given[at], least), given[at], least)
            pa, pb, pc = (p.at(s).ir for p, s in ((a, start_a), (b, start_b), (c, start_c)))
            numbers = [flag(x) for x in (ROW_MAJOR, *ways)]
            args = [*numbers, *given[:3], scalar(1.0), pa, given[3], pb, given[4], scalar(0.0), pc, given[5]]
            some = builder.and_(
                builder.icmp_signed(">", given[0], word(0)), builder.icmp_signed(">", given[1], word(0))
            )
            with builder.if_then(some):
                values.call(builder, FUNCTIONS[str(c.dtype)], llvm.VoidType(), args)

        return types.none, trace

    define.__name__ = f"_gemm_{'t' if transpose_a else 'n'}{'t' if transpose_b else 'n'}"
    return define


gemm_nn = function(_product(False, False))
gemm_nt = function(_product(False, True))
gemm_tn = function(_product(True, False))
gemm_tt = function(_product(True, True))
