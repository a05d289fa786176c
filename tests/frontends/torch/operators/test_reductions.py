"""Reductions as graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.frontends.torch.operators.operands import B, N, X, Y, check, torch

CASES: Mapping[str, Callable[..., Any]] = {
    "sums": lambda: [
        X.sum(),
        X.sum(0),
        X.sum((0, 1), keepdim=True),
        N.sum(1),
        B.sum(),
        X.mean(1),
        X.mean(),
        X.prod(1),
        N.prod(),
    ],
    "extremes": lambda: [*X.max(1), *X.min(0, keepdim=True), X.max(), X.amax((0, 1)), X.amin(1), N.amax(0)],
    "places": lambda: [X.argmax(), X.argmin(1), X.argmax(0, keepdim=True), X.argmin(keepdim=True)],
    "logic": lambda: [B.any(), B.all(1), X.any(0), N.all(), B.any(1, keepdim=True)],
    "spread": lambda: [X.var(), X.std(1), X.var(0, correction=0), *torch.var_mean(X, 1, keepdim=True)],
    "norms": lambda: [
        X.norm(),
        X.norm(1, 1),
        torch.linalg.vector_norm(X, 3, 1),
        torch.linalg.vector_norm(X, float("inf")),
    ],
    "softmax": lambda: [X.softmax(1), X.log_softmax(0), X.logsumexp(1), X.softmax(0, dtype=torch.float64)],
    "running": lambda: [X.cumsum(1), N.cumsum(0), B.cumsum(1), X.cumprod(1), *X.cummax(1), *N.cummin(0)],
    "running in logs": lambda: [X.logcumsumexp(1), X[:, 3].logcumsumexp(0)],
    "distances": lambda: [torch.cdist(X, Y), torch.cdist(X, Y, 1.0), torch.nn.functional.pdist(X)],
}


@pytest.mark.parametrize("name", CASES)
def test_they_give_what_torch_gives(name: str) -> None:
    check(CASES[name])
