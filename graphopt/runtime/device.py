"""Device interface: what a device has to do so that programs run on it, which is to hold arrays and to run kernels.

Addresses are numbers, as on the host. What is asked of a device is done in the order in which it was asked for, and
only ``download``, ``synchronize`` and ``between`` wait for it. One call of a program runs on a device at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from graphopt.frozen import dataclass
from graphopt.runtime.library_calls import Function
from graphopt.runtime.steps import Array, Words

Run: TypeAlias = Callable[[], None]
"""Asks a device to run what was prepared, with the arguments that are in its words by then."""

DLPACK_KINDS: Final = 2, 13
"""DLPack's numbers for memory of a GPU by CUDA, and for memory that its driver moves there and back."""
APART: Final = 256
"""Bytes: what is allocated on a device, and what lies in memory of a program's own there, begins at multiples of it, as
libraries like it best."""
ALIGNMENT: Final = 16
"""Bytes: arrays that kernels work on begin at multiples of it, so that they can be read 16 bytes at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Resident:
    """A row-major array in a device's memory; ``owner`` is what keeps it there, and what a caller is given.

    It is a copy where the caller's own is not row-major."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: Any
    is_copy: bool = False

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)


class Allocation(Protocol):
    """Bytes of a device, given back with the object."""

    @property
    def address(self) -> int:
        """Where they begin, a multiple of ``APART``."""


class Device(Protocol):
    """Runs kernels on memory of its own."""

    @property
    def name(self) -> str:
        """What its maker calls it."""

    @property
    def architecture(self) -> str:
        """What code has to be compiled for to run on it."""

    def load(self, objects: Sequence[bytes]) -> Sequence[Any]:
        """The kernels in pieces of code that was compiled for this device."""

    def call(self) -> AbstractContextManager[object]:
        """Within it a program is called, by one thread at a time; what the caller asks of the device after it is done
        after it."""

    def follow(self) -> None:
        """Have what is asked for from here on be done after all that the caller has asked of the device by now."""

    # -- memory

    def allocate(self, size: int) -> Allocation:
        """So many bytes, with anything in them; raises ``DeviceMemoryError`` where they cannot be had."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Resident:
        """An array for the caller, with anything in it; raises ``DeviceMemoryError``."""

    def adopt(self, value: Any) -> Resident | None:
        """An array that is on this device already, copied only where it is not row-major; None for anything else."""

    def upload(self, array: Array, address: int) -> None:
        """Copy a row-major array to an address; it may change as soon as this returns."""

    def download(self, address: int, array: Array) -> None:
        """Copy what is at an address into a row-major array."""

    def copy(self, source: int, target: int, size: int) -> None:
        """Copy bytes from one address to another."""

    def clear(self, address: int, size: int) -> None:
        """Make bytes zero."""

    # -- work

    def kernel(self, function: Any, block: tuple[int, int, int], args: Words, grid: Words) -> Run:
        """What launches a kernel (``load``), unless the grid has no blocks; raises ``DeviceError`` where a block of
        threads wants more than there is, such as of registers."""

    def library(self, function: Function, args: Words) -> Run:
        """What calls a library's function."""

    def capture(self, run: Run) -> Run | None:
        """What asks at once for all that ``run`` would ask for, as its words are now; None where that cannot be had."""

    # -- time

    def mark(self) -> Any:
        """A moment: that at which the device has done all that it was asked for so far."""

    def between(self, begin: Any, end: Any) -> float:
        """The seconds from one moment to the other."""

    def synchronize(self) -> None:
        """Wait until the device has done all that it was asked for; raises ``ExecutionError`` where it failed."""
