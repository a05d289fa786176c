import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from graphopt.errors import ReadError
from graphopt.runtime import cpu, libraries


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """What was looked up before is forgotten, and what a test made up is too."""
    for cached in (libraries.blas, libraries.address):
        cached.cache_clear()
    yield
    for cached in (libraries.blas, libraries.address):
        cached.cache_clear()


def test_functions_of_c_and_of_blas_have_addresses() -> None:
    found = [
        libraries.address(n) for n in ("expf", "memcpy", "syscall", "scipy_cblas_sgemm64_", "scipy_cblas_dgemm64_")
    ]
    assert len(set(found)) == len(found)
    assert all(found)
    with pytest.raises(ReadError, match="compiled code calls 'no_such', which neither C's libraries nor BLAS have"):
        libraries.address("no_such")


def test_blas_has_one_thread() -> None:
    getter = libraries._function(libraries.blas(), "openblas_get_num_threads")
    assert getter is not None
    assert getter() == 1


def test_no_blas_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_own_blas", lambda: None)
    monkeypatch.setattr(libraries, "_numpy_blas", lambda: None)
    with pytest.raises(ReadError, match="install scipy-openblas64"):
        libraries.blas()


def test_numpys_own_blas_serves_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_own_blas", lambda: None)
    assert libraries.address("scipy_cblas_sgemm64_")


@pytest.mark.skipif(not cpu.features() >= libraries._WIDE, reason="needs AVX-512")
@pytest.mark.skipif(libraries._own_blas() is None, reason="needs scipy-openblas64")
def test_blas_takes_kernels_with_avx512() -> None:
    text = """
import ctypes, os
from graphopt.runtime import libraries
getter = libraries._function(libraries.blas(), "openblas_get_corename")
getter.restype = ctypes.c_char_p
print(getter().decode(), "OPENBLAS_CORETYPE" in os.environ)
"""
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    done = subprocess.run([sys.executable, "-c", text], env=environment, check=True, capture_output=True, text=True)
    core, told = done.stdout.split()
    assert core.lower() in libraries._WIDE_CORES
    assert told == "False"
