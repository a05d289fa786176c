"""Users describe ops of their own, and ops that there are anew."""

from __future__ import annotations

import numpy as np
import pytest

import graphopt
from graphopt.errors import GraphoptError, UsageError
from graphopt.ir.text import parse
from graphopt.lowering.loops.compute import Tensor, compute
from graphopt.lowering.operators.operation import NotLowered, Operation

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def test_an_op_of_a_domain_of_ones_own_runs_and_is_fused() -> None:
    @graphopt.lower("my.ops::Scaled", outputs=lambda x, by=1.0: x)
    def scaled(op: Operation) -> Tensor:
        x, by = op.input(0), op.attrs["by"]
        assert isinstance(by, float)
        return compute(x.shape, lambda *i: x[i] * by)

    model = graphopt.compile(parse("x: float32[n, 4]\ny = Relu(my.ops::Scaled(x, by=3.0))\nreturn y"), strict=True)
    np.testing.assert_array_equal(model(X)["y"], np.maximum(X * 3, 0))
    assert model.report.calls == 1


def test_without_outputs_the_graph_declares_the_type() -> None:
    @graphopt.lower("my.ops::Twice")
    def twice(op: Operation) -> Tensor:
        x = op.input(0)
        return compute(x.shape, lambda *i: x[i] + x[i])

    graph = parse("x: float32[n, 4]\ny: float32[n, 4] = my.ops::Twice(x)\nz = Neg(y)\nreturn z")
    np.testing.assert_array_equal(graphopt.compile(graph, strict=True)(X)["z"], -2 * X)


def test_no_op_writes_beyond_the_memory_of_its_type() -> None:
    @graphopt.lower("my.ops::Longer")
    def longer(op: Operation) -> Tensor:
        x = op.input(0)
        return compute((x.shape[0] + 1, *x.shape[1:]), lambda i, *j: x[(0, *j)])

    with pytest.raises(GraphoptError, match=r"my\.ops::Longer makes float32\[4, 4\], not float32\[3, 4\]"):
        graphopt.compile(parse("x: float32[3, 4]\ny: float32[3, 4] = my.ops::Longer(x)\nreturn y"), strict=True)
    open_ = parse("x: float32[n, 4]\ny: float32[m, 4] = my.ops::Longer(x)\nreturn y")
    with pytest.raises(GraphoptError):
        graphopt.compile(open_, strict=True)
    typed = parse("x: float32[n, 4]\ny: float32[n, 4] = my.ops::Longer(x)\nreturn y")
    model = graphopt.compile(typed, strict=True, verify="off")
    with pytest.raises(GraphoptError, match="more or fewer elements than its type says"):
        model(X)


def test_what_gives_no_tensor_is_named() -> None:
    graphopt.lower("my.ops::Seven", outputs=lambda x: x)(lambda op: 7)  # type: ignore[arg-type,return-value]
    with pytest.raises(UsageError, match=r"what lowers my\.ops::Seven gives 7, and a tensor"):
        graphopt.compile(parse("x: float32[n, 4]\ny = my.ops::Seven(x)\nreturn y"))


def test_what_an_op_refuses_is_left_to_reference() -> None:
    @graphopt.lower("Relu")
    def relu(op: Operation) -> Tensor:
        raise NotLowered("not on a Sunday")

    with pytest.warns(UserWarning, match="not on a Sunday"):
        model = graphopt.compile(parse("x: float32[n, 4]\ny = Relu(x)\nreturn y"))
    np.testing.assert_array_equal(model(X)["y"], np.maximum(X, 0))
