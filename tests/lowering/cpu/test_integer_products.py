"""Products of bytes in programs: found in nests, called with zero points of every kind, and exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.helper import np_dtype_to_tensor_dtype

import graphopt
from graphopt.ir.constants import Array
from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.cpu.integer_products import called_integer_product, integer_product_of, pieces
from graphopt.lowering.cpu.weight_packing import laid_out
from graphopt.lowering.intrinsics.tensor_intrin import descriptions, find_intrinsic
from graphopt.lowering.loops import compute as te
from graphopt.lowering.loops.compute import compute, nest, placeholder
from graphopt.lowering.loops.expressions import Const, Var, cast
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Invoke, Nest, statements
from tests.lowering.native import run

SIGNS = [("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8"), ("int8", "int8")]


def product(m: int, n: int, k: int, signs: tuple[str, str], transpose: bool = False, after: bool = False) -> Nest:
    """``x @ w``, the rows and columns of which have zero points of their own, twice that where something comes after;
    how many rows there are is not known."""
    size, depth, width = Var("m"), Const(k), Const(n)
    x = placeholder((size, depth), signs[0], "x")
    w = placeholder((width, depth) if transpose else (depth, width), signs[1], "w")
    zx, zw = placeholder((size,), signs[0], "zx"), placeholder((width,), signs[1], "zw")
    p = te.reduce_axis(depth)

    def element(i: Var, j: Var) -> te.ReduceStage:
        left = cast(x[i, p.var], "int32") - cast(zx[i], "int32")
        right = cast(w[j, p.var] if transpose else w[p.var, j], "int32") - cast(zw[j], "int32")
        return te.sum(left * right, p)

    y = compute((size, width), element)
    z = compute(y.shape, lambda i, j: cast(y[i, j] * 2, "float32"))
    return nest("kernel", [x, w, zx, zw], [z if after else y], (size,))


def arrays(m: int, n: int, k: int, signs: tuple[str, str], transpose: bool) -> list[Array]:
    rng = np.random.default_rng(0)
    shapes = zip(((m, k), (n, k) if transpose else (k, n), (m,), (n,)), signs * 2, strict=True)
    return [rng.integers(np.iinfo(s).min, np.iinfo(s).max + 1, shape).astype(s) for shape, s in shapes]


@pytest.mark.parametrize(
    ("signs", "transpose", "constant", "after"),
    [(SIGNS[0], False, True, True), (SIGNS[3], True, True, False), (SIGNS[2], False, False, True)],
)
def test_the_nest_means_the_same_and_its_kernel_does_it(signs, transpose, constant, after):
    m, n, k = 5, 39, 30
    written = product(m, n, k, signs, transpose, after)
    x, w, zx, zw = arrays(m, n, k, signs, transpose)
    want, meant, got = (np.empty((m, n), np.float32 if after else np.int32) for _ in range(3))
    interpret(written, [x, w, zx, zw, want])
    weight = w
    if constant:
        laid = laid_out(written, [written.buffers[1]])
        assert laid is not None
        written, weight = laid.nest, laid.array(w)
        interpret(written, [x, weight, zx, zw, meant])
        assert np.array_equal(meant, want)
    made = scheduled(written)
    way = "q" if constant else "t" if transpose else "n"
    called = [s.intrinsic for s in statements(made.body) if isinstance(s, Invoke)]
    assert called == [f"integer_product_{way}_{signs[0]}_{signs[1]}"]
    interpret(made, [x, weight, zx, zw, meant], intrinsics=descriptions(made))
    assert np.array_equal(meant, want)
    run(made, [x, weight, zx, zw, got], (m,), pieces=2)
    assert np.array_equal(got, want)


def found(m: int, n: int, k: int, dtype: str = "uint8") -> te.Tensor:
    x, w = placeholder((m, k), dtype, "x"), placeholder((k, n), dtype, "w")
    p = te.reduce_axis(Const(k))
    y = compute((m, n), lambda i, j: te.sum(cast(x[i, p.var], "int32") * cast(w[p.var, j], "int32"), p))
    return nest("kernel", [x, w], [y], ())


def test_other_products_are_not_of_bytes():
    for written in (found(8, 8, 2), found(16, 16, 16, "int16")):
        (chain,) = chains(written) or ()
        assert integer_product_of(chain) is None


def test_pieces_of_products():
    def of(m: int, n: int, k: int) -> list[int]:
        written = found(m, n, k)
        made = called_integer_product(chains(written) or (), written)
        assert made is not None
        return list(pieces(made).values())

    assert of(16, 64, 64) == [16, 64]
    assert of(256, 256, 256) == [128, 256]
    assert of(1, 1024, 1024) == [1, 1024]
    assert of(1, 4096, 4096)[0] == 1
    assert of(1, 4096, 4096)[1] < 4096


# ------------------------------------------------------------------ programs

MS = "com.microsoft"


def compiled(
    op: str,
    inputs: Sequence[Array | None],
    constants: Sequence[int],
    open_: bool,
    shapes: Mapping[str, Sequence[int | str]] = MappingProxyType({}),
    **attrs: object,
):
    """A program of one op, and its output for the inputs; some of them are constants. ``shapes`` are those of inputs
    that have others than their arrays."""
    names = ["" if x is None else f"x{k}" for k, x in enumerate(inputs)]
    given = {n: x for k, (n, x) in enumerate(zip(names, inputs, strict=True)) if x is not None and k not in constants}
    held = [numpy_helper.from_array(x, names[k]) for k in constants if (x := inputs[k]) is not None]
    domain, _, name = op.rpartition("::")
    node = helper.make_node(name, names, ["y"], domain=domain, **attrs)
    infos = [
        helper.make_tensor_value_info(
            n,
            np_dtype_to_tensor_dtype(x.dtype),
            [*(f"s{k}" for k in range(x.ndim - 1)), x.shape[-1]] if open_ and n == "x0" else shapes.get(n, x.shape),
        )
        for n, x in given.items()
    ]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")], held)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    program = graphopt.compile(helper.make_model(graph, opset_imports=opsets), strict=True, cache=False)
    return program, program(given)["y"]


def kernels(program: graphopt.Compiled) -> set[str]:
    """The intrinsics that a program invokes."""
    nests = [p.nest for p in program.compiled.linked.parts]
    return {s.intrinsic for n in nests for s in statements(n.body) if isinstance(s, Invoke)}


def bytes_(*shape: int, dtype: str = "uint8", seed: int = 0) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def one(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype)


def test_quantized_products_of_constants():
    a, b = bytes_(3, 7, 50), bytes_(50, 70, dtype="int8")
    scales = np.random.default_rng(1).uniform(0.001, 0.02, 70).astype(np.float32)
    inputs = [a, one(0.1), one(120, "uint8"), b, scales, np.zeros(70, np.int8), one(9.0), one(99, "uint8")]
    program, got = compiled("QLinearMatMul", inputs, range(1, 8), open_=True)
    assert kernels(program) == {"integer_product_q_uint8_int8"}
    sums = (a.astype(np.int32) - 120) @ b.astype(np.int32)
    want = np.clip(np.rint(sums.astype(np.float32) * (np.float32(0.1) * scales / np.float32(9.0))) + 99, 0, 255)
    assert np.array_equal(got, want.astype(np.uint8))


def test_operands_quantized_as_they_come():
    rng = np.random.default_rng(0)
    x, b, bias = rng.standard_normal((9, 40), np.float32), bytes_(40, 33, dtype="int8"), np.ones(33, np.float32)
    program, got = compiled(f"{MS}::DynamicQuantizeMatMul", [x, b, one(0.02), None, bias], (1, 2, 4), open_=False)
    assert kernels(program) == {"integer_product_q_uint8_int8"}
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = (high - low) / np.float32(255)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    sums = (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) @ b.astype(np.float64)
    assert np.allclose(got, sums * scale * 0.02 + 1, rtol=1e-5)


def test_products_of_inputs():
    a, b = bytes_(2, 20, 21), bytes_(2, 21, 22)
    program, got = compiled("MatMulInteger", [a, b, one(200, "uint8"), one(3, "uint8")], (), open_=False)
    assert kernels(program) == {"integer_product_n_uint8_uint8"}
    assert np.array_equal(got, (a.astype(np.int32) - 200) @ (b.astype(np.int32) - 3))


def test_zero_points_of_rows_and_columns():
    a, b, rows, columns = bytes_(20, 21), bytes_(21, 22), bytes_(20, seed=1), bytes_(22, seed=2)
    program, got = compiled("MatMulInteger", [a, b, rows, columns], (1, 3), open_=False)
    assert kernels(program) == {"integer_product_q_uint8_uint8"}
    assert np.array_equal(got, (a.astype(np.int32) - rows[:, None]) @ (b.astype(np.int32) - columns))


def test_transposed_constants():
    a, b = bytes_(20, 21), bytes_(40, 21, dtype="int8")
    inputs = [a, one(0.1), one(120, "uint8"), b, one(0.2), one(0, "int8")]
    program, got = compiled(f"{MS}::QGemm", inputs, range(1, 6), open_=False, transB=1)
    assert kernels(program) == {"integer_product_q_uint8_int8"}
    sums = (a.astype(np.int32) - 120) @ b.T.astype(np.int32)
    assert np.allclose(got, sums * np.float32(0.1) * np.float32(0.2), rtol=1e-6)


@pytest.mark.parametrize(("form", "rank"), [("n", 2), ("t", 2), ("q", 4)])
def test_names_of_calls(form, rank):
    intrinsic = find_intrinsic(f"integer_product_{form}_int8_uint8")
    assert len(intrinsic.description.buffers[2].shape) == rank
    assert intrinsic.function == f"graphopt.kernels.products.integer_product_{form}"
