"""numba's CUDA target: dtypes, the decorator of functions in LLVM code, and compilation; the one module that imports
it.

Its package is an extra, and is not needed until kernels are compiled for a GPU.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from numba import types

from graphopt.errors import MissingDependencyError
from graphopt.kernels.cuda.machine import EXTRA

try:
    if find_spec("numba_cuda") is None:
        raise ImportError  # though numba has a numba.cuda of its own, which nobody keeps any more
    from numba.cuda.compiler import compile_ptx
    from numba.cuda.extending import intrinsic
except ImportError:
    raise MissingDependencyError(f"numba-cuda is not installed, and compiles kernels for GPUs: {EXTRA}") from None

boolean, none = types.boolean, types.none
int8, int16, int32, int64 = types.int8, types.int16, types.int32, types.int64
uint8, uint16, uint32, uint64 = types.uint8, types.uint16, types.uint32, types.uint64
float32, float64 = types.float32, types.float64


def pointer_to(dtype: Any) -> Any:
    """The type of a raw pointer to elements."""
    return types.CPointer(dtype)  # type: ignore[no-untyped-call]


def translated(function: Any, params: tuple[Any, ...], capability: tuple[int, int]) -> str:
    """The PTX of a kernel with parameters of these types, for a compute capability: with one entry, and rounding as
    IEEE 754 wants it. Raises whatever numba and NVVM raise."""
    text, _ = compile_ptx(function, types.void(*params), cc=capability)  # type: ignore[no-untyped-call]
    return str(text)


__all__ = ["intrinsic"]
