"""Programs in destination-passing style: all arrays are the caller's, and some are written."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from graphopt.errors import InputError
from graphopt.runtime.binding import Binding
from graphopt.runtime.device import ALIGNMENT, Device, Resident
from graphopt.runtime.device_program import DeviceProgram, overlap
from graphopt.runtime.profile import ProfileRow
from graphopt.runtime.program import Program
from graphopt.runtime.signature import is_row_major
from graphopt.runtime.steps import Array, Code


class InPlaceProgram(Program):
    """A program that writes some of the arrays that it is called with: those named in ``writes``."""

    _noun = "argument"

    def __init__(
        self,
        code: Code,
        writes: Collection[str],
        dtypes: Mapping[str, np.dtype[Any]] | None = None,
        threads: int | None = None,
    ) -> None:
        super().__init__(code, dtypes=dtypes, threads=threads)
        self._written = tuple(k for k, name in enumerate(self.inputs) if name in writes)
        self._expected = tuple((self._dtypes[code.buffers[p.buffer].dtype], p.name in writes) for p in code.inputs)

    def _accepted(self, inputs: tuple[Any, ...]) -> tuple[Sequence[Any], Binding]:
        """As for other programs; arrays of shapes that were accepted before, each row-major and in memory that it owns,
        are looked at once: to find out that they are apart takes as long as all else that is asked of them."""
        if len(inputs) == len(self._expected) == len(set(map(id, inputs))) and not self._closed:
            shapes = []
            for value, (dtype, is_written) in zip(inputs, self._expected, strict=True):
                if type(value) is not np.ndarray or value.dtype is not dtype:
                    break
                flags = value.flags
                if not (flags.owndata and flags.c_contiguous and flags.aligned and (flags.writeable or not is_written)):
                    break
                shapes.append(value.shape)
            else:
                if (binding := self._bindings.get(tuple(shapes))) is not None:
                    return inputs, binding
        return super()._accepted(inputs)

    def _taken(self, values: Sequence[Any]) -> Sequence[Any]:
        """The arrays, without copies of those that are written. InputError where one cannot be written in place, or
        shares memory with another one."""
        arrays = [v if type(v) is np.ndarray else self._signature.array(k, v) for k, v in enumerate(values)]
        for k in self._written:
            array = arrays[k] = _writable(arrays[k], values[k])
            _check_written(self.inputs, k, array)
            for n, other in enumerate(arrays):
                if n != k and is_row_major(other) and np.may_share_memory(array, other):  # others are copied before
                    raise _shared(self.inputs, k, n)
        return arrays


class InPlaceDeviceProgram(DeviceProgram):
    """A program for a device that writes some of the arrays that it is called with: those named in ``writes``. Those
    that lie there are written in place; numpy's are sent there, and fetched when it has run."""

    _noun = "argument"

    def __init__(
        self,
        code: Code,
        device: Device,
        writes: Collection[str],
        dtypes: Mapping[str, np.dtype[Any]] | None = None,
    ) -> None:
        super().__init__(code, device, dtypes=dtypes)
        self._written = tuple(k for k, name in enumerate(self.inputs) if name in writes)

    def _taken(self, values: Sequence[Any]) -> Sequence[Any]:
        """The arrays. InputError where one cannot be written in place, or shares memory with another one."""
        taken = super()._taken(values)
        arrays = [v if isinstance(v, Resident) else self._signature.array(k, v) for k, v in enumerate(taken)]
        for k in self._written:
            array = arrays[k]
            if not isinstance(array, Resident):
                array = arrays[k] = _writable(array, values[k])
            _check_written(self.inputs, k, array)
            for n, other in enumerate(arrays):
                if n != k and _share(array, other):
                    raise _shared(self.inputs, k, n)
        return arrays

    def _run(
        self,
        values: Sequence[Any],
        binding: Binding,
        targets: Mapping[str, Array | Resident],
        rows: list[ProfileRow] | None = None,
    ) -> dict[str, Any]:
        self._given = values
        try:
            return super()._run(values, binding, targets, rows)
        finally:
            self._given = ()

    def _results(self, targets: Mapping[str, Array | Resident], is_resident: bool) -> dict[str, Any]:
        """Nothing: what was written is where the caller has it."""
        for k in self._written:
            array = self._given[k]
            is_there = isinstance(array, Resident)
            if is_there and array.address % ALIGNMENT == 0:  # where kernels wrote
                continue
            place = self._state.on_device(self.code.inputs[k].buffer).address
            if is_there:
                self.device.copy(place, array.address, array.nbytes)
            else:
                self.device.download(place, array)
        return {}


def _check_written(names: Sequence[str], k: int, array: Array | Resident) -> None:
    """InputError where an array cannot be written in place."""
    if isinstance(array, Resident):
        is_writable, is_fit = True, not array.is_copy
    else:
        is_writable, is_fit = array.flags.writeable, is_row_major(array)
    if not (is_writable and is_fit):
        why = "row-major and aligned" if is_writable else "writable, and not read-only"
        raise InputError(f"argument {names[k]!r} is written in place, and an array that is {why} is expected")


def _shared(names: Sequence[str], k: int, n: int) -> InputError:
    return InputError(
        f"arguments {names[k]!r} and {names[n]!r} share memory, and the first is written: give it an array of its own"
    )


def _share(one: Array | Resident, other: Array | Resident) -> bool:
    if isinstance(one, Resident) and isinstance(other, Resident):
        return overlap(one, other)
    if isinstance(one, Resident) or isinstance(other, Resident):
        return False
    return is_row_major(other) and np.may_share_memory(one, other)  # others are copied before


def _writable(array: Array, given: Any) -> Array:
    """The array that was had of what is given, writable where that speaks DLPack before 1.0.

    That has no word for memory that may not be written, and numpy takes all of it for such; who gives an array to be
    filled means it.
    """
    if array.flags.writeable or isinstance(given, np.ndarray | np.generic) or not is_row_major(array):
        return array
    try:
        given.__dlpack__(max_version=(1, 0))
    except TypeError:  # it does not know of versions
        memory = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)  # which the caller holds
        return np.ndarray(array.shape, array.dtype, memoryview(memory)) if array.size else array.copy()
    return array
