"""CUDA kernel compilation: PTX and machine code by several processes, cached."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from graphopt.kernels import cache
from graphopt.kernels.compile import CompileListener, compile_kernels
from graphopt.kernels.cuda.machine import Capability, MachineCode, architecture, machine_code
from graphopt.kernels.kernel import Kernel
from graphopt.runtime import cpu, disk_cache

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
    listener: CompileListener | None = None,
) -> list[str]:
    """The PTX of each kernel; ``jobs`` and ``listener`` are those of ``compile_kernels``."""
    wanted = [replace(kernel, target=architecture(capability)) for kernel in kernels]
    return [code.decode() for code in compile_kernels(wanted, jobs=jobs, listener=listener)]


def assemble(texts: Sequence[str], capability: Capability, *, jobs: int | None = None) -> list[MachineCode]:
    """The machine code of each PTX, for one compute capability: what is not cached by ``jobs`` threads (None: one for
    each core). Raises what ``machine_code`` raises."""

    def assembled(text: str) -> MachineCode:
        name = disk_cache.key(cache.gpu_compiler(), architecture(capability), text)
        path = cache.folder() / f"{name}.cubin"
        kept = disk_cache.read(path)
        if kept is not None:
            head, _, code = kept.partition(b"\n")
            return MachineCode(code, *json.loads(head))
        compiled = machine_code(text, capability)
        head = json.dumps([compiled.registers, compiled.spilled, compiled.local, compiled.shared]).encode()
        disk_cache.write(path, head + b"\n" + compiled.code)
        return compiled

    different = list(dict.fromkeys(texts))
    with ThreadPoolExecutor(max(1, cpu.cores() if jobs is None else jobs)) as threads:
        codes = dict(zip(different, threads.map(assembled, different), strict=True))
    return [codes[text] for text in texts]
