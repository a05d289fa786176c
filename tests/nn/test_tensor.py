"""Tensors are computed with as arrays are: numpy is the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphopt import nn
from graphopt.errors import GraphoptError, UsageError
from graphopt.ir import evaluate
from tests.nn.test_layers import Of, alike, computed, floats, run

A, B = floats(3, 4), np.abs(floats(3, 4)) + 0.5


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a + b - 2 * a / b,
        lambda a, b: 1 - a,
        lambda a, b: 1.5 / b + b**2 - 2**a,
        lambda a, b: a @ b.T,
        lambda a, b: A.T @ b,
        lambda a, b: A + b,
        lambda a, b: -abs(a),
        lambda a, b: (a < b) & (a >= -1) | ~(b <= 1) & (a > 0),
        lambda a, b: (a == a) & (a != b),
        lambda a, b: a.sum() + b.mean(0).max() + b.min(1, keepdims=True),
        lambda a, b: a.argmax(1),
        lambda a, b: a.reshape(2, -1).transpose(1, 0).swapaxes(0, 1),
        lambda a, b: a.reshape((3, 2, 2)).transpose(),
        lambda a, b: a.astype("float64"),
    ],
)
def test_it_is_what_numpy_computes(function: Any) -> None:
    wanted, found = function(A, B), computed(function, A, B)
    assert (found.dtype, found.shape) == (np.asarray(wanted).dtype, np.asarray(wanted).shape)
    assert alike(wanted, found)


IMAGE = floats(2, 3, 4, 5)


@pytest.mark.parametrize(
    "key",
    [
        0,
        -1,
        (1, 2),
        slice(1, None),
        (slice(None), slice(0, 3, 2)),
        (..., 0),
        (..., slice(None, None, -1)),
        (0, ..., slice(-3, -1)),
        (slice(None), None, 1, ..., None),
        None,
        ...,
        (slice(None, None, -2), slice(3, 0, -1), 1, 0),
        np.int64(1),
    ],
)
def test_parts_are_numpys(key: Any) -> None:
    found = computed(lambda x: x[key], IMAGE)
    assert np.array_equal(IMAGE[key], found)


def test_a_tensor_of_integers_picks_entries() -> None:
    ids = np.array([[1, 0], [1, 1]])
    assert np.array_equal(IMAGE[ids], computed(lambda x, i: x[i], IMAGE, ids))


def test_sizes_that_are_open_are_computed_with() -> None:
    def function(x: nn.Tensor) -> dict[str, nn.Tensor]:
        b, s = x.shape[:2]
        return {
            "joined": x.reshape(b * s, 8),
            "heads": x.reshape(b, s, 2, 4).transpose(0, 2, 1, 3),
            "turned": x.reshape(s, b, 8),
            "halves": x.reshape(b, s * 2, 4)[:, : (s * 2) // 3],
            "but_one": x[:, : s - 1],
            "places": nn.arange(b + s),
            "wide": nn.broadcast_to(x[:, :1], (b, s, 8)),
        }

    graph = nn.export(Of(function), {"x": "float32[b, s, 8]"}).graph()
    for b, s in ((2, 3), (1, 7)):
        x = floats(b, s, 8)
        found = evaluate.run(graph, {"x": x})
        wanted = {
            "joined": x.reshape(b * s, 8),
            "heads": x.reshape(b, s, 2, 4).transpose(0, 2, 1, 3),
            "turned": x.reshape(s, b, 8),
            "halves": x.reshape(b, s * 2, 4)[:, : s * 2 // 3],
            "but_one": x[:, : s - 1],
            "places": np.arange(b + s),
            "wide": np.broadcast_to(x[:, :1], (b, s, 8)),
        }
        assert all(np.array_equal(wanted[n], found[n]) for n in wanted)
    ops = [n.op for n in graph.nodes()]
    assert ops.count("Reshape") == 4
    assert ops.count("Shape") <= 3


def test_no_elements_are_a_shape_too() -> None:
    assert computed(lambda x: x.reshape(0, 5), np.zeros((3, 0), np.float32)).shape == (0, 5)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x if x > 0 else -x, "has no elements yet, while its graph is written: nn.where"),
        (lambda x: x * float(x), "has no elements yet"),
        (lambda x: x.__setitem__(0, 1.0), "does not change: nn.where and nn.concat make"),
        (lambda x: x.swapaxes(0, 7), "has no axis 7"),
        (lambda x: nn.split(x, 2, 5)[0], "has no axis 5"),
        (lambda x: nn.split(x, 0)[0], "an axis of 3 cannot be split into 0 equal parts"),
        (lambda x: nn.flatten(x, 3), "has no axis 3"),
        (lambda x: sum(x), "nn.split takes it apart"),
        (lambda x: x * len(x), "its shape tells its sizes"),
        (lambda x: x[0, 0, 0], "has 2 axes: there are more indices"),
        (lambda x: x["a"], "is indexed by numbers, slices"),
        (lambda x: x[True], "is indexed by numbers, slices"),
        (lambda x: x.reshape(-1, -1), r"one size may be -1, and \(-1, -1\) has several"),
        (lambda x: x.reshape(2.5), "a size is a number, a name"),
        (lambda x: x.reshape("q", 4), "the size 'q' of .* is unknown"),
        (lambda x: x.reshape(5, 5), "Reshape"),
        (lambda x: x.astype("float31"), "no dtype is called 'float31'"),
        (lambda x: x.astype("int64") * 0.5, "is combined with .*, which holds integers"),
        (lambda x: x + x.astype("int64"), "one dtype"),
        (lambda x: x @ x, "MatMul"),
    ],
)
def test_what_makes_no_sense_is_refused(function: Any, said: str) -> None:
    with pytest.raises(GraphoptError, match=said) as caught:
        computed(function, A)
    assert "\n" not in str(caught.value)


def test_tensors_stay_in_their_graph() -> None:
    kept: list[nn.Tensor] = []

    def keeping(x: nn.Tensor) -> nn.Tensor:
        kept.append(x)
        return kept[0] * x

    computed(keeping, A)
    with pytest.raises(UsageError, match="a tensor of another graph"):
        computed(keeping, A)


def test_parameters_are_computed_with_as_tensors() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            self.a, self.b = nn.Parameter((4,)), nn.Parameter((4,))

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return (self.a + self.b * 2)[None] * x - self.a.sum()

    module = Scaled().initialize()
    a, b = module.state_dict().values()
    assert alike((a + b * 2) * A - a.sum(), run(module, A)["y"])
    assert module.a.shape == (4,)
    assert module.a.dtype == "float32"
