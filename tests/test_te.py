"""Tensor expressions as people write them: axes in place of variables, names, and errors where they were written."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphopt import te
from graphopt.errors import ExpressionError, UsageError
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import show

RNG = np.random.default_rng(0)
N = te.size("n")
A = te.placeholder((N, 6), "float32", "A")
K = te.reduce_axis(6, "k")
L = te.reduce_axis(7, "l")


def run(program: Nest, *arrays: Any, out: tuple[int, ...], dtype: str = "float32") -> Any:
    result = np.full(out, 77, dtype)
    interpret(program, [*arrays, result], {v.name: arrays[0].shape[0] for v in program.sizes})
    return result


def test_a_product_with_named_axes() -> None:
    b = te.placeholder((6, 4), "float32", "B")
    c = te.compute((N, 4), lambda i, j: te.sum(A[i, K] * b(K, j), axis=K), name="C")
    d = te.compute(c.shape, lambda i, j: te.max(c[i, j], 0.0), name="D")
    program = te.nest("dense", [A, b, d])
    text = show(program)
    assert "for i, j, k in grid(n, 4, 6):" in text
    assert 'v_i, v_j, v_k = axis.remap("SSR", [i, j, k])' in text
    assert "for i_1, j_1 in grid(n, 4):" in text
    x, y = RNG.standard_normal((3, 6), np.float32), RNG.standard_normal((6, 4), np.float32)
    assert np.allclose(run(program, x, y, out=(3, 4)), np.maximum(x @ y, 0), atol=1e-5)
    assert te.create_prim_func([A, b, d], "dense") == program == te.nest("dense", outputs=[d])


def test_functions_of_python_and_numpy_are_those_of_expressions() -> None:
    y = te.compute(
        A.shape, lambda i, j: abs(np.tanh(A[i, j])) + np.float32(2) * np.maximum(A[i, j], 0) - round(A[i, j])
    )
    x = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
    want = np.abs(np.tanh(x)) + 2 * np.maximum(x, 0) - np.rint(x)
    assert np.allclose(run(te.nest("f", outputs=[y]), x, out=(2, 6)), want, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_reduction_from_a_lower_bound_on(n: int) -> None:
    k = te.reduce_axis((1, N), name="k")
    largest = te.compute((6,), lambda j: te.max(A[k, j] + te.cast(k, "float32"), axis=[k]), name="largest")
    x = RNG.standard_normal((n, 6), np.float32)
    want = (x + np.arange(n, dtype=np.float32)[:, None])[1:].max(0, initial=-np.inf)
    got = run(te.nest("tail", outputs=[largest]), x, out=(6,))
    assert n == 1 or np.allclose(got, want)  # of no steps nothing is written


def test_a_reduction_over_several_axes() -> None:
    r = te.reduce_axis(N, "r")
    total = te.compute((), lambda: te.sum(A[r, K], axis=(r, K)), name="total")
    x = RNG.standard_normal((3, 6), np.float32)
    assert np.allclose(run(te.nest("total", [A], [total]), x, out=()), x.sum(), atol=1e-5)


def test_axes_have_default_names_where_nobody_names_them() -> None:
    text = show(te.nest("f", outputs=[te.compute(A.shape, lambda *i: te.exp(A[i]), name="y")]))
    assert "for i0, i1 in grid(n, 6):" in text
    text = show(te.nest("f", outputs=[te.compute(A.shape, lambda grid, exp: A[grid, exp], name="y")]))
    assert "for i0, i1 in grid(n, 6):" in text
    text = show(te.nest("f", outputs=[te.compute(A.shape, lambda n, j: A[n, j], name="y")]))
    assert "for n_1, j in grid(n, 6):" in text


def test_functions_of_values() -> None:
    y = te.compute(A.shape, lambda i, j: te.if_then_else(A[i, j] > 0, te.sqrt(te.abs(A[i, j])), te.exp(0.0)), name="y")
    x = RNG.standard_normal((2, 6), np.float32)
    assert np.allclose(run(te.nest("f", outputs=[y]), x, out=(2, 6)), np.where(x > 0, np.sqrt(np.abs(x)), 1))
    power = te.compute(A.shape, lambda i, j: te.power(te.min(A[i, j], 1.0), 2.0) * te.rsqrt(te.abs(A[i, j]) + 1.0))
    want = np.minimum(x, 1) ** 2 / np.sqrt(np.abs(x) + 1)
    assert np.allclose(run(te.nest("f", outputs=[power]), x, out=(2, 6)), want, atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: A[K], "A is read at 1 index, and one for each of its 2 axes is expected"),
        (lambda: A[0, 0.5], "A: 0.5 is no index"),
        (lambda: te.compute((3,), lambda i: A[i, K]), r"the axis k is not reduced over: sum\(..., axis=k\)"),
        (lambda: te.compute((3,), lambda i: 1.0 + te.sum(A[i, K], axis=K)), "a reduction stands within an expression"),
        (lambda: te.compute((3,), lambda i: te.sum(A[i, K], axis=K) * 2), "a reduction stands within an expression"),
        (lambda: te.compute((3,), lambda i: te.exp(te.sum(A[i, K], axis=K))), "a reduction stands within an expr"),
        (lambda: te.compute((3,), lambda i: A[i, 0] + i), r"add of float32 and int64: cast one of them, as in cast\(x"),
        (lambda: te.compute((3,), lambda i: A[i, 0], "int32", "y"), "y: its elements are float32, not int32"),
        (lambda: te.compute((3,), lambda i: A), r"a tensor is no value: read one of its elements, as in x\[i, j\]"),
        (lambda: te.compute((3,), lambda i: None), "None is a NoneType, and an expression or a number is expected"),
        (lambda: te.compute((3,), lambda i, j: A[i, j]), "indices taken by the formula: 2, and axes of the shape: 1"),
        (lambda: te.compute((3,), lambda i: 1.0 if A[i, 0] > 0 else 2.0), "an expression has no truth value"),
        (lambda: te.compute((3,), lambda i: A[i, A[i, 0]]), "t: an index of A is float32: cast it"),
        (lambda: te.compute((3,), lambda i: A[i, 6]), "t: A has 6 elements along axis 1, and 6 is read"),
        (lambda: te.compute((3,), lambda i: A[i, -1]), "t: A has 6 elements along axis 1, and -1 is read"),
        (lambda: te.compute((9,), lambda i: A[0, i]), "t: A has 6 elements along axis 1, and those from 0 to 8 are"),
        (lambda: te.compute((3,), lambda i: A[0, i - 1]), "A has 6 elements along axis 1, and those from -1 to 1 are"),
        (lambda: te.compute((3, 2), lambda i, j: A[0, 3 * i + j]), "and those from 0 to 7 are read"),
        (lambda: te.compute((3,), lambda i: te.sum(A[0, L], axis=L)), "and those from 0 to 6 are read"),
        (lambda: te.compute((3,), lambda i: te.exp(i)), r"t: exp is not defined on int64: cast it, as in te\.cast"),
        (lambda: te.compute((3,), lambda i: (A[i, 0] > 0.0) + 1), "t: add is not defined on bool"),
        (lambda: te.compute((3,), lambda i: math.exp(A[i, 0])), "an expression has no number while"),
        (lambda: te.compute((3,), lambda i: np.cbrt(A[i, 0])), "numpy's cbrt is of arrays: expressions have te.exp"),
        (lambda: te.compute((3,), lambda i: A[i, 0] * np.ones(3)), "an array of 3 elements is no value: make it an"),
        (lambda: te.compute((3,), lambda i: sum(x for x in A)), "A cannot be looped over while the program is built"),
        (lambda: te.compute((3,), None), r"t: its formula is a function of indices, .* and not None"),  # type: ignore[arg-type]
        (lambda: te.compute((3,), lambda i: A[i, 0], name="a b"), "'a b' is no name of a tensor"),
        (lambda: te.compute((2.5,), lambda i: A[0, i]), "t: a size is a whole number, or an expression"),  # type: ignore[list-item]
        (lambda: te.compute(3, lambda i: A[0, i]), r"t: a shape is a sequence of sizes, as in \(n, 8\), and not 3"),  # type: ignore[arg-type]
        (lambda: te.placeholder((-1,)), "x: a size is a number from 0 on, and not -1"),
        (lambda: te.placeholder((A[0, 0],)), r"x: a size is a whole number, .* and not A\[0, 0\]"),
        (lambda: te.placeholder((3,), "float31"), "'float31' is no dtype of tensor programs; did you mean float32"),
        (lambda: te.cast(A[0, 0], "int9"), "'int9' is no dtype of tensor programs; did you mean int8"),
        (lambda: te.const(300, "int8"), "300 is no int8, which is from -128 to 127"),
        (lambda: te.const("a", "int8"), "'a' is no number"),  # type: ignore[arg-type]
        (lambda: te.reduce_axis(2.5), "the axis k: a size is a whole number"),  # type: ignore[arg-type]
        (lambda: te.nest("a b", [A]), "'a b' is no name of a program: an identifier is expected"),
        (lambda: te.nest("f", A), "f is given a tensor, and a list of tensors is expected"),  # type: ignore[arg-type]
        (lambda: te.sum(A[0, K], axis=1), "sum is over axes that reduce_axis makes, and not over 1"),
        (lambda: te.max(A[0, K]), "nothing says over which axes max is"),
        (
            lambda: te.compute((3,), lambda i: te.select(te.all(i < 3, i > 1), 1.0, 0.0)),
            "conditions are joined by &: a & b",
        ),
        (
            lambda: te.compute((3,), lambda i: te.select(te.any(i < 3), 1.0, 0.0)),
            r"conditions are joined by \|: a \| b",
        ),
        (lambda: te.sum(A[0, K], axis=[K, K]), "sum is over one axis twice"),
        (lambda: te.reduce_axis((3, 1)), "a reduce axis from 3 up to 1 runs backwards"),
        (lambda: te.reduce_axis(3, "for"), "'for' is no name for an axis or a size"),
        (lambda: te.nest("f", [A]), "f has no output: none of its tensors is computed"),
        (
            lambda: te.nest("f", [te.placeholder((3,), name="x")], [te.compute((3,), lambda i: A[i, 0])]),
            "f: A is read, but is not among the inputs",
        ),
    ],
)
def test_errors_say_where_they_were_written(wrong: Callable[[], Any], message: str) -> None:
    with pytest.raises(ExpressionError, match=rf"^{re.escape(__file__)}:\d+: .*{message}") as caught:
        wrong()
    assert isinstance(caught.value, UsageError)
    assert caught.value.place + caught.value.reason == str(caught.value)


def test_an_axis_of_another_tensor_is_refused() -> None:
    kept: list[Any] = []
    te.compute((3,), lambda row: kept.append(row) or A[row, 0])  # type: ignore[func-returns-value]
    with pytest.raises(ExpressionError, match="the axis row is another tensor's"):
        te.compute((3,), lambda i: A[kept[0], i])


def test_what_may_lie_inside_is_read() -> None:
    n = te.size("n")
    for made in (
        te.compute((9,), lambda i: te.select(i < 6, A[0, i], 0.0)),
        te.compute((0,), lambda i: A[0, i + 9]),
        te.compute((n,), lambda i: A[0, i]),
        te.compute((6, 6), lambda i, j: A[0, i - i + j]),
        te.compute((6,), lambda i: te.select((i > 5) | (A[0, i] > 0.0), 1.0, 0.0)),
    ):
        assert isinstance(made, te.Tensor)
