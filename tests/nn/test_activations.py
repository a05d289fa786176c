"""Activations are their formulas."""

from math import erf
from typing import Any

import numpy as np
import pytest

from graphopt import nn
from tests.nn.test_layers import alike, floats, run

X = floats(3, 4, 5) * 3


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def shares(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize(
    ("module", "wanted"),
    [
        (nn.ReLU(), np.maximum(X, 0)),
        (nn.ReLU6(), np.clip(X, 0, 6)),
        (nn.LeakyReLU(0.2), np.where(X < 0, X * np.float32(0.2), X)),
        (nn.ELU(1.5), np.where(X < 0, 1.5 * np.expm1(X), X)),
        (nn.GELU(), X * np.vectorize(lambda v: (1 + erf(v / 2**0.5)) / 2)(X)),
        (nn.GELU("tanh"), X * (1 + np.tanh((2 / np.pi) ** 0.5 * (X + 0.044715 * X**3))) / 2),
        (nn.SiLU(), X * sigmoid(X)),
        (nn.Mish(), X * np.tanh(np.log1p(np.exp(X)))),
        (nn.Hardswish(), X * np.clip(X + 3, 0, 6) / 6),
        (nn.Hardsigmoid(), np.clip(X + 3, 0, 6) / 6),
        (nn.Softplus(), np.log1p(np.exp(X))),
        (nn.Sigmoid(), sigmoid(X)),
        (nn.Tanh(), np.tanh(X)),
        (nn.Softmax(1), shares(X, 1)),
        (nn.LogSoftmax(), np.log(shares(X, -1))),
        (nn.Identity(), X),
        (nn.Flatten(), X.reshape(3, 20)),
    ],
    ids=lambda m: type(m).__name__ if isinstance(m, nn.Module) else "",
)
def test_an_activation(module: nn.Module, wanted: Any) -> None:
    assert alike(wanted, run(module, X)["y"])


@pytest.mark.parametrize("channels", [1, 4])
def test_a_learned_slope_is_a_channels(channels: int) -> None:
    layer, slope = nn.PReLU(channels), floats(channels)
    layer.load_state_dict({"weight": slope})
    assert alike(np.where(X < 0, X * slope[:, None], X), run(layer, X)["y"])
