"""Object code that is kept between runs, in the cache on disk.

A kernel's files are named by a digest of all that its object code depends on: ``<digest>.py`` is the source,
``<digest>.o`` the object code behind a checksum. What was used longest ago goes where kernels take more than ``MOST``
bytes.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distributions
from pathlib import Path

from graphopt.errors import MissingDependencyError
from graphopt.kernels.cuda.machine import EXTRA
from graphopt.kernels.kernel import Kernel
from graphopt.runtime import cpu, disk_cache

MOST = 1 << 28
"""Bytes that all kernels take at most, more or less: it is seen to once in a while."""

_HERE = Path(__file__).parent
_MARK = b"graphopt object 1\n"
_FOR_GPUS = ("cuda-", "numba-cuda", "nvidia-")
"""How the names of packages begin that make the code of GPUs."""
_WHILE = 3600.0
"""Seconds after which kernels are counted again."""


def folder() -> Path:
    """The folder of kernels; raises ``UsageError`` where others may write or read it."""
    return disk_cache.folder("kernels")


def digest(kernel: Kernel) -> str:
    """The name of a kernel's files: of its source, its parameters, its target, and all that compiles it."""
    tools = [gpu_compiler(), kernel.target] if kernel.target else [compiler(), *["noalias"] * kernel.noalias]
    return sha256("\0".join([*tools, *kernel.params, kernel.source]).encode()).hexdigest()[:40]


def stored(place: Path) -> bytes | None:
    """The object code in a file; None where there is none, or where it is damaged."""
    try:
        content = place.read_bytes()
    except OSError:
        return None
    head = len(_MARK) + 32
    code = content[head:]
    return code if content[:head] == _MARK + sha256(code).digest() else None


def prune_kernels() -> None:
    """Drop the kernels that were used longest ago, where there are too many and nobody looked lately."""
    place, looked = folder(), folder().parent / "kernels-counted"
    with suppress(OSError):
        if looked.exists() and abs(time.time() - looked.stat().st_mtime) < _WHILE:
            return
        looked.touch()
        disk_cache.prune(place, MOST)


def store(place: Path, code: bytes) -> None:
    """Keep object code in a file, which is there as a whole or not at all."""
    disk_cache.write(place, _MARK + sha256(code).digest() + code)


@cache
def compiler() -> str:
    """A digest of all that object code depends on apart from the kernel: the compilers, the processor, this package."""
    try:
        made = disk_cache.digest_of(sorted(_HERE.glob("*.py")), ("numba", "llvmlite"))
    except PackageNotFoundError as error:
        missing = error.name
        raise MissingDependencyError(
            f"{missing} is not installed, and compiles kernels: pip install {missing}"
        ) from None
    return sha256(f"{made} {cpu.level() or cpu.name()} {' '.join(sorted(cpu.features()))}".encode()).hexdigest()


@cache
def gpu_compiler() -> str:
    """A digest of all that the code of GPUs depends on apart from the kernel: the compilers, and this package."""
    found = {(d.name.lower(), d.version) for d in distributions() if d.name.lower().startswith(_FOR_GPUS)}
    if "numba-cuda" not in {name for name, _ in found}:
        raise MissingDependencyError(f"numba-cuda is not installed, and compiles kernels for GPUs: {EXTRA}")
    return sha256(f"{compiler()} {disk_cache.digest_of([_HERE / 'cuda'])} {sorted(found)}".encode()).hexdigest()
