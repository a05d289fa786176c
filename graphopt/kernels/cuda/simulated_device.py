"""Simulated device: kernels run in the simulator, library calls in numpy, on host memory.

What CUDA does not promise does not hold here either: memory begins with garbage, a kernel reaches no further than the
memory that it is given lies, and what was captured runs with the arguments that it was captured with.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from time import perf_counter
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from graphopt.errors import DeviceError, DeviceMemoryError
from graphopt.kernels.cuda import simulate
from graphopt.kernels.cuda.simulated_library import compute
from graphopt.kernels.kernel import SIZE, STORED, Kernel
from graphopt.runtime.device import APART, Resident, Run
from graphopt.runtime.dtypes import STORAGE
from graphopt.runtime.library_calls import Function
from graphopt.runtime.steps import Array, Words

_GARBAGE = 0xAB


def packed(kernel: Kernel) -> bytes:
    """A kernel as what a simulated device loads: it needs no compiler."""
    return json.dumps([kernel.source, kernel.params]).encode()


class DeviceBlock:
    """Allocated memory."""

    def __init__(self, size: int) -> None:
        self._whole = np.full(size + APART, _GARBAGE, np.uint8)
        skip = -self._whole.ctypes.data % APART
        self.bytes: Array = self._whole[skip : skip + size]
        self.address: int = self._whole.ctypes.data + skip


class SimulatedArray:
    """An array in a simulated device's memory, as callers have it."""

    def __init__(self, block: DeviceBlock, shape: tuple[int, ...], dtype: np.dtype[Any], start: int = 0) -> None:
        self.block, self.shape, self.dtype = block, shape, dtype
        self.address = block.address + start

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        name = self.dtype.str if self.dtype.isbuiltin else f"<V{self.dtype.itemsize}"
        return {"shape": self.shape, "typestr": name, "data": (self.address, False), "version": 3}

    def get(self) -> Array:
        """A copy in numpy's memory."""
        start, size = self.address - self.block.address, prod(self.shape) * self.dtype.itemsize
        array: Array = self.block.bytes[start : start + size].copy().view(self.dtype).reshape(self.shape)
        return array


class SimulatedDevice:
    """A device that is simulated. ``room`` is how many bytes it has; ``launches``, ``captures`` and ``replays`` count
    what it was asked for."""

    name = architecture = "simulated"

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.launches = self.captures = self.replays = 0
        self._blocks: WeakValueDictionary[int, DeviceBlock] = WeakValueDictionary()
        self._lock = threading.RLock()
        self._captured: list[Run] | None = None

    def load(self, objects: Sequence[bytes]) -> Sequence[Kernel]:
        """The kernels that were packed."""
        kernels = [json.loads(o) for o in objects]
        return [Kernel(source, tuple(params)) for source, params in kernels]

    @contextmanager
    def call(self) -> Iterator[None]:
        """One thread at a time."""
        with self._lock:
            yield

    def follow(self) -> None:
        """All that was asked for is done."""

    # -- memory

    def allocate(self, size: int) -> DeviceBlock:
        """So many bytes of garbage."""
        self._unless_capturing("memory is allocated")
        used_bytes = sum(b.bytes.nbytes for b in self._blocks.values())
        if used_bytes + size > self.room:
            raise DeviceMemoryError(f"{size} bytes are wanted, and {self.room - used_bytes} of {self.room} are left")
        block = DeviceBlock(size)
        self._blocks[block.address] = block
        return block

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Resident:
        """A ``SimulatedArray`` of garbage."""
        block = self.allocate(prod(shape) * dtype.itemsize)
        return Resident(block.address, shape, dtype, SimulatedArray(block, shape, dtype))

    def array(self, values: Array) -> SimulatedArray:
        """A copy of an array in the device's memory."""
        array = self.empty(values.shape, values.dtype)
        self.upload(values, array.address)
        owner: SimulatedArray = array.owner
        return owner

    def adopt(self, value: Any) -> Resident | None:
        """Simulated arrays as they are."""
        if not isinstance(value, SimulatedArray):
            return None
        return Resident(value.address, value.shape, value.dtype, value)

    def upload(self, array: Array, address: int) -> None:
        """Copy an array to an address."""
        self._unless_capturing("an array is uploaded")
        self._bytes(address, array.nbytes)[:] = array.reshape(-1).view(np.uint8)

    def download(self, address: int, array: Array) -> None:
        """Copy what is at an address into an array."""
        self._unless_capturing("an array is downloaded")
        array.reshape(-1).view(np.uint8)[:] = self._bytes(address, array.nbytes)

    def copy(self, source: int, target: int, size: int) -> None:
        """Copy bytes."""
        self._unless_capturing("memory is copied")
        self._bytes(target, size)[:] = self._bytes(source, size)

    def clear(self, address: int, size: int) -> None:
        """Make bytes zero."""
        self._bytes(address, size)[:] = 0

    def _bytes(self, address: int, size: int | None = None) -> Array:
        """Memory from an address on, up to the end of its block; ``DeviceError`` where nothing is there."""
        start = max((a for a in self._blocks if a <= address), default=None)
        block = None if start is None else self._blocks.get(start)
        if block is not None:
            view = block.bytes[address - block.address :]
            if address <= block.address + block.bytes.nbytes and len(view) >= (size or 0):
                return view if size is None else view[:size]
        if size == 0:
            return np.empty(0, np.uint8)
        raise DeviceError(f"the device has no {size or ''} bytes at {address:#x}")

    # -- work

    def kernel(self, function: Kernel, block: tuple[int, int, int], args: Words, grid: Words) -> Run:
        """A run of a kernel in the simulator."""
        if len(args) != len(function.params):
            raise ValueError(f"the kernel has {len(function.params)} parameters, and {len(args)} arguments are given")

        def launch(words: Sequence[int], blocks: tuple[int, ...]) -> None:
            self.launches += 1
            if 0 not in blocks:
                given = [self._given(p, w) for p, w in zip(function.params, words, strict=True)]
                simulate.run(function, blocks, block, given)

        return lambda: self._do(launch, [int(w) for w in args], tuple(int(g) for g in grid))

    def library(self, function: Function, args: Words) -> Run:
        """A run of a library function in numpy."""

        def call(words: Sequence[int]) -> None:
            self.launches += 1
            compute(function, dict(zip(function.params, words, strict=True)), self._typed)

        return lambda: self._do(call, [int(w) for w in args])

    def capture(self, run: Run) -> Run:
        """Keeps what ``run`` asks for, with its arguments."""
        self.captures += 1
        runs: list[Run] = []
        self._captured = runs
        try:
            run()
        finally:
            self._captured = None

        def replay() -> None:
            self.replays += 1
            for each in runs:
                each()

        return replay

    def _do(self, work: Any, *args: Any) -> None:
        if self._captured is None:
            work(*args)
        else:
            self._captured.append(lambda: work(*args))

    def _unless_capturing(self, what: str) -> None:
        if self._captured is not None:
            raise DeviceError(f"{what} while launches are captured")

    def _given(self, param: str, word: int) -> Any:
        """An argument as the simulator takes it."""
        if param == SIZE:
            return word
        stored = STORED.get(param, param)
        return self._typed(word, STORAGE.get(stored, np.dtype(stored)))

    def _typed(self, address: int, dtype: np.dtype[Any]) -> Array:
        memory = self._bytes(address)
        return memory[: len(memory) // dtype.itemsize * dtype.itemsize].view(dtype)

    # -- time

    def mark(self) -> float:
        """This moment: all that was asked for is done."""
        return perf_counter()

    def between(self, begin: float, end: float) -> float:
        """The seconds between."""
        return end - begin

    def synchronize(self) -> None:
        """Nothing is left to wait for."""
