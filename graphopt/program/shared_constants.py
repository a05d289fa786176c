"""Constants that programs share: equal ones are one array."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from graphopt.runtime.dtypes import OBJECTS, STORAGE
from graphopt.runtime.steps import Array

_OBJECTS = {STORAGE[name] for name in OBJECTS}


class SharedConstants:
    """Arrays of programs that were made so far, by content; packed ones among them."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, tuple[int, ...], bytes], Array] = {}

    def __call__(self, constants: Mapping[int, Array]) -> dict[int, Array]:
        """The constants of one more program, those that are there already in place of equal ones."""
        return {n: self._shared(array) for n, array in constants.items()}

    def _shared(self, array: Array) -> Array:
        if array.dtype in _OBJECTS:
            return array
        content = sha256(array.reshape(-1).view("u1").data).digest()
        return self._arrays.setdefault((array.dtype.name, array.shape, content), array)
