"""Recurrent layers as graphs."""

from __future__ import annotations

import pytest

import graphopt
from tests.frontends.torch.graphs import run, torch
from tests.frontends.torch.operators.operands import X, same


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    ("layers", "both_ways", "batch_first", "bias"),
    [(1, False, True, True), (2, True, False, False), (3, True, True, True)],
)
def test_they_give_what_torch_gives(kind: str, layers: int, both_ways: bool, batch_first: bool, bias: bool) -> None:
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(4, 5, layers, bidirectional=both_ways, batch_first=batch_first, bias=bias)
    found = run(graphopt.from_torch(layer, X[None]), X[None])
    with torch.no_grad():
        y, state = layer(X[None])
    same(found, [y, *(state if isinstance(state, tuple) else (state,))])
