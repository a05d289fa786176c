"""Signature of a program: each array of a call is checked by name, and its sizes bind the symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphopt.errors import InputError
from graphopt.runtime.device import Resident
from graphopt.runtime.dtypes import STORAGE
from graphopt.runtime.sizes import Size, evaluate, show
from graphopt.runtime.steps import Array, Code

_IN_ORDER, _BY_NAME = (tuple, list), (dict, Mapping)
_TOGETHER = (*_IN_ORDER, *_BY_NAME)


def is_row_major(array: Array) -> bool:
    """Whether an array is row-major, and aligned."""
    flags = array.flags
    return flags.c_contiguous and flags.aligned


def given(inputs: tuple[Any, ...]) -> Mapping[str, Any] | Sequence[Any]:
    """The arrays of a call: all that it is called with, or the one mapping or sequence of them."""
    return inputs[0] if len(inputs) == 1 and isinstance(inputs[0], _TOGETHER) else inputs


class Signature:
    """The inputs of a program: their names, dtypes and shapes. Messages call one of them a ``noun``."""

    def __init__(self, code: Code, dtypes: Mapping[str, np.dtype[Any]], noun: str = "input") -> None:
        self._noun = noun
        self.names = tuple(p.name for p in code.inputs)
        self._specs = tuple(code.buffers[p.buffer] for p in code.inputs)
        self._dtypes = tuple(dtypes[s.dtype] for s in self._specs)
        self._defaults = {p.name: code.constants[p.buffer] for p in code.inputs if p.buffer in code.constants}

    def shapes(self, values: Sequence[Any]) -> tuple[tuple[int, ...], ...] | None:
        """The shapes of arrays that can be taken as they are if these shapes fit; None where there are others."""
        shapes = []
        for value, dtype in zip(values, self._dtypes, strict=False):
            if type(value) is Resident and value.dtype is dtype:
                shapes.append(value.shape)
                continue
            if type(value) is not np.ndarray or value.dtype is not dtype:
                return None
            flags = value.flags
            if not (flags.c_contiguous and flags.aligned):
                return None
            shapes.append(value.shape)
        return tuple(shapes)

    def accept(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, int]]:
        """What is given for each input as row-major arrays, and the symbols' values; raises ``InputError``.

        Arrays in a device's memory are taken as they are.
        """
        arrays: list[Any] = []
        symbols: dict[str, int] = {}
        later = False
        for k, value in enumerate(values):
            if type(value) is not np.ndarray:
                value = self.array(k, value)
            later |= self._check(k, value, symbols)
            if self._specs[k].dtype != "object" and not isinstance(value, Resident):
                dtype = self._dtypes[k]
                if value.dtype != dtype:
                    value = value.astype(object) if dtype.hasobject else value.view(dtype)
                if not is_row_major(value):
                    value = value.copy(order="C")
            arrays.append(value)
        if later:
            for k, array in enumerate(arrays):
                self._check_computed(k, array, symbols)
        return arrays, symbols

    def ordered(self, inputs: Mapping[str, Any] | Sequence[Any]) -> Sequence[Any]:
        """What is given for each input, defaults where nothing is; raises ``InputError`` where that is not all."""
        if isinstance(inputs, _IN_ORDER) and len(inputs) == len(self.names):
            return inputs
        if not isinstance(inputs, _BY_NAME):
            if isinstance(inputs, str | bytes) or not isinstance(inputs, Sequence):
                raise InputError(f"a mapping of names to arrays or a sequence is expected, not {type(inputs).__name__}")
            if len(inputs) > len(self.names):
                raise InputError(f"{len(inputs)} arrays are given, and the {self._noun}s are {self._listed()}")
            inputs = dict(zip(self.names, inputs, strict=False))
        try:
            if len(inputs) == len(self.names):
                return [inputs[name] for name in self.names]
            given = {**self._defaults, **inputs}
            if len(given) == len(self.names):
                return [given[name] for name in self.names]
        except KeyError:
            given = {**self._defaults, **inputs}
            if set(self.names) == set(given):
                return [given[name] for name in self.names]
        missing = [n for n in self.names if n not in given]
        unknown = sorted(str(n) for n in given if n not in self.names)
        problems = [f"no array is given for {', '.join(map(repr, missing))}"] if missing else []
        problems += [f"there is no {self._noun} {', '.join(map(repr, unknown))}"] if unknown else []
        raise InputError(f"{' and '.join(problems)}: the {self._noun}s are {self._listed()}")

    def _listed(self) -> str:
        return ", ".join(map(repr, self.names)) or "none"

    def array(self, k: int, value: Any) -> Any:
        """Something that an array can be had of, as an array without a copy. InputError where none can."""
        if self._specs[k].dtype == "object" or isinstance(value, Resident):
            return value
        if isinstance(value, np.ndarray | np.generic):
            return np.asarray(value)
        try:
            if hasattr(value, "__dlpack__"):
                return np.from_dlpack(value)
            if hasattr(value, "__array_interface__"):
                return np.asarray(value)
        except Exception as error:  # of whatever library the array is
            raise InputError(f"{self._called(k)}: numpy cannot take this {type(value).__name__}: {error}") from None
        raise InputError(
            f"{self._called(k)} is of type {type(value).__name__}, and an array is expected: {self._expected(k)}"
        )

    def _called(self, k: int) -> str:
        return f"{self._noun} {self.names[k]!r}"

    def _expected(self, k: int) -> str:
        shape = self._specs[k].shape
        return f"{self._specs[k].dtype}[{'...' if shape is None else ', '.join(map(show, shape))}]"

    def _check(self, k: int, value: Any, symbols: dict[str, int]) -> bool:
        """Check one array and bind its symbols; whether it has sizes that are to be checked once all are bound."""
        spec = self._specs[k]
        if spec.dtype == "object":
            return False
        if spec.dtype == "string":
            right = value.dtype.kind in "OUST"
        else:
            right = value.dtype in (self._dtypes[k], STORAGE[spec.dtype]) or (
                value.dtype.name == spec.dtype and value.dtype.isnative
            )
        shape = spec.shape or ()
        if not right or (spec.shape is not None and value.ndim != len(shape)):
            raise InputError(
                f"{self._called(k)} is {value.dtype}{list(value.shape)}, and {self._expected(k)} is expected"
            )
        later = False
        for axis, (size, wanted) in enumerate(zip(value.shape, shape, strict=spec.shape is not None)):
            if isinstance(wanted, str):
                expected = symbols.setdefault(wanted, size)
            elif isinstance(wanted, int):
                expected = wanted
            else:
                later = True
                continue
            if size != expected:
                self._refuse(k, axis, size, wanted, expected)
        return later

    def _check_computed(self, k: int, value: Any, symbols: Mapping[str, int]) -> None:
        for axis, wanted in enumerate(self._specs[k].shape or ()):
            if isinstance(wanted, tuple):
                expected = evaluate(wanted, symbols)
                if value.shape[axis] != expected:
                    self._refuse(k, axis, value.shape[axis], wanted, expected)

    def _refuse(self, k: int, axis: int, size: int, wanted: Size, expected: int) -> None:
        why = str(expected) if isinstance(wanted, int) else f"{expected}, as {show(wanted)} is by the other inputs,"
        raise InputError(
            f"{self._called(k)} has size {size} along axis {axis}, and {why} is expected: {self._expected(k)}"
        )
