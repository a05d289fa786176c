"""Activations as graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.frontends.torch.operators.operands import X, check, torch

F = torch.nn.functional

CASES: Mapping[str, Callable[..., Any]] = {
    "activations": lambda: [
        F.gelu(X),
        F.gelu(X, approximate="tanh"),
        F.silu(X),
        F.hardswish(X),
        F.hardsigmoid(X),
        F.relu6(X),
    ],
    "more activations": lambda: [
        F.elu(X, 0.5),
        F.selu(X),
        F.celu(X, 2.0),
        F.softplus(X, 2.0, 3.0),
        F.mish(X),
        F.leaky_relu(X),
    ],
    "others": lambda: [
        F.logsigmoid(X),
        F.glu(X),
        F.threshold(X, 0.5, 9.0),
        F.prelu(X, torch.tensor([0.2])),
        F.hardtanh(X),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_they_give_what_torch_gives(name: str) -> None:
    check(CASES[name])
