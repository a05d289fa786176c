"""Normalizations as graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.frontends.torch.operators.operands import IMAGE, X, Y, check, torch

F = torch.nn.functional

CASES: Mapping[str, Callable[..., Any]] = {
    "norms": lambda: [F.layer_norm(X, (4,)), F.group_norm(IMAGE, 2), F.instance_norm(IMAGE), F.rms_norm(X, (4,), Y[0])],
    "learned": lambda: [
        F.layer_norm(X, (4,), X[0], Y[0]),
        F.group_norm(IMAGE, 2, X[0], Y[0]),
        F.instance_norm(IMAGE, weight=X[1]),
    ],
    "batch norm": lambda: [
        F.batch_norm(IMAGE, X[1], X[1].abs() + 1, X[2], X[0]),
        F.batch_norm(IMAGE, X[1], Y[1].abs()),
        F.batch_norm(IMAGE, None, None, X[1], training=True),
        F.batch_norm(IMAGE, None, None, X[1], Y[1], training=True),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_they_give_what_torch_gives(name: str) -> None:
    check(CASES[name])
