"""Programs in destination-passing style: all arrays are the caller's, and some are written."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from graphopt.errors import InputError
from graphopt.runtime.binding import Binding
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
            if not (array.flags.writeable and is_row_major(array)):
                why = "row-major and aligned" if array.flags.writeable else "writable, and not read-only"
                raise InputError(
                    f"argument {self.inputs[k]!r} is written in place, and an array that is {why} is expected"
                )
            for n, other in enumerate(arrays):
                if n != k and is_row_major(other) and np.may_share_memory(array, other):  # others are copied before
                    raise InputError(
                        f"arguments {self.inputs[k]!r} and {self.inputs[n]!r} share memory, and the first is written: "
                        "give it an array of its own"
                    )
        return arrays


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
