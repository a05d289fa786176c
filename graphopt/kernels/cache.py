"""Kernel cache keys: ``<key>.py`` is the source on disk, ``<key>.o`` the object code."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, distributions
from pathlib import Path

from graphopt.errors import MissingDependencyError
from graphopt.kernels.cuda.machine import EXTRA
from graphopt.kernels.kernel import Kernel
from graphopt.runtime import disk_cache

_HERE = Path(__file__).parent
_FOR_GPUS = ("cuda-", "numba-cuda", "nvidia-")
"""How the names of packages begin that make the code of GPUs."""


def folder() -> Path:
    """The folder of kernels; raises ``UsageError`` where others may write or read it."""
    return disk_cache.folder("kernels")


def digest(kernel: Kernel) -> str:
    """The name of a kernel's files: of its source, its parameters, its target, and all that compiles it."""
    compiled_by, *options = (
        [gpu_compiler(), kernel.target] if kernel.target else [compiler(), *["noalias"] * kernel.noalias]
    )
    options += ["no contraction"] * (not kernel.contract)
    return disk_cache.key(compiled_by, *options, *kernel.params, kernel.source)


@cache
def compiler() -> str:
    """A digest of all that object code depends on apart from the kernel: the compilers, the processor, this package."""
    try:
        return disk_cache.digest_of_code(sorted(_HERE.glob("*.py")), ("numba", "llvmlite"), is_native=True)
    except PackageNotFoundError as error:
        missing = error.name
        raise MissingDependencyError(
            f"{missing} is not installed, and compiles kernels: pip install {missing}"
        ) from None


@cache
def gpu_compiler() -> str:
    """A digest of all that the code of GPUs depends on apart from the kernel: the compilers, and this package."""
    packages = sorted({d.name for d in distributions() if d.name.lower().startswith(_FOR_GPUS)})
    if "numba-cuda" not in map(str.lower, packages):
        raise MissingDependencyError(f"numba-cuda is not installed, and compiles kernels for GPUs: {EXTRA}")
    return compiler() + disk_cache.digest_of_code([_HERE / "cuda"], packages)
