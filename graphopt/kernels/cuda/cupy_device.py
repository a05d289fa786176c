"""CUDA device through cupy: one stream, on which all work is in order.

Each call waits first for what its callers have to do on the GPU, and they wait for each call. Memory comes from cupy's
allocator, so that what programs and their callers give back serves both.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from graphopt.errors import DeviceError, DeviceMemoryError, InputError
from graphopt.frozen import dataclass
from graphopt.kernels.cuda.callers import Callers
from graphopt.kernels.cuda.compile import ENTRY
from graphopt.kernels.cuda.cublas import Blas
from graphopt.kernels.cuda.cublas_lt import BlasLt
from graphopt.kernels.cuda.cudnn import Dnn
from graphopt.kernels.cuda.driver import SPAWN, count, cupy, driver, errors, is_of_cuda, runtime
from graphopt.kernels.cuda.machine import OLDEST, architecture
from graphopt.runtime.device import DLPACK_KINDS, Resident, Run
from graphopt.runtime.library_calls import Convolution, Function
from graphopt.runtime.steps import Array, Words


@dataclass(frozen=True, slots=True)
class Room:
    """Allocated memory."""

    address: int
    owner: Any


class LoadedKernel:
    """A kernel, which the GPU has for as long as a program has this, and then until none of its launches is left."""

    def __init__(self, function: Any, dropped: list[Any]) -> None:
        self.ptr: int = function.ptr
        self._function, self._dropped = function, dropped

    def __del__(self) -> None:
        self._dropped.append(self._function)


class CudaDevice:
    """The GPU of this number; raises ``DeviceError`` where there is none, or one that kernels are not for, or no driver
    that can be used."""

    def __init__(self, number: int = 0) -> None:
        devices = count()
        if not 0 <= number < devices:
            raise DeviceError(f"there is no GPU {number}: there are {devices}, from 0 on")
        self.number = number
        with errors("opening the GPU"):
            self._device = cupy.cuda.Device(number)
            with self._device:
                self.name: str = runtime.getDeviceProperties(number)["name"].decode()
                self._stream = cupy.cuda.Stream(non_blocking=True)
                self._callers = Callers(self._stream)
            self._refuse_old()
        self._reaches_all = bool(runtime.deviceGetAttribute(runtime.cudaDevAttrPageableMemoryAccess, number))
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._loaded: WeakValueDictionary[bytes, LoadedKernel] = WeakValueDictionary()
        self._dropped: list[Any] = []
        """Functions that nothing launches any more; they may still be at work."""
        self._blas: Blas | None = None
        self._blas_lt: BlasLt | None = None
        self._dnn: Dnn | None = None

    def _refuse_old(self) -> None:
        has, wants = (".".join(map(str, c)) for c in (self.capability, OLDEST))
        if self.capability < OLDEST:
            raise DeviceError(
                f"{self.name} has the compute capability {has}, and kernels are for {wants} and later: target='cpu' "
                "runs here"
            )

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, major and minor."""
        major, minor = divmod(int(self._device.compute_capability), 10)
        return major, minor

    @property
    def architecture(self) -> str:
        """The name of the compute capability: machine code is for one."""
        return architecture(self.capability)

    @contextmanager
    def call(self) -> Iterator[None]:
        """One thread at a time; the callers' streams wait for what was asked for. Raises ``DeviceError`` in a process
        that was forked from the one that opened the GPU."""
        if os.getpid() != self._process:
            raise DeviceError(SPAWN)
        with self._lock, errors("running on the GPU"), self._device:
            self._callers.begin()
            try:
                yield
            finally:
                self._callers.end()
            if self._dropped:
                self._stream.synchronize()
                self._dropped.clear()

    def follow(self) -> None:
        """Wait for what the caller, and whoever made an array that was adopted, have to do by now."""
        self._callers.follow()

    def load(self, objects: Sequence[bytes]) -> Sequence[Any]:
        """The kernels in PTX or cubins, which have one each."""
        return list(map(self._load, objects))

    def _load(self, code: bytes) -> LoadedKernel:
        kernel = self._loaded.get(code)
        if kernel is None:
            module = cupy.cuda.function.Module()
            with errors("loading a kernel"):
                module.load(code)
                kernel = self._loaded[code] = LoadedKernel(module.get_function(ENTRY), self._dropped)
        return kernel

    # -- memory

    def allocate(self, size: int) -> Room:
        """So many bytes of cupy's allocator."""
        try:
            with self._stream:
                memory = cupy.cuda.alloc(size)
        except (cupy.cuda.memory.OutOfMemoryError, runtime.CUDARuntimeError) as error:
            raise self._no_room(size, error) from None
        return Room(memory.ptr, memory)

    def _no_room(self, size: int, error: Exception) -> Exception:
        if getattr(error, "status", 2) != 2:
            return error
        free, total = runtime.memGetInfo()
        free += cupy.get_default_memory_pool().free_bytes()
        return DeviceMemoryError(
            f"the program wants {size} bytes ({size / 2**30:.1f} GiB) of the GPU's memory, and {free} of {total} are "
            f"free: smaller inputs, or fewer programs at once, need less"
        )

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Resident:
        """An array of cupy's; one of unsigned integers where cupy does not know the dtype."""
        try:
            try:
                array = cupy.empty(shape, dtype)
            except (TypeError, ValueError):
                array = cupy.empty(shape, f"u{dtype.itemsize}")
        except (cupy.cuda.memory.OutOfMemoryError, runtime.CUDARuntimeError) as error:
            raise self._no_room(prod(shape) * dtype.itemsize, error) from None
        return Resident(array.data.ptr, shape, dtype, array)

    def adopt(self, value: Any) -> Resident | None:
        """Arrays of cupy, torch and all that has DLPack or ``__cuda_array_interface__``."""
        array = self._array(value)
        if array is None:
            return None
        place = array.data
        if place.device_id != self.number:
            raise InputError(f"the array is on GPU {place.device_id}, and the program on GPU {self.number}")
        self._callers.add(value)
        is_copy = not array.flags.c_contiguous
        if is_copy:  # to ask for what is there takes as long as a launch
            array = cupy.ascontiguousarray(array)
            place = array.data
        return Resident(place.ptr, array.shape, array.dtype, array, is_copy)

    @staticmethod
    def _array(value: Any) -> Any:
        """The value as cupy's array without a copy; None for what is not on a GPU."""
        if isinstance(value, cupy.ndarray):
            return value
        try:
            if hasattr(value, "__dlpack_device__"):
                return cupy.from_dlpack(value) if value.__dlpack_device__()[0] in DLPACK_KINDS else None
            return cupy.asarray(value) if hasattr(value, "__cuda_array_interface__") else None
        except Exception as error:  # of whatever library the array is
            message = " ".join(str(error).split())
            raise InputError(f"cupy cannot take this {type(value).__name__} as it is on the GPU: {message}") from None

    def upload(self, array: Array, address: int) -> None:
        """Copy an array to an address. CUDA has read memory that only the host can reach when it returns; what the GPU
        reaches by itself, pinned or managed, it may read later, and is waited for."""
        if not array.nbytes:
            return
        host_address = array.ctypes.data
        runtime.memcpyAsync(address, host_address, array.nbytes, runtime.memcpyHostToDevice, self._stream.ptr)
        if self._reaches_all or runtime.pointerGetAttributes(host_address).type != runtime.memoryTypeUnregistered:
            self._stream.synchronize()

    def download(self, address: int, array: Array) -> None:
        """Copy what is at an address into an array."""
        if array.nbytes:
            host_address = array.ctypes.data
            runtime.memcpyAsync(host_address, address, array.nbytes, runtime.memcpyDeviceToHost, self._stream.ptr)
        self._stream.synchronize()

    def copy(self, source: int, target: int, size: int) -> None:
        """Copy bytes on the GPU."""
        if size:
            runtime.memcpyAsync(target, source, size, runtime.memcpyDeviceToDevice, self._stream.ptr)

    def clear(self, address: int, size: int) -> None:
        """Make bytes zero."""
        if size:
            runtime.memsetAsync(address, 0, size, self._stream.ptr)

    # -- work

    def kernel(self, function: Any, block: tuple[int, int, int], args: Words, grid: Words) -> Run:
        """A launch of a kernel with the words in ``args`` and ``grid``."""
        self._check(function.ptr, prod(block))
        # the driver takes the addresses of the arguments, which lie in words that stay where they are
        places = np.array(args.ctypes.data + 8 * np.arange(max(len(args), 1)), np.int64)
        launch, where, pointers, stream = driver.launchKernel, function.ptr, places.ctypes.data, self._stream.ptr

        def run(keep: Any = (places, function)) -> None:
            x, y, z = grid.tolist()
            if x and y and z:
                launch(where, x, y, z, *block, 0, stream, pointers, 0)

        return run

    def _check(self, function: int, threads: int) -> None:
        """Raise ``DeviceError`` for a block that wants more registers than there are."""
        most = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function)
        if threads > most:
            registers = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS, function)
            raise DeviceError(
                f"a kernel with {registers} registers for each thread runs in blocks of at most {most} threads on "
                f"{self.name}, and {threads} are asked for: use smaller blocks"
            )

    def library(self, function: Function, args: Words) -> Run:
        """A call of cuBLAS, or cuBLASLt where the product has an epilogue, or cuDNN."""
        if isinstance(function, Convolution):
            self._dnn = self._dnn or Dnn(self._stream.ptr, self.allocate)
            return self._dnn.convolution(function, args)
        if function.has_bias or function.epilogue:
            self._blas_lt = self._blas_lt or BlasLt(self._stream.ptr, self)
            return self._blas_lt.gemm(function, args)
        self._blas = self._blas or Blas(self._stream.ptr, self)
        return self._blas.gemm(function, args)

    def capture(self, run: Run) -> Run | None:
        """A CUDA graph of what ``run`` asks for; None where some of it cannot be part of one."""
        stream = self._stream
        stream.begin_capture()
        try:
            run()
        except BaseException as error:
            with suppress(Exception):  # a stream that is left capturing runs nothing any more
                stream.end_capture()
            if is_of_cuda(error):
                return None
            raise
        try:
            graph = stream.end_capture()
        except Exception as error:
            if is_of_cuda(error):
                return None
            raise
        return lambda: graph.launch(stream)

    # -- time

    def mark(self) -> Any:
        """An event on the stream."""
        return self._stream.record()

    def between(self, begin: Any, end: Any) -> float:
        """The seconds between two events."""
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(begin, end)) / 1e3

    def synchronize(self) -> None:
        """Wait for the stream."""
        with errors("running on the GPU"):
            self._stream.synchronize()
