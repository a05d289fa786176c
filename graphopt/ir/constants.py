"""Constants by reference: what a graph holds in place of bytes, read only when something asks for the elements.

A constant knows its dtype and shape. Its elements are held in memory, mapped from a file, or one
number repeated. Two constants are *the same* (``==``) when they are one object, or small and equal
element by element; large ones are compared by digest, and only when something asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SMALL = 64
"""Constants of at most this many elements are compared by their elements."""
ALIGNMENT = 64
"""Bytes of the widest vectors, which are read in one step where their address is a multiple of it."""

SPARSE = 1 << 24
"""How many elements a sparse tensor has at most that is compared by its elements, and not by what it holds."""


def aligned(array: Array) -> Array:
    """An array that was computed, row-major, in memory from which whole vectors are read in one step.

    The array itself where it is so already, is small, or shares its memory with another as it is.
    """
    is_whole = array.flags.c_contiguous and (array.base is not None or array.ctypes.data % ALIGNMENT == 0)
    if is_whole or array.dtype.kind in "OUS" or array.size <= SMALL:
        return array
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    skip = -memory.ctypes.data % ALIGNMENT
    copy: Array = memory[skip : skip + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class Constant:
    """A tensor whose elements are known. Immutable.

    ``read`` gives the elements when they are first needed and must always give the same; ``source``
    is whatever the reader of the model wants to find again when it writes the tensor (its external
    file, say). ``splat`` is the one element that fills a constant made by ``Constant.full``.
    """

    def __init__(
        self,
        dtype: str,
        shape: tuple[int, ...],
        read: Callable[[], Array],
        source: object = None,
        splat: Array | None = None,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.source = source
        self.splat = splat
        self._read = read
        self.bounds: tuple[float, float] | None = None
        """The least and the greatest element, where somebody has looked (``ir.bounds``)."""

    @staticmethod
    def of(array: Array, dtype: str | None = None) -> Constant:
        """A constant that holds this array; strings are arrays of objects."""
        array = np.asarray(array)
        name = dtype or ("string" if array.dtype.kind in "OUS" else array.dtype.name)
        return Constant(name, array.shape, lambda: array)

    @staticmethod
    def full(shape: tuple[int, ...], element: Array) -> Constant:
        """``element`` (of rank 0) repeated to a shape, without storing the repetition."""
        return Constant(element.dtype.name, shape, lambda: np.broadcast_to(element, shape), splat=element)

    @property
    def size(self) -> int:
        """The number of elements."""
        total = 1
        for n in self.shape:
            total *= n
        return total

    @property
    def nbytes(self) -> int:
        """Bytes that the elements take in a file; a repeated element is stored once."""
        if self.splat is not None:
            return self.splat.nbytes
        if self.dtype == "string":
            return sum(len(str(s)) for s in self.array.flat)
        return (self.size * BITS[self.dtype] + 7) // 8

    @cached_property
    def array(self) -> Array:
        """The elements; not to be written to."""
        return self._read()

    @cached_property
    def digest(self) -> bytes:
        """A hash of dtype, shape and elements, taken once and only when asked for."""
        head = f"{self.dtype}{self.shape}".encode()
        if self.dtype == "string":
            return blake2b(head + repr(self.array.tolist()).encode(), digest_size=16).digest()
        state = blake2b(head, digest_size=16)
        if self.splat is not None and self.size > SMALL:
            state.update(b"splat" + self.splat.tobytes())  # written out, it might not end
            return state.digest()
        parts = getattr(self.source, "parts", None)
        if parts is not None and self.size > SPARSE:
            state.update(b"sparse" + b"".join(part.digest for part in parts))
            return state.digest()
        state.update(np.ascontiguousarray(self.array).reshape(-1).view(np.uint8).data)
        return state.digest()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Constant) or (self.dtype, self.shape) != (other.dtype, other.shape):
            return False
        return self.size <= SMALL and self.digest == other.digest

    def __hash__(self) -> int:
        if self.size <= SMALL:
            return hash(self.digest)
        return id(self)

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        return f"<{self.dtype}[{shape}]>"


BITS = {
    "bool": 8, "int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64, "uint64": 64,
    "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64, "complex64": 64, "complex128": 128,
    "int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6,
    "float8_e4m3fn": 8, "float8_e4m3fnuz": 8, "float8_e5m2": 8, "float8_e5m2fnuz": 8, "float8_e8m0fnu": 8,
}  # fmt: skip
"""Bits per stored element."""
