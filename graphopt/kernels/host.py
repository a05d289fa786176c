"""Host processor: its name and features, for which kernels are compiled."""

from __future__ import annotations

from functools import cache
from typing import Final

from graphopt.frozen import dataclass
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


ENTRIES: Final = 256
"""Entries of a table of bytes: one for each code."""


@dataclass(frozen=True, slots=True)
class Permutation:
    """An instruction that looks bytes up in registers: its name, the bytes of a vector, the entries that it looks in,
    what a processor needs to have it, and for how many codes it takes less than to read each entry by itself. The
    entries are in two vectors, or in each 16 bytes of one."""

    name: str
    lanes: int
    entries: int
    needed: str
    least: int


PERMUTATIONS: Final = (
    Permutation("avx512.vpermi2var.qi.512", 64, 128, "avx512vbmi", 2),
    Permutation("avx512.pshuf.b.512", 64, 16, "avx512bw", 16),
    Permutation("avx2.pshuf.b", 32, 16, "avx2", 16),
    Permutation("ssse3.pshuf.b.128", 16, 16, "ssse3", 16),
)
"""The instructions, the best first."""


def permutation() -> Permutation | None:
    """The processor's instruction that looks bytes up, if it has one."""
    features, most = cpu.features(), vector_bytes()
    return next((p for p in PERMUTATIONS if p.needed in features and p.lanes <= most), None)


def looks_up() -> bool:
    """Whether a byte is looked up, in a table of all bytes, in less time than it takes to round one number: where two
    instructions see all of it."""
    found = permutation()
    return found is not None and 2 * found.entries >= ENTRIES


def block_tile() -> tuple[int, int]:
    """Rows and blocks of the tile of a product in single precision that fills the registers: an even number of rows."""
    registers, vectors = 32 if vector_bytes() == 64 else 16, BLOCK // lanes("float32")
    blocks = 2 if vectors == 1 else 1
    return max((registers - 1) // (blocks * vectors) - 1 & ~1, 2), blocks
