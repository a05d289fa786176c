"""Kernels for GPUs become PTX, which is kept in the cache: what is known to be there needs no compiler."""

from __future__ import annotations

import linecache
import re
from functools import cache as memoized
from hashlib import sha256
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from graphopt.errors import CompilationError, MissingDependencyError
from graphopt.kernels import cache
from graphopt.kernels.compile import title
from graphopt.kernels.cuda.machine import Capability, architecture
from graphopt.kernels.kernel import SIZE, Kernel
from graphopt.runtime.dtypes import STORAGE

ENTRY = "kernel"
"""What the one function of the PTX is called."""
_STORAGE = {"bool": "uint8", "float16": "uint16"}
"""How elements lie in memory, where numba cannot compute with them as numpy has them."""
_COMPILERS = ("cuda-", "llvmlite", "numba", "nvidia-")
"""How the names of packages begin that PTX depends on."""


def ptx(kernel: Kernel, capability: Capability = (9, 0)) -> str:
    """The PTX of a kernel, whose function ``kernel`` takes the pointers and sizes of its parameters, for GPUs of that
    compute capability and later ones.

    Raises ``CompilationError`` where it does not compile; its source is kept.
    """
    place = cache.folder() / f"{digest(kernel, capability)}.ptx"
    found = cache.stored(place)
    if found is not None:
        cache.use(place)
        return found.decode()
    source = place.with_suffix(".py")
    cache.write(source, kernel.source.encode())
    try:
        text = translated(kernel, source, capability)
    except MissingDependencyError:
        raise
    except Exception as error:  # whatever is wrong with the source, numba and NVVM have exceptions for it
        raise CompilationError(
            f"kernel {title(kernel)!r} does not compile for {architecture(capability)}: "
            f"{_one_line(error)}; its source is kept in {source}"
        ) from None
    cache.store(place, text.encode())
    return text


def digest(kernel: Kernel, capability: Capability) -> str:
    """The name of a kernel's files: of all that its PTX depends on."""
    whole = "\0".join([_tools(), architecture(capability), *kernel.params, kernel.source])
    return sha256(whole.encode()).hexdigest()[:40]


def translated(kernel: Kernel, place: Path, capability: Capability) -> str:
    """The PTX of a kernel, of which ``place`` is the file that the source is in, for messages. Raises whatever numba
    and NVVM raise."""
    from graphopt.kernels.cuda import target

    params = tuple(target.int64 if p == SIZE else target.pointer_to(_element(target, p)) for p in kernel.params)
    text = target.translated(_function(kernel.source, place), params, capability)
    return _named(text)


def _element(target: Any, dtype: str) -> Any:
    return getattr(target, _STORAGE.get(dtype) or STORAGE[dtype].name)


def _function(source: str, place: Path) -> Any:
    linecache.cache[str(place)] = (len(source), None, source.splitlines(keepends=True), str(place))
    names: dict[str, Any] = {"__name__": "kernels", "__file__": str(place)}
    exec(compile(source, str(place), "exec", dont_inherit=True), names)
    return names["kernel"]


def _named(text: str) -> str:
    """The PTX with names that do not tell runs apart, and without what only numba wants."""
    found = re.search(r"\.entry\s+(\w+)", text)
    if found is None:
        raise CompilationError("NVVM made no kernel of it")
    lines = [line for line in text.splitlines(keepends=True) if "_ZN08NumbaEnv" not in line]
    return "".join(lines).replace(found[1], ENTRY)


def _one_line(error: Exception) -> str:
    """What a message says is wrong, without colors."""
    text = re.sub(r"\x1b\[\d*m", "", str(error))
    if told := re.findall(r"^\s*(\w+Error: .*?)\s*$", text, re.MULTILINE):
        return str(told[-1])
    return f"{type(error).__name__}: {'; '.join(filter(None, map(str.strip, text.splitlines())))}"


@memoized
def _tools() -> str:
    """A digest of all that PTX depends on apart from the kernel: the compilers and this package."""
    state = sha256()
    packages = {(d.name.lower(), d.version) for d in distributions() if d.name.lower().startswith(_COMPILERS)}
    state.update(repr(sorted(packages)).encode())
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        state.update(file.read_bytes())
    return state.hexdigest()
