"""CUDA driver access through cupy: streams, arrays and errors; the one module that imports it.

Nothing imports this module until a program is to run on a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

from graphopt.errors import DeviceError, DeviceMemoryError, ExecutionError, GraphoptError, MissingDependencyError
from graphopt.kernels.cuda.machine import EXTRA

if find_spec("cupy") is None:
    raise MissingDependencyError(f"cupy is not installed, and runs programs on GPUs: {EXTRA}")

import cupy
from cupy_backends.cuda.api import driver, runtime

NO_MEMORY = 2
"""What runtime and driver call it when no memory is left."""
_NO_DRIVER, _NO_DEVICE = 35, 100
SPAWN = (
    "this process was forked from one that uses the GPU, which CUDA does not allow: start processes by "
    'multiprocessing.get_context("spawn")'
)
_MEANINGS: tuple[tuple[set[int], type[GraphoptError], str], ...] = (
    ({1, 9, 701, 720}, DeviceError, "more threads, registers or shared memory are wanted than there are"),
    ({NO_MEMORY}, DeviceMemoryError, "the GPU has no memory left; smaller inputs or fewer programs need less"),
    ({3}, DeviceError, "CUDA does not begin here; processes that are forked from one that uses the GPU have none"),
    ({4, 201, 709}, DeviceError, "CUDA has ended in this process: the interpreter ends, or something reset the GPU"),
    ({46}, DeviceError, "another process has this GPU for itself: wait for it, or take another"),
    ({200, 218}, DeviceError, "the driver takes this for no code of a kernel: empty graphopt's cache, compile again"),
    ({209, 221, 222, 223}, DeviceError, "the driver is too old for this code, or it is for another GPU: compile again"),
    ({802, 803, 804}, DeviceError, "the driver is not ready, or its parts do not fit: restart the machine"),
    (
        {214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719},
        ExecutionError,
        "a kernel or the GPU went wrong, and this process cannot use the GPU any more",
    ),
)
"""What CUDA's statuses mean to those who run programs. A status is the same in its runtime and its driver."""

_OF_LIBRARIES = {"CUBLASError": "cuBLAS", "cuBLASLtError": "cuBLAS", "CUDNNError": "cuDNN"}
"""What we and cupy raise, and nvmath, whose module may not be there, by name, and of which library it is."""
_NO_MEMORY_FOR_CUBLAS = 3


_STATUS = {1: "not initialized", 3: "no memory left", 7: "a wrong value", 8: "nothing for this GPU"}
_STATUS |= {11: "the GPU is busy", 13: "a kernel failed", 14: "an internal error", 15: "not supported"}
"""What cuBLAS's statuses say."""


class CUBLASError(Exception):
    """A function of cuBLAS gave this status."""

    def __init__(self, function: str, status: int) -> None:
        super().__init__(f"{function}: {_STATUS.get(status, 'an error')} (status {status})")
        self.status = status


@cache
def cublas() -> ctypes.CDLL:
    """The library, which cupy uses as well; raises ``MissingDependencyError``."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)
    except (ImportError, RuntimeError, OSError) as error:
        raise MissingDependencyError(
            f"cuBLAS is not installed, and computes products on GPUs: {EXTRA} ({str(error).splitlines()[0]})"
        ) from None


def count() -> int:
    """The number of GPUs; raises ``DeviceError`` where there is none, or no driver that is new enough."""
    try:
        return int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        raise DeviceError(_absent(error.status, runtime.driverGetVersion(), runtime.runtimeGetVersion())) from None


def _absent(status: int, has: int, wants: int) -> str:
    """Why no GPU can be used: the versions are those of CUDA that the driver has, and that cupy wants."""
    if status == _NO_DRIVER and has:
        return (
            f"the NVIDIA driver is too old: it knows CUDA {_version(has)}, and cupy is made for {_version(wants)}; "
            f"update the driver, or install the extra for an earlier CUDA (graphopt[cuda12])"
        )
    if status == _NO_DRIVER:
        return "there is no NVIDIA driver: programs for CUDA run where one is installed (target='cpu' runs here)"
    if status == _NO_DEVICE:
        return "the NVIDIA driver finds no GPU (is CUDA_VISIBLE_DEVICES empty?): target='cpu' runs here"
    return str(_meaning("the GPU cannot be used", status, _one_line(runtime.CUDARuntimeError(status))))


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


@contextmanager
def errors(doing: str) -> Iterator[None]:
    """Within it what CUDA's libraries raise is raised as ``DeviceError``, ``DeviceMemoryError`` or ``ExecutionError``,
    saying what was being done."""
    try:
        yield
    except (runtime.CUDARuntimeError, driver.CUDADriverError) as error:
        raise _meaning(doing, error.status, _one_line(error)) from None
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise _meaning(doing, NO_MEMORY, _one_line(error)) from None
    except Exception as error:
        if not is_of_cuda(error):
            raise
        if type(error) is CUBLASError and error.status == _NO_MEMORY_FOR_CUBLAS:
            raise _meaning(doing, NO_MEMORY, _one_line(error)) from None
        raise ExecutionError(f"{doing}: {_OF_LIBRARIES[type(error).__name__]} failed: {_one_line(error)}") from None


def is_of_cuda(error: BaseException) -> bool:
    """Whether CUDA or one of its libraries raised this."""
    error_types = runtime.CUDARuntimeError, driver.CUDADriverError, cupy.cuda.memory.OutOfMemoryError
    return isinstance(error, error_types) or type(error).__name__ in _OF_LIBRARIES


def _meaning(doing: str, status: int, text: str) -> Exception:
    for statuses, kind, meaning in _MEANINGS:
        if status in statuses:
            return kind(f"{doing}: {meaning} ({text})")
    return ExecutionError(f"{doing}: {text}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


__all__ = ["SPAWN", "CUBLASError", "count", "cublas", "cupy", "driver", "errors", "is_of_cuda", "runtime"]
