"""Tables that callers pass along: their entries come before those that there are."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphopt
from graphopt import tensor
from graphopt.frontends.torch import Table
from tests.frontends.torch.graphs import of_function, run, torch


def test_an_entry_of_the_users_own_serves_an_unknown_operator() -> None:
    table = Table()

    @table.entry(torch.ops.aten.special_bessel_j0.default)
    def bessel(g: Any, x: Any) -> Any:
        return g.op("Cos", x)

    (found,) = run(of_function(torch.special.bessel_j0, torch.ones(2), table=table), torch.tensor([0.0, 1.0]))
    assert np.allclose(found, np.cos([0.0, 1.0]))


def test_an_entry_for_a_composed_operator_keeps_it_whole() -> None:
    table = Table()

    @table.entry(torch.ops.aten.gelu.default)
    def gelu(g: Any, x: Any, approximate: str = "none") -> Any:
        return g.op("Relu", x)

    (found,) = run(of_function(torch.nn.functional.gelu, torch.ones(2), table=table), torch.tensor([-1.0, 1.0]))
    assert np.array_equal(found, [0, 1])


def test_an_entry_emits_a_tensor_function() -> None:
    table = Table()

    @table.entry(torch.ops.aten.softmax.int, torch.ops.aten._softmax.default)
    def softmax(g: Any, x: Any, axis: int, *rest: Any) -> Any:
        return g.emit_compute(tensor.softmax, [x], axis=axis)

    x = torch.randn(3, 5)
    graph = graphopt.from_torch(torch.nn.Softmax(1), x, table=table)
    assert "graphopt::Nest" in {n.op for n in graph.nodes()}
    (got,) = graphopt.compile(graph)(x.numpy()).values()
    assert np.allclose(got, torch.softmax(x, 1).numpy(), atol=1e-6)
