import ctypes
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite.binding import Target, parse_assembly

from graphopt.errors import ReadError
from graphopt.kernels.codegen import object_code
from graphopt.kernels.compile import compile_kernels
from graphopt.kernels.kernel import Kernel
from graphopt.runtime import libraries
from graphopt.runtime.objects import Image, undefined
from tests.runtime.programs import objects

TABLE = Kernel(
    '''"""b[i] = erf(a[i]) or a constant of a table, and what a function of C gives"""
from math import erf
from numba import float64
WEIGHTS = (1.5, -2.0, 3.25, 0.0, 7.0, 11.0, 13.0, 17.0)
def kernel(a, b, lo, hi):
    for i in range(lo, hi):
        b[i] = erf(a[i]) + WEIGHTS[int(i) % 8]
    return 0
''',
    ("float64", "float64"),
)
WEIGHTS = np.array([1.5, -2.0, 3.25, 0.0, 7.0, 11.0, 13.0, 17.0])

OTHER = """
from llvmlite import ir
from numba import float64 as real
from numba.core import cgutils
from numba.extending import intrinsic

@intrinsic
def other(typingctx, x):
    def generate(context, builder, signature, args):
        kind = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "graphopt_erf"), args)
    return real(real), generate
"""

PRODUCT = Kernel(
    '''"""c = a b, by BLAS"""
from llvmlite import ir
from numba import float64, int64, types
from numba.core import cgutils
from numba.extending import intrinsic

@intrinsic
def product(typingctx, a, b, c, n):
    def generate(context, builder, signature, args):
        word, real = ir.IntType(64), ir.DoubleType()
        enum = ir.IntType(32)
        p = args[0].type
        kind = ir.FunctionType(ir.VoidType(), [enum] * 3 + [word] * 3 + [real, p, word, p, word, real, p, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "scipy_cblas_dgemm64_")
        a, b, c, n = args
        one, zero = real(1), real(0)
        builder.call(function, [enum(101), enum(111), enum(111), n, n, n, one, a, n, b, n, zero, c, n])
        return context.get_dummy_value()
    pointer = types.CPointer(float64)
    return types.void(pointer, pointer, pointer, int64), generate

def kernel(a, b, c, n, lo, hi):
    product(a, b, c, n)
    return 0
''',
    ("float64", "float64", "float64", "size"),
)


def call(address: int, *args: Any, lo: int = 0, hi: int = 1) -> int:
    words = np.array([a.ctypes.data if isinstance(a, np.ndarray) else a for a in args], np.int64)
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
    return int(entry(words.ctypes.data, lo, hi))


def test_constants_and_functions_of_c_are_reached() -> None:
    (code,) = compile_kernels([TABLE])
    assert undefined(code) == ("erf",)
    image = Image([code, *objects(), code])
    a = np.linspace(-2, 2, 20)
    want = np.array([__import__("math").erf(v) for v in a]) + WEIGHTS[np.arange(20) % 8]
    for entry in (image.entries[0], image.entries[-1]):
        b = np.zeros(20)
        call(entry, a, b, hi=20)
        assert np.allclose(b, want, rtol=1e-14, atol=0)


@pytest.mark.parametrize("own", [True, False])
def test_products_are_the_librarys(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not own:
        monkeypatch.setattr(libraries, "_own_blas", lambda: None)
    libraries.blas.cache_clear()
    libraries.address.cache_clear()
    try:
        (code,) = compile_kernels([PRODUCT])
        image = Image([code])
        a, b = np.arange(9.0).reshape(3, 3), np.arange(9.0).reshape(3, 3) - 4
        c = np.zeros((3, 3))
        call(image.entries[0], a, b, c, 3)
        assert np.array_equal(c, a @ b)
    finally:
        libraries.blas.cache_clear()
        libraries.address.cache_clear()


def test_a_function_that_no_library_has_is_named() -> None:
    (code,) = compile_kernels([TABLE])
    other = code.replace(b"\0erf\0", b"\0erg\0")
    with pytest.raises(ReadError, match="compiled code calls 'erg', which neither C's libraries nor BLAS have"):
        Image([other])


def twice() -> bytes:
    """An object that has a function for others."""
    text = "define double @graphopt_erf(double %x) {\n  %y = fadd double %x, %x\n  ret double %y\n}"
    code: bytes = Target.from_default_triple().create_target_machine(reloc="pic").emit_object(parse_assembly(text))
    return code


def test_objects_call_what_others_have_for_them(tmp_path: Path) -> None:
    source = TABLE.source.replace("from math import erf", OTHER).replace("erf(a[i])", "other(a[i])")
    code = object_code(Kernel(source, TABLE.params), tmp_path / "kernel.py")
    with pytest.raises(ReadError, match="compiled code calls 'graphopt_erf'"):
        Image([code])
    a, b = np.linspace(-1, 1, 20), np.zeros(20)
    for objects_ in ([code, twice()], [twice(), code]):
        image = Image(objects_)
        assert len(image.entries) == 1
        assert call(image.entries[0], a, b, hi=20) == 0
        np.testing.assert_array_equal(b, 2 * a + WEIGHTS[np.arange(20) % 8])


def test_an_object_without_an_entry_is_no_kernel() -> None:
    driver = objects()[0]
    with pytest.raises(ReadError, match="object 0 is no kernel: it has no function 'entry'"):
        Image([driver.replace(b"\0entry\0", b"\0entrx\0")])


def test_another_machine_is_refused() -> None:
    driver = objects()[0]
    with pytest.raises(ReadError, match="it is for machine 183, and this loader is for x86-64"):
        Image([driver[:18] + struct.pack("<H", 183) + driver[20:]])


def test_garbage_is_refused() -> None:
    for wrong in (b"", b"garbage", bytes(1000), b"\x7fELF" + bytes(2000)):
        with pytest.raises(ReadError, match="object 0 is damaged: "):
            Image([wrong])


def test_truncated_objects_are_refused() -> None:
    (code,) = compile_kernels([TABLE])
    for size in range(0, len(code), 7):
        with pytest.raises(ReadError):
            Image([code[:size]])


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_objects_are_refused_or_loaded_and_never_crash(data: st.DataObject) -> None:
    """Bytes of headers and tables are changed; what is loaded is not run."""
    code = bytearray(objects()[0])
    text = code.index(b"\x7fELF")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(text, len(code) - 1))
        code[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, data.draw(st.integers(0, 255))]))
    with suppress(ReadError):
        Image([bytes(code)])


def test_code_cannot_be_written() -> None:
    image = Image(objects())
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, rights, *_ = line.split()
            first, last = (int(v, 16) for v in span.split("-"))
            if first <= image.entries[0] < last:
                assert rights == "r-xp"
                return
    raise AssertionError("the code is not mapped")
