"""Functions of tensors that no layer's test covers are numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphopt import nn
from graphopt.errors import UsageError
from tests.nn.test_layers import alike, computed, floats

X = np.abs(floats(2, 6, 4)) + 0.5


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "tanh", "sin", "cos"])
def test_functions_of_one_tensor(name: str) -> None:
    assert alike(getattr(np, name)(X), computed(getattr(nn, name), X))


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda x: nn.minimum(x, 1.0), np.minimum(X, 1)),
        (lambda x: nn.maximum(1.0, x), np.maximum(X, 1)),
        (lambda x: nn.clip(x, high=0.75), np.minimum(X, 0.75)),
        (lambda x: nn.where(x > 1, x, 0), np.where(X > 1, X, 0)),
        (lambda x: nn.where(x > 1, 2, 0.5), np.where(X > 1, 2, 0.5).astype(np.float32)),
        (lambda x: nn.matmul(x, x.swapaxes(1, 2)), X @ X.swapaxes(1, 2)),
        (lambda x: nn.einsum("bij,bkj->ik", x, x), np.einsum("bij,bkj->ik", X, X)),
        (lambda x: nn.concat([x, x * 2], 1), np.concatenate([X, X * 2], 1)),
        (lambda x: nn.stack([x, x * 2], -1), np.stack([X, X * 2], -1)),
        (lambda x: nn.split(x, 3, 1)[2], X[:, 4:]),
        (lambda x: nn.split(x, [1, 3, 2], 1)[1], X[:, 1:4]),
        (lambda x: nn.split(x, 1)[0], X),
        (lambda x: nn.flatten(x, 0), X.reshape(-1)),
        (lambda x: x.unsqueeze((0, 2)).squeeze(0), X[:, None]),
        (lambda x: nn.arange(3).astype("float32"), np.arange(3, dtype=np.float32)),
    ],
)
def test_functions_of_shapes_and_several_tensors(function: Any, wanted: np.ndarray) -> None:
    found = computed(function, X)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert alike(wanted, found)


def test_the_error_function_is_odd_and_within_one() -> None:
    found = computed(nn.erf, np.array([-9, -0.5, 0, 0.5, 9], np.float32))
    assert alike(np.array([-1, -0.5204999, 0, 0.5204999, 1]), found)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="an axis of 6 cannot be split into 4 equal parts"):
        computed(lambda x: nn.split(x, 4, 1)[0], X)
    with pytest.raises(UsageError, match="cannot be split into 3 heads of an even size"):
        computed(lambda x: nn.rotary(x, nn.arange(6).unsqueeze(0), heads=3), X)
