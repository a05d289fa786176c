"""Products and attention as graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.frontends.torch.operators.operands import IMAGE, X, Y, check, torch

F = torch.nn.functional

Q, K, V = torch.randn(3, 2, 4, 5, 8, generator=torch.Generator().manual_seed(3)).unbind(0)
MASK = torch.tensor([[True, False, True, True, False]] * 4 + [[False] * 5])

CASES: Mapping[str, Callable[..., Any]] = {
    "bilinear": lambda: [F.bilinear(X, Y, IMAGE[0, :, :4, :4]), F.bilinear(X[0], Y[0], IMAGE[0, :, :4, :4], X[1])],
    "sums of products": lambda: [torch.addbmm(X[0, :1], IMAGE[0], IMAGE[0].mT, beta=2)],
    "determinants": lambda: [torch.linalg.det(X[:, :3]), *torch.linalg.slogdet(X[:, :3])],
    "einsum with an ellipsis": lambda: [
        torch.einsum("...ik,...kj->...ij", IMAGE, IMAGE[0].mT),
        torch.einsum("ij,kj->ik", X, Y[:, :1]),
    ],
    "products": lambda: [
        X @ Y.t(),
        X @ Y[0],
        Y[0] @ Y[1],
        Q @ K.transpose(-1, -2),
        F.linear(X, Y, Y[:, 0]),
        torch.addmm(X[:, :3], X, Y.t()),
    ],
    "einsum": lambda: [
        torch.einsum("bhqd,bhkd->bhqk", Q, K),
        torch.baddbmm(Q[0], Q[0] @ K[0].mT, V[0], beta=0.5, alpha=2.0),
    ],
    "attention": lambda: [
        F.scaled_dot_product_attention(Q, K, V),
        F.scaled_dot_product_attention(Q, K, V, is_causal=True),
    ],
    "masked attention": lambda: [F.scaled_dot_product_attention(Q, K, V, attn_mask=MASK, scale=0.3)],
    "grouped attention": lambda: [F.scaled_dot_product_attention(Q, K[:, :2], V[:, :2], enable_gqa=True)],
}


@pytest.mark.parametrize("name", CASES)
def test_they_give_what_torch_gives(name: str) -> None:
    check(CASES[name])
