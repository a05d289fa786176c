"""PTX assembly by nvJitLink: machine code of one compute capability, without driver or GPU."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from types import ModuleType

from graphopt.errors import CompilationError, MissingDependencyError
from graphopt.frozen import dataclass

EXTRA = "pip install 'graphopt[cuda13]' (or cuda12, for drivers of CUDA 12)"
"""What brings the packages that kernels for GPUs need."""
CUDNN_EXTRA = "pip install 'graphopt[cudnn13]' (or cudnn12, for drivers of CUDA 12)"
"""What brings cuDNN."""
OLDEST_CUDNN = 90000
"""The least version of it, as it says itself."""
Capability = tuple[int, int]
"""A GPU's compute capability, major and minor: (9, 0) is that of an H100."""
OLDEST: Capability = (8, 0)
"""The least that has copies under way and the tensor cores that kernels use."""


@dataclass(frozen=True, slots=True)
class MachineCode:
    """A kernel for one compute capability, and what a thread and a block of it take."""

    code: bytes
    """A cubin: an ELF file that a driver loads."""
    registers: int
    """Per thread."""
    spilled: int
    """Bytes that a thread keeps in memory for want of registers."""
    local: int
    """Bytes of a thread's own that are in memory: arrays with indices that are not known, and what is spilled."""
    shared: int
    """Bytes of a block, those that are known when compiling."""


def machine_code(ptx: str, capability: Capability) -> MachineCode:
    """The machine code of PTX with one kernel. Raises ``CompilationError`` where there is no such code, with what
    the assembler says of it."""
    linker = _linker()
    try:
        handle = linker.create(2, [f"-arch={architecture(capability)}", "-Xptxas=-v"])
    except linker.nvJitLinkError as error:
        raise CompilationError(f"nvJitLink makes no code for {architecture(capability)}: {error}") from None
    try:
        text = ptx.encode()
        linker.add_data(handle, linker.InputType.PTX, text, len(text), "kernel")
        linker.complete(handle)
        code = bytearray(linker.get_linked_cubin_size(handle))
        linker.get_linked_cubin(handle, code)
        log = bytearray(linker.get_info_log_size(handle))
        linker.get_info_log(handle, log)
    except linker.nvJitLinkError:
        error_log = bytearray(linker.get_error_log_size(handle))
        linker.get_error_log(handle, error_log)
        lines = [line.strip() for line in error_log.decode(errors="replace").strip("\0\n ").splitlines()]
        raise CompilationError(f"PTX does not become code for {architecture(capability)}: {'; '.join(lines)}") from None
    finally:
        linker.destroy(handle)
    return _reported(bytes(code), log.decode(errors="replace"))


def has_cublas_lt() -> bool:
    """Whether nvmath-python is installed, which calls cuBLASLt."""
    return find_spec("nvmath") is not None


@cache
def has_cudnn() -> bool:
    """Whether cuDNN and its frontend are installed."""
    if find_spec("cudnn") is None:
        return False
    try:
        import cudnn

        return int(cudnn.backend_version()) >= OLDEST_CUDNN
    except (ImportError, OSError, RuntimeError):
        return False


def architecture(capability: Capability) -> str:
    """The name of a compute capability: ``sm_90``."""
    return f"sm_{capability[0]}{capability[1]}"


def _linker() -> ModuleType:
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()  # the library itself may be missing
    except (ImportError, RuntimeError) as error:
        raise MissingDependencyError(
            f"nvJitLink is not installed, and makes code for GPUs: {EXTRA} ({error})"
        ) from None
    library: ModuleType = nvjitlink
    return library


def _reported(code: bytes, log: str) -> MachineCode:
    """Figures of the one kernel in the assembler's report."""

    def number(pattern: str) -> int:
        return sum(map(int, re.findall(pattern, log)))

    return MachineCode(
        code,
        registers=number(r"Used (\d+) registers"),
        spilled=number(r"(\d+) bytes spill stores"),
        local=number(r"(\d+) bytes stack frame"),
        shared=number(r"(\d+) bytes smem"),
    )
