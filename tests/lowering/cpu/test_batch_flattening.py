"""Stacks of matrices times one matrix: one product of all rows, that means the same."""

import numpy as np
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.lowering.cpu.batch_flattening import with_rows_stacked
from graphopt.lowering.loops import compute as te
from graphopt.lowering.loops.compute import Tensor, compute, nest, placeholder
from graphopt.lowering.loops.expressions import Const, Expr, Var, equal, select
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read, show

K, N = 20, 40


def product(*stack: Expr, follower: str = "bias") -> Nest:
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
    written = product(*sizes, follower=follower)
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
    written = product(Const(3), Const(rows), follower=follower)
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
