"""Kernels for GPUs become PTX as those for the processor become object code: by several processes, cached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphopt.kernels.compile import Listener, compile_kernels
from graphopt.kernels.cuda.machine import Capability, architecture
from graphopt.kernels.kernel import Kernel

ENTRY = "kernel"
"""What the one function of the PTX is called."""


def ptx(kernel: Kernel, capability: Capability = (9, 0)) -> str:
    """The PTX of a kernel, whose function ``kernel`` takes the pointers and sizes of its parameters, for GPUs of that
    compute capability and later ones.

    Raises ``CompilationError`` where it does not compile; its source is kept.
    """
    return compile_ptx([kernel], capability, jobs=0)[0]


def compile_ptx(
    kernels: Sequence[Kernel],
    capability: Capability = (9, 0),
    *,
    jobs: int | None = None,
    listener: Listener | None = None,
) -> list[str]:
    """The PTX of each kernel; ``jobs`` and ``listener`` are those of ``compile_kernels``."""
    wanted = [replace(kernel, target=architecture(capability)) for kernel in kernels]
    return [code.decode() for code in compile_kernels(wanted, jobs=jobs, listener=listener)]
