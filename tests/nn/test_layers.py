"""Layers compute what numpy does by their definitions; ``test_torch.py`` compares them with torch's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from graphopt import nn
from graphopt.errors import UsageError
from graphopt.ir import evaluate
from graphopt.ir.constants import Array
from graphopt.ir.tolerance import error

RNG = np.random.default_rng(3)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def run(module: nn.Module, *arrays: Array, **options: Any) -> Mapping[str, Array]:
    """What the module's graph computes from arrays, as the reference evaluator sees it."""
    names = [f"x{k}" for k in range(len(arrays))]
    types = {n: f"{a.dtype}[{', '.join(map(str, a.shape))}]" for n, a in zip(names, arrays, strict=True)}
    graph = nn.export(module, types, **options).graph()
    return evaluate.run(graph, dict(zip(names, arrays, strict=True)))


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def forward(self, *tensors: nn.Tensor) -> Any:
        return self.function(*tensors)


def computed(function: Any, *arrays: Array) -> Array:
    return run(Of(function), *arrays)["y"]


def alike(wanted: Array, found: Array) -> bool:
    return error(np.asarray(wanted, found.dtype), found) <= 1


@pytest.mark.parametrize("shape", [(4, 6), (2, 4, 6), (2, 3, 4, 6), (6,)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_dense_layer(shape: tuple[int, ...], bias: bool) -> None:
    layer, x = nn.Linear(6, 5, bias).initialize(1), floats(*shape)
    weights = layer.state_dict()
    assert list(weights) == (["weight", "bias"] if bias else ["weight"])
    assert alike(x @ weights["weight"].T + weights.get("bias", 0), run(layer, x)["y"])


def test_an_embedding() -> None:
    layer, ids = nn.Embedding(7, 3).initialize(), np.array([[0, 6], [2, 2]])
    assert np.array_equal(run(layer, ids)["y"], layer.state_dict()["weight"][ids])


def convolved(x: Array, w: Array, stride: int, padding: int, dilation: int, groups: int) -> Array:
    """A convolution of images by its definition."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    reach = [dilation * (k - 1) + 1 for k in w.shape[2:]]
    rows, columns = ((n - r) // stride + 1 for n, r in zip(x.shape[2:], reach, strict=True))
    y = np.zeros((len(x), len(w), rows, columns), np.float32)
    share = len(w) // groups
    for o, i, j in np.ndindex(len(w), rows, columns):
        inputs = slice(o // share * w.shape[1], (o // share + 1) * w.shape[1])
        top, left = i * stride, j * stride
        window = x[:, inputs, top : top + reach[0] : dilation, left : left + reach[1] : dilation]
        y[:, o, i, j] = (window * w[o]).sum((1, 2, 3))
    return y


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 1, 2), (1, 2, 2, 4), (3, 1, 1, 1)]
)
def test_a_convolution(stride: int, padding: int, dilation: int, groups: int) -> None:
    layer = nn.Conv2d(4, 8, 3, stride, padding, dilation, groups).initialize()
    weights, x = layer.state_dict(), floats(2, 4, 9, 8)
    wanted = convolved(x, weights["weight"], stride, padding, dilation, groups) + weights["bias"][:, None, None]
    assert alike(wanted, run(layer, x)["y"])


def test_padding_by_name() -> None:
    x = floats(1, 2, 7, 6)
    assert run(nn.Conv2d(2, 3, (3, 5), padding="same").initialize(), x)["y"].shape == (1, 3, 7, 6)
    assert run(nn.Conv2d(2, 3, (3, 5), padding="valid").initialize(), x)["y"].shape == (1, 3, 5, 2)


def test_a_convolution_along_one_axis_is_one_of_images_with_one_row() -> None:
    line, plane = nn.Conv1d(2, 3, 4, 2, bias=False).initialize(), nn.Conv2d(2, 3, (1, 4), (1, 2), bias=False)
    plane.load_state_dict({"weight": line.state_dict()["weight"][:, :, None]})
    x = floats(2, 2, 11)
    assert alike(run(plane, x[:, :, None])["y"][:, :, 0], run(line, x)["y"])


def test_a_transposed_convolution_is_the_transpose() -> None:
    """<conv(x), y> = <x, transposed(y)> for all x and y."""
    there, back = nn.Conv2d(2, 4, 3, 2, 1, bias=False).initialize(), nn.ConvTranspose2d(4, 2, 3, 2, 1, bias=False)
    back.load_state_dict(there.state_dict())
    x, y = floats(1, 2, 7, 9), floats(1, 4, 4, 5)
    left, right = (run(there, x)["y"] * y).sum(), (x * run(back, y)["y"]).sum()
    assert abs(left - right) < 1e-4 * abs(left) + 1e-4
    padded = nn.ConvTranspose2d(4, 2, 3, 2, 1, output_padding=1).initialize()
    assert run(padded, y)["y"].shape == (1, 2, 8, 10)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "3 and 4 channels cannot be split into 2 groups"),
        (lambda: nn.Conv2d(3, 4, (1, 2, 3)), r"kernel_size is a number from 1 on, or 2 of them, not \(1, 2, 3\)"),
        (lambda: nn.Conv2d(3, 4, 3, padding="full"), "'same' or 'valid', not 'full'"),
        (lambda: nn.Conv2d(3, 4, 3, padding=-1), "padding is a number from 0 on"),
        (lambda: nn.Conv2d(3, 4, 3, stride=0), "stride is a number from 1 on, or 2 of them, not 0"),
        (lambda: nn.Conv2d(3, 4, 1.5), "kernel_size is a number from 1 on, or 2 of them, not 1.5"),  # type: ignore[arg-type]
        (lambda: nn.Linear("a", 4), r"the sizes of a parameter are numbers from 0 on, not \(4, 'a'\)"),  # type: ignore[arg-type]
        (lambda: nn.Linear(3, -4), r"the sizes of a parameter are numbers from 0 on, not \(-4, 3\)"),
        (lambda: nn.Linear(3, 4, dtype="float31"), "no dtype is called 'float31'"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make()


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
