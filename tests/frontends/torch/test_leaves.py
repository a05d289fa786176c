"""Modules and functions with entries of their own, which torch does not look into."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import graphopt
from graphopt import tensor
from graphopt.frontends.torch import Table
from tests.frontends.torch.graphs import run, torch


def test_an_entry_for_a_class_of_modules_is_given_the_module() -> None:
    class Swap(torch.nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor([scale]))

        def forward(self, x: Any, y: Any) -> Any:
            return y * self.scale, x

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.swaps = torch.nn.ModuleList([Swap(2.0), Swap(3.0)])

        def forward(self, x: Any) -> Any:
            y = x + 1
            for swap in self.swaps:
                x, y = swap(x, y=y)
            return x - y

    table = Table()

    @table.entry(Swap)
    def swapped(g: Any, module: Any, x: Any, y: Any) -> Any:
        return g.op("Mul", y, g.constant(module.scale)), x

    model, x = Model(), torch.tensor([1.0, 5.0])
    model.swaps[1].forward = partial(Swap.forward, model.swaps[1])  # as hooks of other libraries do
    own = model.swaps[1].forward
    graph = graphopt.from_torch(model, torch.ones(2), table=table)
    (found,) = run(graph, x)
    assert np.allclose(found, model(x).detach().numpy())
    assert sorted(n.op for n in graph.nodes()).count("Mul") == 2
    assert "forward" not in vars(model.swaps[0])
    assert model.swaps[1].forward is own


def doubled(x: Any) -> Any:
    return x * 2


def test_an_fx_graph_is_written_by_functions_and_what_has_no_entry_is_decomposed() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return torch.nn.functional.hardswish(self.layer(x))

    traced = torch.fx.symbolic_trace(Model())
    with traced.graph.inserting_after(list(traced.graph.nodes)[2]):
        last = list(traced.graph.nodes)[2]
        new = traced.graph.call_function(doubled, (last,))
        last.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    traced.recompile()
    table = Table()

    @table.entry(doubled)
    def twice(g: Any, x: Any) -> Any:
        return g.op("Sum", x, x)

    graph = graphopt.from_torch(traced, torch.ones(1, 2), table=table)
    assert [n.op for n in graph.nodes()].count("Sum") == 1
    x = torch.tensor([[3.0, -4.0]])
    (found,) = run(graph, x)
    assert np.allclose(found, traced(x).detach().numpy(), atol=1e-6)


def test_parameters_are_constants_as_they_are() -> None:
    def dense(x: Any, w: Any, b: Any) -> Any:
        return tensor.add(tensor.matmul(x, w, transpose_b=True), b)

    table = Table()

    @table.entry(torch.nn.Linear)
    def linear(g: Any, module: Any, x: Any) -> Any:
        if module.bias is None:
            return g.op("Gemm", x, module.weight, transB=1)
        return g.emit_compute(dense, [x, module.weight, module.bias])

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2, bias=False))
    x = torch.randn(5, 3)
    for module in (model, torch.fx.symbolic_trace(model)):
        graph = graphopt.from_torch(module, x, table=table)
        assert sorted(n.op for n in graph.nodes() if n.op in ("Gemm", "graphopt::Nest")) == ["Gemm", "graphopt::Nest"]
        (found,) = graphopt.compile(graph)(x).values()
        assert np.allclose(found, model(x).detach().numpy(), atol=1e-5)
