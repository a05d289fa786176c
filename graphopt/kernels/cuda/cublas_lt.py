"""cuBLASLt products through nvmath-python, with a column bias and a relu or gelu epilogue."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from graphopt.errors import ExecutionError, MissingDependencyError
from graphopt.kernels.cuda.cublas import TYPES, arguments, compute_type, least_rows, scalar
from graphopt.kernels.cuda.cublas_library import WORKSPACE
from graphopt.kernels.cuda.machine import EXTRA, has_cublas_lt
from graphopt.kernels.cuda.spare import Spare
from graphopt.runtime.device import Device, Run
from graphopt.runtime.dtypes import STORAGE
from graphopt.runtime.library_calls import Gemm
from graphopt.runtime.steps import Words

_TRANSPOSED, _PLAIN = 1, 0
_BIAS_ALIGNMENT = 16
"""Bytes: cuBLASLt reads a bias that begins at a multiple of it."""
_KEPT = 64
"""So many plans are kept of each product: those of its latest sizes."""


class BlasLt:
    """cuBLASLt on a stream, with memory of its own."""

    def __init__(self, stream: int, device: Device) -> None:
        if not has_cublas_lt():
            raise MissingDependencyError(
                f"nvmath-python is not installed, and computes products with a bias or activation: {EXTRA}"
            )
        from nvmath.bindings import cublasLt

        self._lt, self._stream = cublasLt, stream
        self._handle = cublasLt.create()
        self._device, self._workspace = device, device.allocate(WORKSPACE)
        self._preference = cublasLt.matmul_preference_create()
        self._prefer("MAX_WORKSPACE_BYTES", np.array(WORKSPACE, np.uint64))

    def _prefer(self, name: str, value: Any) -> None:
        attribute = getattr(self._lt.MatmulPreferenceAttribute, name)
        self._lt.matmul_preference_set_attribute(self._preference, attribute, value.ctypes.data, value.nbytes)

    def gemm(self, function: Gemm, args: Words) -> Run:
        """A run of a product with the words in ``args``; its algorithm is chosen once for each set of sizes."""
        plans: dict[tuple[int, ...], _LtPlan] = {}
        spare, itemsize = Spare(self._device), STORAGE[function.dtype].itemsize
        alpha, beta = scalar(function, function.alpha), scalar(function, function.beta)

        def run() -> None:
            a, b, c, *rest = arguments(function, args, spare)
            bias = rest.pop(0) if function.has_bias else 0
            m, n, _, _, _, _, batch, *_ = rest
            if not m * n * batch:
                return
            if bias % _BIAS_ALIGNMENT:
                bias = spare.copied(bias, n * itemsize)
            key = *rest, *map(alignment, (b, a, c, c))
            plan = plans.pop(key, None) or self._plan(function, key)
            if len(plans) >= _KEPT:
                plans.pop(next(iter(plans)))
            plans[key] = plan  # the latest comes last
            plan.set_bias(bias)
            self._lt.matmul(
                *(self._handle, plan.product, alpha.ctypes.data, b, plan.b, a, plan.a, beta.ctypes.data),
                *(c, plan.c, c, plan.c, plan.algorithm, self._workspace.address, WORKSPACE, self._stream),
            )

        return run

    def _plan(self, function: Gemm, key: tuple[int, ...]) -> _LtPlan:
        """A plan for sizes, and for operands that lie at multiples of so many bytes."""
        for letter, value in zip("ABCD", key[-4:], strict=True):
            self._prefer(f"MIN_ALIGNMENT_{letter}_BYTES", np.array(value, np.uint32))
        return _LtPlan(self._lt, self._handle, self._preference, function, key[:-4])


def alignment(address: int) -> int:
    """Of what an address is a multiple, a power of two up to that which cuBLASLt assumes where nobody says: 256."""
    return min(address & -address, 256) or 256


class _LtPlan:
    """A plan of cuBLASLt: layouts of a product of given sizes, and the algorithm that it chose; given back with it."""

    def __init__(self, lt: Any, handle: int, preference: int, function: Gemm, sizes: tuple[int, ...]) -> None:
        self._lt = lt
        m, n, k, lda, ldb, ldc, batch, step_a, step_b, step_c = sizes
        kind, attributes = TYPES[function.dtype], lt.MatmulDescAttribute
        sums = TYPES["float64" if function.dtype == "float64" else "float32"]
        self.product = lt.matmul_desc_create(compute_type(function), sums)
        self._given_back: list[tuple[Any, int]] = [(lt.matmul_desc_destroy, self.product)]
        weakref.finalize(self, _give_back, self._given_back).atexit = False
        for attribute, transposed in (
            (attributes.TRANSA, function.transpose_b),
            (attributes.TRANSB, function.transpose_a),
        ):
            self._set(attribute, np.array(_TRANSPOSED if transposed else _PLAIN, np.int32))
        self._set(attributes.EPILOGUE, np.array(_epilogue(lt, function), np.uint32))
        least = least_rows(function, m, n, k)
        shape_a, shape_b = ((m, k) if function.transpose_a else (k, m)), ((k, n) if function.transpose_b else (n, k))
        self.a = self._layout(kind, shape_a, max(lda, least[0]), batch, step_a)
        self.b = self._layout(kind, shape_b, max(ldb, least[1]), batch, step_b)
        self.c = self._layout(kind, (n, m), max(ldc, least[2]), batch, step_c)
        self._found = np.zeros(1, lt.matmul_heuristic_result_dtype)
        many = np.zeros(1, np.int32)
        lt.matmul_algo_get_heuristic(
            *(handle, self.product, self.b, self.a, self.c, self.c, preference, 1),
            *(self._found.ctypes.data, many.ctypes.data),
        )
        if not many[0]:
            raise ExecutionError(f"cuBLASLt has no algorithm for a {function.dtype} product of {m} x {n} x {k}")
        self.algorithm = self._found.ctypes.data  # what it found begins with the algorithm

    def set_bias(self, address: int) -> None:
        """Say where the bias is."""
        if address:
            self._set(self._lt.MatmulDescAttribute.BIAS_POINTER, np.array(address, np.int64))

    def _set(self, attribute: int, value: Any) -> None:
        self._lt.matmul_desc_set_attribute(self.product, attribute, value.ctypes.data, value.nbytes)

    def _layout(self, kind: int, shape: tuple[int, int], apart: int, batch: int, step: int) -> int:
        """A column-major matrix of so many rows and columns, ``batch`` of them."""
        layout: int = self._lt.matrix_layout_create(kind, *shape, apart)
        self._given_back.append((self._lt.matrix_layout_destroy, layout))
        attributes = self._lt.MatrixLayoutAttribute
        for attribute, value in (
            (attributes.BATCH_COUNT, np.array(batch, np.int32)),
            (attributes.STRIDED_BATCH_OFFSET, np.array(step, np.int64)),
        ):
            self._lt.matrix_layout_set_attribute(layout, attribute, value.ctypes.data, value.nbytes)
        return layout


def _give_back(handles: list[tuple[Any, int]]) -> None:
    for destroy, handle in handles:
        destroy(handle)


def _epilogue(lt: Any, function: Gemm) -> int:
    named = {"": "DEFAULT", "relu": "RELU", "gelu_tanh": "GELU"}[function.epilogue]
    if function.has_bias:
        named = "BIAS" if named == "DEFAULT" else f"{named}_BIAS"
    return int(lt.Epilogue[named])
