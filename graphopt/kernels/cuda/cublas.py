"""Products by cuBLAS, with addresses that are known when they are called.

cuBLAS's matrices are column-major: of row-major ones it computes the transposed product of the transposed operands,
which is the same memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.kernels.cuda import driver
from graphopt.runtime.device import Run, Words
from graphopt.runtime.library_calls import Gemm

TYPES = {
    "float32": driver.runtime.CUDA_R_32F,
    "float64": driver.runtime.CUDA_R_64F,
    "float16": driver.runtime.CUDA_R_16F,
    "bfloat16": driver.runtime.CUDA_R_16BF,
}
"""CUDA's numbers for the types of elements."""
# the numbers of cublasComputeType_t, which cuBLAS and cuBLASLt share
_FLOAT32, _FLOAT32_BY_TF32, _FLOAT64 = 68, 77, 70
_WHOLE_SUMS = 16
"""The math mode in which parts of a sum are not rounded to half floats before they are added up."""


def compute_type(function: Gemm) -> int:
    """In what sums are computed, by cuBLAS's number."""
    if function.dtype == "float64":
        return _FLOAT64
    return _FLOAT32_BY_TF32 if function.tf32 and function.dtype == "float32" else _FLOAT32


def scalar(function: Gemm, value: float) -> Any:
    """A factor in the type of the sums, as an array whose address cuBLAS takes."""
    return np.array(value, np.float64 if function.dtype == "float64" else np.float32)


def least_rows(function: Gemm, m: int, n: int, k: int) -> tuple[int, int, int]:
    """How far the rows of the operands and the result lie apart at least: cuBLAS refuses less, even of one row."""
    lda, ldb = (m if function.transpose_a else k), (k if function.transpose_b else n)
    return max(lda, 1), max(ldb, 1), max(n, 1)


class Blas:
    """cuBLAS on a stream."""

    def __init__(self, stream: int) -> None:
        self._cublas = driver.cublas()
        self._handle = self._cublas.create()
        self._cublas.setStream(self._handle, stream)
        self._cublas.setMathMode(self._handle, _WHOLE_SUMS)

    def gemm(self, function: Gemm, args: Words) -> Run:
        """What computes a product that nothing is done to, with the words in ``args``."""
        cublas, handle, kind = self._cublas, self._handle, TYPES[function.dtype]
        alpha, beta = scalar(function, function.alpha), scalar(function, function.beta)
        factors = alpha.ctypes.data, beta.ctypes.data
        ways = [cublas.CUBLAS_OP_T if t else cublas.CUBLAS_OP_N for t in (function.transpose_b, function.transpose_a)]
        compute, algorithm = compute_type(function), cublas.CUBLAS_GEMM_DEFAULT

        def run(keep: Any = (alpha, beta)) -> None:
            a, b, c, m, n, k, lda, ldb, ldc, batch, step_a, step_b, step_c = args.tolist()
            if not m * n * batch:
                return
            least = least_rows(function, m, n, k)
            lda, ldb, ldc = max(lda, least[0]), max(ldb, least[1]), max(ldc, least[2])
            if batch == 1:
                cublas.gemmEx(
                    *(handle, *ways, n, m, k, factors[0], b, kind, ldb, a, kind, lda, factors[1], c, kind, ldc),
                    *(compute, algorithm),
                )
                return
            cublas.gemmStridedBatchedEx(
                *(handle, *ways, n, m, k, factors[0], b, kind, ldb, step_b, a, kind, lda, step_a),
                *(factors[1], c, kind, ldc, step_c, batch, compute, algorithm),
            )

        return run
