"""Pools are reductions of windows."""

import numpy as np
import pytest

from graphopt import nn
from graphopt.errors import UsageError
from tests.nn.test_layers import alike, floats, run


def windows(x: np.ndarray, size: int) -> np.ndarray:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // size, size, w // size, size)


def test_pools_of_windows_side_by_side() -> None:
    x = floats(2, 3, 4, 6)
    assert np.array_equal(run(nn.MaxPool2d(2), x)["y"], windows(x, 2).max((3, 5)))
    assert alike(windows(x, 2).mean((3, 5)), run(nn.AvgPool2d(2), x)["y"])


def test_padding_counts_as_zeros_where_it_counts() -> None:
    x = np.ones((1, 1, 2, 2), np.float32)
    assert alike(np.full((1, 1, 2, 2), 4 / 9), run(nn.AvgPool2d(3, 1, 1), x)["y"])
    assert alike(x, run(nn.AvgPool2d(3, 1, 1, count_include_pad=False), x)["y"])


def test_the_last_windows_may_be_cut_off() -> None:
    x = floats(1, 1, 5, 5)
    assert run(nn.MaxPool2d(2), x)["y"].shape == (1, 1, 2, 2)
    assert run(nn.MaxPool2d(2, ceil_mode=True), x)["y"].shape == (1, 1, 3, 3)
    assert run(nn.MaxPool2d(2, stride=1, dilation=2), x)["y"].shape == (1, 1, 3, 3)


def test_adaptive_pools_share_out_evenly() -> None:
    x = floats(2, 3, 4, 6)
    assert alike(x.mean((2, 3), keepdims=True), run(nn.AdaptiveAvgPool2d(1), x)["y"])
    assert alike(windows(x, 2).mean((3, 5)), run(nn.AdaptiveAvgPool2d((2, 3)), x)["y"])
    with pytest.raises(UsageError, match=r"is no image of \[batch, channels, height, width\]"):
        run(nn.AdaptiveAvgPool2d(2), x[0])
    with pytest.raises(UsageError, match=r"cannot be shared out evenly to \[3, 3\]"):
        run(nn.AdaptiveAvgPool2d(3), x)
