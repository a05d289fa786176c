"""Host processor: its name and features, for which kernels are compiled."""

from __future__ import annotations

from functools import cache

from graphopt.runtime import cpu

BLOCK = 16
"""Channels in a block of an image."""

_BYTES = {"float64": 8, "int64": 8, "uint64": 8, "float32": 4, "int32": 4, "uint32": 4}


@cache
def vector_bytes() -> int:
    """The size in bytes of the widest vectors that are computed at full speed."""
    features = cpu.features()
    return 64 if "avx512f" in features else 32 if "avx2" in features else 16


def registers() -> int:
    """The number of vector registers."""
    return 32 if vector_bytes() == 64 else 16


def lanes(dtype: str) -> int:
    """The number of elements of a dtype in a vector; narrow ones have no more lanes than single precision."""
    return vector_bytes() // _BYTES.get(dtype, 4)


def looks_up() -> bool:
    """Whether a byte is looked up, in a table of all bytes, in less time than it takes to round one number."""
    return vector_bytes() == 64 and "avx512vbmi" in cpu.features()


def block_tile() -> tuple[int, int]:
    """Rows and blocks of the tile of a product in single precision that fills the registers: an even number of rows."""
    registers, vectors = 32 if vector_bytes() == 64 else 16, BLOCK // lanes("float32")
    blocks = 2 if vectors == 1 else 1
    return max((registers - 1) // (blocks * vectors) - 1 & ~1, 2), blocks
