"""cuBLAS products, on addresses that are known at the call.

cuBLAS's matrices are column-major: of row-major ones it computes the transposed product of the transposed operands,
which is the same memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.kernels.cuda import driver
from graphopt.kernels.cuda.cublas_library import WORKSPACE, Cublas
from graphopt.kernels.cuda.spare import Spare
from graphopt.runtime.device import Device, Run
from graphopt.runtime.dtypes import STORAGE
from graphopt.runtime.library_calls import Gemm
from graphopt.runtime.steps import Words

TYPES = {
    "float32": driver.runtime.CUDA_R_32F,
    "float64": driver.runtime.CUDA_R_64F,
    "float16": driver.runtime.CUDA_R_16F,
    "bfloat16": driver.runtime.CUDA_R_16BF,
}
"""CUDA's numbers for the types of elements."""
BY_RULE = -1
"""cuBLAS's number for the algorithm that it chooses itself."""
# the numbers of cublasComputeType_t, which cuBLAS and cuBLASLt share
FLOAT32, FLOAT32_BY_TF32, _FLOAT64 = 68, 77, 70
_SIZES = slice(-10, -7)
"""Where ``m n k`` are among a product's arguments."""
_WHOLE_SUMS = 16
"""The math mode in which parts of a sum are not rounded to half floats before they are added up."""


def compute_type(function: Gemm) -> int:
    """In what sums are computed, by cuBLAS's number."""
    if function.dtype == "float64":
        return _FLOAT64
    return FLOAT32_BY_TF32 if function.tf32 and function.dtype == "float32" else FLOAT32


def scalar(function: Gemm, value: float) -> Any:
    """A factor in the type of the sums, as an array whose address cuBLAS takes."""
    return np.array(value, np.float64 if function.dtype == "float64" else np.float32)


def least_rows(function: Gemm, m: int, n: int, k: int) -> tuple[int, int, int]:
    """The least distance between rows of the operands and the result: cuBLAS refuses less, even of one row."""
    lda, ldb = (m if function.transpose_a else k), (k if function.transpose_b else n)
    return max(lda, 1), max(ldb, 1), max(n, 1)


def arguments(function: Gemm, words: Words, spare: Spare) -> list[int]:
    """Arguments of a product's call. Sums of no terms become sums of a single one, which is zero: libraries need not
    take operands without elements."""
    args: list[int] = words.tolist()
    m, n, k = args[_SIZES]
    if not k:
        vector = spare.zeros(max(m, n) * STORAGE[function.dtype].itemsize)
        _, _, ldc, batch, _, _, step_c = args[_SIZES.stop :]
        args[:2] = vector, vector
        args[_SIZES.start :] = m, n, 1, 0, 0, ldc, batch, 0, 0, step_c
    return args


class Blas:
    """cuBLAS on a stream of a device, with memory of its own."""

    def __init__(self, stream: int, device: Device) -> None:
        self._cublas = Cublas(stream, device.allocate(WORKSPACE))
        self._cublas.set_math_mode(_WHOLE_SUMS)
        self._spare = Spare(device)

    def gemm(self, function: Gemm, args: Words) -> Run:
        """A run of a plain product, with the words in ``args``."""
        cublas, kind = self._cublas, TYPES[function.dtype]
        alpha, beta = scalar(function, function.alpha), scalar(function, function.beta)
        factors = alpha.ctypes.data, beta.ctypes.data
        ways = int(function.transpose_b), int(function.transpose_a)  # by cuBLAS's numbers
        compute = compute_type(function)

        def run(keep: Any = (alpha, beta)) -> None:
            given = arguments(function, args, self._spare)
            a, b, c, m, n, k, lda, ldb, ldc, batch, step_a, step_b, step_c = given
            if not m * n * batch:
                return
            least = least_rows(function, m, n, k)
            lda, ldb, ldc = max(lda, least[0]), max(ldb, least[1]), max(ldc, least[2])
            if batch == 1:
                cublas.gemm(
                    *(*ways, n, m, k, factors[0], b, kind, ldb, a, kind, lda, factors[1], c, kind, ldc),
                    *(compute, BY_RULE),
                )
                return
            cublas.gemm_strided_batched(
                *(*ways, n, m, k, factors[0], b, kind, ldb, step_b, a, kind, lda, step_a),
                *(factors[1], c, kind, ldc, step_c, batch, compute, BY_RULE),
            )

        return run
