"""What torch.compile gives with this backend, and a module to compile."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from graphopt.frontends.torch.backend import LeftToTorchWarning as LeftToTorchWarning  # noqa: E402
from graphopt.frontends.torch.backend import backend  # noqa: E402


def compiled(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend=backend, options=options)


def close(found: Any, wanted: Any) -> bool:
    return bool(torch.allclose(found, wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max())))


class Perceptron(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x)))
