"""Device parameters: threads, shared memory and warp exchange that CUDA schedules go by."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import Final

from graphopt.frozen import dataclass
from graphopt.ir.constants import BITS
from graphopt.kernels.cuda.limits import ACCESS, SHARED


@dataclass(frozen=True, slots=True)
class Card:
    """The limits within which nests are scheduled; those of the default hold for every card since compute capability
    8.0.

    ``threads`` is how many a block has at most, ``shared`` the bytes that they share, ``access`` the bytes that a
    thread reads or writes at once, ``has_exchange`` whether threads of a warp may hand each other values without shared
    memory, ``blocks`` how many blocks keep the whole card busy.
    """

    threads: int = 256
    shared: int = SHARED
    access: int = ACCESS
    has_exchange: bool = True
    blocks: int = 1024
    has_epilogues: bool = False
    """Whether the library adds a bias to a product, and does relu and gelu to it, itself (cuBLASLt)."""
    has_convolutions: bool = False
    """Whether there is a library of convolutions (cuDNN)."""
    is_approximate: bool = False
    """Whether what is computed may be near to what is said: by operands of float32 that are rounded to TF32, which has
    the 10 bits of a half float, and by the gelu of tanh for that of erf."""

    def width(self, dtypes: Iterable[str], extent: int = 0) -> int:
        """The widest access of a thread for all dtypes, in elements: a power of two that divides a row of
        ``extent``."""
        return gcd(self.access * 8 // max(BITS[dtype] for dtype in dtypes), extent)


CARD: Final = Card()
"""Any card."""
SIMULATED: Final = Card(threads=64, has_exchange=False, blocks=4)
"""What is simulated within a bearable time; threads hand each other values by shared memory alone."""
