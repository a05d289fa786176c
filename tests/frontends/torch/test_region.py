"""Graphs that torch.compile cut out run compiled, as long as their weights stay, and torch runs what it has to."""

from __future__ import annotations

from typing import Any

import pytest

from graphopt.frontends.torch import Table
from tests.frontends.torch.compiled import Perceptron, close, compiled, torch

pytestmark = pytest.mark.usefixtures("programs")  # torch has compiled nothing when a test begins


def test_changed_weights_are_honoured(programs: list[Any]) -> None:
    model, x = Perceptron(), torch.randn(2, 4)
    fast = compiled(model)
    with torch.no_grad():
        fast(x)
        assert len(programs[0]._fed) == 1  # weights are constants
        model.first.weight.mul_(2)
        assert close(fast(x), model(x))
        model.second.bias.data = torch.tensor([1.0, 2.0, 3.0])
        assert close(fast(x), model(x))
        made = len(programs)
        assert close(fast(x), model(x))
        assert len(programs) == made
        for _ in range(4):
            model.first.weight.add_(1)
            assert close(fast(x), model(x))
        assert len(programs) <= made + 2  # a weight that keeps changing is an input from then on


def test_buffers_that_a_module_changes_stay_right() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(2))

        def forward(self, x: Any) -> Any:
            self.total += x
            return torch.exp(self.total)

    model, twin = Counter(), Counter()
    fast, x = compiled(model), torch.tensor([0.1, 0.2])
    for _ in range(5):
        assert close(fast(x), twin(x))
    assert torch.equal(model.total, twin.total)


@torch.library.custom_op("graphopt_tests::mirrored", mutates_args=())
def mirrored(x: torch.Tensor) -> torch.Tensor:
    return -x


@mirrored.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def function_with_an_unknown_operator(x: Any) -> Any:
    y = torch.relu(x) * 2 + 1
    return torch.tanh(mirrored(y) + y * 0.5) - 3


def test_torch_runs_what_has_no_entry_and_the_rest_is_compiled(programs: list[Any]) -> None:
    x = torch.tensor([[-1.0, 2.0], [3.0, 0.25]])
    found = compiled(function_with_an_unknown_operator)(x)
    assert close(found, function_with_an_unknown_operator(x))
    assert len(programs) == 2


def test_a_table_makes_it_one_program(programs: list[Any]) -> None:
    table = Table()

    @table.entry(torch.ops.graphopt_tests.mirrored.default)
    def negative(g: Any, x: Any) -> Any:
        return g.op("Neg", x)

    x = torch.tensor([[-1.0, 2.0], [3.0, 0.25]])
    assert close(compiled(function_with_an_unknown_operator, table=table)(x), function_with_an_unknown_operator(x))
    assert len(programs) == 1


def test_results_are_laid_out_as_in_torch_and_do_not_change_later() -> None:
    model = torch.nn.Conv2d(3, 4, 1).to(memory_format=torch.channels_last)
    fast = compiled(model)
    with torch.no_grad():
        x = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)
        first = fast(x)
        kept = first.clone()
        fast(x + 1)
        assert first.stride() == model(x).stride()
        assert torch.equal(first, kept)
        assert close(first, model(x))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int32", "bool"])
def test_dtypes(dtype: str) -> None:
    def function(x: Any) -> Any:
        return torch.cat([x, x.flip(0)]), x.float() + 1

    x = torch.tensor([0, 1, 2, 3]).to(getattr(torch, dtype))
    for found, wanted in zip(compiled(function)(x), function(x), strict=True):
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)
