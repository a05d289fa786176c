"""New tensors as graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.frontends.torch.operators.operands import N, X, check, torch

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
