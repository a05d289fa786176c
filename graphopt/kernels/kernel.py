"""Kernel: Python source that numba compiles, and the types of its parameters."""

from __future__ import annotations

from typing import Final

from graphopt.frozen import dataclass

SIZE = "size"
"""The parameter kind of an int64 scalar."""
SHARED = "shared"
"""The one parameter kind of code that is no kernel, but what kernels call: its source is its name."""
STORED: Final = {"bool": "uint8", "float16": "uint16", "bfloat16": "uint16"}
"""How elements lie in memory that kernels do not compute with as they are, by dtype."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """Source that defines ``kernel(<params>, lo, hi)``, which does the work items from ``lo`` up to ``hi``.

    ``params`` says of each parameter before ``lo`` the dtype of the elements that it points to, or ``SIZE``. The
    function returns 0, or another number where it could not do its work.
    """

    source: str
    params: tuple[str, ...]
    target: str = ""
    """What it is compiled for: this processor where it is empty, or GPUs of a compute capability (``sm_90``), where
    there are no ``lo`` and ``hi``."""
    noalias: bool = False
    """Whether LLVM is told that memory which is written through one of the pointers is reached through no other, so
    that it keeps in registers what it would else read again after each store. Those for GPUs take no notice of it."""
    contract: bool = True
    """Whether a product and a sum of the source may be contracted to a fused multiply-add, which is rounded once.
    Those for GPUs take no notice of it."""
