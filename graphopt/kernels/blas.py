"""Matrix products by BLAS, as kernel source calls them: on raw pointers, without leaving compiled code."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as llvm
from llvmlite.ir import IRBuilder
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112
"""CBLAS's numbers for orders and transpositions."""
FUNCTIONS = {"float32": "scipy_cblas_sgemm64_", "float64": "scipy_cblas_dgemm64_"}


@intrinsic
def gemm(
    typing_context: Any,
    transpose_a: Any,
    transpose_b: Any,
    m: Any,
    n: Any,
    k: Any,
    alpha: Any,
    a: Any,
    start_a: Any,
    lda: Any,
    b: Any,
    start_b: Any,
    ldb: Any,
    beta: Any,
    c: Any,
    start_c: Any,
    ldc: Any,
) -> Any:
    """``c = alpha * op(a) @ op(b) + beta * c`` for row-major float32 or float64 matrices.

    ``op(a)`` is ``m x k`` and ``op(b)`` ``k x n``, transposed where the flag is 1. ``a``, ``b`` and ``c`` are pointers;
    the matrices start at the elements ``start_...`` and have rows ``ld...`` elements apart. Nothing happens where a
    size of the result is 0.
    """
    if (
        not all(isinstance(p, types.CPointer) and p.dtype == c.dtype for p in (a, b, c))
        or str(c.dtype) not in FUNCTIONS
    ):
        raise TypingError(f"gemm of {a}, {b} and {c}: expected pointers to float32 or to float64")
    given = (transpose_a, transpose_b, m, n, k, alpha, a, start_a, lda, b, start_b, ldb, beta, c, start_c, ldc)
    real, index = c.dtype, types.int64
    wanted = (index, index, index, index, index, real, a, index, index, b, index, index, real, c, index, index)

    def codegen(context: Any, builder: IRBuilder, signature: Any, args: Any) -> Any:
        values = [context.cast(builder, v, g, w) for v, g, w in zip(args, given, wanted, strict=True)]
        ta, tb, rows, columns, depth, scale, pa, sa, la, pb, sb, lb, keep, pc, sc, lc = values
        word, number = llvm.IntType(64), llvm.IntType(32)
        scalar, pointer = context.get_value_type(real), pc.type
        kinds = [number] * 3 + [word] * 3 + [scalar, pointer, word, pointer, word, scalar, pointer, word]
        kind = llvm.FunctionType(llvm.VoidType(), kinds)
        function = cgutils.get_or_insert_function(builder.module, kind, FUNCTIONS[str(real)])

        def way(flag: Any) -> Any:
            return builder.select(builder.icmp_signed("!=", flag, word(0)), number(TRANSPOSED), number(PLAIN))

        some = builder.and_(builder.icmp_signed(">", rows, word(0)), builder.icmp_signed(">", columns, word(0)))
        with builder.if_then(some):
            builder.call(
                function,
                [
                    *(number(ROW_MAJOR), way(ta), way(tb), rows, columns, depth, scale),
                    *(builder.gep(pa, [sa]), la, builder.gep(pb, [sb]), lb, keep, builder.gep(pc, [sc]), lc),
                ],
            )
        return context.get_dummy_value()

    return types.none(*given), codegen
