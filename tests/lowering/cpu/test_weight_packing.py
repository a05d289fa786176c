"""Constant operands of products in panels: the nest means the same, and programs hold each weight once."""

import numpy as np
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.kernels.product_form import panel
from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.cpu.library_dispatch import called_product, pieces, product_of
from graphopt.lowering.cpu.weight_packing import laid_out, with_rows_stacked
from graphopt.lowering.intrinsics.tensor_intrin import find_intrinsic
from graphopt.lowering.loops import compute as te
from graphopt.lowering.loops.compute import Tensor, compute, nest, placeholder
from graphopt.lowering.loops.expressions import Const, Expr, Var, equal, maximum, select
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Buffer, Invoke, Nest, statements
from graphopt.lowering.loops.script import read, show
from graphopt.runtime import cpu
from tests.lowering.native import run


def product(m: Expr, n: int, k: int, transpose: bool = False) -> Nest:
    """``relu(x @ w)``."""
    x = placeholder((m, Const(k)), "float32", "x")
    w = placeholder((Const(n), Const(k)) if transpose else (Const(k), Const(n)), "float32", "w")
    step = te.reduce_axis(Const(k))
    y = compute(
        (m, Const(n)), lambda i, j: te.sum(x[i, step.var] * (w[j, step.var] if transpose else w[step.var, j]), step)
    )

    z: Tensor = compute(y.shape, lambda i, j: maximum(y[i, j], 0.0))
    return nest("kernel", [x, w], [z], (m,) if isinstance(m, Var) else ())


def weight(written: Nest) -> Buffer:
    return written.buffers[1]


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(3, 70, 60), (1, 64, 64), (20, 1000, 5)])
def test_the_nest_means_the_same_and_its_kernel_does_it(m, n, k, transpose):
    size = Var("m")
    written = product(size, n, k, transpose)
    laid = laid_out(written, [weight(written)])
    assert laid is not None
    assert laid.is_transposed == transpose
    assert weight(laid.nest).shape == (Const(-(-n // panel("float32"))), Const(k), Const(panel("float32")))
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((m, k), np.float32), rng.standard_normal((n, k) if transpose else (k, n), np.float32)
    want, meant, got = (np.empty((m, n), np.float32) for _ in range(3))
    interpret(written, [x, w, want])
    interpret(laid.nest, [x, laid.array(w), meant])
    assert np.array_equal(meant, want)
    called = scheduled(laid.nest)
    assert [s.intrinsic for s in statements(called.body) if isinstance(s, Invoke)] == ["product_np_float32"]
    described = {"product_np_float32": find_intrinsic("product_np_float32").description}
    interpret(called, [x, laid.array(w), meant], intrinsics=described)
    assert np.allclose(meant, want, atol=1e-5)
    run(called, [x, laid.array(w), got], (m,), pieces=2)
    assert np.allclose(got, want, atol=1e-4)


@pytest.mark.parametrize(
    ("written", "constant"),
    [
        (product(Const(8), 64, 64), False),
        (product(Const(8), 16, 16), True),
        (product(Const(8), 2048, 2), True),
    ],
    ids=["not constant", "small", "short sums"],
)
def test_other_operands_stay_as_they_are(written, constant):
    assert laid_out(written, [weight(written)] if constant else []) is None


@pytest.mark.parametrize("rows", [Const(512), Var("m")], ids=["many", "open"])
def test_small_operands_that_many_rows_read_are_in_panels(rows):
    written = product(rows, 32, 16)
    assert laid_out(written, [weight(written)]) is not None


@pytest.mark.usefixtures("avx512")
def test_pieces_of_products(monkeypatch):
    monkeypatch.setattr(cpu, "cache_bytes", {1: 1 << 15, 2: 1 << 20}.__getitem__)

    def of(m: Expr, n: int, k: int) -> dict[str, int]:
        written = product(m, n, k)
        laid = laid_out(written, [weight(written)])
        assert laid is not None
        found = chains(laid.nest)
        assert found is not None
        made = called_product(found, laid.nest)
        assert made is not None
        sizes = pieces(made)
        return {"rows": sizes[made.m], "columns": sizes[made.n]}

    assert of(Const(16), 64, 64) == {"rows": 16, "columns": 64}
    assert of(Const(128), 768, 768) == {"rows": 128, "columns": 384}
    assert of(Const(512), 768, 768) == {"rows": 128, "columns": 768}
    assert of(Const(512), 64, 64) == {"rows": 256, "columns": 64}
    assert of(Const(128), 256, 4096) == {"rows": 64, "columns": 256}
    assert of(Const(1), 4096, 4096) == {"rows": 1, "columns": 1024}
    assert of(Const(1), 512, 512) == {"rows": 1, "columns": 256}
    assert of(Var("m"), 3072, 768) == {"rows": 128, "columns": 768}


def model(bias: bool, batch: bool) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    w, b = rng.standard_normal((80, 100), np.float32), rng.standard_normal(100, np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    nodes += [helper.make_node("Add", ["y", "b"], ["s"])] if bias else []
    nodes.append(helper.make_node("Tanh", [nodes[-1].output[0]], ["z"]))
    shape = ["b", "n", 80] if batch else ["n", 80]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
    held = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")]
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, held), opset_imports=[helper.make_opsetid("", 20)]
    )


@pytest.mark.parametrize(("bias", "batch"), [(True, False), (False, True)])
def test_programs_hold_weights_once(bias, batch):
    made = model(bias, batch)
    compiled = graphopt.compile(made, cache=False)
    reference = onnx.reference.ReferenceEvaluator(made)
    for rows in (1, 5, 40):
        x = np.random.default_rng(rows).standard_normal((*((2,) if batch else ()), rows, 80)).astype(np.float32)
        (want,) = reference.run(None, {"x": x})
        assert np.allclose(compiled(x)["z"], want, atol=1e-5)
    held = [a for a in compiled.compiled.program.code.constants.values() if a.size >= 80 * 100]
    assert [a.shape for a in held] == [(-(-100 // panel("float32")), 80, panel("float32"))]


def test_windows_that_overlap_are_no_matrix():
    x, w = placeholder((Const(20), Const(299)), "float32", "x"), placeholder((Const(36), Const(256)), "float32", "w")
    step = te.reduce_axis(Const(256))
    y = compute((Const(20), Const(36), Const(44)), lambda b, i, j: te.sum(w[i, step.var] * x[b, j + step.var], step))
    (found,) = chains(nest("kernel", [x, w], [y], ()))
    assert product_of(found) is None


K, N = 20, 40


def stacked_product(*stack: Expr, follower: str = "bias") -> Nest:
    """``follower(x @ w)``, of as many stacks of rows as there are sizes."""
    x = placeholder((*stack, Const(K)), "float32", "x")
    w = placeholder((Const(K), Const(N)), "float32", "w")
    step = te.reduce_axis(Const(K))
    y = compute((*stack, Const(N)), lambda *at: te.sum(x[(*at[:-1], step.var)] * w[step.var, at[-1]], step))
    made = {"bias": (Const(N),), "residual": y.shape, "by matrix": (stack[0], Const(N)), "by number": ()}[follower]
    b = placeholder(made, "float32", "b")

    def element(*at: Expr) -> Expr:
        match follower:
            case "bias":
                return y[at] + b[at[-1]]
            case "residual":
                return y[at] + b[at]
            case "by matrix":
                return y[at] + b[at[0], at[-1]]
        return select(equal(at[0], 0), y[at], b[()])

    z: Tensor = compute(y.shape, element)
    return nest("kernel", [x, w, b], [z], tuple(s for s in stack if isinstance(s, Var)))


def arrays(made: Nest, stack: tuple[int, ...], follower: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [(*stack, K), (K, N), {"bias": (N,), "residual": (*stack, N)}[follower], (*stack, N)]
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


@pytest.mark.parametrize("follower", ["bias", "residual"])
@pytest.mark.parametrize("stack", [(3, 5), (2, 3, 4), (1, 7)], ids=str)
@pytest.mark.parametrize("is_open", [False, True])
def test_the_nest_means_the_same(stack, is_open, follower):
    sizes = tuple(Var(f"s{k}") if is_open else Const(n) for k, n in enumerate(stack))
    written = stacked_product(*sizes, follower=follower)
    made = with_rows_stacked(written)
    assert [len(b.shape) for b in made.buffers] == [2, 2, len(made.buffers[2].shape), 2]
    assert show(read(show(made))) == show(made)
    given = arrays(written, stack, follower)
    want, got = given[-1].copy(), given[-1].copy()
    numbers = stack if is_open else ()
    rows = int(np.prod(stack))
    interpret(written, [*given[:-1], want], sizes={v.name: n for v, n in zip(written.sizes, numbers, strict=True)})
    assert np.allclose(want, given[0] @ given[1] + given[2], atol=1e-4)
    flat = [a.reshape(rows, -1) if a.ndim > 2 else a for a in (*given[:-1], got)]
    interpret(made, flat, sizes={v.name: n for v, n in zip(made.sizes, numbers, strict=True)})
    assert np.array_equal(flat[-1].reshape(want.shape), want)
    assert with_rows_stacked(made) is made


@pytest.mark.parametrize("follower", ["by matrix", "by number"])
@pytest.mark.parametrize("rows", [5, 1])
def test_what_tells_matrices_apart_keeps_them_apart(follower, rows):
    written = stacked_product(Const(3), Const(rows), follower=follower)
    assert with_rows_stacked(written) is written


def test_stacks_of_both_operands_stay():
    x, y = (placeholder((Const(3), Const(8), Const(8)), "float32", n) for n in "xy")
    step = te.reduce_axis(Const(8))
    z = compute((Const(3), Const(8), Const(8)), lambda b, i, j: te.sum(x[b, i, step.var] * y[b, step.var, j], step))
    written = nest("kernel", [x, y], [z], ())
    assert with_rows_stacked(written) is written


@pytest.mark.parametrize("shape", [["b", "n", 80], [2, 3, 80], ["b", 5, 80], [0, 4, 80], [2, "n", 3, 80]], ids=str)
def test_programs_compute_stacks(shape):
    rng = np.random.default_rng(0)
    w, b = rng.standard_normal((80, 100), np.float32), rng.standard_normal(100, np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Add", ["y", "b"], ["s"])]
    nodes.append(helper.make_node("Relu", ["s"], ["z"]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
    held = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    compiled = graphopt.compile(model, cache=False)
    reference = onnx.reference.ReferenceEvaluator(model)
    for rows in (0, 1, 7) if any(isinstance(n, str) for n in shape) else (2,):
        x = rng.standard_normal([rows if isinstance(n, str) else n for n in shape]).astype(np.float32)
        (want,) = reference.run(None, {"x": x})
        got = compiled(x)["z"]
        assert got.shape == want.shape
        assert np.allclose(got, want, atol=1e-4)
    assert all(len(p.nest.buffers[0].shape) == 2 for p in compiled.compiled.linked.parts)
