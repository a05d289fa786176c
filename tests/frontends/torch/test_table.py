"""Tables that callers pass along: their entries come before those that there are."""

from __future__ import annotations

from typing import Any

import numpy as np

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
