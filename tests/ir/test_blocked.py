"""Blocked images against plain ones: what the ops compute, the types they infer, and what they refuse."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from graphopt.errors import GraphoptError
from graphopt.ir.blocked import MEANINGS, blocked, packed, unblocked, unpacked
from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import Constant
from graphopt.ir.evaluate import evaluate
from graphopt.ir.graph import Attrs
from graphopt.ir.infer import infer_node

NORMAL = np.random.default_rng(0).standard_normal


def image(*shape: int) -> np.ndarray:
    return NORMAL(shape).astype(np.float32)


def compute(op: str, *inputs: np.ndarray, **attrs: Any) -> np.ndarray:
    """The op by the reference evaluator; its inferred type holds."""
    constants = [Constant.of(a) for a in inputs]
    (found,) = evaluate(op, Attrs(attrs), constants, 1, 21)
    (fact,) = infer_node(op, Attrs(attrs), [fact_of(c) for c in constants], 1, 21)
    assert (fact.dtype, fact.shape) == (found.dtype, found.shape)
    assert fact.low <= found.array.min()
    assert found.array.max() <= fact.high
    return found.array


@pytest.mark.parametrize("shape", [(2, 32, 3, 4), (1, 5, 3, 4), (2, 20, 7), (1, 17, 2, 3, 4), (2, 3)])
def test_blocking_fills_with_zeros_and_back(shape: tuple[int, ...]) -> None:
    x = image(*shape)
    y = compute("graphopt::Block", x)
    assert y.shape == (shape[0], -(-shape[1] // 16), *shape[2:], 16)
    for channel in range(shape[1]):
        assert (y[:, channel // 16, ..., channel % 16] == x[:, channel]).all()
    assert not y[:, -1, ..., 1 + (shape[1] - 1) % 16 :].any()
    assert (compute("graphopt::Unblock", y, channels=shape[1]) == x).all()


def test_weights_in_their_forms() -> None:
    w = image(20, 18, 3, 2)
    y = compute("graphopt::BlockWeights", w)
    assert y.shape == (2, 2, 3, 2, 16, 16)
    assert (y[1, 1, :, :, 1, 3] == w[19, 17]).all()
    assert not y[1, :, :, :, :, 4:].any()
    assert not y[:, 1, :, :, 2:].any()
    plain = compute("graphopt::BlockWeights", w, form="plain", size=8)
    assert plain.shape == (3, 18, 3, 2, 8)
    assert (plain[2, 5, :, :, 3] == w[19, 5]).all()
    depthwise = compute("graphopt::BlockWeights", w[:, :1], form="depthwise")
    assert depthwise.shape == (2, 3, 2, 16)
    assert (depthwise[1, :, :, 3] == w[19, 0]).all()


@pytest.mark.parametrize("form", ["blocked", "plain", "depthwise"])
def test_packed_weights_unpack(form: str) -> None:
    w = image(32, 1 if form == "depthwise" else 16, 3, 3)
    assert (unpacked(packed(w, 16, form), form) == w).all()


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], str]] = {
    "blocked": ((2, 32, 6, 7), (48, 32, 3, 3), {"pads": (1, 1, 1, 1)}, "blocked"),
    "padded lanes": ((1, 20, 6, 7), (18, 20, 3, 2), {"strides": (2, 1), "dilations": (1, 2)}, "blocked"),
    "groups": ((1, 32, 5, 5), (64, 16, 3, 3), {"group": 2}, "blocked"),
    "rows": ((1, 16, 9), (16, 16, 3), {"pads": (0, 2)}, "blocked"),
    "volumes": ((1, 16, 3, 4, 5), (16, 16, 2, 2, 2), {}, "blocked"),
    "plain": ((1, 3, 8, 8), (20, 3, 3, 3), {"strides": (2, 2), "auto_pad": "SAME_UPPER"}, "plain"),
    "depthwise": ((1, 24, 6, 6), (24, 1, 3, 3), {"pads": (1, 1, 1, 1), "group": 24}, "depthwise"),
}


@pytest.mark.parametrize("name", list(CONVOLUTIONS))
@pytest.mark.parametrize("has_bias", [False, True])
def test_convolutions_of_blocks_are_those_of_plain_images(name: str, has_bias: bool) -> None:
    x_shape, w_shape, attrs, form = CONVOLUTIONS[name]
    x, w, b = image(*x_shape), image(*w_shape), image(w_shape[0])
    (expected,) = evaluate("Conv", Attrs(attrs), [Constant.of(a) for a in ((x, w, b) if has_bias else (x, w))], 1, 21)
    given = x if form == "plain" else compute("graphopt::Block", x)
    bias = [blocked(b[None], 16)[0]] if has_bias else []
    y = compute("graphopt::BlockedConv", given, packed(w, 16, form), *bias, form=form, **attrs)
    np.testing.assert_allclose(unblocked(y)[:, : w_shape[0]], expected.array, rtol=1e-5, atol=1e-5)
    assert not unblocked(y)[:, w_shape[0] :].any()


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("attrs", [{"strides": (2, 2), "pads": (1, 1, 1, 1)}, {"ceil_mode": 1, "strides": (2, 2)}])
def test_pools_of_blocks_are_those_of_plain_images(op: str, attrs: dict[str, Any]) -> None:
    x = image(2, 20, 6, 7)
    (expected,) = evaluate(op, Attrs({**attrs, "kernel_shape": (3, 3)}), [Constant.of(x)], 1, 21)
    y = compute(f"graphopt::Blocked{op}", blocked(x, 16), **attrs, kernel_shape=(3, 3))
    np.testing.assert_allclose(unblocked(y)[:, :20], expected.array, rtol=1e-6, atol=1e-6)


REFUSED: list[tuple[str, Sequence[tuple[int, ...]], dict[str, Any]]] = [
    ("graphopt::Block", [(3,)], {}),
    ("graphopt::Block", [(1, 3, 2)], {"size": 0}),
    ("graphopt::Unblock", [(1, 2, 3, 16)], {"channels": 33}),
    ("graphopt::Unblock", [(1, 2, 3, 0)], {"channels": 3}),
    ("graphopt::Unblock", [(1, 0, 3, 16)], {"channels": 0}),
    ("graphopt::BlockWeights", [(16, 2, 3, 3)], {"form": "depthwise"}),
    ("graphopt::BlockWeights", [(16, 2, 3, 3)], {"form": "other"}),
    ("graphopt::BlockedConv", [(1, 2, 4, 4, 16), (2, 1, 3, 3, 16, 16)], {}),
    ("graphopt::BlockedConv", [(1, 2, 4, 4, 16), (2, 2, 3, 3, 16)], {}),
    ("graphopt::BlockedConv", [(1, 2, 4, 4, 8), (2, 2, 3, 3, 16, 16)], {}),
    ("graphopt::BlockedConv", [(1, 2, 4, 4, 16), (1, 3, 3, 16)], {"form": "depthwise"}),
]


@pytest.mark.parametrize(("op", "shapes", "attrs"), REFUSED)
def test_what_does_not_fit_is_refused(op: str, shapes: Sequence[tuple[int, ...]], attrs: dict[str, Any]) -> None:
    with pytest.raises(GraphoptError):
        infer_node(op, Attrs(attrs), [fact_of(Constant.of(image(*s))) for s in shapes], 1, 21)


TRIED = frozenset(MEANINGS)
"""The ops that the tests above cover."""


def test_transposed_convolutions_whose_windows_do_not_overlap() -> None:
    x, w, bias = image(2, 20, 3, 4), image(20, 18, 2, 3), image(18)
    packed_weights = packed(np.swapaxes(w, 0, 1), 16, "blocked")
    filled = np.pad(bias, (0, 14)).reshape(2, 16)
    y = compute("graphopt::BlockedConvTranspose", blocked(x, 16), packed_weights, filled)
    plain = compute("ConvTranspose", x, w, bias, kernel_shape=(2, 3), strides=(2, 3))
    assert np.allclose(unblocked(y)[:, :18], plain, atol=1e-4)
    assert not unblocked(y)[:, 18:].any()
