"""Functions of kernels for GPUs as PTX: all of them compile, and become the instructions that they are there for."""

from __future__ import annotations

import importlib
import re

import pytest

from graphopt.errors import CompilationError
from graphopt.kernels.cuda import simulate, simulated
from graphopt.kernels.cuda.compile import ptx
from graphopt.kernels.kernel import Kernel

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'graphopt[cuda13]'")

functions = importlib.import_module("graphopt.kernels.cuda.functions")

FLOATS = ("float32", "float64")
WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
OF_TWO = ("minimum", "maximum", "copysign", "remainder", "quotient", "product", "atan2", "pow")
OF_THREADS = {
    *(f"{what}_{axis}" for what in ("block", "thread") for axis in "xyz"),
    *("barrier", "warp_add", "warp_max", "warp_min"),
}
OF_MEMORY = {*(f"{how}{n}" for how in ("load", "store") for n in (2, 4, 8)), "shared", "local", "offset"}
OF_HALVES = {f"{way}_{kind}" for way in ("from", "to") for kind in ("half", "bfloat")}
OF_TENSOR_CORES = {
    *(f"ldmatrix{n}{how}" for n in (2, 4) for how in ("", "_turned")),
    *("mma_tf32", "mma_f16", "mma_bf16", "to_tf32", "pair", "copy_async", "copy_commit", "copy_wait"),
}
OF_INTEGERS = {"shift_left", "shift_right"}
SPECIAL = {"cast", "saturate", "select", "fma", "bits", "from_bits", "isnan", "isinf", *OF_HALVES}


def translated(body: list[str], **params: str) -> str:
    """The PTX of a kernel with these lines, over parameters of these dtypes."""
    lines = "".join(f"    {line}\n" for line in body)
    names = f"from graphopt.kernels.cuda.target import {', '.join((*FLOATS, *WHOLE))}\n"
    names += f"from graphopt.kernels.cuda.functions import {', '.join(functions.__all__)}\n"
    return ptx(Kernel(f"{names}\ndef kernel({', '.join(params)}):\n{lines}", tuple(params.values())))


def test_functions_have_twins() -> None:
    block = simulate._Block((0, 0, 0), (1, 1, 1))
    assert set(functions.__all__) == {*block._names()} - {*simulated.DTYPES}


def of_floats(dtype: str) -> str:
    one = {*functions.__all__} - {*OF_TWO, *OF_THREADS, *OF_MEMORY, *OF_TENSOR_CORES, *OF_INTEGERS, *SPECIAL}
    body = ["i = thread_x()"]
    body += [f"Y[i + {100 * n}] = {name}(X[i + {n}])" for n, name in enumerate(sorted(one))]
    body += [f"Z[i + {100 * n}] = {name}(X[i], X[i + {n}])" for n, name in enumerate(OF_TWO)]
    body += ["Z[1] = fma(X[1], X[2], X[3])", "Z[2] = X[1] / X[2]", "Z[3] = from_bits(bits(X[3]) + bits(X[4]))"]
    body += ["B[1] = cast(isnan(X[0]) | isinf(X[1]), uint8)", "Z[4] = select(X[0] < X[1], X[2], X[3])"]
    body += [f"Z[{10 + n}] = cast(cast(X[{n}], {d}), {dtype})" for n, d in enumerate(WHOLE)]
    body += [f"Z[{20 + n}] = cast(saturate(X[{n}], {d}), {dtype})" for n, d in enumerate(WHOLE)]
    return translated(body, X=dtype, Y=dtype, Z=dtype, B="uint8")


@pytest.mark.parametrize(("dtype", "kind"), [("float32", "f32"), ("float64", "f64")])
def test_floats_are_divided_and_rooted_with_one_rounding(dtype: str, kind: str) -> None:
    text = of_floats(dtype)
    assert text.count(".entry") == 1
    text = translated(["Y[0] = X[0] / X[1]", "Y[1] = sqrt(X[2])", "Y[2] = X[2] + X[3] * X[4]"], X=dtype, Y=dtype)
    for instruction in ("div.rn", "sqrt.rn", "fma.rn"):
        assert f"{instruction}.{kind}" in text
    assert "approx" not in text


@pytest.mark.parametrize("dtype", WHOLE)
def test_integers_compile(dtype: str) -> None:
    body = [
        f"Y[{n}] = {name}(X[0], X[{n}])"
        for n, name in enumerate(("minimum", "maximum", "remainder", "quotient", "pow"))
    ]
    body += ["Y[8] = sign(X[8])", f"Y[9] = {dtype}(X[1] // X[2])", f"Y[10] = {dtype}(X[1] % X[2])", "Y[11] = abs(X[3])"]
    body += [
        "Y[12] = shift_right(shift_left(X[1], X[2]), X[3])",
        "Y[13] = warp_add(X[4])",
        "Y[14] = warp_max(X[5])",
        "Y[15] = warp_min(X[6])",
    ]
    text = translated(body, X=dtype, Y=dtype)
    assert text.count("shfl.sync.bfly.b32") == 3 * 5 * (2 if dtype.endswith("64") else 1)


def test_halves_compile() -> None:
    body = ["Y[0] = from_half(X[0])", "Y[1] = from_bfloat(X[1])", "X[2] = to_half(Y[2])", "X[3] = to_bfloat(Y[3])"]
    text = translated(body, X="float16", Y="float32")
    assert "cvt.f32.f16" in text
    assert "cvt.rn.f16.f32" in text


@pytest.mark.parametrize("axis", "xyz")
def test_places_are_registers(axis: str) -> None:
    text = translated([f"Y[block_{axis}()] = float32(thread_{axis}())"], Y="float32")
    assert f"%ctaid.{axis}" in text
    assert f"%tid.{axis}" in text


def test_memory_of_blocks_and_threads() -> None:
    body = ["S = shared(64, float32)", "R = local(4, float32)", "t = thread_x()", "S[t] = X[t]", "barrier()"]
    body += ["for k in range(4):", "    R[k] = S[63 - t - k]", "for k in range(4):", "    Y[4 * t + k] = R[k]"]
    text = translated(body, X="float32", Y="float32")
    assert re.search(r"\.shared \.align 16 \.b8 \w+\[256\]", text)
    assert "st.shared.f32" in text
    assert "ld.shared.f32" in text
    assert "bar.sync" in text
    assert ".local" not in text  # what indices are known for is in registers


@pytest.mark.parametrize(
    ("dtype", "lanes", "words"),
    [
        ("float32", 4, "v4"),
        ("float32", 2, "v2"),
        ("uint16", 8, "v4"),
        ("int8", 8, "v2"),
        ("float64", 2, "v4"),
        ("uint8", 4, ""),
    ],
)
def test_neighbours_are_one_access(dtype: str, lanes: int, words: str) -> None:
    text = translated(
        [f"store{lanes}(Y, {lanes} * thread_x(), load{lanes}(X, {lanes} * thread_x()))"], X=dtype, Y=dtype
    )
    accesses = re.findall(r"(?:ld|st)\.global\S*", text)
    assert len(accesses) == 2
    assert all(re.fullmatch(rf"(ld|st)\.global{'.' + words if words else ''}\.[uf]32", a) for a in accesses)


def test_an_index_is_not_turned_around() -> None:
    text = translated(["Y[n - 5] = float32(1.0)"], Y="float32", n="size")
    assert "setp" not in text
    assert "selp" not in text


def test_what_makes_no_sense_is_refused() -> None:
    for line, said in (
        ("S = shared(n, float32)", "count is int64: expected a number written in the source"),
        ("S = shared(4, 4)", "is no dtype"),
        ("load4(n, 0)", "load4 of int64: expected a pointer"),
        ("store2(Y, 0, (Y[0],))", "expected a tuple of 2"),
        ("Y[0] = sqrt(n)", "sqrt of int64: cast it first"),
        ("Y[0] = select(n, Y[0], Y[1])", "expected a boolean"),
        ("Y[0] = saturate(n, float32)", "expected an integer"),
    ):
        with pytest.raises(CompilationError, match=said):
            translated([line], Y="float32", n="size")


def test_a_product_is_contracted_with_no_sum() -> None:
    params = {"X": "float32", "Y": "float32"}
    assert "fma.rn" in translated(["Y[0] = X[0] * X[1] + X[2]"], **params)
    assert "fma.rn" not in translated(["Y[0] = product(X[0], X[1]) + X[2]"], **params)
