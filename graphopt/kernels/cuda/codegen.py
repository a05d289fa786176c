"""PTX generation: a kernel's source through numba's CUDA target and NVVM.

It stands apart from the processes that call it, for it imports numba's CUDA target.
"""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

from graphopt.errors import CompilationError
from graphopt.kernels.cuda import target
from graphopt.kernels.cuda.compile import ENTRY
from graphopt.kernels.kernel import SIZE, STORED, Kernel
from graphopt.runtime.dtypes import STORAGE


def ptx_code(kernel: Kernel, path: Path) -> bytes:
    """The PTX of a kernel, whose function ``kernel`` takes its parameters, for the compute capability that is its
    target. ``place`` is the file that the source is in, for messages. Raises ``CompilationError`` where numba or NVVM
    do not take it, and whatever Python raises where it is no program."""
    params = tuple(target.int64 if p == SIZE else target.pointer_to(_element(p)) for p in kernel.params)
    function = _function(kernel.source, path)
    try:
        text = target.translated(function, params, _capability(kernel.target))
    except Exception as error:  # numba and NVVM have exceptions for all that is wrong with a source
        raise CompilationError(_told(error)) from None
    return _named(text).encode()


def _capability(name: str) -> tuple[int, int]:
    number = int(name.removeprefix("sm_"))
    return number // 10, number % 10


def _element(dtype: str) -> Any:
    return getattr(target, STORED.get(dtype) or STORAGE[dtype].name)


def _function(source: str, path: Path) -> Any:
    linecache.cache[str(path)] = (len(source), None, source.splitlines(keepends=True), str(path))
    names: dict[str, Any] = {"__name__": "kernels", "__file__": str(path)}
    exec(compile(source, str(path), "exec", dont_inherit=True), names)
    return names["kernel"]


def _named(text: str) -> str:
    """The PTX with names that do not tell runs apart, and without what only numba wants."""
    entry = re.search(r"\.entry\s+(\w+)", text)
    if entry is None:
        raise CompilationError("NVVM made no kernel of it")
    lines = [line for line in text.splitlines(keepends=True) if "_ZN08NumbaEnv" not in line]
    return "".join(lines).replace(entry[1], ENTRY)


def _told(error: Exception) -> str:
    """The error in a message of numba's, without colors."""
    text = re.sub(r"\x1b\[\d*m", "", str(error))
    if errors := re.findall(r"^\s*(\w+Error: .*?)\s*$", text, re.MULTILINE):
        return str(errors[-1])
    return f"{type(error).__name__}: {'; '.join(filter(None, map(str.strip, text.splitlines())))}"
