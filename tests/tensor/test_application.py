"""Ops as tensor functions: inputs that are known, open sizes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphopt import te, tensor
from graphopt.errors import ExpressionError
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.interpret import interpret

N = te.size("n")
X = te.placeholder((N, 6), "float32", "x")


def test_a_function_of_an_op_and_one_of_ones_own_are_one_program() -> None:
    doubled = te.compute(X.shape, lambda i, j: X[i, j] * 2.0, name="doubled")
    y = tensor.op("Celu", [doubled], alpha=0.5)
    shifted = te.compute(y.shape, lambda i, j: y[i, j] + 1.0, name="shifted")
    x, out = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32), np.empty((3, 6), np.float32)
    interpret(te.nest("f", [X], [shifted]), [x, out], {"n": 3})
    want = np.maximum(2 * x, 0) + np.minimum(0, 0.5 * np.expm1(2 * x / 0.5)) + 1
    assert np.allclose(out, want, atol=1e-5)


def test_open_sizes_are_those_that_were_given() -> None:
    assert tensor.concat(X, X).shape == (N * 2, Const(6))
    assert tensor.reshape(X, (2, N, 3)).shape == tensor.reshape(X, (2, X.shape[0], 3)).shape
    assert tensor.transpose(X).shape == (X.shape[1], N)
    halves = te.placeholder((N // 2, 4))
    assert tensor.relu(halves).shape == halves.shape


def test_one_of_several_outputs() -> None:
    values, places = tensor.several("TopK", 2, [X, np.array([2])], axis=1)
    assert (values.dtype, places.dtype) == ("float32", "int64")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: tensor.op("Nonsense", [X]), "Nonsense is not called so"),
        (lambda: tensor.op("Relu", [X, X]), "Relu is not called so: 2 inputs, Relu has 1 in opset"),
        (lambda: tensor.op("Relu", [X], alpha=1.0), "Relu is not called so"),
        (lambda: tensor.matmul(X, te.placeholder((5, 4))), "MatMul"),
        (lambda: tensor.conv2d(X, X), "conv2d takes images of rank 4, and x is of rank 2"),
        (lambda: tensor.op("NonZero", [X]), "NonZero: no formula is known for the sizes of what it gives"),
        (lambda: tensor.add(X, np.ones(100, np.float32)), "an array of 100 elements is too large to be part"),
        (lambda: tensor.split(X, 4, axis=1), "split: axis 1 is of size 6, and 4 equal parts are asked for"),
        (lambda: tensor.split(X, 2, axis=0), "split: axis 0 is of an open size"),
    ],
)
def test_what_is_refused_says_where(wrong: Callable[[], Any], message: str) -> None:
    with pytest.raises(ExpressionError, match=rf"test_application\.py:\d+: .*{message}"):
        wrong()
