"""Functions of C's libraries and of BLAS, by name: what object code may call.

BLAS is that of scipy-openblas64 where it is installed, else the one that numpy brings; both name their functions
``scipy_cblas_sgemm64_``. It is held to one thread, for programs have threads of their own. OpenBLAS takes kernels
without AVX-512 on processors that it does not know, unless it is told when it loads.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from graphopt.errors import ReadError
from graphopt.runtime import cpu

_WIDE = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}
_WIDE_CORES = {"skylakex", "cooperlake", "sapphirerapids"}


@cache
def address(name: str) -> int:
    """Where a function is; raises ``ReadError`` where no library has it."""
    for library in _libraries(name):
        try:
            function = getattr(library, name)
        except (AttributeError, ValueError):
            continue
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    raise ReadError(f"compiled code calls {name!r}, which neither C's libraries nor BLAS have")


def _libraries(name: str) -> Iterator[ctypes.CDLL]:
    if not name.startswith("scipy_"):
        yield ctypes.CDLL("libm.so.6")
        yield ctypes.CDLL(None)
        yield ctypes.CDLL("libgcc_s.so.1")
    else:
        yield blas()


@cache
def blas() -> ctypes.CDLL:
    """The library of matrix products, with one thread; raises ``ReadError`` where there is none."""
    separate, bundled = _own_blas(), _numpy_blas()
    path = separate or bundled
    if path is None:
        raise ReadError("compiled code needs BLAS, and numpy brings none here: install scipy-openblas64")
    library = _loaded(path, has_avx512=separate is not None and bundled is not None and _misjudges(bundled))
    setter = _function(library, "openblas_set_num_threads")
    if setter is not None:
        setter(1)
    return library


def describe_blas() -> str:
    """The library of matrix products: which kernels it runs here, how it was built, and its file; raises ``ReadError``
    where there is none."""
    library, words = blas(), []
    for name in ("openblas_get_corename", "openblas_get_config"):
        getter = _function(library, name)
        if getter is not None:
            getter.restype = ctypes.c_char_p
            words.append((getter() or b"").decode(errors="replace").strip())
    return f"{', '.join(filter(None, words)) or 'unknown kernels'}, {library._name}"


def _loaded(path: Path, has_avx512: bool) -> ctypes.CDLL:
    """The library; ``has_avx512``: the environment tells it so while it loads, as it would not find out by itself."""
    variable = "OPENBLAS_CORETYPE"
    if not has_avx512 or variable in os.environ:
        return ctypes.CDLL(str(path))
    os.environ[variable] = "SKYLAKEX"
    try:
        return ctypes.CDLL(str(path))
    finally:
        del os.environ[variable]


def _misjudges(bundled: Path) -> bool:
    """Whether numpy's OpenBLAS, which is loaded, took kernels without AVX-512 though the processor has it."""
    getter = _function(ctypes.CDLL(str(bundled)), "openblas_get_corename")
    if getter is None or not cpu.features() >= _WIDE:
        return False
    getter.restype = ctypes.c_char_p
    return (getter() or b"").decode().lower() not in _WIDE_CORES


def _function(library: ctypes.CDLL, name: str) -> ctypes._NamedFuncPointer | None:
    for spelled in (f"scipy_{name}64_", f"{name}64_", name):
        if hasattr(library, spelled):
            function: ctypes._NamedFuncPointer = getattr(library, spelled)
            return function
    return None


def _own_blas() -> Path | None:
    spec = find_spec("scipy_openblas64")
    folders = spec.submodule_search_locations if spec is not None else None
    return next((p for f in folders or () for p in sorted(Path(f, "lib").glob("libscipy_openblas64_*.so"))), None)


def _numpy_blas() -> Path | None:
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    return next(iter(sorted(folder.glob("libscipy_openblas64_*.so"))), None)
