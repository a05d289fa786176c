"""PTX and machine code of kernels for GPUs, made without one."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from graphopt.errors import CompilationError
from graphopt.kernels import cache, workers
from graphopt.kernels.compile import compile_kernels
from graphopt.kernels.cuda import compile as compiling
from graphopt.kernels.cuda.compile import assemble, compile_ptx, ptx
from graphopt.kernels.cuda.machine import machine_code
from graphopt.kernels.kernel import Kernel
from graphopt.runtime import disk_cache

REASON = "numba-cuda is not installed: pip install 'graphopt[cuda13]'"
pytest.importorskip("numba_cuda", reason=REASON)

SOURCE = '''"""twice"""

from graphopt.kernels.cuda.target import float32
from graphopt.kernels.cuda.functions import barrier, shared, thread_x

def kernel(X, Y, n):
    S = shared(32, float32)
    S[thread_x()] = X[thread_x()]
    barrier()
    if thread_x() < n:
        Y[thread_x()] = S[31 - thread_x()] * float32(2.0)
'''
KERNEL = Kernel(SOURCE, ("float32", "float32", "size"))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path))
    return tmp_path


def test_a_kernel_is_one_entry(own_cache: Path) -> None:
    text = ptx(KERNEL)
    assert text.count(".entry") == 1
    assert ".visible .entry kernel(" in text
    assert [line.split()[-1].strip(",") for line in text.splitlines() if line.strip().startswith(".param")] == [
        f"kernel_param_{n}" for n in range(3)
    ]
    assert ".target sm_90" in text
    assert ".target sm_80" in ptx(KERNEL, (8, 0))


def test_ptx_is_kept(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ptx(KERNEL)
    monkeypatch.setattr(workers, "_code", None)
    assert ptx(KERNEL) == text
    with pytest.raises(CompilationError):
        ptx(KERNEL, (8, 6))


def test_another_process_makes_the_same(own_cache: Path) -> None:
    kernels = [Kernel(SOURCE.replace("2.0", "2.5"), KERNEL.params), KERNEL, KERNEL]
    done = []
    made = compile_ptx(kernels, jobs=1, listener=lambda count, of: done.append((count, of)))
    assert done[-1] == (2, 2)
    assert made[1] == made[2] != made[0]
    for other in own_cache.glob("kernels/*.o"):
        other.unlink()
    assert [ptx(k) for k in kernels] == made


def test_the_processor_and_a_gpu_have_kernels_of_their_own(own_cache: Path) -> None:
    source = "def kernel(X, lo, hi):\n    X[0] = lo\n    return 0\n"
    native = Kernel(source, ("int64",))
    digests = {cache.digest(native), *(cache.digest(replace(native, target=t)) for t in ("sm_80", "sm_90"))}
    assert len(digests) == 3
    assert compile_kernels([native])[0].startswith(b"\x7fELF")


def test_the_same_kernel_is_the_same_ptx(own_cache: Path) -> None:
    codegen = importlib.import_module("graphopt.kernels.cuda.codegen")
    kernel = replace(KERNEL, target="sm_90")
    made = [codegen.ptx_code(kernel, own_cache / name) for name in ("one.py", "two.py")]
    assert made[0] == made[1]


def test_what_does_not_compile_is_kept_and_told(own_cache: Path) -> None:
    wrong = Kernel(SOURCE.replace("S[31", "T[31"), KERNEL.params)
    with pytest.raises(CompilationError, match=r"kernel 'twice' does not compile for sm_90: .*'T' is not defined") as e:
        ptx(wrong)
    kept = Path(str(e.value).rpartition("its source is kept in ")[2])
    assert kept.read_text() == wrong.source
    with pytest.raises(CompilationError, match="SyntaxError"):
        ptx(Kernel("def kernel(:", ()))


@pytest.mark.usefixtures("linker")
def test_machine_code_says_what_it_takes(own_cache: Path) -> None:
    code = machine_code(ptx(KERNEL), (9, 0))
    assert code.code.startswith(b"\x7fELF")
    assert (code.shared, code.spilled, code.local) == (128, 0, 0)
    assert 4 <= code.registers <= 32
    assert machine_code(ptx(KERNEL), (9, 0)) == code


@pytest.mark.usefixtures("linker")
def test_machine_code_is_kept(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = compile_ptx([KERNEL, Kernel(SOURCE.replace("2.0", "3.0"), KERNEL.params), KERNEL], jobs=0)
    made = assemble(texts, (9, 0), jobs=2)
    assert made == [machine_code(text, (9, 0)) for text in texts]
    monkeypatch.setattr(compiling, "machine_code", None)
    assert assemble(texts, (9, 0)) == made
    with pytest.raises(TypeError):
        assemble(texts, (8, 9))


@pytest.mark.usefixtures("linker")
def test_memory_of_a_threads_own_is_reported(own_cache: Path) -> None:
    source = SOURCE.replace("float32(2.0)", "R[n]").replace(
        "    S[thread", "    R = local(40, float32)\n    S[thread", 1
    )
    source = source.replace("    barrier()", "    for k in range(n):\n        R[k] = X[k]\n    barrier()")
    kernel = Kernel(source.replace("import barrier", "import local, barrier"), KERNEL.params)
    assert machine_code(ptx(kernel), (9, 0)).local == 160


@pytest.mark.usefixtures("linker")
def test_ptx_that_is_none_is_an_error() -> None:
    with pytest.raises(CompilationError, match="PTX does not become code for sm_90: "):
        machine_code("nothing of the kind", (9, 0))
    with pytest.raises(CompilationError, match="code for sm_11"):
        machine_code(".version 8.0", (1, 1))
