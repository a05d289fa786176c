"""Where object code and programs are kept between runs: folders that only their user may touch.

A kernel's files are named by a digest of all that its object code depends on, so that nothing stale is
ever found: ``<digest>.py`` is the source, ``<digest>.o`` the object code behind a checksum. What was used longest ago
goes where kernels take more than ``MOST`` bytes.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

from graphopt.errors import MissingDependencyError, ReadError, UsageError
from graphopt.kernels.cuda.machine import EXTRA
from graphopt.kernels.kernel import Kernel
from graphopt.runtime import cpu
from graphopt.saving import beside

VARIABLE = "GRAPHOPT_CACHE"
"""The environment variable that names another folder than the user's own cache folder."""

MOST = 1 << 28
"""Bytes that all kernels take at most, more or less: it is seen to once in a while."""

_MARK = b"graphopt object 1\n"
_FOR_GPUS = ("cuda-", "numba-cuda", "nvidia-")
"""How the names of packages begin that make the code of GPUs."""
_WHILE = 3600.0
"""Seconds after which kernels are counted again."""


def folder(name: str = "kernels") -> Path:
    """The folder of that name, made where it is missing; raises ``UsageError`` where others may write or read it."""
    place = _root() / name
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.lstat()
    except OSError as error:
        raise UsageError(
            f"the folder {place} for compiled code cannot be made: {error.strerror}; set {VARIABLE} to another"
        ) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise UsageError(
            f"the folder {place} for compiled code must be this user's alone (mode 0700): what lies there is run; "
            f"chmod 700 it, or set {VARIABLE} to another"
        )
    return place


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


def use(place: Path) -> None:
    """Note that a file is of use."""
    with suppress(OSError):
        os.utime(place)


def prune(folder: Path, most: int) -> None:
    """Drop the files and folders within a folder that were used longest ago, until no more than so many bytes are
    left."""
    found = []
    for place in folder.iterdir():
        with suppress(OSError):  # another process may be dropping it too
            inside = place.iterdir() if place.is_dir() else (place,)
            found.append((place.stat().st_mtime_ns, sum(f.stat().st_size for f in inside), place))
    total = sum(size for _, size, _ in found)
    for _, size, place in sorted(found):
        if total <= most:
            return
        drop(place)
        total -= size


def prune_kernels() -> None:
    """Drop the kernels that were used longest ago, where there are too many and nobody looked lately."""
    place, looked = folder(), folder().parent / "kernels-counted"
    with suppress(OSError):
        if looked.exists() and abs(time.time() - looked.stat().st_mtime) < _WHILE:
            return
        looked.touch()
        prune(place, MOST)


def drop(place: Path) -> None:
    """Remove what lies in a place, whatever it is."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


def store(place: Path, code: bytes) -> None:
    """Keep object code in a file, which is there as a whole or not at all."""
    write(place, _MARK + sha256(code).digest() + code)


def write(place: Path, content: bytes) -> None:
    """Write a file as a whole; raises ``ReadError`` where it cannot be."""
    try:
        with beside(place, durable=False, private=True) as file:
            file.write(content)
    except OSError as error:
        raise ReadError(
            f"{place} cannot be written: {error.strerror}; set {VARIABLE} to a folder where there is room"
        ) from None


def _root() -> Path:
    if VARIABLE in os.environ:
        return Path(os.environ[VARIABLE]).absolute()
    from platformdirs import user_cache_path

    return user_cache_path("graphopt")


@cache
def compiler() -> str:
    """A digest of all that object code depends on apart from the kernel: the compilers, the processor, this package."""
    state = sha256()
    for name in ("numba", "llvmlite"):
        try:
            state.update(f"{name} {version(name)}\n".encode())
        except PackageNotFoundError:
            raise MissingDependencyError(f"{name} is not installed, and compiles kernels: pip install {name}") from None
    state.update(f"{cpu.name()} {' '.join(sorted(cpu.features()))}\n".encode())
    for file in sorted(Path(__file__).parent.glob("*.py")):
        state.update(file.read_bytes())
    return state.hexdigest()


@cache
def gpu_compiler() -> str:
    """A digest of all that the code of GPUs depends on apart from the kernel: the compilers, and this package."""
    found = {(d.name.lower(), d.version) for d in distributions() if d.name.lower().startswith(_FOR_GPUS)}
    if "numba-cuda" not in {name for name, _ in found}:
        raise MissingDependencyError(f"numba-cuda is not installed, and compiles kernels for GPUs: {EXTRA}")
    state = sha256(f"{compiler()} {sorted(found)}".encode())
    for file in sorted((Path(__file__).parent / "cuda").glob("*.py")):
        state.update(file.read_bytes())
    return state.hexdigest()
