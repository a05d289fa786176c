"""Tensor functions in graphs: from a builder, from a mutator."""

from __future__ import annotations

import numpy as np
import pytest

import graphopt
from graphopt import te, tensor
from graphopt.errors import UsageError
from graphopt.ir.graph import Node
from graphopt.ir.text import parse
from graphopt.lowering.module.mutator import Result

X = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)


def scaled(x: te.Tensor, w: te.Tensor | None, factor: float = 1.0) -> te.Tensor:
    y = te.compute(x.shape, lambda i, j: x[i, j] * factor, name="y")
    return y if w is None else tensor.mul(y, w)


@pytest.mark.parametrize("weight", [None, np.arange(6, dtype=np.float32), 3.0])
def test_a_builder_passes_arguments_on_and_leaves_inputs_out(weight: np.ndarray | float | None) -> None:
    b = graphopt.GraphBuilder()
    x = b.input("x", "float32", ("n", 6))
    b.output("y", b.emit_compute(scaled, [x, weight], factor=2.0))
    got = graphopt.compile(b.build())(X)["y"]
    assert np.allclose(got, X * 2 * (1 if weight is None else weight))


class Own(graphopt.Mutator):
    def visit_Softmax(self, node: Node) -> Result:
        y = self.emit_compute(tensor.mul, [node.inputs[0], 2.0])
        return self.emit_compute(tensor.softmax, [y], axis=1)  # type: ignore[no-any-return]


def test_a_mutator_puts_tensor_functions_into_a_graph() -> None:
    graph = Own().mutate(parse("x: float32[n, 6]\ny = Softmax(x)\nreturn y"))
    assert [n.op for n in graph.order()].count("graphopt::Nest") == 2
    (got,) = graphopt.compile(graph)(X).values()
    powers = np.exp(2 * X)
    assert np.allclose(got, powers / powers.sum(1, keepdims=True), atol=1e-6)


def test_a_mutator_refuses_what_is_no_tensor_function() -> None:
    class Wrong(graphopt.Mutator):
        def visit_Relu(self, node: Node) -> Result:
            return self.emit_compute(lambda x: 3, [node.inputs[0]])  # type: ignore[no-any-return]

    with pytest.raises(UsageError, match="a tensor function gives tensors that compute makes, not 3"):
        Wrong().mutate(parse("x: float32[n, 6]\ny = Relu(x)\nreturn y"))
