"""Tensors to compute with, and the check that an operator gives in a graph what it gives in torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import graphopt
from tests.frontends.torch.graphs import run, torch

X = torch.tensor([[-2.5, -1.0, -0.3, 0.0], [0.4, 1.5, 2.5, 25.0], [0.7, -7.0, 1e-6, 3.0]])
Y = torch.tensor([[1.5, -2.0, 0.7, 3.0], [2.0, 1.0, 2.5, -3.0], [0.1, 5.0, -2.0, 3.0]])
N = torch.tensor([[5, -3, 0, 2], [7, 1, -8, 4], [0, 2, 6, -1]])
M = torch.tensor([[3, 2, -4, 5], [-2, 1, 3, 4], [1, 7, -5, 2]])
B = torch.tensor([[True, False, True, False], [False, False, True, True], [True, True, False, False]])
IMAGE = torch.randn(2, 4, 6, 8, generator=torch.Generator().manual_seed(0))


def check(function: Callable[[], Any]) -> None:
    """Holds what the function gives in a graph to what it gives in torch.

    The tensors that it names, of its module's own, become the graph's inputs.
    """
    names: dict[str, Any] = function.__globals__
    tensors = {k: names[k] for k in function.__code__.co_names if isinstance(names.get(k), torch.Tensor)}

    class Module(torch.nn.Module):
        def forward(self, **given: Any) -> Any:
            names.update(given)
            try:
                return function()
            finally:
                names.update(tensors)

    same(run(graphopt.from_torch(Module(), (), tensors), *tensors.values()), function())


def same(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Holds arrays to torch's tensors: dtypes, shapes and elements."""
    assert len(found) == len(wanted)
    for k, (array, tensor) in enumerate(zip(found, wanted, strict=True)):
        exact = tensor.numpy()
        assert np.asarray(array).dtype == exact.dtype, f"result {k}"
        assert np.shape(array) == exact.shape, f"result {k}"
        assert np.allclose(array, exact, rtol=1e-4, atol=1e-6 * _largest(exact), equal_nan=True), (
            f"result {k}: {array} for {exact}"
        )


def _largest(array: np.ndarray[Any, Any]) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=0))
