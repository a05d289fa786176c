"""Products of float32 by weights in half precision: found in nests, laid out in panels, called, and never those of
others."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.cpu.library_dispatch import Panels, called_product
from graphopt.lowering.cpu.weight_packing import laid_out
from graphopt.lowering.intrinsics.tensor_intrin import descriptions
from graphopt.lowering.loops import compute as te
from graphopt.lowering.loops.compute import compute, nest, placeholder
from graphopt.lowering.loops.expressions import Const, Var, cast, maximum
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Invoke, Nest, statements
from tests.lowering.native import run


def product(
    n: int, k: int, transpose: bool = False, after: bool = False, left: str = "float32", turned: bool = False,
    weights: str = "bfloat16",
) -> Nest:  # fmt: skip
    """``x @ w`` by weights in half precision; how many rows there are is not known."""
    size, depth, width = Var("m"), Const(k), Const(n)
    x = placeholder((depth, size) if turned else (size, depth), left, "x")
    w = placeholder((width, depth) if transpose else (depth, width), weights, "w")
    p = te.reduce_axis(depth)

    def element(i: Var, j: Var) -> te.ReduceStage:
        row, column = x[p.var, i] if turned else x[i, p.var], w[j, p.var] if transpose else w[p.var, j]
        return te.sum(cast(row, "float32") * cast(column, "float32"), p)

    y = compute((size, width), element)
    z = compute(y.shape, lambda i, j: maximum(y[i, j] + 1.0, 0.0))
    return nest("kernel", [x, w], [z if after else y], (size,))


@pytest.mark.parametrize(("m", "transpose", "after"), [(1, False, True), (3, True, False)])
@pytest.mark.parametrize(
    ("weights", "intrinsic"), [(ml_dtypes.bfloat16, "bfloat_product"), (np.float16, "half_product")]
)
def test_the_nest_means_the_same_and_its_kernel_does_it(weights, intrinsic, m, transpose, after):
    n, k = 66, 63
    written = product(n, k, transpose, after, weights=np.dtype(weights).name)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((m, k), np.float32)
    w = rng.standard_normal((n, k) if transpose else (k, n), np.float32).astype(weights)
    want, meant, got = (np.empty((m, n), np.float32) for _ in range(3))
    interpret(written, [x, w, want])
    laid = laid_out(written, [written.buffers[1]])
    assert laid is not None
    weight = laid.array(w)
    assert weight.dtype == weights
    interpret(laid.nest, [x, weight, meant])
    assert np.array_equal(meant, want)
    made = scheduled(laid.nest)
    assert [s.intrinsic for s in statements(made.body) if isinstance(s, Invoke)] == [intrinsic]
    interpret(made, [x, weight, meant], intrinsics=descriptions(made))
    np.testing.assert_allclose(meant, want, rtol=1e-5, atol=1e-5)
    run(made, [x, weight, got], (m,), pieces=2)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_weights_that_are_computed_are_read_as_they_lie():
    written = product(70, 63)
    assert laid_out(written, []) is None
    assert called_product(chains(written) or (), written) is None
    made = scheduled(written)
    assert not [s for s in statements(made.body) if isinstance(s, Invoke)]
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((20, 63), np.float32), rng.standard_normal((63, 70)).astype(ml_dtypes.bfloat16)
    got = np.empty((20, 70), np.float32)
    run(made, [x, w, got], (20,))
    np.testing.assert_allclose(got, x @ w.astype(np.float32), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "written",
    [product(70, 63, left="bfloat16"), product(70, 63, turned=True), product(8, 8)],
    ids=["both of bfloat16", "rows that lie across", "few weights"],
)
def test_other_products_keep_their_weights(written):
    assert laid_out(written, [written.buffers[1]]) is None


def test_the_operand_in_pairs():
    written = product(70, 63)
    laid = laid_out(written, [written.buffers[1]])
    assert laid is not None
    found = called_product(chains(laid.nest) or (), laid.nest)
    assert found is not None
    assert isinstance(found.b, Panels)
