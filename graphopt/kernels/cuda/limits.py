"""Hardware limits of all GPUs since compute capability 8.0: warp size, threads, shared memory."""

from __future__ import annotations

from typing import Final

from graphopt.runtime.device import ALIGNMENT

WARP: Final = 32
"""Threads that run in step."""
THREADS: Final = 1024
"""Threads of a block, at most."""
SHARED: Final = 48 << 10
"""Bytes that the threads of a block may share where the kernel's source declares them."""
ACCESS: Final = ALIGNMENT
"""Bytes that a thread reads or writes at once, at most; so many have to begin at a multiple of that."""
COPIES: Final = (4, 8, ACCESS)
"""Bytes that may be copied at once from memory to what a block shares, while the thread goes on."""
GLOBAL_SPACE: Final = 1
SHARED_SPACE: Final = 3
"""The address spaces of the GPU's memory, and of what the threads of a block share."""
