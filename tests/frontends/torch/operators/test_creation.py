"""New tensors as graphs; sizes, and Python's arithmetic with them, in graphs that leave them open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import graphopt
from tests.frontends.torch.graphs import run
from tests.frontends.torch.operators.operands import N, X, check, same, torch

CASES: Mapping[str, Callable[..., Any]] = {
    "made": lambda: [
        torch.arange(5),
        torch.arange(1, 9, 2.5),
        torch.full((2, 3), 7),
        torch.zeros(2) + X[0, 0],
        torch.eye(3),
    ],
    "like": lambda: [
        torch.zeros_like(X),
        torch.ones_like(N),
        torch.full_like(X, 2),
        X.new_zeros(2, 2),
        X.new_full((1,), 3),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_they_give_what_torch_gives(name: str) -> None:
    check(CASES[name])


OPEN: Mapping[str, Callable[[Any], Any]] = {
    "products": lambda x: x.reshape(x.shape[0] * 2, x.shape[1] // 2),
    "differences": lambda x: torch.arange(x.shape[0] - 1),
    "quotients": lambda x: (torch.arange(x.shape[0] // 2), x * (1 / x.shape[0]), x / -(-x.shape[0] // 2)),
    "powers": lambda x: x + x.shape[0] ** 2 - x.shape[0] % 3,
    "bounds": lambda x: torch.arange(torch.sym_min(x.shape[0], 3)) + torch.sym_max(x.shape[0], 4),
    "counts": lambda x: x.sum() / x.numel() + torch.arange(x.shape[0]).sum(),
    "turns": lambda x: x.roll(5, 0) - x.roll((-1, 9), (0, 1)),
    "masks": lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
}


@pytest.mark.parametrize("name", OPEN)
def test_they_are_those_of_the_inputs(name: str) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return OPEN[name](x)

    graph = graphopt.from_torch(Module(), torch.ones(6, 4), dynamic_shapes={"x": {0: torch.export.Dim("n", min=4)}})
    for n in (4, 5, 9):
        x = torch.randn(n, 4, generator=torch.Generator().manual_seed(n))
        wanted = OPEN[name](x)
        same(run(graph, x), wanted if isinstance(wanted, tuple) else [wanted])
