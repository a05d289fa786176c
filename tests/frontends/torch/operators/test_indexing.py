"""Indices, sorting and searching as graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.frontends.torch.operators.operands import IMAGE, B, M, N, X, Y, check, torch

F = torch.nn.functional

P = torch.tensor([2, 0, 1])
R = torch.tensor([3, 1, 1])
IDS = torch.tensor([[2, 0, 1], [1, 1, 0]])
STARTS = torch.tensor([0, 2, 2, 5])


def _assigned(x: Any, where: Any, values: Any = 9.0) -> Any:
    found = x.clone()
    found[where] = values
    return found


CASES: Mapping[str, Callable[..., Any]] = {
    "bags": lambda: [
        F.embedding_bag(IDS, X, mode="sum"),
        F.embedding_bag(IDS, X, mode="max"),
        F.embedding_bag(IDS.flatten(), X, STARTS, mode="mean"),
        F.embedding_bag(IDS.flatten(), X, STARTS, mode="max"),
        F.embedding_bag(IDS.flatten(), X, STARTS, mode="sum", per_sample_weights=Y[:, 0].repeat(2)),
        F.embedding_bag(IDS.flatten(), X, STARTS, mode="sum", include_last_offset=True),
    ],
    "gathered": lambda: [
        X[P],
        X[:, R],
        X[P, R],
        X[P[:, None], R],
        IMAGE[:, P, R],
        IMAGE[P % 2, :, R],
        IMAGE[:, P, :, R],
        X.gather(1, P[:, None]),
    ],
    "chosen": lambda: [X.index_select(1, R), F.embedding(N.abs() % 3, X), X[B], B.nonzero(), X.masked_select(B)],
    "scattered": lambda: [
        X.scatter(1, R[:, None], Y),
        X.scatter(1, R[:, None], 5.0),
        X.scatter(0, P[:, None], Y, reduce="add"),
        X.scatter(1, R[:, None], 5.0, reduce="multiply"),
    ],
    "added": lambda: [X.scatter_add(1, N.abs() % 4, Y), X.scatter_reduce(1, R[:, None], Y[:, :1], "amax")],
    "put": lambda: [X.index_put((P, R), Y[:, 0]), X.index_put((P,), Y, accumulate=True), X.masked_fill(B, 2.0)],
    "put between": lambda: [
        _assigned(IMAGE, (slice(None), P, slice(None), R), Y[:, :1, None]),
        _assigned(IMAGE, (0, slice(None), P, R)),
    ],
    "assigned": lambda: [_assigned(X, 1), _assigned(X, slice(1, 3)), _assigned(X, (slice(None), slice(0, 4, 2)))],
    "sorted": lambda: [*X.sort(1), *X.topk(2, 1), *N.sort(dim=0, descending=True, stable=True), X.argsort(1)],
    "counted": lambda: [F.one_hot(P, 4), torch.bucketize(X, torch.tensor([-1.0, 0.0, 2.0]))],
    "middle": lambda: [*X.median(1), N.median(), *X.kthvalue(2, 0), *(X / Y * 0).nanmedian(1), N.mode(1).values],
    "searched": lambda: [torch.searchsorted(X.sort(1).values, Y), torch.searchsorted(X[0].sort().values, 0.5)],
    "parts of a range": lambda: [X.histc(5, -3, 3), N.float().histc(4), X.histc(3)],
    "reduced": lambda: [
        X.scatter_reduce(1, N.abs() % 4, Y, "mean", include_self=False),
        N.scatter_reduce(1, N.abs() % 4, M, "amin", include_self=False),
        X.index_reduce(0, P % 3, X[: len(P)], "prod"),
        X.index_fill(1, R, 7.0),
    ],
    "flat": lambda: [X.take(N.abs()), X.put(P, Y[0, : len(P)]), X.sum().gather(0, P[0] * 0)],
    "masked": lambda: [X.masked_scatter(B, Y)],
}


@pytest.mark.parametrize("name", CASES)
def test_they_give_what_torch_gives(name: str) -> None:
    check(CASES[name])
