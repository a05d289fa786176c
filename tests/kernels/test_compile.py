import ctypes
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphopt.errors import CompilationError, UsageError
from graphopt.kernels import cache, codegen
from graphopt.kernels.compile import Compiling, compile_kernels, title
from graphopt.kernels.kernel import Kernel
from graphopt.runtime import cpu, disk_cache
from graphopt.runtime.objects import Image, undefined


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path / "c"))
    return tmp_path / "c" / "kernels"


def scaled(by: int) -> Kernel:
    loop = f"    for i in range(lo * n, hi * n):\n        b[i] = a[i] * {by}\n    return 0\n"
    return Kernel(f'"""b = {by} a"""\ndef kernel(a, b, n, lo, hi):\n{loop}', ("float32", "float32", "size"))


def called(code: bytes, *args: Any, lo: int = 0, hi: int = 1) -> int:
    image = Image([code])
    words = np.array([a.ctypes.data if isinstance(a, np.ndarray) else a for a in args], np.int64)
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(image.entries[0])
    return int(entry(words.ctypes.data, lo, hi))


def test_a_kernel_computes_its_work_items(folder: Path) -> None:
    (code,) = compile_kernels([scaled(3)])
    a, b = np.arange(12, dtype=np.float32), np.zeros(12, np.float32)
    assert called(code, a, b, 4, lo=1, hi=2) == 0
    assert b.tolist() == [0] * 4 + [12, 15, 18, 21] + [0] * 4


@pytest.mark.parametrize(
    ("dtype", "numpy", "value"),
    [
        ("float64", "float64", 2.5),
        ("int64", "int64", -3),
        ("int8", "int8", -3),
        ("uint8", "uint8", 200),
        ("bool", "bool", True),
        ("float16", "uint16", 0x3C00),
        ("bfloat16", "uint16", 0x3F80),
        ("float8_e4m3fn", "uint8", 0x38),
        ("int4", "int8", -8),
        ("complex64", "complex64", 1 + 2j),
    ],
)
def test_elements_of_all_dtypes(folder: Path, dtype: str, numpy: str, value: Any) -> None:
    kernel = Kernel("def kernel(a, b, lo, hi):\n    b[0] = a[1]\n    return 7\n", (dtype, dtype))
    a, b = np.array([0, value], numpy), np.zeros(1, numpy)
    assert called(compile_kernels([kernel])[0], a, b) == 7
    assert b[0] == a[1]


def test_floats_are_as_ieee_says_and_integers_divide_by_zero_without_an_error(folder: Path) -> None:
    source = """
def kernel(a, b, n, lo, hi):
    b[0] = a[0] / a[1]
    b[1] = a[0] - a[0]
    b[2] = (a[2] + a[3]) - a[2]
    b[3] = n // (n - n)
    return 0
"""
    a, b = np.array([np.inf, 0, 1e8, 1], np.float32), np.zeros(4, np.float32)
    assert called(compile_kernels([Kernel(source, ("float32", "float32", "size"))])[0], a, b, 5) == 0
    assert b[0] == np.inf
    assert np.isnan(b[1])
    assert b[2] == 0


def test_the_same_kernel_is_compiled_once_and_then_found(folder: Path) -> None:
    told: list[tuple[int, int]] = []

    def listener(done: int, of: int) -> None:
        told.append((done, of))

    first = compile_kernels([scaled(2), scaled(3), scaled(2)], listener=listener)
    assert first[0] == first[2] != first[1]
    assert told == [(1, 2), (2, 2)]
    assert len(list(folder.glob("*.o"))) == len(list(folder.glob("*.py"))) == 2
    assert (folder / f"{cache.digest(scaled(3))}.py").read_text() == scaled(3).source
    assert compile_kernels([scaled(3)], listener=listener) == [first[1]]
    assert len(told) == 2


def test_workers_compile_what_this_process_would(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [*(scaled(k) for k in range(4)), replace(scaled(3), noalias=True)]
    here = compile_kernels(kernels, jobs=0)
    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path / "other"))
    told: list[int] = []
    assert compile_kernels(kernels, jobs=2, listener=lambda done, of: told.append(done)) == here
    assert told == [1, 2, 3, 4, 5]


def test_what_is_apart_stays_in_registers_and_what_is_not_goes_through_memory(folder: Path) -> None:
    added = "def kernel(a, b, n, lo, hi):\n    for i in range(n):\n        b[0] = b[0] + a[i]\n    return 0\n"
    plain = Kernel(added, ("float32", "float32", "size"))
    texts = [codegen.assembly(k, folder / "k.py") for k in (plain, replace(plain, noalias=True))]
    sums, stores = ([len(re.findall(p, text)) for text in texts] for p in (r"v?addss\t", r"v?movss\t%xmm\d+, \("))
    assert stores == [sums[0], 1], "behind each sum, and once behind the loop"
    moved = "def kernel(a, b, n, lo, hi):\n    for i in range(n):\n        b[i] = a[i] + a[0]\n    return 0\n"
    (code,) = compile_kernels([Kernel(moved, plain.params)])
    a = np.ones(40, np.float32)
    assert called(code, a, a[1:], 39) == 0
    assert a.tolist() == list(range(1, 41)), "each element rests on the one before it"


def test_kernels_are_compiled_while_others_are_written(folder: Path) -> None:
    done = threading.Event()
    with Compiling(jobs=1, listener=lambda *_: done.set()) as compiling:
        compiling.begin(scaled(2))
        assert done.wait(60)
        first, second, third = compiling.objects([scaled(2), scaled(3), scaled(2)])
    assert first == third != second


@pytest.mark.parametrize("jobs", [0, 1])
def test_what_kernels_share_is_compiled_with_them(folder: Path, jobs: int) -> None:
    call = "convolve_plain_1d(c, 0, 0, n, a, 0, n, b, 0, n, n, n, 1, 1, n, 16, n, n, n, 1, 0, 0, 1, n, 0, n)"
    text = f"from graphopt.kernels.convolution import convolve_plain_1d\ndef kernel(c, a, b, n, lo, hi):\n    {call}\n"
    kernels = [Kernel(text + f"    return {k}\n", ("float32",) * 3 + ("size",)) for k in range(2)]
    made = compile_kernels(kernels, jobs=jobs)
    assert len(made) == 3
    assert len(Image(made).entries) == 2
    assert compile_kernels(kernels[1:]) == made[1:]


def test_what_goes_wrong_with_a_listener_is_told(folder: Path) -> None:
    def listener(done: int, of: int) -> None:
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        compile_kernels([scaled(2)], jobs=1, listener=listener)


def test_a_warm_start_imports_no_compiler(folder: Path) -> None:
    compile_kernels([scaled(2)])
    text = f"""
import sys
from graphopt.kernels.compile import compile_kernels
from graphopt.kernels.kernel import Kernel
assert len(compile_kernels([Kernel({scaled(2).source!r}, ("float32", "float32", "size"))])) == 1
assert not {{"numba", "llvmlite"}} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60)


def test_the_name_tells_what_differs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = scaled(2)
    names = {
        cache.digest(one),
        cache.digest(scaled(3)),
        cache.digest(Kernel(one.source, ("float64", "float32", "size"))),
        cache.digest(replace(one, noalias=True)),
    }
    monkeypatch.setattr(cpu, "features", lambda: frozenset({"sse2"}))
    cache.compiler.cache_clear()
    names.add(cache.digest(one))
    cache.compiler.cache_clear()
    assert len(names) == 5


def test_a_damaged_entry_is_compiled_again(folder: Path) -> None:
    (good,) = compile_kernels([scaled(2)])
    (file,) = folder.glob("*.o")
    whole = file.read_bytes()
    for wrong in (b"", whole[:-1], whole[:100], whole[:-1] + b"x", b"x" + whole):
        file.write_bytes(wrong)
        assert compile_kernels([scaled(2)]) == [good]
        assert file.read_bytes() == whole


def test_the_folder_is_its_users_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_kernels([scaled(2)])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o750)
    with pytest.raises(UsageError, match=r"must be this user's alone \(mode 0700\)"):
        compile_kernels([scaled(2)])
    folder.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UsageError, match="must be this user's alone"):
        compile_kernels([scaled(2)])
    monkeypatch.undo()
    monkeypatch.setenv(disk_cache.VARIABLE, str(folder.parent))
    folder.rename(folder.parent / "elsewhere")
    folder.symlink_to(folder.parent / "elsewhere")
    with pytest.raises(UsageError, match="must be this user's alone"):
        compile_kernels([scaled(2)])


@pytest.mark.parametrize("jobs", [0, 1])
def test_a_cache_that_cannot_be_written_is_done_without(
    jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path / "file"))
    assert len(compile_kernels([scaled(2)], jobs=jobs)) == 1


WRONG = {
    "names": ("unknown(3)", "NameError: name 'unknown' is not defined"),
    "types": ("a[0] + 'x'", "TypingError: No implementation of function"),
    "syntax": ("(", "SyntaxError"),
    "objects": ("[lo, hi][hi - 2]", "NRT required but not enabled"),
}


@pytest.mark.parametrize(("wrong", "jobs"), [*((wrong, 0) for wrong in WRONG), ("types", 1)])
def test_a_kernel_that_does_not_compile_is_named_and_its_source_kept(folder: Path, wrong: str, jobs: int) -> None:
    expression, message = WRONG[wrong]
    source = f'"""softmax: Softmax_7.\n\nIn detail."""\ndef kernel(a, lo, hi):\n    a[0] = {expression}\n    return 0\n'
    kernel = Kernel(source, ("float32",))
    with pytest.raises(CompilationError) as caught:
        compile_kernels([scaled(5), kernel], jobs=jobs)
    text = str(caught.value)
    place = folder / f"{cache.digest(kernel)}.py"
    if wrong != "syntax":
        assert text.startswith("kernel 'softmax: Softmax_7.' does not compile: ")
    assert message in text
    assert text.endswith(f"; its source is kept in {place}")
    assert "\n" not in text
    assert place.read_text() == source
    assert compile_kernels([scaled(5)], jobs=0)  # the other one was compiled, and is kept


def test_kernels_have_no_use_for_python(folder: Path) -> None:
    with pytest.raises(CompilationError, match=r"not compile: it calls numba_\w+, which kernels cannot: no"):
        compile_kernels([Kernel("def kernel(a, lo, hi):\n    print(lo)\n    return 0\n", ("float32",))])


def test_a_worker_that_dies_takes_one_kernel_with_it(folder: Path) -> None:
    deadly = Kernel('"""ends its compiler"""\nimport os\nos._exit(3)\n', ("float32",))
    with pytest.raises(CompilationError, match="'ends its compiler' does not compile: its compiler ended"):
        compile_kernels([scaled(1), deadly, scaled(2), scaled(3)], jobs=1)
    assert len(list(folder.glob("*.o"))) == 3


def test_an_interrupt_ends_the_workers_at_once_and_is_told_once(folder: Path, tmp_path: Path) -> None:
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # it may be ignored here
        "import sys; from graphopt.kernels.compile import compile_kernels; from graphopt.kernels.kernel import Kernel\n"
        "slow = 'import pathlib, time\\ntime.sleep(20)\\npathlib.Path({!r}).touch()\\n'.format(sys.argv[1])\n"
        "quick = 'def kernel(a, lo, hi):\\n    return 0\\n'\n"
        "kernels = [Kernel(quick, ('float32',)), *(Kernel(slow + '#' * n, ('float32',)) for n in range(2))]\n"
        "compile_kernels(kernels, jobs=3, listener=lambda *_: print('one', flush=True))"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "ended")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "one\n"
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    _, said = running.communicate()
    assert running.returncode == -signal.SIGINT
    assert said.count("Traceback") == 1
    assert not (tmp_path / "ended").exists()


def test_a_kernel_without_a_docstring_has_a_title() -> None:
    assert [title(Kernel(s, ())) for s in ("", "(", '"""a\nb"""')] == ["kernel", "kernel", "a"]


def test_functions_of_c_are_called(folder: Path) -> None:
    source = "from math import erf\ndef kernel(a, b, lo, hi):\n    b[0] = erf(a[0])\n    return 0\n"
    (code,) = compile_kernels([Kernel(source, ("float64", "float64"))])
    assert undefined(code) == ("erf",)
    a, b = np.array([0.5]), np.zeros(1)
    called(code, a, b)
    assert abs(b[0] - 0.5204998778130465) < 1e-15


@pytest.mark.skipif("avx512f" not in cpu.features(), reason="needs AVX-512")
def test_vectors_are_as_wide_as_the_processors(folder: Path) -> None:
    assert "%zmm" in codegen.assembly(scaled(3), folder / "k.py")


def test_functions_of_the_same_file_are_compiled_with_it(folder: Path) -> None:
    helper = "from numba import njit\n@njit\ndef helper(x):\n    return x * 5\n"
    source = f"{helper}def kernel(a, lo, hi):\n    a[0] = helper(a[0])\n    return 0\n"
    (code,) = compile_kernels([Kernel(source, ("float32",))])
    a = np.full(1, 3, np.float32)
    called(code, a)
    assert a[0] == 15
    assert undefined(code) == ()


def test_inline_assembly_is_compiled(folder: Path) -> None:
    source = """
from llvmlite import ir
from numba import int64
from numba.extending import intrinsic

@intrinsic
def doubled(typingctx, value):
    def generate(context, builder, signature, args):
        word = ir.IntType(64)
        return builder.asm(ir.FunctionType(word, [word]), "leaq ($1,$1), $0", "=r,r", args, False)
    return int64(int64), generate

def kernel(a, lo, hi):
    a[0] = doubled(a[0])
    return 0
"""
    a = np.full(1, 21)
    called(compile_kernels([Kernel(source, ("int64",))])[0], a)
    assert a[0] == 42


def test_workers_import_nothing_from_the_folder_they_are_started_in(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    assert len(compile_kernels([scaled(n) for n in (3, 4, 5)], jobs=1)) == 3
