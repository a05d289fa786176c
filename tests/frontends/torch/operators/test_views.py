"""Views, and what moves elements, as graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import graphopt
from graphopt.errors import TranslationError
from tests.frontends.torch.operators.operands import IMAGE, B, N, X, Y, check, torch

F = torch.nn.functional

CASES: Mapping[str, Callable[..., Any]] = {
    "dtypes": lambda: [X.to(torch.int32), N.float(), X.double() + 1, B.int(), X.to(torch.bool), X.half().float()],
    "shapes": lambda: [
        X.view(4, 3),
        X.reshape(-1),
        X.t(),
        IMAGE.permute(0, 2, 3, 1),
        IMAGE.flatten(1),
        X.unflatten(1, (2, 2)),
    ],
    "axes": lambda: [X[None], X.unsqueeze(-1).squeeze(-1), X[:1].squeeze(), X[:1].expand(5, 4), X.expand(2, -1, -1)],
    "parts": lambda: [X[1], X[:, 1:3], X[::2], X[-1], *X.split(2, 1), *X.split([1, 2]), *X.chunk(2, 1), *X.unbind(0)],
    "joined": lambda: [torch.cat([X, N]), torch.stack([X, Y], 1), X.repeat(2, 1, 3), X.repeat_interleave(2, 1)],
    "turned": lambda: [X.flip(0), X.flip((0, 1)), X.roll(1, 0), X.roll((1, -1), (0, 1)), X.roll(5)],
    "triangles": lambda: [X.tril(), X.triu(1), B.tril(-1), X.diagonal(), X.diagonal(1), X.diagonal(-1, 0, 1)],
    "diagonals": lambda: [
        X.diagonal_scatter(Y[0, :3]),
        X.diagonal_scatter(Y[0, :2], -1),
        X.as_strided((2, 3), (1, 4), 1),
    ],
    "windows": lambda: [X.unfold(1, 2, 1), IMAGE.unfold(3, 4, 2), F.pixel_shuffle(IMAGE, 2)],
    "margins": lambda: [
        F.pad(X, (1, 2)),
        F.pad(X, (1, -1, 0, 2), value=3.0),
        F.pad(IMAGE, (2, 1, 1, 2), mode="reflect"),
    ],
    "more margins": lambda: [
        F.pad(IMAGE, (2, 1, 0, 1), mode="replicate"),
        F.pad(IMAGE, (-8, 9, 0, 1), mode="replicate"),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_they_give_what_torch_gives(name: str) -> None:
    check(CASES[name])


def test_dropout_that_trains_is_refused() -> None:
    layer = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.ReLU())
    with pytest.raises(TranslationError, match=r"dropout\.default .*training mode: call model\.eval\(\)"):
        graphopt.from_torch(layer.train(), torch.ones(3))
    assert [n.op for n in graphopt.from_torch(layer.eval(), torch.ones(3)).nodes()].count("Relu") == 1
