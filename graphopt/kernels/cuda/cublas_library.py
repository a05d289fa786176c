"""cuBLAS bindings: its functions, called as C.

cupy's wrappers of them put cupy's current stream in place of the handle's, and refuse while that is being captured.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_int64, c_size_t, c_void_p
from typing import Any

from graphopt.kernels.cuda import driver
from graphopt.runtime.device import Allocation

WORKSPACE = 32 << 20
"""Bytes that algorithms may use besides: what NVIDIA names for Hopper."""

_MATRIX, _STEP = (c_void_p, c_int, c_int64), (c_int64,)
_PRODUCT = c_void_p, c_int, c_int, c_int64, c_int64, c_int64, c_void_p
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (c_void_p,),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasSetWorkspace_v2": (c_void_p, c_void_p, c_size_t),
    "cublasSetMathMode": (c_void_p, c_int),
    "cublasGemmEx_64": (*_PRODUCT, *_MATRIX, *_MATRIX, c_void_p, *_MATRIX, c_int, c_int),
    "cublasGemmStridedBatchedEx_64": (
        *(*_PRODUCT, *_MATRIX, *_STEP, *_MATRIX, *_STEP, c_void_p, *_MATRIX, *_STEP),
        *(c_int64, c_int, c_int),
    ),
}
"""The types of the parameters, by function: all give a status, which is 0 where all is well."""


class Cublas:
    """A handle of cuBLAS on a stream, with memory of its own: what is captured from it allocates none. It is there
    until the process ends."""

    def __init__(self, stream: int, workspace: Allocation) -> None:
        self._functions, self._workspace = functions(driver.cublas()), workspace
        self._handle = c_void_p()
        self._call("cublasCreate_v2", ctypes.addressof(self._handle))
        self._call("cublasSetStream_v2", self._handle, stream)
        # after the stream, which puts memory of cuBLAS's in its place
        self._call("cublasSetWorkspace_v2", self._handle, workspace.address, WORKSPACE)

    def set_math_mode(self, mode: int) -> None:
        """Set cuBLAS's ``cublasMath_t``."""
        self._call("cublasSetMathMode", self._handle, mode)

    def gemm(self, *args: Any) -> None:
        """``cublasGemmEx``, without the handle; raises ``CUBLASError``."""
        self._call("cublasGemmEx_64", self._handle, *args)

    def gemm_strided_batched(self, *args: Any) -> None:
        """``cublasGemmStridedBatchedEx``, without the handle; raises ``CUBLASError``."""
        self._call("cublasGemmStridedBatchedEx_64", self._handle, *args)

    def _call(self, name: str, *args: Any) -> None:
        status = self._functions[name](*args)
        if status:
            raise driver.CUBLASError(name, status)


def functions(library: Any) -> dict[str, Any]:
    """The functions of the loaded library by name."""
    handles = {}
    for name, parameters in PROTOTYPES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = parameters, c_int
        handles[name] = function
    return handles
